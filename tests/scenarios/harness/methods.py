"""Gateways with methods of authentication, for tests of logins. Each method of `METHODS` has a user of its own, in the group
that may use tenant `t`: a client that sees the tenant was authenticated by that method.

A further method is a class with `start`, `close`, `settings`, `login` and `env`, which is the environment that a proxy needs
for it, and its name in `METHODS`.
"""

import contextlib
import dataclasses
import getpass

from harness.certificates import STORE_PASSWORD, Certificate
from harness.clients import pyhive_session, rows
from harness.issuer import Issuer
from harness.kdc import Kdc, Keytab
from harness.processes import run
from harness.slapd import Slapd, group_entry, password_of, user_entry
from harness.standalone import Standalone

NONE, KERBEROS = "none", "kerberos"
GROUP = "analysts"
# With method `none` nothing but names counts. Over plain Thrift impyla sends the name of the account that it runs as.
TRUSTED = "nora"
ADMIN_PASSWORD = "canary-admin-of-the-file"
CONFIGURATION = """
[access]
authentication = [{methods}]
users_file = "{folder}/users"

[tls]
mode = "{mode}"
certificate_file = "{certificate}"
key_file = "{key}"
"""


@dataclasses.dataclass(frozen=True)
class Login:
    user: str
    password: str
    # The same as the password, for clients that can send it as a token.
    token: str | None = None
    # The environment of a client that has a ticket, which logs in in place of the password.
    ticket: dict | None = None
    # What gets such a ticket.
    keytab: Keytab | None = None


class Method:
    env = {}

    def settings(self):
        return ""


class File(Method):
    """Also the method of the admin, who makes the tenant."""

    def __init__(self, folder):
        self.users = folder / "users"

    def start(self):
        for user, groups, password in (("admin", [], ADMIN_PASSWORD), ("fay", ["--groups", GROUP], password_of("fay"))):
            done = run(["passwd", "--file", self.users, *groups, user], text=f"{password}\n")
            assert done.returncode == 0, done.stderr

    def close(self):
        pass

    def login(self):
        return Login("fay", password_of("fay"))


class Directory(Method):
    """Also what knows the groups of the user with a ticket."""

    def __init__(self, folder):
        entries = [user_entry("lena"), user_entry("kim"), group_entry(GROUP, ["lena", "kim"])]
        self.slapd = Slapd(folder / "slapd", entries)

    def start(self):
        self.slapd.start()

    def close(self):
        self.slapd.close()

    def settings(self):
        return self.slapd.settings()

    def login(self):
        return Login("lena", password_of("lena"))


class Tokens(Method):
    def __init__(self, folder):
        self.issuer = Issuer(folder / "issuer", {"jo": [GROUP]})

    def start(self):
        self.issuer.start()

    def close(self):
        self.issuer.close()

    def settings(self):
        return self.issuer.settings(as_password=True)

    def login(self):
        token = self.issuer.token("jo")
        return Login("jo", token, token)


class Tickets(Method):
    def __init__(self, folder):
        self.kdc = Kdc(folder / "kdc", ("kim",))

    def start(self):
        self.kdc.start()

    def close(self):
        self.kdc.close()

    @property
    def env(self):
        return self.kdc.of_server

    def login(self):
        return Login("kim", "", ticket=self.kdc.of_client("kim"), keytab=self.kdc.keytab_of("kim"))


METHODS = {"file": File, "ldap": Directory, "jwt": Tokens, KERBEROS: Tickets}


@dataclasses.dataclass(frozen=True)
class Target:
    """What a client connects to: an address by the name that is in the certificate, and with TLS the certificate."""

    address: str
    certificate: Certificate | None

    @property
    def ca(self):
        return self.certificate and self.certificate.certificate

    @property
    def jdbc_options(self):
        if self.certificate is None:
            return ""
        return f";ssl=true;sslTrustStore={self.certificate.java_store()};trustStorePassword={STORE_PASSWORD}"


class Gateways:
    """Two gateways with method `none` and two with the other methods of a test, one of each with TLS. Each starts when it is
    needed."""

    def __init__(self, folder, methods=tuple(METHODS)):
        self.folder, self.names = folder, methods
        self.folder.mkdir()
        self.certificate = Certificate(folder, "server")
        self.methods = {}
        self.started = {}
        self.closing = contextlib.ExitStack()

    def target(self, method, with_tls):
        which = method == NONE, with_tls
        if which not in self.started:
            self.started[which] = self.start(*which)
        address = self.started[which].address.replace("127.0.0.1", "localhost")
        return Target(address, self.certificate if with_tls else None)

    def login(self, method):
        return Login(TRUSTED, "x") if method == NONE else self.methods[method].login()

    def start(self, trusting, with_tls):
        methods, text, env = [NONE], "", {}
        if not trusting:
            self.start_methods()
            methods, text = list(self.names), "".join(it.settings() for it in self.methods.values())
            env = {name: value for it in self.methods.values() for name, value in it.env.items()}
        name = f"{methods[0]}-{'tls' if with_tls else 'plain'}"
        path = self.folder / f"{name}.toml"
        own = CONFIGURATION.format(
            methods=", ".join(f'"{it}"' for it in methods),
            folder=self.folder,
            mode="required" if with_tls else "off",
            certificate=self.certificate.certificate,
            key=self.certificate.key,
        )
        path.write_text(own + text)
        standalone = Standalone(self.folder / name, env=env)
        self.closing.callback(standalone.close)
        standalone.start("--config", path)
        self.make_tenant(standalone, {"ca": self.certificate.certificate} if with_tls else {})
        return standalone

    def start_methods(self):
        for name in self.names:
            if name not in self.methods:
                made = METHODS[name](self.folder)
                self.closing.callback(made.close)
                made.start()
                self.methods[name] = made

    def make_tenant(self, standalone, ca):
        with pyhive_session(standalone.address, "admin", password=ADMIN_PASSWORD, **ca) as admin:
            rows(admin, "CREATE RESOURCE UNIT u DRIVER_CPU 1, DRIVER_MEMORY '512M'")
            rows(admin, "CREATE RESOURCE POOL p UNIT_LIST ('u')")
            users = f"'@{GROUP}', '{TRUSTED}', '{getpass.getuser()}'"
            rows(admin, f"CREATE TENANT t RESOURCE_POOL_LIST ('p'), USER_LIST ({users})")

    def logs(self, target):
        port = target.address.rsplit(":", 1)[1]
        return next(it for it in self.started.values() if it.address.endswith(f":{port}")).logs

    def check_logs(self):
        for standalone in self.started.values():
            standalone.logs.check()

    def close(self):
        self.closing.close()
