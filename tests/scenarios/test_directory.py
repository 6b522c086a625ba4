"""Authentication method `ldap` on a standalone, with a real slapd: names and groups of the directory, a directory that is away,
and the doctor."""

import json

import pytest
from thrift.transport.TTransport import TTransportException

from harness.clients import open_pyhive, pyhive_session, refused, rows, sqlstate_of
from harness.processes import run
from harness.slapd import GROUPS, USERS, Slapd, group_entry, password_of, user_entry
from harness.standalone import Standalone
from harness.waiting import wait_until

CONFIGURATION = """
[access]
authentication = ["file", "ldap"]
users_file = "{folder}/users"
operators = ["@ops"]
login_cache = "1s"
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


class Installation:
    def __init__(self, folder):
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.directory = Slapd(folder / "slapd", ENTRIES)
        self.standalone = Standalone(folder / "standalone")

    def start(self):
        self.directory.start()
        done = run(["passwd", "--file", self.folder / "users", "admin"], text=f"{ADMIN_PASSWORD}\n")
        assert done.returncode == 0, done.stderr
        path = self.folder / "enginehouse.toml"
        path.write_text(CONFIGURATION.format(folder=self.folder) + self.directory.settings(timeout="2s"))
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
        return self.standalone.address

    def session(self, user, password=None):
        return pyhive_session(self.address, user, password=password or password_of(user.lower()))

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
