"""Authentication method `kerberos` on a standalone, with a real realm: logins of real clients with tickets, the groups of a
directory, impersonation, tickets that are not accepted, a new key of the service, and the doctor."""

import contextlib
import json

import pytest
from thrift.transport.TTransport import TTransportException

from harness import ticket_clients
from harness.certificates import Certificate
from harness.clients import pyhive_session, rows, sqlstate_of
from harness.kdc import OTHER_REALM, REALM, Kdc
from harness.processes import run
from harness.role_keys import RoleKeys
from harness.slapd import Slapd, group_entry, password_of, user_entry
from harness.standalone import Standalone
from harness.ticket_clients import curl
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
LOOPBACK = "127.0.0.1:0"
ENDS_WITHIN_S = 30


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


def test_no_program_starts_without_a_keytab_that_only_it_can_read(folder):
    """Before a port is bound; the error names the variable and the file, where it names one."""
    missing, garbage, shared, empty = (folder / f"{it}.keytab" for it in ("missing", "garbage", "shared", "empty"))
    garbage.write_text("nothing\n")
    directory = folder / "directory"
    directory.mkdir(0o700)
    for path in (shared, empty):
        # The head of a keytab without keys.
        path.write_bytes(b"\x05\x02")
    for path, mode in ((garbage, 0o600), (empty, 0o600), (shared, 0o640)):
        path.chmod(mode)
    krb5 = folder / "krb5.conf"
    krb5.write_text(f"[libdefaults]\n    default_realm = {REALM}\n    default_keytab_name = FILE:{missing}\n")
    keys = RoleKeys(folder / "keys-of-roles", "enginehouse")
    path, text = folder / "enginehouse.toml", '[access]\nauthentication = "kerberos"\n'
    of_cluster = f'[cluster]\nkeys = "{keys.files}"\n[proxy]\nlisten = "{LOOPBACK}"\n[zookeeper]\nconnect = "127.0.0.1:1"\n'
    commands = {
        "standalone": (text, ["standalone", "--config", path, "--listen", LOOPBACK, "--data-dir", folder / "data"]),
        "proxy": (text + of_cluster, ["proxy", "--config", path]),
        "config check": (text + of_cluster, ["config", "check", "--config", path]),
    }
    cannot_be_used, hint = "the keytab cannot be used", "Set KRB5_KTNAME to a file with the keys of hive/HOST@REALM"
    for program, (configuration, command) in commands.items():
        path.write_text(configuration)
        for variable, expected in (
            ({"KRB5_KTNAME": str(missing)}, (cannot_be_used, str(missing), hint)),
            ({}, (cannot_be_used, str(missing), hint)),
            ({"KRB5_KTNAME": f"FILE:{garbage}"}, (cannot_be_used, hint)),
            ({"KRB5_KTNAME": str(empty)}, (cannot_be_used, hint)),
            ({"KRB5_KTNAME": str(directory)}, (cannot_be_used, hint)),
            ({"KRB5_KTNAME": str(shared)}, (f"KRB5_KTNAME: {shared} is open to other users (mode 0640)",)),
        ):
            done = run(command, within_s=ENDS_WITHIN_S, env={"KRB5_CONFIG": str(krb5)} | variable)
            assert (done.returncode, done.stdout) == (1, ""), (program, variable, done)
            for it in expected:
                assert it in done.stderr, (program, variable, it, done.stderr)


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
