"""C17: secrets that every user of the installation has used, and where they are afterwards. What all scenarios leave is
searched when they have ended (`harness.secret_scan`)."""

import base64
import contextlib
import json
import os
import pathlib
import re
import tomllib

import psutil
import pytest

from harness.attacked import basic, password_of
from harness.clients import rows
from harness.processes import run
from harness.role_keys import secrets_of
from harness.transports import TRANSPORTS, Http, Refused
from harness.waiting import wait_until

KEY = "spark.hadoop.fs.s3a.secret.key"
# Properties of a unit, which its engine receives.
STORED = {
    "created property": "canary-created-7f3a",
    "altered property": "canary-altered-7f3a",
    "REST property": "canary-rest-7f3a",
}
# In statements without an effect, and of a failed login.
REFUSED = {
    "forbidden property": "canary-forbidden-7f3a",
    "explained property": "canary-explained-7f3a",
    "aborted property": "canary-aborted-7f3a",
    "misspelled property": "canary-misspelled-7f3a",
    "wrong password": "canary-wrong-7f3a",
}
# What may be in a file below the data directory, and why. Every other secret is in none.
PLACES = [(STORED, r"engines/engines/c17-[^/]*/files/engine\.toml", "what the engine of the unit is launched with")]
SHOWN = [
    "SHOW RESOURCE UNITS",
    "SHOW RESOURCE POOLS",
    "SHOW TENANTS",
    "SHOW ENGINES c17",
    "SHOW ENGINES sales",
    "SHOW ALTERATIONS LIMIT 1000",
    "SHOW AUDIT LIMIT 10000",
    "SHOW MASTER",
    "SHOW CREATE RESOURCE UNIT c17",
    "SHOW CREATE TENANT c17",
    "DESCRIBE RESOURCE UNIT c17",
    "DESCRIBE RESOURCE POOL c17",
    "DESCRIBE TENANT c17",
    f"EXPLAIN ALTER RESOURCE UNIT c17 PROPERTIES ('{KEY}'='{REFUSED['explained property']}')",
    "EXPLAIN DROP TENANT c17",
]
OF_ENGINE = ["SET", "SET -v", "SHOW ALL", f"SET {KEY}", "SELECT * FROM information_schema.df_settings"]
PATHS = [
    "/units",
    "/pools",
    "/tenants",
    "/units/c17",
    "/units/c17/definition",
    "/units/c17/pools",
    "/tenants/c17",
    "/pools/c17",
]
PATHS += ["/tenants/c17/definition", "/engines?tenant=c17", "/alterations?limit=1000", "/audit?limit=1000", "/master"]


class Canaries:
    def __init__(self, target):
        self.target = target
        self.secrets = STORED | REFUSED
        self.secrets |= {f"secret {at} of the installation": secret for at, secret in enumerate(target.secrets)}
        self.places = list(PLACES)
        self.add_keys(target.standalone.data / "keys")
        self.found = []

    def add_keys(self, folder):
        """The secret keys of each role, which its own file has, in both forms: as a key, and as a password of ZooKeeper."""
        root = tomllib.loads((folder / "root.key").read_text())
        self.secrets["root key"] = root["key"]
        self.places.append((["root key"], r"keys/root\.key", "the key that all others are derived from"))
        for role in ("proxy", "master", "metadata-agent"):
            own = {f"{name} of {role}": key for (name, _), key in secrets_of(folder / f"{role}.key").items()}
            passwords = {f"{name}, as a password": base64.b64decode(key).hex() for name, key in own.items()}
            self.secrets |= own | passwords
            self.places.append((own, rf"keys/{role}\.key", "the keys of the role"))

    def add_engines(self):
        """The keys of each engine: its own file has them."""
        for name, engine in self.target.standalone.engines.all().items():
            launched = tomllib.loads((engine.folder / "files/engine.toml").read_text())
            own = {f"password of {name}": launched["credential"]["password"]}
            self.secrets |= own
            self.places.append((own, f"engines/engines/{name}/files/engine.toml", "the credentials of the engine"))

    def search(self, where, data, allowed=()):
        data = data if isinstance(data, bytes) else str(data).encode()
        for name, secret in self.secrets.items():
            encoded = base64.b64encode(secret.encode()).rstrip(b"=")
            if (secret.encode() in data or encoded in data) and name not in allowed:
                self.found.append(f"{name} in {where}")


def open_with_a_cookie(target, user):
    """Opens and closes a session over HTTP, its second call with the cookie of the first one; returns the cookie."""
    with Http(target, user) as http:
        session = http.open()
        cookie = http.last_response.headers["Set-Cookie"].split(";")[0]
        http.credentials = f"Cookie: {cookie}"
        assert http.rows(session, "SHOW TENANTS")
        http.close_session(session)
        # A cookie is none of the REST API.
        assert target.http("GET", "/api/v1/tenants", headers={"Cookie": cookie})[0] == 401
    return cookie.split("=", 1)[1]


def statement_with(name, what="ALTER RESOURCE UNIT c17"):
    return f"{what} PROPERTIES ('{KEY}'='{(STORED | REFUSED)[name]}')"


def use_secrets(target, canaries):
    """Every credential and every property is used over each transport, also by statements that are refused."""
    for user in ("admin", "alice", "bob"):
        for connect in TRANSPORTS.values():
            with connect(target, user) as connection:
                connection.rows(connection.open(), "SHOW TENANTS")
        canaries.secrets[f"header of {user}"] = basic(user, password_of(user)).split()[1]
    canaries.secrets["cookie"] = open_with_a_cookie(target, "alice")
    for at, connect in enumerate(TRANSPORTS.values()):
        with pytest.raises((Refused, AssertionError), match="authentication failed"):
            connect(target, "carol", source=f"127.0.17.{at + 1}", password=REFUSED["wrong password"]).open()
    refusals = [
        ("alice", statement_with("forbidden property"), "42501"),
        ("alice", statement_with("forbidden property", "CREATE RESOURCE UNIT c17_2"), "42501"),
        ("admin", statement_with("aborted property", "CREATE RESOURCE UNIT c17"), "42710"),
        ("admin", statement_with("aborted property", "ALTER RESOURCE UNIT c17_2"), "42704"),
        ("admin", statement_with("misspelled property", "ALTER RESOURCE UNIT c17 MAX_ENGINES 1 1,"), "42601"),
        ("admin", statement_with("misspelled property", "DROP RESOURCE UNIT c17"), "42601"),
    ]
    for user, statement, sqlstate in refusals:
        assert target.refused(statement, user).sqlstate == sqlstate, statement
        body = json.dumps({"statement": statement})
        answer = target.http("POST", "/api/v1/statements", body, user, {"Content-Type": "application/json"})[2]
        assert json.loads(answer)["sqlstate"] == sqlstate, answer
    misspelled = f"SELECT '{REFUSED['misspelled property']}' FRO x y"
    assert target.refused(misspelled, "alice", tenant="sales").sqlstate == "42601"
    body = json.dumps({"statement": statement_with("REST property")})
    assert target.http("POST", "/api/v1/statements", body, "admin", {"Content-Type": "application/json"})[0] == 200
    target.execute(statement_with("altered property"))


def search_outputs(target, canaries):
    """What statements, REST, the doctor and the logs show, and what processes show of themselves."""
    for user in ("admin", "olga", "audrey", "alice"):
        with target.session(user) as session:
            for statement in SHOWN:
                try:
                    canaries.search(f"{statement} by {user}", rows(session, statement))
                except Exception as refused:
                    canaries.search(f"the refusal of {statement} by {user}", refused, ["explained property"])
        for path in PATHS:
            status, headers, body = target.http("GET", f"/api/v1{path}", user=user)
            canaries.search(f"GET {path} by {user}: {status}", f"{headers}\n".encode() + body)
    with target.session("alice", tenant="c17") as session:
        for statement in OF_ENGINE:
            canaries.search(f"{statement} at the engine", rows(session, statement))
    done = run(["doctor", "--data-dir", target.standalone.data, "--format", "json"])
    canaries.search("the doctor", done.stdout + done.stderr)
    canaries.search("a log", target.logs.text())
    program = target.standalone.program.pid
    pids = {program} | {it.pid for it in psutil.Process(program).children(recursive=True)}
    for pid in pids | {it.pid for it in target.standalone.engines.all().values()}:
        for file in ("environ", "cmdline"):
            canaries.search(f"/proc/{pid}/{file}", pathlib.Path(f"/proc/{pid}/{file}").read_bytes())


def search_files(target, canaries):
    """All files of the installation but the users file and the key of its certificate."""
    for path in files_below(target.folder):
        if path not in (target.folder / "users", target.certificate.key):
            name = path.relative_to(target.standalone.data) if path.is_relative_to(target.standalone.data) else path.name
            allowed = [secret for secrets, place, _ in canaries.places if re.fullmatch(place, str(name)) for secret in secrets]
            # One that is removed meanwhile has no secret any more.
            with contextlib.suppress(FileNotFoundError):
                canaries.search(str(name), path.read_bytes(), allowed)


def files_below(folder):
    """An installation that runs may remove folders at any moment: `walk` leaves out what is gone."""
    paths = (pathlib.Path(parent, it) for parent, _, files in os.walk(folder) for it in files)
    return [path for path in paths if path.is_file()]


def test_c17_no_secret_is_where_it_has_no_purpose(target):
    """Passwords, hashes, the private key, the credentials of the roles and of engines, a cookie and secret properties: in no
    log, result, REST response, environment or command line, and in no file but those of `PLACES`."""
    canaries = Canaries(target)
    created = f"CREATE RESOURCE UNIT c17 DRIVER_MEMORY '512M', PROPERTIES ('{KEY}'='{STORED['created property']}', 'a'='b')"
    try:
        target.execute(created)
        target.execute("CREATE RESOURCE POOL c17 UNIT_LIST ('c17')")
        target.execute("CREATE TENANT c17 RESOURCE_POOL_LIST ('c17'), USER_LIST ('alice')")
        use_secrets(target, canaries)
        target.execute("START ENGINE c17 c17 c17 WAIT '1m'")
        [launched] = (target.standalone.data / "engines/engines").glob("c17-*/files/engine.toml")
        assert STORED["altered property"] in launched.read_text(), "the engine does not have what is searched for"
        canaries.add_engines()
        search_outputs(target, canaries)
        search_files(target, canaries)
    finally:
        target.execute("DROP TENANT IF EXISTS c17 WAIT '1m'")
        target.execute("DROP RESOURCE POOL IF EXISTS c17")
        target.execute("DROP RESOURCE UNIT IF EXISTS c17")
    wait_until(lambda: not launched.exists(), 10, "the file of the engine has gone with it")
    search_files(target, canaries)
    assert not canaries.found, "\n".join([f"{len(canaries.found)} secrets were found", *canaries.found[:60]])
