"""Engines of type spark on demand through real clients: what `test_engines_on_demand.py` shows with DataFusion. Every start of
a Spark takes seconds, so all of it is in the long tier."""

import concurrent.futures
import contextlib
import threading
import time

import pytest

from harness import spark
from harness.clients import open_pyhive, refused, rows
from harness.cluster import Cluster
from harness.fixtures import searched, started
from harness.on_demand import CLIENTS, Elastic, Statement
from harness.tier import only_long
from harness.waiting import wait_until

WITHIN_S = 180
# A Spark that fails takes some seconds for that. Much less than any deadline: a statement waits for an engine for five minutes.
AT_ONCE_S = 30
TIMES = {
    "proxy": {"unbind_after": "1s", "snapshot_poll": "500ms", "bind_deadline": "5m"},
    "master": {"status_poll": "500ms", "cooldown": "1s", "cancel_after": "2s"},
}
SPARK = "ENGINE_TYPE 'spark', MAX_EXECUTORS 0"


@pytest.fixture(scope="module")
def made(workspace):
    for cluster in started(Cluster(workspace / "spark-on-demand", spark=spark.on_this_machine(), **TIMES)):
        yield Elastic(cluster, None, cluster.addresses["proxy-b"], cluster.database, cluster.nodes)


@pytest.fixture
def elastic(made, request):
    """The installation of this file; what a test has made is dropped after it."""
    for _ in searched(made.installation, request):
        yield made
        made.drop_all()


def make(elastic, tenant, options=""):
    return elastic.make(tenant, f"{SPARK}{options and f', {options}'}")


@only_long
@pytest.mark.parametrize("client", CLIENTS)
def test_the_first_query_of_each_client_starts_a_spark(elastic, client):
    tenant = make(elastic, f"spark_{client}")
    answer, log = CLIENTS[client](elastic.address, f"{tenant}_user", "40 + 2")
    assert answer == 42
    assert "waiting for an engine to be started" in log, log
    assert len(elastic.ever(tenant)) == 1
    elastic.wait_released(tenant)


def metastore(folder):
    """Properties with which successive Sparks share a catalog: Derby's database admits one of them at a time."""
    properties = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
    }
    return "PROPERTIES (" + ", ".join(f"'{key}'='{value}'" for key, value in properties.items()) + ")"


@only_long
def test_an_idle_spark_is_released_and_its_client_goes_on_with_its_settings(elastic, folder):
    tenant = make(elastic, "pausing", metastore(folder))
    with elastic.session(tenant) as session:
        for statement in (
            "CREATE SCHEMA kept",
            "USE kept",
            "CREATE VIEW v AS SELECT 42 AS answer",
            "SET spark.sql.shuffle.partitions=17",
        ):
            spark.done(session, statement)
        assert rows(session, "SELECT answer FROM v") == [{"answer": 42}]
        before = elastic.ever(tenant)
        elastic.wait_released(tenant)
        assert rows(session, "SELECT answer, current_schema() AS used FROM v") == [{"answer": 42, "used": "kept"}]
        assert rows(session, "SET spark.sql.shuffle.partitions")[0]["value"] == "17"
        (new,) = elastic.ever(tenant) - before
    elastic.wait_released(tenant)
    history = {it["engine"]: it for it in elastic.execute(f"SHOW ENGINE HISTORY {tenant}")}
    assert set(history) == before | {new}, history
    for it in history.values():
        assert (it["word"], it["origin"], it["retryable"]) == ("idle", "demand", None), it
        assert it["reason"].startswith("idle for") and it["sessions_served"] == 1, it
        times = [it[name] for name in ("wanted", "reserved", "created", "registered", "ended")]
        assert times == sorted(times), it


@only_long
def test_thirty_sessions_with_ten_seats_per_spark_start_three(elastic):
    sessions, seats, engines = 30, 10, 3
    tenant = make(elastic, "crowd", f"SESSIONS_PER_ENGINE {seats}, MAX_ENGINES {sessions}")
    together = threading.Barrier(sessions)

    def query(number):
        session = elastic.open(tenant)
        together.wait(WITHIN_S)
        statement = Statement(session, f"SELECT {number} AS n")
        # An open operation keeps its session at the engine.
        return session, statement, statement.result(WITHIN_S)

    with concurrent.futures.ThreadPoolExecutor(sessions) as clients:
        answered = list(clients.map(query, range(sessions)))
    try:
        assert [it for *_, it in answered] == [[(number,)] for number in range(sessions)]
        assert len(elastic.ever(tenant)) == engines

        def taken():
            return [it["sessions"] for it in elastic.control.wait_ready(tenant, engines)] == [seats] * engines

        wait_until(taken, WITHIN_S, "SHOW ENGINES shows that all seats are taken")
        for _, statement, _ in answered:
            statement.close()
        # The thirty clients stay connected.
        elastic.wait_released(tenant)
        assert len(elastic.ever(tenant)) == engines
    finally:
        for session, *_ in answered:
            session.close()


@only_long
def test_each_user_has_a_spark_of_their_own(elastic):
    tenant = make(elastic, "apart", "SHARED_BY 'user'")
    users = ("ann", "bob", "ann")
    elastic.execute(f"ALTER TENANT {tenant} USER_LIST ('ann', 'bob')")
    with contextlib.ExitStack() as opened:
        sessions = [opened.enter_context(contextlib.closing(open_pyhive(elastic.address, user))) for user in users]
        # Open operations keep their sessions at the engines.
        statements = [Statement(it, "SELECT current_user() AS me, uuid() AS one") for it in sessions]
        assert [it.result(WITHIN_S)[0][0] for it in statements] == list(users)

        def owners():
            return {it["owner"]: it["sessions"] for it in elastic.control.engines(tenant)}

        wait_until(lambda: owners() == {'user "ann"': 2, 'user "bob"': 1}, WITHIN_S, "each user has an engine")
        names = [rows(it, "SET spark.app.name")[0]["value"] for it in sessions]
        assert names[0] == names[2] != names[1], names
        assert elastic.ever(tenant) == set(names)
    elastic.wait_released(tenant)


@only_long
def test_a_spark_that_can_never_start_fails_its_session_within_seconds(elastic):
    tenant = make(elastic, "hopeless", "PROPERTIES ('spark.serializer'='no.such.Serializer')")
    elastic.installation.logs.allow(r"the engine failed reason=.*no\.such\.Serializer")
    with elastic.session(tenant) as session:
        began = time.monotonic()
        refusal = refused(session, "SELECT 1 AS one")
        seconds = time.monotonic() - began
        assert (refusal.sqlstate, seconds < AT_ONCE_S) == ("55000", True), (seconds, refusal)
        print(f"refused after {seconds:.1f} s: {refusal.message}")
        for part in (
            'Resource unit "hopeless_u": engine "hopeless-',
            "Spark ended with exit status: 1: java.lang.ClassNotFoundException: no.such.Serializer",
            "correct the name of the class in PROPERTIES of the resource unit",
        ):
            assert part in refusal.message, refusal
        elastic.assert_failed_for_good(tenant, "no.such.Serializer")
        elastic.execute("ALTER RESOURCE UNIT hopeless_u PROPERTIES ('spark.serializer'=NULL) WAIT '3m'")
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
