"""Engines on demand through real clients: to connect and query is enough. Waiting sessions start as many engines as they need,
and idle engines are released although their clients stay connected."""

import concurrent.futures
import contextlib
import os
import signal
import threading
import time

import pytest
import tomli_w

from harness.clients import open_pyhive, refused, rows
from harness.cluster import Cluster
from harness.databases import MariadbDatabase, SqliteDatabase
from harness.failpoints import Failpoints
from harness.fixtures import searched, started
from harness.on_demand import CLIENTS, LOG, WITHIN_S, Elastic, Statement, unit_options
from harness.standalone import Standalone
from harness.tier import some
from harness.waiting import wait_until

# Much less than a statement waits for an engine (`proxy.bind_deadline`).
AT_ONCE_S = 15
LEASE_S = 3
TIMES = {
    "proxy": {"unbind_after": "1s", "demand_lease": f"{LEASE_S}s", "snapshot_poll": "500ms"},
    "master": {"status_poll": "500ms", "cooldown": "1s", "cancel_after": "2s"},
}
CREATES, REGISTERS = "master.before.create_engine", "engine_agent.register.before"
STARTS_STATEMENT = "datafusion.statement.started"
# Passed after the decision, before the agents of idle engines are asked.
WRITES = "master.before.write"


@pytest.fixture(scope="module")
def made(request, workspace):
    folder = workspace / f"on-demand-{request.param}"
    points = Failpoints(workspace / f"on-demand-{request.param}-points")
    if request.param == "sqlite":
        alone = Standalone(folder, env=points.env | LOG)
        configuration = folder / "enginehouse.toml"
        configuration.write_text(tomli_w.dumps(TIMES))
        try:
            alone.start("--config", configuration)
            yield Elastic(alone, points, alone.address, SqliteDatabase(alone.data / "metadata.sqlite"))
        finally:
            points.clear()
            alone.close()
        return
    database = MariadbDatabase() if request.param == "mariadb" else None
    for cluster in started(Cluster(folder, database=database, env=points.env | LOG, **TIMES)):
        yield Elastic(cluster, points, cluster.addresses["proxy-b"], cluster.database, cluster.nodes)
        points.clear()


@pytest.fixture
def elastic(made, request):
    """The installation of this file; what a test has made is dropped after it."""
    for _ in searched(made.installation, request):
        yield made
        made.points.clear()
        made.drop_all()


every = pytest.mark.parametrize("made", some(["postgres", "mariadb", "sqlite"], "postgres"), indirect=True)
clusters = pytest.mark.parametrize("made", some(["postgres", "mariadb"], "postgres"), indirect=True)
default = pytest.mark.parametrize("made", ["postgres"], indirect=True)


@every
def test_a_query_starts_an_engine_and_its_log_says_what_it_waits_for(elastic):
    tenant = elastic.make("first")
    for point in (CREATES, REGISTERS):
        elastic.points.arm(point, "hold")
    with elastic.session(tenant) as session:
        statement = Statement(session, "SELECT 40 + 2 AS answer")
        elastic.points.wait_claimed(CREATES)
        (name,) = elastic.ever(tenant)
        # The name of an engine begins with those of its tenant, resource pool and resource unit.
        assert name.startswith("first-first-p-first-u-"), name
        statement.wait_logged(f'waiting for engine "{name}"', "not created yet")
        elastic.points.let_go(CREATES)
        pid = elastic.points.wait_claimed(REGISTERS)
        (engine,) = elastic.engines.of(tenant)
        assert (engine.name, engine.pid) == (name, pid)
        statement.wait_logged(f'waiting for engine "{name}"', "not registered yet")
        assert (elastic.waiting(tenant), elastic.wanted(tenant)) == (1, {"first_u": ["demand"]})
        elastic.points.let_go(REGISTERS)
        assert statement.result() == [(42,)]
        assert statement.log[0] == elastic.first_log(tenant), statement.log
        assert len(statement.log) == len(set(statement.log)), "each line is progress"
        elastic.wait_none_waits(tenant)
        assert elastic.ever(tenant) == {name}
        elastic.at_rest()


@every
def test_users_share_no_engine_and_a_session_s_own_engine_ends_with_it(elastic):
    tenant = elastic.make("apart", "SHARED_BY 'user'")
    elastic.execute(f"ALTER TENANT {tenant} USER_LIST ('ann', 'bob')")
    with contextlib.ExitStack() as opened:

        def query(user, number):
            session = opened.enter_context(contextlib.closing(open_pyhive(elastic.address, user)))
            statement = Statement(session, f"SELECT {number} AS n")
            # An open operation keeps its session at the engine.
            assert statement.result() == [(number,)]
            return statement.log

        logs = [query(user, number) for number, user in enumerate(("ann", "bob", "ann"))]
        assert [it[0] for it in logs[:2]] == [elastic.first_log(tenant, f'user "{it}"') for it in ("ann", "bob")]

        def owners():
            return {it["owner"]: it["sessions"] for it in elastic.control.engines(tenant)}

        wait_until(lambda: owners() == {'user "ann"': 2, 'user "bob"': 1}, WITHIN_S, "each user has an engine")
        assert len(elastic.ever(tenant)) == 2
    alone = elastic.make("alone", "SHARED_BY 'session'")
    elastic.execute(f"ALTER RESOURCE UNIT {alone}_u IDLE_TIMEOUT NEVER")
    with elastic.session(alone) as first:
        with elastic.session(alone) as second:
            for session in (first, second):
                assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
            engines = set(elastic.running(alone))
            assert len(engines) == 2 and len({it["owner"] for it in elastic.control.engines(alone)}) == 2
            # Sessions without an engine of their own are unbound meanwhile.
            elastic.another_is_released()
            assert set(elastic.running(alone)) == engines
        wait_until(lambda: len(elastic.running(alone)) == 1, WITHIN_S, "the engine of the closed session has ended")
        assert rows(first, "SELECT 2 AS two") == [{"two": 2}]
    wait_until(lambda: not elastic.running(alone), WITHIN_S, "the engine of the other session has ended too")
    assert elastic.ever(alone) == engines
    elastic.at_rest()


@every
def test_thirty_sessions_with_ten_seats_per_engine_start_three_engines(elastic):
    tenant = elastic.make("crowd", "SESSIONS_PER_ENGINE 10, MAX_ENGINES 30")
    sessions, seats, engines = 30, 10, 3
    together = threading.Barrier(sessions)

    def query(number):
        session = elastic.open(tenant)
        together.wait(WITHIN_S)
        statement = Statement(session, f"SELECT {number} AS n")
        # An open operation keeps its session at the engine.
        return session, statement, statement.result()

    with concurrent.futures.ThreadPoolExecutor(sessions) as clients:
        answered = list(clients.map(query, range(sessions)))
    try:
        # Those that registered first may be full before the others register.
        refused = [line for _, it, _ in answered for line in it.log if f"all {engines} engines are full" in line]
        assert refused == [], "a session that has waited gets a seat"
        assert [it for *_, it in answered] == [[(number,)] for number in range(sessions)]
        assert len(elastic.ever(tenant)) == engines

        def taken():
            return [it["sessions"] for it in elastic.control.wait_ready(tenant, engines)] == [seats] * engines

        wait_until(taken, WITHIN_S, "SHOW ENGINES shows that all seats are taken")
        elastic.wait_none_waits(tenant)
        assert elastic.wanted(tenant) == {"crowd_u": ["demand"] * engines}
        for _, statement, _ in answered:
            statement.close()
        # The thirty clients stay connected.
        elastic.wait_released(tenant)
        assert len(elastic.ever(tenant)) == engines
    finally:
        for session, *_ in answered:
            session.close()


@every
def test_an_idle_engine_is_released_and_its_clients_go_on_with_their_settings(elastic):
    tenant = elastic.make("pausing")
    with elastic.session(tenant) as other:
        for statement in ("CREATE SCHEMA kept", "CREATE VIEW kept.v AS SELECT 42 AS answer"):
            rows(other, statement)
    with elastic.session(tenant) as session:
        rows(session, "USE kept")
        rows(session, "SET datafusion.execution.batch_size=17")
        assert rows(session, "SELECT answer FROM v") == [{"answer": 42}]
        before = elastic.ever(tenant)
        elastic.wait_released(tenant)
        resumed = Statement(session, "SELECT answer FROM v")
        # An open operation keeps its session at the engine.
        assert resumed.result() == [(42,)]
        assert rows(session, "SHOW datafusion.execution.batch_size")[0]["value"] == "17"
        assert len(elastic.ever(tenant) - before) == 1
        resumed.close()
    released = {it["engine"]: it for it in elastic.execute(f"SHOW ENGINE HISTORY {tenant} LIMIT 5")}
    assert before <= set(released), released
    for it in (released[name] for name in before):
        assert (it["word"], it["origin"], it["retryable"]) == ("idle", "demand", None), it
        assert it["reason"].startswith("idle for"), it
        assert it["sessions_served"] >= 1, it
        times = [it[name] for name in ("wanted", "reserved", "created", "registered", "ended")]
        assert times == sorted(times), it


@every
@pytest.mark.parametrize("stays", some([True, False], True), ids=["stays_open", "is_closed"])
def test_a_session_that_opens_before_the_release_keeps_the_engine(elastic, stays):
    # Long enough to be found idle, and to arm the failpoint, before the release.
    tenant = elastic.make("kept" if stays else "kept_for_longer", "IDLE_TIMEOUT '8s'")
    with elastic.session(tenant) as session:
        rows(session, "SELECT 1 AS one")
    ((name, process),) = elastic.running(tenant).items()
    # Nothing but the release is left to be written when this is shown.
    elastic.control.wait_engine(tenant, name, "ready", "released in")
    declined = elastic.declined(tenant)
    elastic.points.arm(WRITES, "hold")
    elastic.points.wait_claimed(WRITES)
    with contextlib.ExitStack() as opened:
        session = opened.enter_context(elastic.session(tenant))
        # An open operation keeps its session at the engine.
        meanwhile = Statement(session, "SELECT 40 + 2 AS answer")
        assert meanwhile.result() == [(42,)]
        if not stays:
            meanwhile.close()
            opened.close()
        elastic.points.let_go(WRITES)
        wait_until(lambda: elastic.declined(tenant) > declined, WITHIN_S, "the agent has refused to retire")
        assert elastic.running(tenant) == {name: process} and elastic.wanted(tenant) == {f"{tenant}_u": ["demand"]}
        if stays:
            elastic.another_is_released()
            assert rows(session, "SELECT 43 AS answer") == [{"answer": 43}]
            assert elastic.running(tenant) == {name: process}
            meanwhile.close()
    elastic.wait_released(tenant)
    assert elastic.ever(tenant) == {name}


@default
def test_a_start_that_fails_for_good_is_refused_at_once_and_is_history(elastic):
    tenant = elastic.make("broken", "PROPERTIES ('datafusion.no.such.key'='1')")
    healthy = elastic.make("healthy")
    elastic.installation.logs.allow(r'the engine failed reason=".*datafusion\.no\.such\.key')
    with elastic.session(tenant) as session, elastic.session(healthy) as other:
        refusal = refused_at_once(session)
        assert 'Resource unit "broken_u": engine "broken-' in refusal.message, refusal
        assert "datafusion.no.such.key" in refusal.message, refusal
        assert rows(other, "SELECT 1 AS one") == [{"one": 1}]
        elastic.assert_failed_for_good(tenant, "datafusion.no.such.key")
        elastic.execute("ALTER RESOURCE UNIT broken_u PROPERTIES ('datafusion.no.such.key'=NULL) WAIT '1m'")
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]


@default
def test_run_as_owner_is_refused_where_any_name_can_be_claimed(elastic):
    tenant = elastic.make("claimed", "SHARED_BY 'user'")
    with contextlib.closing(open_pyhive(elastic.address, "admin")) as admin:
        for statement in (
            "CREATE RESOURCE UNIT claimed_v SHARED_BY 'user',",
            "EXPLAIN ALTER RESOURCE UNIT claimed_u",
            "ALTER RESOURCE UNIT claimed_u",
        ):
            refusal = refused(admin, f"{statement} RUN_AS 'owner'")
            assert refusal.sqlstate == "0A000" and "access.authentication" in refusal.message, refusal
        refusal = refused(admin, "ALTER RESOURCE UNIT claimed_u SHARED_BY 'group', RUN_AS 'owner'")
        assert refusal.sqlstate in ("0A000", "22023"), refusal
    with elastic.session(tenant) as session:
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]


@every
def test_an_engine_in_use_is_never_released_and_min_engines_stay(elastic):
    tenant = elastic.make("using", "SESSIONS_PER_ENGINE 1")
    for unit, options in (("using_v", "SESSIONS_PER_ENGINE 1"), ("using_m", "SESSIONS_PER_ENGINE 1, MIN_ENGINES 1")):
        elastic.execute(f"CREATE RESOURCE UNIT {unit} {unit_options(options)}")
    elastic.execute("ALTER RESOURCE POOL using_p UNIT_LIST ('using_u', 'using_v', 'using_m') WAIT '1m'")
    elastic.points.arm(STARTS_STATEMENT, "hold")
    with (
        elastic.session(tenant, unit="using_u") as busy,
        elastic.session(tenant, unit="using_v") as stateful,
        elastic.session(tenant, unit="using_m") as first,
        elastic.session(tenant, unit="using_m") as second,
    ):
        running = Statement(busy, "SELECT 1 AS one")
        elastic.points.wait_claimed(STARTS_STATEMENT)
        rows(stateful, "CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer")
        taken = [Statement(it, "SELECT 1 AS one") for it in (first, second)]
        assert [it.result() for it in taken] == [[(1,)]] * 2
        in_use = elastic.running(tenant, "using_u") | elastic.running(tenant, "using_v")
        assert (len(in_use), len(elastic.running(tenant, "using_m"))) == (2, 2)
        assert elastic.wanted(tenant)["using_m"] == ["demand", "minimum"]
        for it in taken:
            it.close()

        def only_the_minimum():
            left = elastic.running(tenant, "using_m")
            assert left, "fewer than MIN_ENGINES"
            return len(left) == 1 and elastic.wanted(tenant)["using_m"] == ["minimum"]

        wait_until(only_the_minimum, WITHIN_S, "the engine above MIN_ENGINES is released")
        elastic.another_is_released()
        assert only_the_minimum()
        assert elastic.running(tenant, "using_u") | elastic.running(tenant, "using_v") == in_use
        elastic.points.let_go(STARTS_STATEMENT)
        assert running.result() == [(1,)]
        assert rows(stateful, "SELECT answer FROM mine") == [{"answer": 42}]
    wait_until(lambda: set(elastic.wanted(tenant)) == {"using_m"}, WITHIN_S, "after their sessions they are released")
    elastic.execute("DROP TENANT using WAIT '1m'")
    elastic.execute("DROP RESOURCE POOL using_p")
    for unit in ("using_u", "using_v", "using_m"):
        elastic.execute(f"DROP RESOURCE UNIT {unit}")
    elastic.made.remove(("using", "using_p", "using_u"))


@every
def test_a_session_that_would_wait_in_vain_is_refused_at_once_with_the_remedy(elastic):
    large = elastic.make("large", pool="CAPACITY (CPU 0.5)")
    with elastic.session(large) as session:
        refusal = refused_at_once(session)
        limit = 'resource pool "large_p": asked 1, left 0.5 of 0.5 (POOL_CPU, not retryable)'
        assert f'An engine of resource unit "large_u" can never fit: {limit}.' in refusal.message, refusal
        assert "An admin changes the resource pool, the resource unit or the quota" in refusal.message, refusal
        elastic.execute("ALTER RESOURCE POOL large_p CAPACITY (CPU 1) WAIT '1m'")
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
    without = elastic.make("without", pool="NODE_LIST ()")
    with elastic.session(without) as session:
        refusal = refused_at_once(session)
        assert 'Resource pool "without_p" has no nodes.' in refusal.message, refusal
        elastic.execute("ALTER RESOURCE POOL without_p NODE_LIST DEFAULT WAIT '1m'")
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
    asking = elastic.make("asking", "START_ON_DEMAND FALSE")
    with elastic.session(asking) as session:
        refusal = refused_at_once(session)
        assert "Hint: To start an engine, run START ENGINE asking asking_p asking_u." in refusal.message, refusal
        elastic.execute("ALTER RESOURCE UNIT asking_u START_ON_DEMAND TRUE WAIT '1m'")
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
    assert [len(elastic.ever(it)) for it in (large, without, asking)] == [1, 1, 1]


def refused_at_once(session):
    began = time.monotonic()
    refusal = refused(session, "SELECT 1 AS one")
    assert (refusal.sqlstate, time.monotonic() - began < AT_ONCE_S) == ("55000", True), refusal
    return refusal


@every
def test_an_alter_of_the_seats_reaches_running_engines(elastic):
    tenant = elastic.make("seated", "SESSIONS_PER_ENGINE 1, MAX_ENGINES 1")
    with elastic.session(tenant) as first, elastic.session(tenant) as second, elastic.session(tenant) as third:
        seated = Statement(first, "SELECT 1 AS n")
        assert seated.result() == [(1,)]
        engines = elastic.running(tenant)
        (name,) = engines
        waits = Statement(second, "SELECT 2 AS n")
        waits.wait_logged(name)
        elastic.execute("ALTER RESOURCE UNIT seated_u SESSIONS_PER_ENGINE 2 WAIT '1m'")
        assert waits.result() == [(2,)]
        last = Statement(third, "SELECT 3 AS n")
        last.wait_logged(name)
        # Who has a seat keeps it.
        elastic.execute("ALTER RESOURCE UNIT seated_u SESSIONS_PER_ENGINE 1 WAIT '1m'")
        assert rows(second, "SELECT 4 AS n") == [{"n": 4}]
        seated.close()
        waits.close()
        assert last.result() == [(3,)]
        assert elastic.running(tenant) == engines and elastic.ever(tenant) == {name}


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@every
def test_a_stopped_engine_agent_is_never_released(elastic):
    tenant = elastic.make("frozen", "IDLE_TIMEOUT '1h'")
    with elastic.session(tenant) as session:
        rows(session, "SELECT 1 AS one")
    ((name, process),) = elastic.running(tenant).items()
    wait_until(lambda: elastic.control.described("frozen_p", name)["idle since"], WITHIN_S, "it is known to be idle")
    with stopped(process[0]):
        elastic.execute("ALTER RESOURCE UNIT frozen_u IDLE_TIMEOUT '1s'")
        elastic.another_is_released()
        wait_until(lambda: elastic.control.engine(tenant, name)["state"] != "ready", WITHIN_S, "its registration is lost")
        elastic.another_is_released()
        assert elastic.running(tenant) == {name: process} and elastic.wanted(tenant) == {"frozen_u": ["demand"]}
    elastic.wait_released(tenant)


@clusters
def test_the_demand_of_a_killed_proxy_ends_with_its_lease(elastic):
    cluster = elastic.installation
    holder = elastic.make("holder", pool="CAPACITY (ENGINES 1)")
    for tenant in ("orphaned", "heir"):
        elastic.execute(f"CREATE TENANT {tenant} RESOURCE_POOL_LIST ('holder_p'), USER_LIST ('{tenant}_user')")
    with elastic.session(holder) as session:
        seated = Statement(session, "SELECT 1 AS one")
        assert seated.result() == [(1,)]
        cluster.start_program("proxy-c")
        waiting = Statement(elastic.open("orphaned", cluster.addresses["proxy-c"]), "SELECT 1 AS one")
        waiting.wait_logged("left 0 of 1")
        assert elastic.waiting("orphaned") == 1
        cluster.programs.pop("proxy-c").kill()
        # By the clock of the database; the rows stay until housekeeping deletes them.
        ends = max(int(it) for (it,) in elastic.database.rows("SELECT until_ms FROM demand WHERE tenant = 'orphaned'"))
        with elastic.session("heir") as other:
            heir = Statement(other, "SELECT 1 AS one")
            heir.wait_logged("left 0 of 1")
            renewed = "SELECT MAX(until_ms) FROM demand WHERE tenant = 'heir'"
            wait_until(
                lambda: int(elastic.database.rows(renewed)[0][0]) - LEASE_S * 1000 > ends, WITHIN_S, "the lease has ended"
            )
            (engine,) = elastic.running(holder)
            elastic.control.stop("holder_p", engine)
            assert heir.result() == [(1,)], "the older demand is gone"
            heir.close()
    assert elastic.ever("orphaned") == set()
    for tenant in ("orphaned", "heir"):
        elastic.execute(f"DROP TENANT {tenant} WAIT '1m'")


@default
@pytest.mark.parametrize("client", CLIENTS)
def test_the_first_query_of_each_client_starts_an_engine(elastic, client):
    tenant = elastic.make(f"by_{client}")
    answer, log = CLIENTS[client](elastic.address, f"{tenant}_user", "40 + 2")
    assert answer == 42
    assert "waiting for an engine to be started" in log, log
    assert len(elastic.ever(tenant)) == 1
    elastic.wait_released(tenant)
