"""Authentication method `jwt` on a standalone, with a real issuer: names and groups of tokens, tokens that expire, other
keys of the issuer, an issuer that is away, and the doctor."""

import json
import time

import pytest
from thrift.transport.TTransport import TTransportException

from harness.clients import impyla_session, open_pyhive, pyhive_session, refused, rows, sqlstate_of
from harness.issuer import Issuer, claims_of
from harness.processes import environment, finished, run
from harness.standalone import Standalone
from harness.waiting import wait_until

CONFIGURATION = """
[access]
authentication = ["file", "jwt"]
users_file = "{folder}/users"
operators = ["@ops"]
"""
# `admin` is a user of the users file, too.
USERS = {"alice": ["analysts"], "bob": [], "olga": ["ops"], "admin": ["ops"]}
ADMIN_PASSWORD = "pass of admin"
AWAY = "could not read the keys of the issuer"
# Of the clocks, which are one here.
LEEWAY_S = 1
# How often keys are read for tokens whose key is not known.
KEYS_EVERY_S = 10
WITHIN_S = 30


class Installation:
    def __init__(self, folder):
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.issuer = Issuer(folder / "issuer", USERS)
        self.standalone = Standalone(folder / "standalone")

    def start(self):
        self.issuer.start()
        done = run(["passwd", "--file", self.folder / "users", "admin"], text=f"{ADMIN_PASSWORD}\n")
        assert done.returncode == 0, done.stderr
        text = CONFIGURATION.format(folder=self.folder)
        text += self.issuer.settings(as_password=True, leeway=f"{LEEWAY_S}s")
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
            self.issuer.close()

    @property
    def address(self):
        return self.standalone.address

    def session(self, user, password):
        """Over SASL; a token is a password."""
        return pyhive_session(self.address, user, password=password)

    def cursor(self, token):
        """Over HTTP, with the token in each call."""
        return impyla_session(self.address, token=token)

    def refusal(self, user, password):
        """Why a login over SASL is refused."""
        with pytest.raises(TTransportException) as refusal:
            open_pyhive(self.address, user, password=password)
        return refusal.value.message

    def rest(self, token, path="tenants"):
        """Status and body of a GET with curl."""
        url = f"http://{self.address}/api/v1/{path}"
        # The token stays out of the list of processes.
        config = f'header = "Authorization: Bearer {token}"\n'
        done = finished(["curl", "-s", "-K", "-", "-w", "\n%{http_code}", url], environment(), text=config)
        assert done.returncode == 0, done.stderr
        body, status = done.stdout.rsplit("\n", 1)
        return int(status), body

    def finding(self):
        """The doctor's result about tokens: passed, warning or problem, and what it found."""
        done = run(["doctor", "--data-dir", self.standalone.data, "--format", "json"])
        [check] = [it for it in json.loads(done.stdout)["checks"] if it["check"] == "tokens"]
        return check


@pytest.fixture
def installation(folder):
    it = Installation(folder / "tokens")
    try:
        yield it.start()
    finally:
        it.close()


def result(cursor, statement):
    cursor.execute(statement)
    return cursor.fetchall()


def test_users_of_an_issuer_have_its_names_and_groups_until_their_token_expires(installation):
    issuer = installation.issuer
    tokens = [issuer.token("alice", algorithm) for algorithm in ("RS256", "ES256", "EdDSA")]
    # Issued before the issuer is away, and not shown to the proxy until then.
    of_later = issuer.token("alice")
    started = time.monotonic()
    with installation.cursor(tokens[0]) as alice, installation.session("admin", ADMIN_PASSWORD) as admin:
        result(alice, "START ENGINE t p u WAIT '2m'")
        assert result(alice, "SELECT 42 AS answer") == [(42,)]
        audited = rows(admin, "SHOW AUDIT FOR USER 'alice' LIMIT 1")[0]
        assert (audited["user"], audited["method"]) == ("alice", "jwt"), audited
        for token in tokens:
            with installation.session("alice", token) as session:
                assert len(rows(session, "SHOW ENGINES t")) == 1
            assert installation.rest(token)[0] == 200
        with (
            installation.session("bob", issuer.token("bob")) as bob,
            installation.session("olga", issuer.token("olga")) as olga,
        ):
            assert sqlstate_of(bob, "SHOW ENGINES t") == "42501"
            assert len(rows(olga, "SHOW ENGINES t")) == 1

        found = installation.finding()
        assert found["said"].startswith("3 keys of "), found

        # A token that expires: the next call gets 401, and a session over SASL ends for control statements.
        short = issuer.token("alice", "short")
        with installation.session("alice", short) as session:
            assert installation.rest(short)[0] == 200 and len(rows(session, "SHOW ENGINES t")) == 1
            wait_until(lambda: installation.rest(short)[0] == 401, WITHIN_S, "the token has expired", 0.5)
            assert time.time() >= claims_of(short)["exp"] + LEEWAY_S
            error = refused(session, "SHOW ENGINES t")
            assert error.sqlstate == "28000" and "has expired" in error.message, error

        # Other keys: they are read again for the first token that needs one, at most once in 10 s.
        issuer.rotate_keys()
        rotated = issuer.token("alice")
        wait_until(lambda: time.monotonic() > started + KEYS_EVERY_S, WITHIN_S, "they may be read again", 0.1)
        assert installation.rest(rotated)[0] == 200
        assert installation.rest(of_later)[0] == 401, "its key was withdrawn"
        assert result(alice, "SELECT 43 AS answer") == [(43,)], "a token that was verified counts until it expires"

        # An issuer that is away ends nothing, because its keys are known.
        of_later, of_another_service = (issuer.token("alice", resource) for resource in ("ES256", "other"))
        of_admin = issuer.token("admin")
        issuer.kill()
        assert installation.rest(of_later)[0] == 200
        found = installation.finding()
        assert found["verdict"] == "problem" and "no user with a new token can log in" in json.dumps(found), found

        # Another user's, one of a user of the users file, one for another service: last, because each is delayed longer.
        assert installation.rest(of_admin)[0] == 401
        for user, token in (("bob", tokens[0]), ("admin", of_admin), ("alice", of_another_service)):
            assert "authentication failed" in installation.refusal(user, token)
    text = installation.standalone.logs.text()
    assert "token of a user whom another method owns" in text and "token for another audience" in text
    assert not any(token in text for token in (*tokens, of_admin, rotated)), "a token is in a log"
