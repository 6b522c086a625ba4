"""Authentication method `file` on a standalone: logins of real clients, groups, roles, impersonation, audit and the doctor."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import stat
import statistics
import subprocess
import time

import psutil
import pytest
from pyhive import hive
from thrift.transport.TTransport import TTransportException

from harness import spark
from harness.attacked import basic
from harness.clients import open_pyhive, pyhive_session, refused, rows
from harness.http_messages import LAST, request
from harness.java import Jdbc, JdbcError
from harness.on_demand import Statement
from harness.processes import run
from harness.thrift_messages import login
from harness.tier import only_long
from harness.waiting import wait_until

CONFIGURATION = """
[access]
authentication = ["file"]
users_file = "{folder}/users"
operators = ["@ops"]
auditors = ["audrey"]
impersonation = ["superset: @analysts"]

[engines]
allowed_locations = ["{folder}/tables"]
"""

# A user whose engines can run as the account of that name, which every system has.
OWNER = "nobody"
# Less than a statement waits for an engine; a failed start is repeated after 3 s, and then after 6 s.
WITHIN_S = 60
STARTS_WITHIN_S = 150
# A users file is read again every 5 s.
READ_AGAIN_WITHIN_S = 30


class Installation:
    def __init__(self, standalone, folder, users=(), configuration=""):
        self.standalone, self.folder = standalone, folder
        for user, groups in (
            ("admin", ""),
            ("alice", "analysts"),
            ("bob", "etl"),
            ("olga", "ops"),
            ("audrey", ""),
            ("superset", ""),
            *users,
        ):
            self.passwd(user, groups)
        (folder / "tables").mkdir()
        path = folder / "enginehouse.toml"
        path.write_text(CONFIGURATION.format(folder=folder) + configuration)
        standalone.start("--config", path)

    def passwd(self, user, groups):
        of_groups = ["--groups", groups] if groups else []
        done = run(["passwd", "--file", self.folder / "users", *of_groups, user], text=f"pass of {user}\n")
        assert done.returncode == 0, done.stderr

    def session(self, user, password=None, **settings):
        return pyhive_session(self.standalone.address, user, password=password or f"pass of {user}", **settings)

    def execute(self, statement, user="admin", **settings):
        with self.session(user, **settings) as connection:
            return rows(connection, statement)

    def sqlstate(self, statement, user, **settings):
        with self.session(user, **settings) as connection:
            return refused(connection, statement).sqlstate

    def audit_lines(self, text):
        return [
            line for line in self.standalone.logs.text("enginehouse.log").splitlines() if " audit: " in line and text in line
        ]


@pytest.fixture
def installation(own_standalone, folder, request):
    """The parameter is further users, with their groups."""
    made = Installation(own_standalone, folder, getattr(request, "param", ()))
    made.execute("CREATE RESOURCE UNIT u DRIVER_CPU 1, DRIVER_MEMORY '512M', MAX_ENGINES 3")
    made.execute("CREATE RESOURCE POOL p UNIT_LIST ('u')")
    made.execute("CREATE TENANT t RESOURCE_POOL_LIST ('p'), USER_LIST ('@analysts'), ADMIN_LIST ('@analysts', '@leads')")
    return made


def test_groups_roles_and_impersonation_with_passwords(installation):
    address = installation.standalone.address
    installation.execute("START ENGINE t p u WAIT '2m'", "alice")
    assert installation.execute("SELECT 42 AS answer", "alice") == [{"answer": 42}]
    # Another group, an operator, an auditor.
    for user, statement, sqlstate in (
        ("bob", "SELECT 1", "42501"),
        ("bob", "SHOW ENGINES t", "42501"),
        ("olga", "SELECT 1", "42501"),
        ("olga", "DROP TENANT t", "42501"),
        ("audrey", "START ENGINE t p u", "42501"),
        ("alice", "SHOW AUDIT", "42501"),
    ):
        assert installation.sqlstate(statement, user) == sqlstate, (user, statement)
    assert len(installation.execute("SHOW ENGINES t", "olga")) == 1
    installation.execute("START ENGINE t p u", "olga")
    # On behalf of a user of the group, and of no other.
    for key in ("hive.server2.proxy.user", "set:hiveconf:kyuubi.session.proxy.user"):
        assert installation.execute("SELECT 42 AS answer", "superset", **{key: "alice"}) == [{"answer": 42}]
        for user in ("bob", "admin", "eve"):
            with pytest.raises(hive.OperationalError) as failed:
                installation.session("superset", **{key: user}).__enter__()
            assert "not allowed to impersonate" in str(failed.value) and "28000" in str(failed.value), failed.value
    installation.execute("START ENGINE t p u", "superset", **{"hive.server2.proxy.user": "alice"})
    audited = installation.execute("SHOW AUDIT FOR USER 'alice' LIMIT 1", "audrey")[0]
    assert (audited["via"], audited["method"], audited["client"]) == ("superset", "file", "127.0.0.1")
    assert audited["proxy"] == address
    [line] = installation.audit_lines(audited["request"])
    for field in ("control statement", 'user="alice"', 'via="superset"', 'outcome="committed"', 'method="file"'):
        assert field in line, line
    # A user who leaves the group loses the tenant, also in sessions that are open.
    with installation.session("alice") as connection:
        assert len(rows(connection, "SHOW ENGINES t")) == 3
        installation.passwd("alice", "etl")
        wait_until(lambda: is_refused(connection, "SHOW ENGINES t"), READ_AGAIN_WITHIN_S, "alice has lost the tenant", 0.5)


@pytest.mark.parametrize("installation", [[("carol", "analysts,etl")]], indirect=True, ids=["carol"])
def test_the_members_of_a_group_share_an_engine_and_another_group_has_its_own(installation):
    installation.execute(
        "CREATE RESOURCE UNIT team DRIVER_CPU 1, DRIVER_MEMORY '512M', START_ON_DEMAND TRUE, SHARED_BY 'group'"
    )
    installation.execute("CREATE RESOURCE POOL of_teams UNIT_LIST ('team')")
    installation.execute("CREATE TENANT shared RESOURCE_POOL_LIST ('of_teams'), USER_LIST ('@analysts', '@etl')")
    # The first group decides. Open operations keep their sessions at the engines.
    groups = {"alice": "analysts", "bob": "etl", "carol": "analysts"}
    with contextlib.ExitStack() as opened:
        sessions = {it: opened.enter_context(installation.session(it, tenant="shared")) for it in groups}
        for number, (user, group) in enumerate(groups.items()):
            statement = Statement(sessions[user], f"SELECT {number} AS n")
            assert statement.result() == [(number,)]
            waits = f'waiting for an engine of group "{group}" to be started in resource pool "of_teams"'
            assert user == "carol" or statement.log[0].startswith(waits), statement.log

        def shown(user):
            return {it["owner"]: it["sessions"] for it in rows(sessions[user], "SHOW ENGINES shared")}

        of_groups = {'group "analysts"': 2, 'group "etl"': 1}
        for user in groups:
            wait_until(lambda user=user: shown(user) == of_groups, WITHIN_S, f"{user} sees each engine with its owner")
        assert len(installation.standalone.engines.of("shared")) == len(of_groups)


def is_refused(connection, statement):
    try:
        rows(connection, statement)
    except hive.OperationalError:
        return True
    return False


@pytest.mark.parametrize(
    "installation", [[(it, "runners") for it in (OWNER, "ghost", "daemon", "root")]], indirect=True, ids=["runners"]
)
def test_an_engine_runs_as_its_owner_and_never_as_root(installation):
    standalone, tables = installation.standalone, installation.folder / "tables"
    account = pwd.getpwnam(OWNER)
    for name, uid in (("own", account.pw_uid), ("foreign", 0)):
        (tables / name).mkdir()
        (tables / name / "t.csv").write_text("answer\n42\n")
        (tables / name / "t.csv").chmod(0o600)
        os.chown(tables / name / "t.csv", uid, 0)
    options = "START_ON_DEMAND TRUE, IDLE_TIMEOUT NEVER, SHARED_BY 'user', RUN_AS 'owner'"
    installation.execute(f"CREATE RESOURCE UNIT own DRIVER_CPU 1, DRIVER_MEMORY '512M', {options}")
    installation.execute("CREATE RESOURCE POOL of_owners UNIT_LIST ('own')")
    installation.execute("CREATE TENANT mine RESOURCE_POOL_LIST ('of_owners'), USER_LIST ('@runners')")
    standalone.logs.allow(r'decision failed decision="create engine" .*(no account|uid 0|min_uid|may not enter)')

    def refusal(user):
        with installation.session(user) as session:
            refused_at = time.monotonic()
            refusal = refused(session, "SELECT 1")
            assert time.monotonic() - refused_at < WITHIN_S / 2, "at once"
        assert refusal.sqlstate == "55000", refusal
        return refusal.message

    for user, reason in (
        ("ghost", 'user "ghost" has no account on this machine'),
        ("root", 'account "root" has uid 0, and no engine runs as root'),
        ("daemon", "below orchestrator.min_uid"),
    ):
        assert reason in (message := refusal(user)), message
    refusal(OWNER)
    allow_to_enter(installation)

    answered = wait_until(lambda: answers(installation, "SELECT 42 AS answer"), WITHIN_S, "the next start succeeds")
    assert answered == [{"answer": 42}]
    [engine] = standalone.engines.of("mine")
    status = pathlib.Path(f"/proc/{engine.pid}/status").read_text()
    assert re.search(r"^Uid:\t(.*)$", status, re.MULTILINE)[1].split() == [str(account.pw_uid)] * 4, status
    assert "0" not in re.search(r"^Groups:\t(.*)$", status, re.MULTILINE)[1].split(), status
    files = engine.folder / "files"
    [private] = standalone.data.glob(f"**/run-as/{OWNER}")
    for path, mode in ((files, 0o700), (files / "engine.toml", 0o600), (engine.folder / "log", 0o600), (private, 0o700)):
        found = path.stat()
        assert (stat.S_IMODE(found.st_mode), found.st_uid) == (mode, account.pw_uid), path
    assert engine.file.stat().st_uid == 0 and stat.S_IMODE(engine.file.stat().st_mode) == 0o600
    # Files decide by the owner.
    table = f"STORED AS CSV LOCATION '{tables}/{{}}/' OPTIONS ('format.has_header' 'true')"
    installation.execute(f"CREATE EXTERNAL TABLE own {table.format('own')}", OWNER)
    assert installation.execute("SELECT answer FROM own", OWNER) == [{"answer": 42}]
    with installation.session(OWNER) as session:
        foreign = refused(session, f"CREATE EXTERNAL TABLE foreign_one {table.format('foreign')}")
        assert "Permission denied" in foreign.message, foreign
    # Root ends it all the same, and its log and history are read as always.
    described = installation.execute(f"DESCRIBE ENGINE of_owners '{engine.name}'")
    assert str(engine.pid) in [row["value"] for row in described], described
    os.kill(engine.pid, signal.SIGKILL)
    asked = "SELECT answer FROM own"
    wait_until(lambda: answers(installation, asked) == [{"answer": 42}], WITHIN_S, "its successor has its tables")
    [engine] = [it for it in standalone.engines.of("mine") if it.is_alive()]
    installation.execute(f"STOP ENGINE of_owners '{engine.name}' FORCE WAIT '1m'")
    wait_until(lambda: not engine.is_alive(), WITHIN_S, "the engine has ended")


def allow_to_enter(installation):
    """The account may not enter the folder of the tests: follows the remedy that the reason names."""
    with installation.session(OWNER) as session:
        message = refused(session, "SELECT 1").message
    remedy = re.search(rf'account "{OWNER}" may not enter folder .* run (chmod o\+x [^\n]*[^.\n])', message)
    assert remedy, message
    subprocess.run(remedy[1].split(), check=True)


def answers(installation, statement):
    """Whether the owner's engine answers; until its next start it is still refused."""
    try:
        return installation.execute(statement, OWNER)
    except hive.OperationalError as error:
        assert "may not enter" in str(error), error
        return None


def test_failed_logins_are_slowed_and_logged_without_the_password(installation):
    began = time.monotonic()
    for at in range(4):
        with pytest.raises(TTransportException, match="authentication failed"):
            open_pyhive(installation.standalone.address, "alice" if at else "eve", password="wrong")
    assert time.monotonic() - began > 0.08 + 0.16 + 0.32 + 0.64
    lines = installation.audit_lines("login_failed")
    assert len(lines) == 4, lines
    assert sum('user="alice"' in line and 'reason="wrong password"' in line for line in lines) == 3, lines
    assert sum('user="eve"' in line and 'reason="unknown user"' in line for line in lines) == 1, lines
    assert not any('wrong"' in line.replace('"wrong password"', "") for line in lines), "a password is in the log"


def failed_over_http(address, source, user, password):
    """The response to a login over HTTP from an address of this machine, and the seconds until it was read."""
    headers = f"Authorization: {basic(user, password)}", "Content-Length: 0", LAST
    return response_to(address, source, request("POST /cliservice", *headers, user=None))


def failed_over_sasl(address, source, user, password):
    """The same over SASL."""
    return response_to(address, source, login(user, password))


def response_to(address, source, sent):
    host, port = address.rsplit(":", 1)
    began = time.monotonic()
    with socket.create_connection((host, int(port)), timeout=60, source_address=(source, 0)) as connection:
        connection.sendall(sent)
        response = b"".join(iter(lambda: connection.recv(65536), b""))
    return response, time.monotonic() - began


@only_long
@pytest.mark.alone
@pytest.mark.parametrize(
    ("attempt", "refusal"), [(failed_over_http, b"HTTP/1.1 401 "), (failed_over_sasl, b"\x03")], ids=["http", "sasl"]
)
def test_responses_to_failed_logins_take_equally_long(installation, attempt, refusal):
    """Unknown users, wrong passwords and locked pairs, beyond the failures from which the delay does not grow."""
    address = installation.standalone.address
    # 40 failures lock a user out from an address: bob from one, and no other user from the others.
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        list(pool.map(lambda _: attempt(address, "127.0.0.100", "bob", "wrong"), range(40)))
        assert attempt(address, "127.0.0.100", "bob", "pass of bob")[0].startswith(refusal)
    kinds = {
        "wrong password": lambda at: (f"127.0.1.{at % 10}", "alice", "wrong"),
        "unknown user": lambda at: (f"127.0.2.{at % 10}", "eve", "wrong"),
        "locked out": lambda at: ("127.0.0.100", "bob", "pass of bob"),
    }
    # Until the delay of each kind is the longest.
    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        warm = [(kind, at) for kind in kinds for at in range(70)]
        list(pool.map(lambda each: attempt(address, *kinds[each[0]](each[1])), warm))
    measured = {kind: [] for kind in kinds}
    responses = set()
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        # In turn, so that what else happens on the machine meets all of them.
        order = [(kind, at) for at in range(200) for kind in kinds]
        for (kind, _), (response, seconds) in zip(
            order, pool.map(lambda each: attempt(address, *kinds[each[0]](each[1])), order), strict=True
        ):
            responses.add(response)
            measured[kind].append(seconds)
    medians = {kind: statistics.median(seconds) for kind, seconds in measured.items()}
    print("medians of 200 responses:", {kind: f"{median:.3f} s" for kind, median in medians.items()})
    assert len(responses) == 1, responses
    assert responses.pop().startswith(refusal)
    assert max(medians.values()) < 1.05 * min(medians.values()), medians


def test_the_doctor_checks_the_users_file(installation):
    users = installation.folder / "users"
    data = installation.standalone.data

    def result():
        done = run(["doctor", "--data-dir", data, "--format", "json"])
        return next(it for it in json.loads(done.stdout)["checks"] if it["check"] == "users file")

    assert result()["verdict"] == "ok", result()
    installation.standalone.logs.allow("could not read the users file again")
    os.chmod(users, 0o644)
    found = result()
    assert found["verdict"] == "problem" and "chmod 600" in str(found), found
    os.chmod(users, 0o600)
    assert result()["verdict"] == "ok", result()


@only_long
def test_jdbc_logs_in_with_a_password_and_impersonates(installation):
    address = installation.standalone.address
    with Jdbc(address, "alice", password="pass of alice") as jdbc:
        assert [row["tenant"] for row in jdbc.rows("SHOW TENANTS")] == ["t"]
    with Jdbc(address, "alice", ";auth=noSasl", password="pass of alice") as jdbc:
        assert [row["tenant"] for row in jdbc.rows("SHOW TENANTS")] == ["t"]
    for query in (";hive.server2.proxy.user=alice", "?hive.server2.proxy.user=alice"):
        with Jdbc(address, "superset", query, password="pass of superset") as jdbc:
            assert [row["tenant"] for row in jdbc.rows("SHOW TENANTS")] == ["t"]
    for user, query, password in (
        ("alice", "", "wrong"),
        ("eve", "", "pass of alice"),
        ("superset", ";hive.server2.proxy.user=bob", "pass of superset"),
    ):
        with pytest.raises(JdbcError):
            Jdbc(address, user, query, password=password)


SPARK = """
[spark]
unconfined = true
program = "{home}/bin/spark-submit"
environment = {{ JAVA_HOME = "{java_home}" }}

[spark.properties]
"spark.driver.extraJavaOptions" = "{options}"
"""


@only_long
def test_a_real_spark_runs_as_its_owner(own_standalone, folder):
    # The account may not pass the folder of root that the tests' Spark is in.
    home = folder / "spark"
    shutil.copytree(spark.home(), home, copy_function=os.link)
    options = spark.PROPERTIES["spark.driver.extraJavaOptions"]
    configuration = SPARK.format(home=home, java_home=spark.java_home(), options=options)
    installation = Installation(own_standalone, folder, [(OWNER, "runners")], configuration)
    options = "ENGINE_TYPE 'spark', MAX_EXECUTORS 0, START_ON_DEMAND TRUE, SHARED_BY 'user', RUN_AS 'owner'"
    installation.execute(f"CREATE RESOURCE UNIT own DRIVER_CPU 1, DRIVER_MEMORY '1G', {options}")
    installation.execute("CREATE RESOURCE POOL of_owners UNIT_LIST ('own')")
    installation.execute("CREATE TENANT mine RESOURCE_POOL_LIST ('of_owners'), USER_LIST ('@runners')")
    own_standalone.logs.allow(r'decision failed decision="create engine" .*may not enter')
    allow_to_enter(installation)
    wait_until(lambda: answers(installation, "SELECT 1"), STARTS_WITHIN_S, "Spark answers")
    [engine] = own_standalone.engines.of("mine")
    uid = pwd.getpwnam(OWNER).pw_uid
    processes = [it for it in psutil.Process(engine.pid).children(recursive=True) if it.name() == "java"]
    assert processes and all(set(it.uids()) == {uid} for it in processes), processes
    with installation.session(OWNER) as session:
        session.cursor().execute("CREATE TABLE written AS SELECT 42 AS answer")
    assert installation.execute("SELECT answer FROM written", OWNER) == [{"answer": 42}]
    assert {it.stat().st_uid for it in own_standalone.data.glob("**/written/*.parquet")} == {uid}
    installation.execute(f"STOP ENGINE of_owners '{engine.name}' FORCE WAIT '1m'")
    wait_until(lambda: not any(it.is_running() for it in processes), WITHIN_S, "Spark has ended")
