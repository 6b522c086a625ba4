"""A directory of a test's own: OpenLDAP's slapd on two free ports of loopback, one of them for TLS.

A user's entry is `uid=NAME,ou=people,dc=example`, a group's `cn=NAME,ou=groups,dc=example`. `READER` may read them all, as the
identity for searches; its password and those of the users are in `password_file` and `password_of`.
"""

import pathlib
import shutil
import subprocess

from harness.certificates import Certificate
from harness.ports import free_ports
from harness.server_process import ServerProcess

SCHEMAS = pathlib.Path("/etc/ldap/schema")
ROOT, READER = "cn=root,dc=example", "cn=reader,dc=example"
USERS, GROUPS = "ou=people,dc=example", "ou=groups,dc=example"
PASSWORD = "canary-reader-of-the-directory"
WITHIN_S = 30
# `TLSVerifyClient` stays at its default: clients have no certificate.
CONFIGURATION = """
{schemas}
modulepath /usr/lib/ldap
moduleload back_mdb
moduleload memberof
{tls}
database mdb
suffix "dc=example"
rootdn "{root}"
rootpw "{password}"
directory {folder}/data
maxsize 10485760
overlay memberof
access to attrs=userPassword by anonymous auth by * none
access to * by dn="{reader}" read by self read by anonymous auth by * none
"""
ENTRIES = f"""
dn: dc=example
objectClass: dcObject
objectClass: organization
dc: example
o: example

dn: {READER}
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: reader
userPassword: {{password}}

dn: {USERS}
objectClass: organizationalUnit
ou: people

dn: {GROUPS}
objectClass: organizationalUnit
ou: groups
"""


def password_of(user):
    return f"canary-{user}-of-the-directory"


def user_entry(user, password=None, more=""):
    return f"""
dn: uid={user},{USERS}
objectClass: inetOrgPerson
uid: {user}
cn: {user}
sn: {user}
userPassword: {password or password_of(user)}
{more}"""


def group_entry(group, members):
    of_members = "\n".join(f"member: uid={user},{USERS}" for user in members)
    return f"\ndn: cn={group},{GROUPS}\nobjectClass: groupOfNames\ncn: {group}\n{of_members}\n"


class Slapd(ServerProcess):
    name = "slapd"

    def __init__(self, folder, entries=(), names="DNS:localhost,IP:127.0.0.1", tls=True, password=PASSWORD):
        """`names` are those in its certificate. Without `tls` it refuses StartTLS. The password is that of reader and
        administrator."""
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        (self.folder / "data").mkdir()
        self.entries = ENTRIES.format(password=password) + "\n".join(entries)
        self.certificate = Certificate(self.folder, "directory", names)
        self.password_file = self.folder / "reader.password"
        self.password_file.touch(mode=0o600)
        self.password_file.write_text(f"{password}\n")
        self.password = password
        self.port, self.tls_port = free_ports(2)
        self.has_tls = tls
        of_tls = {"CACertificate": "certificate", "Certificate": "certificate", "CertificateKey": "key"}
        lines = [f"TLS{key}File {getattr(self.certificate, file)}" for key, file in of_tls.items()]
        (self.folder / "slapd.conf").write_text(
            CONFIGURATION.format(
                schemas="\n".join(f"include {SCHEMAS}/{it}.schema" for it in ("core", "cosine", "inetorgperson")),
                tls="\n".join(lines if tls else []),
                root=ROOT,
                reader=READER,
                password=password,
                folder=self.folder,
            )
        )

    def command(self):
        urls = [f"ldap://127.0.0.1:{self.port}/"] + [f"ldaps://127.0.0.1:{self.tls_port}/"] * self.has_tls
        program = shutil.which("slapd", path="/usr/sbin:/usr/bin")
        assert program, "slapd is missing: run tests/run, which installs it"
        return [program, "-d", "stats", "-h", " ".join(urls), "-f", self.folder / "slapd.conf"]

    def answers(self):
        return self.tool("ldapwhoami", check=False).returncode == 0

    def start(self):
        """Serves the entries that it had when it ended."""
        super().start()
        if self.entries:
            self.tool("ldapadd", text=self.entries)
            self.entries = ""
        return self

    @property
    def url(self):
        return f"ldap://localhost:{self.port}"

    @property
    def tls_url(self):
        return f"ldaps://localhost:{self.tls_port}"

    def change(self, ldif):
        """Changes entries as the administrator of the directory; referrals are entries, too."""
        self.tool("ldapmodify", "-M", text=ldif)

    def tool(self, name, *options, text=None, check=True):
        command = [name, "-x", "-H", f"ldap://127.0.0.1:{self.port}", "-D", ROOT, "-w", self.password, *options]
        done = subprocess.run(command, input=text or "", capture_output=True, text=True, timeout=WITHIN_S, check=False)
        assert not check or done.returncode == 0, f"{name}: {done.stdout}\n{done.stderr}"
        return done

    def binds(self):
        """The DNs that clients have sent a password for, apart from the administrator's."""
        lines = (self.folder / "log").read_text(errors="replace").splitlines()
        found = [line.split('BIND dn="')[1].split('"')[0] for line in lines if ' BIND dn="' in line and "method=" in line]
        return [dn for dn in found if dn and dn != ROOT]

    def settings(self, url=None, **keys):
        """Section `[ldap]` with these keys instead of its own or in addition to them; `None` leaves one out."""
        own = {
            "url": url or self.tls_url,
            "ca_file": self.certificate.certificate,
            "bind_dn": READER,
            "bind_password_file": self.password_file,
            "user_base": USERS,
            "member_of": "memberOf",
        }
        lines = [f"{key} = {literal(value)}" for key, value in (own | keys).items() if value is not None]
        return "\n[ldap]\n" + "\n".join(lines) + "\n"


def literal(value):
    return str(value).lower() if isinstance(value, (bool, int)) else f"'{value}'"
