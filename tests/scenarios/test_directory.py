"""Authentication method `ldap` on a standalone, with a real slapd: logins of real clients, names and groups of the directory,
a directory that is away, and the doctor."""

import contextlib
import json

import pytest
from thrift.transport.TTransport import TTransportException

from harness.certificates import STORE_PASSWORD, Certificate
from harness.clients import impyla_session, open_pyhive, pyhive_session, refused, rows, sqlstate_of
from harness.java import Jdbc, beeline_ok
from harness.processes import run
from harness.slapd import GROUPS, USERS, Slapd, group_entry, password_of, user_entry
from harness.standalone import Standalone
from harness.tier import only_long
from harness.waiting import wait_until

CONFIGURATION = """
[access]
authentication = ["file", "ldap"]
users_file = "{folder}/users"
operators = ["@ops"]
login_cache = "1s"
"""
TLS = """
[tls]
mode = "required"
certificate_file = "{certificate}"
key_file = "{key}"
"""
# `admin` is a user of the users file, too, with another password.
ENTRIES = [
    *map(user_entry, ("alice", "bob", "olga", "admin")),
    group_entry("analysts", ["alice"]),
    group_entry("ops", ["olga"]),
]
ADMIN_PASSWORD = "pass of admin"
AWAY = "the directory does not respond"
WITHIN_S = 30
PLAIN, WITH_TLS = "plain", "TLS"


class Installation:
    def __init__(self, folder, with_tls=False):
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.directory = Slapd(folder / "slapd", ENTRIES)
        self.standalone = Standalone(folder / "standalone")
        self.certificate = Certificate(folder, "server") if with_tls else None

    def start(self):
        self.directory.start()
        done = run(["passwd", "--file", self.folder / "users", "admin"], text=f"{ADMIN_PASSWORD}\n")
        assert done.returncode == 0, done.stderr
        text = CONFIGURATION.format(folder=self.folder) + self.directory.settings(timeout="2s")
        if self.certificate:
            text += TLS.format(certificate=self.certificate.certificate, key=self.certificate.key)
        path = self.folder / "enginehouse.toml"
        path.write_text(text)
        self.standalone.start("--config", path)
        with self.session("admin", ADMIN_PASSWORD) as admin:
            rows(admin, "CREATE RESOURCE UNIT u DRIVER_CPU 1, DRIVER_MEMORY '512M'")
            rows(admin, "CREATE RESOURCE POOL p UNIT_LIST ('u')")
            rows(admin, "CREATE TENANT t RESOURCE_POOL_LIST ('p'), USER_LIST ('@analysts')")
        return self

    def close(self):
        try:
            self.standalone.close()
        finally:
            self.directory.close()

    @property
    def address(self):
        return self.standalone.address.replace("127.0.0.1", "localhost")

    def session(self, user, password=None):
        ca = {"ca": self.certificate.certificate} if self.certificate else {}
        return pyhive_session(self.address, user, password=password or password_of(user.lower()), **ca)

    def refusal(self, user, password=None):
        """Why a login is refused."""
        with pytest.raises(TTransportException) as refusal:
            open_pyhive(self.address, user, password=password or password_of(user))
        return refusal.value.message

    def is_away_for(self, user):
        """Whether a right password is refused because the directory is away."""
        try:
            with self.session(user):
                return False
        except TTransportException as error:
            assert AWAY in error.message, error
            return True

    def finding(self):
        """The doctor's result about the directory: passed, warning or problem, and what it found."""
        done = run(["doctor", "--data-dir", self.standalone.data, "--format", "json"])
        [check] = [it for it in json.loads(done.stdout)["checks"] if it["check"] == "directory"]
        return check


@pytest.fixture
def installation(folder):
    it = Installation(folder / "directory")
    try:
        yield it.start()
    finally:
        it.close()


def test_users_of_a_directory_have_its_names_and_groups_until_it_says_otherwise(installation):
    with installation.session("ALICE") as alice, installation.session("admin", ADMIN_PASSWORD) as admin:
        rows(alice, "START ENGINE t p u WAIT '2m'")
        assert rows(alice, "SELECT 42 AS answer") == [{"answer": 42}]
        audited = rows(admin, "SHOW AUDIT FOR USER 'alice' LIMIT 1")[0]
        assert (audited["user"], audited["method"]) == ("alice", "ldap"), audited
        with installation.session("bob") as bob, installation.session("olga") as olga:
            assert sqlstate_of(bob, "SELECT 1") == "42501"
            assert len(rows(olga, "SHOW ENGINES t")) == 1
        # A user of the users file is never one of the directory.
        assert "authentication failed" in installation.refusal("admin")
        assert "authentication failed" in installation.refusal("alice", "wrong")
        assert "authentication failed" in installation.refusal("eve")
        assert installation.finding()["verdict"] == "ok", installation.finding()

        # A directory that is away ends no session, and refuses no one else.
        installation.standalone.logs.allow(AWAY)
        installation.directory.kill()
        wait_until(lambda: installation.is_away_for("bob"), WITHIN_S, "the cached login has expired", 0.5)
        assert rows(alice, "SELECT 43 AS answer") == [{"answer": 43}]
        assert len(rows(alice, "SHOW ENGINES t")) == 1, "its groups count for an hour"
        with installation.session("admin", ADMIN_PASSWORD) as another:
            assert len(rows(another, "SHOW TENANTS")) == 1
        found = installation.finding()
        assert found["verdict"] == "problem" and "no user of the directory can log in" in json.dumps(found), found
        installation.directory.start()
        with installation.session("bob") as bob:
            assert refused(bob, "SHOW ENGINES t").sqlstate == "42501"

        # A user who leaves the group, and one who leaves the directory.
        installation.directory.change(f"dn: cn=analysts,{GROUPS}\nchangetype: delete\n")
        wait_until(lambda: sqlstate_of(alice, "SHOW ENGINES t") == "42501", WITHIN_S, "alice has lost the tenant", 0.5)
        installation.directory.change(f"dn: uid=alice,{USERS}\nchangetype: delete\n")
        wait_until(lambda: sqlstate_of(alice, "SHOW ENGINES t") == "28000", WITHIN_S, "alice is unknown", 0.5)
    text = installation.standalone.logs.text()
    assert text.count(f"authentication::ldap: {AWAY}") == 1, "one line a minute"
    assert not any(password_of(user) in text for user in ("alice", "bob", "olga")), "a password is in a log"


# ---- Every client, over every transport that it has. ----


def pyhive(it):
    with it.session("alice") as session:
        return rows(session, "SHOW TENANTS")


def impyla(it, http=False):
    tls = {"ca": it.certificate.certificate} if it.certificate else {}
    with impyla_session(it.address, "alice", password=password_of("alice"), http=http, **tls) as cursor:
        cursor.execute("SHOW TENANTS")
        return cursor.fetchall()


def query_of(it, http=False):
    """What a JDBC URL has behind the address."""
    store = it.certificate and it.certificate.java_store()
    over_tls = f";ssl=true;sslTrustStore={store};trustStorePassword={STORE_PASSWORD}" if store else ""
    return over_tls + (";transportMode=http;httpPath=cliservice" if http else "")


def jdbc(it, driver, http=False):
    with Jdbc(it.address, "alice", query_of(it, http), password_of("alice"), driver) as connection:
        return connection.rows("SHOW TENANTS")


def beeline(it, http=False):
    done = beeline_ok(it.address, "SHOW TENANTS", user="alice", query=query_of(it, http), password=password_of("alice"))
    return done.lines()[1:]


def sql_client(it):
    tls = ["--ca", it.certificate.certificate] if it.certificate else []
    env = {"ENGINEHOUSE_PASSWORD": password_of("alice")}
    done = run(["sql", "--url", it.address, *tls, "-u", "alice", "--format", "json", "-e", "SHOW TENANTS"], env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


CLIENTS = {
    "PyHive, SASL": pyhive,
    "impyla, SASL": impyla,
    "impyla, HTTP": lambda it: impyla(it, http=True),
    "Hive JDBC 2.3, SASL": lambda it: jdbc(it, "2.3"),
    "Hive JDBC 2.3, HTTP": lambda it: jdbc(it, "2.3", http=True),
    "Hive JDBC 4.1, SASL": lambda it: jdbc(it, "4"),
    "Hive JDBC 4.1, HTTP": lambda it: jdbc(it, "4", http=True),
    "BeeLine 2.3, SASL": beeline,
    "BeeLine 2.3, HTTP": lambda it: beeline(it, http=True),
    "enginehouse sql": sql_client,
}


@only_long
def test_every_client_logs_in_with_a_password_of_the_directory(folder):
    logged_in = {client: [] for client in CLIENTS}
    for transport in (PLAIN, WITH_TLS):
        with contextlib.closing(Installation(folder / transport, with_tls=transport == WITH_TLS).start()) as made:
            for client, log_in in CLIENTS.items():
                assert len(log_in(made)) == 1, f"{client} sees the tenant of its group"
                logged_in[client].append(transport)
    print(f"{'client':<22}method  transport")
    for client, transports in logged_in.items():
        print(f"{client:<22}ldap    {', '.join(transports)}")
