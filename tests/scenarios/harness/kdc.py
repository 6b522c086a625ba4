"""A Kerberos realm of a test's own: MIT's `krb5kdc` on a free port of loopback.

The services are `hive/localhost` and `HTTP/localhost`, with their keys in `keytab`; `host/localhost` is a service for which no
proxy accepts tickets, with its key there, too. A second realm, whose tickets the first one accepts, is served on request.
"""

import dataclasses
import pathlib
import shutil
import subprocess

from harness.ports import free_port
from harness.server_process import ServerProcess

REALM, OTHER_REALM = "EH.TEST", "OTHER.TEST"
SERVICES = ("hive/localhost", "HTTP/localhost", "host/localhost")
WITHIN_S = 30
CLIENTS = """
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
    default_keytab_name = FILE:{folder}/no.keytab
[realms]
{realms}
[domain_realm]
    localhost = {realm}
"""
SERVER = """
[logging]
    kdc = STDERR
[kdcdefaults]
    kdc_listen = ""
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realms}
"""
SERVED = """    {realm} = {{
        database_name = {folder}/{realm}.db
        key_stash_file = {folder}/{realm}.stash
        max_life = 1h
    }}"""


@dataclasses.dataclass(frozen=True)
class Keytab:
    """The key of a user, with which a client gets tickets by itself. In its environment there are none yet."""

    principal: str
    path: pathlib.Path
    env: dict


def password_of(user):
    return f"canary-{user}-of-the-realm"


class Kdc(ServerProcess):
    name = "krb5kdc"

    def __init__(self, folder, users=(), realms=(REALM,), services=SERVICES):
        """The first realm is that of the services. Users are names, or pairs of a name and a password."""
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.port = free_port()
        self.realms, self.services = realms, services
        self.passwords = dict((it, password_of(it)) if isinstance(it, str) else it for it in users)
        self.has_database = False
        self.keytab = self.folder / "proxy.keytab"
        self.configuration = self.folder / "krb5.conf"
        of_realms = "\n".join(f"    {realm} = {{\n        kdc = 127.0.0.1:{self.port}\n    }}" for realm in realms)
        self.configuration.write_text(CLIENTS.format(realm=realms[0], realms=of_realms, folder=self.folder))
        served = "\n".join(SERVED.format(realm=realm, folder=self.folder) for realm in realms)
        (self.folder / "kdc.conf").write_text(SERVER.format(port=self.port, realms=served))
        self.env = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "KRB5_CONFIG": str(self.configuration),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
        }

    def command(self):
        of_realms = [option for realm in self.realms for option in ("-r", realm)]
        return [self.program("krb5kdc"), "-n", *of_realms]

    def program(self, name):
        found = shutil.which(name, path=self.env["PATH"])
        assert found, f"{name} is missing: run tests/run, which installs it"
        return found

    def answers(self):
        return "commencing operation" in (self.folder / "log").read_text(errors="replace")

    def start(self):
        """Makes the databases at the first start."""
        if not self.has_database:
            self.has_database = True
            for realm in self.realms:
                self.tool("kdb5_util", "-r", realm, "create", "-s", "-P", "canary-master-key-of-the-realm")
            for realm in self.realms:
                for user, password in self.passwords.items():
                    self.administer(f"addprinc -pw {password} {user}", realm)
            for service in self.services:
                self.administer(f"addprinc -randkey {service}")
                self.administer(f"ktadd -k {self.keytab} {service}")
            for realm in self.realms[1:]:
                for of in self.realms:
                    self.administer(f"addprinc -pw canary-trust-of-realms krbtgt/{self.realms[0]}@{realm}", of)
        return super().start()

    def administer(self, command, realm=None):
        self.tool("kadmin.local", "-r", realm or self.realms[0], "-q", command)

    def tool(self, name, *arguments, env=None, text=None):
        done = subprocess.run(
            [self.program(name), *map(str, arguments)],
            input=text or "",
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            env=self.env | (env or {}),
            check=False,
        )
        assert done.returncode == 0, f"{name} {arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    @property
    def of_server(self):
        """The environment of a proxy. Its cache of used tickets is a file of this folder."""
        return {"KRB5_CONFIG": str(self.configuration), "KRB5_KTNAME": str(self.keytab), "KRB5RCACHEDIR": str(self.folder)}

    def of_client(self, user, realm=REALM):
        """The environment of a client with a ticket of the user, which it gets here."""
        cache = self.folder / f"{user.replace('/', '_')}.{realm}.tickets"
        env = {"KRB5_CONFIG": str(self.configuration), "KRB5CCNAME": f"FILE:{cache}"}
        self.tool("kinit", f"{user}@{realm}", env=env, text=f"{self.passwords[user]}\n")
        return env

    def keytab_of(self, user):
        path = self.folder / f"{user}.keytab"
        if not path.exists():
            # The password stays.
            self.administer(f"ktadd -norandkey -k {path} {user}")
        env = {"KRB5_CONFIG": str(self.configuration), "KRB5CCNAME": f"FILE:{self.folder / 'no.tickets'}"}
        return Keytab(f"{user}@{REALM}", path, env)

    def principal(self, service="hive"):
        return f"{service}/localhost@{REALM}"
