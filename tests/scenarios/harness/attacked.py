"""The installation that the attack corpus attacks: a standalone as an operator sets it up for a network, with TLS required and
users in a file, two tenants that share a pool, and an engine of each tenant.

| user | groups | may |
| --- | --- | --- |
| admin | | everything |
| olga | ops | operator |
| audrey | | auditor |
| alice | analysts | tenant `sales`, as its admin, too |
| carol | analysts | tenant `sales` |
| bob | etl | tenant `finance`, as its admin, too |
| superset | | impersonate @analysts; etl may impersonate every user (`*`) |
| lisa, leo | | log in, each in one test alone that measures memory |

The password of a user is `password_of(user)`, and all are distinct: `secrets` is what no output may contain.
"""

import base64
import contextlib
import http.client
import socket
import ssl

from harness.certificates import Certificate
from harness.clients import pyhive_session, refused, rows, split
from harness.processes import run
from harness.standalone import Standalone

# No limit and no time is another one than an operator has who sets none; what differs is in docs/adr/0024.
CONFIGURATION = """
[access]
authentication = ["file"]
users_file = "{folder}/users"
operators = ["@ops"]
auditors = ["audrey"]
impersonation = ["superset: @analysts", "etl: *"]

[tls]
mode = "required"
certificate_file = "{folder}/server.crt"
key_file = "{folder}/server.key"
"""
USERS = {
    "admin": "",
    "olga": "ops",
    "audrey": "",
    "alice": "analysts",
    "carol": "analysts",
    "bob": "etl",
    "superset": "",
    "etl": "",
    "lisa": "",
    "leo": "",
}
# For one answer; each attempt has to be answered, or its connection closed, within it.
ANSWER_WITHIN_S = 60
# Tenants, with the user who is named in ADMIN_LIST.
TENANTS = {"sales": "alice", "finance": "bob"}


def password_of(user):
    return f"canary-{user}-7f3a"


class Attacked:
    def __init__(self, folder, sections="", tenants=TENANTS):
        """`sections` of the configuration are added to the stock ones."""
        self.folder, self.sections, self.tenants = folder, sections, tenants
        self.folder.mkdir()
        self.certificate = Certificate(folder, "server")
        self.standalone = Standalone(folder / "standalone")
        self.engines = {}

    def start(self):
        for user, groups in USERS.items():
            self.passwd(user, groups)
        path = self.folder / "enginehouse.toml"
        path.write_text(CONFIGURATION.format(folder=self.folder) + self.sections)
        self.standalone.start("--config", path)
        with self.session("admin") as admin:
            rows(admin, "CREATE RESOURCE UNIT small DRIVER_CPU 1, DRIVER_MEMORY '512M', MAX_ENGINES 2")
            rows(admin, "CREATE RESOURCE POOL shared UNIT_LIST ('small')")
            for tenant, owner in self.tenants.items():
                users = "'@analysts'" if tenant == "sales" else "'bob'"
                lists = f"USER_LIST ({users}), ADMIN_LIST ('{owner}')"
                rows(admin, f"CREATE TENANT {tenant} RESOURCE_POOL_LIST ('shared'), {lists}")
                [started] = rows(admin, f"START ENGINE {tenant} shared small WAIT '2m'")
                self.engines[tenant] = started["engine"]
        return self

    def close(self):
        self.standalone.close()

    @property
    def address(self):
        return self.standalone.address

    @property
    def logs(self):
        return self.standalone.logs

    @property
    def secrets(self):
        """What no output may contain: the passwords, their hashes, and the lines of the private key."""
        lines = (self.folder / "users").read_text().splitlines()
        hashes = [line.split(":")[1] for line in lines if line.startswith(tuple(f"{user}:" for user in USERS))]
        key = [line for line in self.certificate.key.read_text().splitlines() if not line.startswith("-----")]
        return [*map(password_of, USERS), *hashes, *key]

    def passwd(self, user, groups="", *options):
        of_groups = ["--groups", groups] if groups else []
        command = ["passwd", "--file", self.folder / "users", *of_groups, *options, user]
        done = run(command, text=f"{password_of(user)}\n")
        assert done.returncode == 0, done.stderr

    # ---- Clients. `source` is an address of this machine: failures are counted by address, so an attacker has its own. ----

    def tcp(self, source="127.0.0.1"):
        """A connection without TLS."""
        return socket.create_connection(split(self.address), timeout=ANSWER_WITHIN_S, source_address=(source, 0))

    def tls(self, source="127.0.0.1", context=None):
        """A connection inside TLS, on which nothing has been sent. Its certificate is verified."""
        context = context or ssl.create_default_context(cafile=self.certificate.certificate)
        connection = self.tcp(source)
        try:
            return context.wrap_socket(connection, server_hostname="localhost")
        except BaseException:
            connection.close()
            raise

    def session(self, user, password=None, **settings):
        """A session of PyHive (SASL PLAIN inside TLS). Settings are session keys."""
        login = {"ca": self.certificate.certificate, "password": password or password_of(user)}
        return pyhive_session(self.address, user, **login, **settings)

    def execute(self, statement, user="admin", **settings):
        with self.session(user, **settings) as connection:
            return rows(connection, statement)

    def refused(self, statement, user, **settings):
        """The refusal of a statement that must be refused (`.sqlstate`, `.message`)."""
        with self.session(user, **settings) as connection:
            return refused(connection, statement)

    def http(self, method, path, body=None, user=None, headers=None, source="127.0.0.1"):
        """One HTTPS request on a connection of its own: status, headers and body of the response. `user` logs in."""
        host, port = split(self.address)
        context = ssl.create_default_context(cafile=self.certificate.certificate)
        connection = http.client.HTTPSConnection(
            host, port, timeout=ANSWER_WITHIN_S, context=context, source_address=(source, 0)
        )
        credentials = {"Authorization": basic(user, password_of(user))} if user else {}
        try:
            connection.request(method, path, body=body, headers=credentials | (headers or {}))
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def raw(self, request, source="127.0.0.1"):
        """All that is answered to these bytes inside TLS until the connection ends. `b""`: it was closed without an answer."""
        with self.tls(source) as connection:
            connection.sendall(request)
            return read_to_end(connection)

    # ---- What holds after an attack. ----

    def check_health(self):
        """A login, a query, a control statement and a REST call work."""
        for tenant, user in self.tenants.items():
            assert self.execute("SELECT 40 + 2 AS answer", user) == [{"answer": 42}]
            assert [it["engine"] for it in self.execute(f"SHOW ENGINES {tenant}", user)] == [self.engines[tenant]]
        assert self.http("GET", "/api/v1/tenants", user="admin")[0] == 200


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def read_to_end(connection):
    """What arrives until the peer closes; a reset is an end, too."""
    received = b""
    with contextlib.suppress(ConnectionError, ssl.SSLEOFError):
        while chunk := connection.recv(65536):
            received += chunk
    return received
