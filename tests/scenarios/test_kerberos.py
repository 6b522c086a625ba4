"""Authentication method `kerberos` on a standalone, with a real realm: logins of real clients with tickets, the groups of a
directory, impersonation, tickets that are not accepted, a new key of the service, and the doctor."""

import contextlib
import json

import pytest
from thrift.transport.TTransport import TTransportException

from harness import ticket_clients
from harness.certificates import STORE_PASSWORD, Certificate
from harness.clients import pyhive_session, rows, sqlstate_of
from harness.kdc import OTHER_REALM, REALM, Kdc
from harness.processes import run
from harness.slapd import Slapd, group_entry, password_of, user_entry
from harness.standalone import Standalone
from harness.ticket_clients import beeline, curl, jdbc, jdbc_query
from harness.tier import only_long

CONFIGURATION = """
[access]
authentication = ["file", "kerberos", "ldap"]
users_file = "{folder}/users"
impersonation = ["etl/batch: @analysts"]
"""
TLS = """
[tls]
mode = "{mode}"
certificate_file = "{certificate}"
key_file = "{key}"
"""
USERS = ("alice", "bob", "admin", "etl/batch")
ADMIN_PASSWORD = "pass of admin"
FAILED = "authentication failed"
PLAIN, WITH_TLS = "plain", "TLS"


class Installation:
    """`alice` is in the group `analysts` of the directory, and `admin` a user of the users file, too."""

    def __init__(self, folder, tls=None):
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.kdc = Kdc(folder / "kdc", USERS, (REALM, OTHER_REALM))
        entries = [user_entry("alice"), user_entry("bob"), group_entry("analysts", ["alice"])]
        self.directory = Slapd(folder / "directory", entries)
        self.standalone = Standalone(folder / "standalone", env=self.kdc.of_server)
        self.certificate = Certificate(folder, "server") if tls else None
        self.tls = tls

    def start(self):
        self.kdc.start()
        self.directory.start()
        done = run(["passwd", "--file", self.folder / "users", "admin"], text=f"{ADMIN_PASSWORD}\n")
        assert done.returncode == 0, done.stderr
        text = CONFIGURATION.format(folder=self.folder) + self.directory.settings()
        if self.certificate:
            text += TLS.format(mode=self.tls, certificate=self.certificate.certificate, key=self.certificate.key)
        path = self.folder / "enginehouse.toml"
        path.write_text(text)
        self.standalone.start("--config", path)
        with pyhive_session(self.address, "admin", password=ADMIN_PASSWORD, **self.ca) as admin:
            rows(admin, "CREATE RESOURCE UNIT u DRIVER_CPU 1, DRIVER_MEMORY '512M'")
            rows(admin, "CREATE RESOURCE POOL p UNIT_LIST ('u')")
            rows(admin, "CREATE TENANT t RESOURCE_POOL_LIST ('p'), USER_LIST ('@analysts')")
        return self

    def close(self):
        try:
            self.standalone.close()
        finally:
            self.directory.close()
            self.kdc.close()

    @property
    def address(self):
        """By name: a ticket is for a name."""
        return self.standalone.address.replace("127.0.0.1", "localhost")

    @property
    def ca(self):
        return {"ca": self.certificate.certificate} if self.certificate else {}

    def session(self, user, realm=REALM, **options):
        return ticket_clients.pyhive_session(self.address, self.kdc.of_client(user, realm), **self.ca, **options)

    def refusal(self, user, realm=REALM, **options):
        """Why a login over SASL is refused."""
        with pytest.raises(TTransportException) as refusal, self.session(user, realm, **options):
            pass
        return refusal.value.message

    def rest(self, user, path="tenants", realm=REALM):
        url = f"{'https' if self.certificate else 'http'}://{self.address}/api/v1/{path}"
        return curl(url, self.kdc.of_client(user, realm), **self.ca)

    def finding(self):
        """The doctor's result about the keytab: passed, warning or problem, and what it found."""
        done = run(["doctor", "--data-dir", self.standalone.data, "--format", "json"], env=self.kdc.of_server)
        [check] = [it for it in json.loads(done.stdout)["checks"] if it["check"] == "keytab"]
        return check


@pytest.fixture
def installation(folder):
    it = Installation(folder / "kerberos")
    try:
        yield it.start()
    finally:
        it.close()


def result(cursor, statement):
    cursor.execute(statement)
    return cursor.fetchall()


def test_users_of_a_realm_log_in_with_their_tickets_and_have_the_groups_of_the_directory(installation):
    kdc = installation.kdc
    with (
        installation.session("alice") as alice,
        pyhive_session(installation.address, "admin", password=ADMIN_PASSWORD) as admin,
    ):
        rows(alice, "START ENGINE t p u WAIT '2m'")
        assert rows(alice, "SELECT 42 AS answer") == [{"answer": 42}]
        audited = rows(admin, "SHOW AUDIT FOR USER 'alice' LIMIT 1")[0]
        assert (audited["user"], audited["method"]) == ("alice", "kerberos"), audited
        with installation.session("bob") as bob:
            assert sqlstate_of(bob, "SHOW ENGINES t") == "42501"
        # One user acts for another by a rule; for any other it may not.
        with installation.session("etl/batch", **{"hive.server2.proxy.user": "alice"}) as on_behalf:
            assert len(rows(on_behalf, "SHOW ENGINES t")) == 1
        of_bob = installation.session("etl/batch", **{"hive.server2.proxy.user": "bob"})
        with pytest.raises(Exception, match="not allowed to impersonate"), of_bob:
            pass

        # Over HTTP, with a proof of the server and a cookie in the place of the next tickets.
        status, head, body = installation.rest("alice")
        assert status == 200 and "Www-Authenticate: Negotiate " in head and len(json.loads(body)["rows"]) == 1, head
        with ticket_clients.impyla_session(installation.address, kdc.of_client("alice"), http=True) as cursor:
            assert result(cursor, "SELECT 43 AS answer") == [(43,)]
        # Passwords of the directory and of the users file are accepted beside tickets.
        with pyhive_session(installation.address, "alice", password=password_of("alice")) as session:
            assert len(rows(session, "SHOW ENGINES t")) == 1

        # A new key of the service counts at once, and so does the old one.
        kdc.administer(f"ktadd -k {kdc.keytab} hive/localhost")
        with installation.session("bob") as bob:
            assert rows(bob, "SHOW TENANTS") == []
        found = installation.finding()
        assert (found["verdict"], found["said"]) == ("ok", f"{kdc.keytab} can be used"), found

        # Not accepted: a user of the users file, another realm, another service.
        assert FAILED in installation.refusal("admin")
        assert FAILED in installation.refusal("alice", OTHER_REALM)
        assert FAILED in installation.refusal("alice", service="host")
        assert installation.rest("alice", realm=OTHER_REALM)[0] == 401

        # Who has a session keeps it without the realm, and tickets are checked without it.
        ticket = kdc.of_client("alice")
        with ticket_clients.pyhive_session(installation.address, ticket):
            kdc.kill()
        with ticket_clients.pyhive_session(installation.address, ticket) as session:
            assert len(rows(session, "SHOW ENGINES t")) == 1
        # A keytab that others can read is a problem for the doctor, and a proxy does not start.
        kdc.keytab.chmod(0o644)
        found = installation.finding()
        assert found["verdict"] == "problem" and "open to other users" in json.dumps(found), found
        kdc.keytab.unlink()
        found = installation.finding()
        assert found["verdict"] == "problem" and "cannot be used" in json.dumps(found), found
    text = installation.standalone.logs.text()
    assert f"ticket of alice@{OTHER_REALM}, of another realm" in text
    assert f"ticket for the service host/localhost@{REALM}" in text
    assert f"ticket of admin@{REALM}, a user whom another method owns" in text


# ---- Every client that can use a ticket, over every transport that it has. ----


def query_of(it, http=False):
    """What a JDBC URL has behind the address."""
    store = it.certificate and it.certificate.java_store()
    over_tls = f";ssl=true;sslTrustStore={store};trustStorePassword={STORE_PASSWORD}" if store else ""
    return jdbc_query(http, it.kdc.principal("HTTP" if http else "hive"), over_tls)


def pyhive(it):
    with it.session("alice") as session:
        return rows(session, "SHOW TENANTS")


def impyla(it, http):
    with ticket_clients.impyla_session(it.address, it.kdc.of_client("alice"), http=http, **it.ca) as cursor:
        return result(cursor, "SHOW TENANTS")


def of_beeline(it, http):
    done = beeline(it.address, "SHOW TENANTS", it.kdc.of_client("alice"), it.folder, query_of(it, http))
    assert done.status == 0, f"{done.out}\n{done.err}"
    return done.lines()[1:]


def of_driver(it, driver, http):
    return jdbc(it.address, "SHOW TENANTS", it.kdc.of_client("alice"), it.folder, query_of(it, http), driver)


def curl_rest(it):
    status, head, body = it.rest("alice")
    assert status == 200, head
    return json.loads(body)["rows"]


CLIENTS = {
    "PyHive, SASL": pyhive,
    "impyla, SASL": lambda it: impyla(it, http=False),
    "impyla, HTTP": lambda it: impyla(it, http=True),
    "BeeLine 2.3, SASL": lambda it: of_beeline(it, http=False),
    "BeeLine 2.3, HTTP": lambda it: of_beeline(it, http=True),
    "Hive JDBC 2.3, SASL": lambda it: of_driver(it, "2.3", http=False),
    "Hive JDBC 2.3, HTTP": lambda it: of_driver(it, "2.3", http=True),
    "Hive JDBC 3.1, SASL": lambda it: of_driver(it, "3.1", http=False),
    "Hive JDBC 3.1, HTTP": lambda it: of_driver(it, "3.1", http=True),
    "Hive JDBC 4.1, SASL": lambda it: of_driver(it, "4.1", http=False),
    "Hive JDBC 4.1, HTTP": lambda it: of_driver(it, "4.1", http=True),
    "Kyuubi JDBC 1.9, SASL": lambda it: of_driver(it, "Kyuubi", http=False),
    "Kyuubi JDBC 1.9, HTTP": lambda it: of_driver(it, "Kyuubi", http=True),
    "curl, REST": curl_rest,
}


@only_long
def test_every_client_logs_in_with_a_ticket(folder):
    logged_in, failures = {client: [] for client in CLIENTS}, []
    for transport, mode in ((PLAIN, None), (WITH_TLS, "required")):
        with contextlib.closing(Installation(folder / transport, tls=mode)) as made:
            made.start()
            for client, log_in in CLIENTS.items():
                try:
                    assert len(log_in(made)) == 1, "it sees the tenant of its group"
                    logged_in[client].append(transport)
                except Exception as error:
                    failures.append(f"{client}, {transport}: {error}")
    print(f"{'client':<23}method    transport")
    for client, transports in logged_in.items():
        print(f"{client:<23}kerberos  {', '.join(transports)}")
    assert not failures, "\n".join(failures)


@only_long
def test_where_passwords_need_tls_a_ticket_over_sasl_does_not(folder):
    with contextlib.closing(Installation(folder / "optional", tls="optional")) as made:
        made.start()
        with ticket_clients.pyhive_session(made.address, made.kdc.of_client("alice")) as session:
            assert len(rows(session, "SHOW TENANTS")) == 1
        by_password = pyhive_session(made.address, "alice", password=password_of("alice"))
        with pytest.raises(TTransportException, match="this login requires TLS"), by_password:
            pass
        assert curl(f"http://{made.address}/api/v1/tenants", made.kdc.of_client("alice"))[0] == 426
