"""Engines of type spark on one machine: a real Spark behind its agent, reached by real clients through a proxy."""

import os
import signal
import time

import psutil
import pytest
from pyhive.exc import OperationalError
from TCLIService.ttypes import TOperationState

from harness import spark
from harness.clients import pyhive_session, refused, rows
from harness.cluster import Cluster
from harness.control import Control
from harness.fixtures import followed, started
from harness.java import beeline_ok
from harness.processes import is_alive, working_below
from harness.tier import only_long
from harness.waiting import wait_until

WITHIN_S = 120
STARTS_WITHIN = "5m"
SPARK = ", ENGINE_TYPE 'spark', MAX_EXECUTORS 0"
# Days of work for one core.
ENDLESS = "SELECT count(*) AS n FROM range(100000000000000) WHERE hash(id) = 1"


@pytest.fixture(scope="module")
def installation(workspace):
    yield from started(Cluster(workspace / "spark-cluster", spark=spark.on_this_machine()))


@pytest.fixture
def cluster(installation):
    yield from followed(installation)


@pytest.fixture
def control(cluster):
    return Control(cluster.addresses["proxy-b"])


def spark_of(engine):
    (java,) = [it for it in psutil.Process(engine.pid).children(recursive=True) if it.name() == "java"]
    return java


def errors_have_no_stack_traces(session):
    for statement, cause in [
        ("SELECT cont(*) FROM range(1)", "UNRESOLVED_ROUTINE"),
        ("SELECT raise_error(concat('boom ', id)) FROM range(2)", "boom "),
    ]:
        with pytest.raises(OperationalError) as error:
            rows(session, statement)
        status = error.value.args[0].status
        assert cause in status.errorMessage and "\tat " not in status.errorMessage, status
        assert status.infoMessages is None, status
        message = error_of_operation(session, statement)
        assert cause in message and "\tat " not in message, message


def error_of_operation(session, statement):
    cursor = session.cursor()
    cursor.execute(statement, async_=True)

    def failed():
        status = cursor.poll()
        return status.errorMessage if status.operationState == TOperationState.ERROR_STATE else None

    return wait_until(failed, WITHIN_S, "the statement fails", 0.1)


def ended_because(cluster, name):
    return wait_until(
        lambda: cluster.database.rows(f"SELECT ended_reason FROM engine WHERE name = '{name}' AND ended_reason IS NOT NULL"),
        WITHIN_S,
        f"the end of engine {name} is written down",
    )[0][0]


def has_ended(engine, java):
    wait_until(lambda: not engine.is_alive() and not java.is_running(), WITHIN_S, "agent and Spark have ended")


def test_pyhive_and_beeline_are_answered_by_spark(cluster, control):
    tenant, pool, unit = control.make(
        "sparkling", users="'alice'", options=f"{SPARK}, PROPERTIES ('spark.sql.shuffle.partitions'='3')"
    )
    name = control.start(tenant, pool, unit, wait=STARTS_WITHIN)
    with pyhive_session(cluster.addresses["proxy-b"], "alice") as session:
        (row,) = rows(session, "SELECT version() AS version, current_user() AS me")
        assert row["version"].startswith(f"{spark.version()} "), row
        assert row["me"] == "alice"
        sums = rows(session, "SELECT id % 2 AS odd, sum(id) AS total FROM range(1000) GROUP BY 1 ORDER BY 1")
        assert sums == [{"odd": 0, "total": 249500}, {"odd": 1, "total": 250000}]
        (row,) = rows(session, "SET spark.sql.shuffle.partitions")
        assert row["value"] == "3", row
        (row,) = rows(session, "SET spark.master")
        assert row["value"] == "local[1]", row
        spark.done(session, "CREATE TABLE kept AS SELECT 42 AS answer")
        errors_have_no_stack_traces(session)
    described = control.described(pool, name)
    assert described["catalog"].startswith("own: "), described
    _, log = control.look(f"EXPLAIN ALTER RESOURCE UNIT {unit} DRIVER_MEMORY '700M'")
    assert any("warning: " in it and f'"{name}"' in it for it in log), log
    done = beeline_ok(cluster.addresses["proxy-a"], "SELECT answer, version() AS v FROM kept", user="alice")
    assert any(line.startswith(f"42\t{spark.version()} ") for line in done.lines()), done.out
    engine = cluster.engines.one(name)
    java = spark_of(engine)
    # It has nothing of its agent's but what marks it as this engine's: not the environment, not the folder with the keys;
    # and it accepts no other connection.
    environment = java.environ()
    marks = {"ENGINEHOUSE_ENGINE_UID", "ENGINEHOUSE_ENGINE_DIR"}
    assert {it for it in environment if it.startswith("ENGINEHOUSE")} == marks, environment
    assert java.cwd() == str(engine.folder.resolve() / "files/spark")
    listens = {it.laddr.ip for it in java.net_connections("tcp") if it.status == psutil.CONN_LISTEN}
    assert listens and all(it.removeprefix("::ffff:") == "127.0.0.1" for it in listens), listens
    control.stop(pool, name)
    has_ended(engine, java)
    control.drop(tenant, pool, unit)


def test_a_cancelled_statement_gives_sparks_only_core_free(cluster, control):
    tenant, pool, unit = control.make("cancelled", users="'bob'", options=SPARK)
    name = control.start(tenant, pool, unit, wait=STARTS_WITHIN)
    with pyhive_session(cluster.addresses["proxy-b"], "bob") as session:
        cursor = session.cursor()
        cursor.execute(ENDLESS, async_=True)
        wait_until(lambda: (control.engine(tenant, name) or {}).get("running") == 1, WITHIN_S, "SHOW ENGINES counts it", 0.2)
        assert cursor.poll().operationState == TOperationState.RUNNING_STATE
        cursor.cancel()
        wait_until(lambda: cursor.poll().operationState == TOperationState.CANCELED_STATE, WITHIN_S, "it is cancelled")
        # Beside one that still runs this would wait for days.
        assert rows(session, "SELECT sum(id) AS total FROM range(10)") == [{"total": 45}]
    control.stop(pool, name)
    control.drop(tenant, pool, unit)


def test_a_restart_drains_spark_after_its_sessions_finish(cluster, control):
    tenant, pool, unit = control.make("restarted", users="'carol', 'dave'", options=SPARK)
    old = control.start(tenant, pool, unit, wait=STARTS_WITHIN)
    engine = cluster.engines.one(old)
    java = spark_of(engine)
    with (
        pyhive_session(cluster.addresses["proxy-b"], "carol") as session,
        pyhive_session(cluster.addresses["proxy-b"], "dave") as another,
    ):
        spark.done(session, "CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer")
        cursor = another.cursor()
        cursor.execute(ENDLESS, async_=True)
        control.execute(f"RESTART ENGINE {pool} '{old}'")

        def replaced():
            by_name = {it["engine"]: it for it in control.engines(tenant)}
            new = [it for it in by_name.values() if it["current"] and it["state"] == "ready"]
            return new[0]["engine"] if new and by_name.get(old, {}).get("state") == "draining" else None

        new = wait_until(replaced, WITHIN_S, "a new Spark is ready, the old one drains", 0.2)
        assert cursor.poll().operationState == TOperationState.RUNNING_STATE
        cursor.cancel()
        assert rows(session, "SELECT answer FROM mine") == [{"answer": 42}]
        (row,) = rows(another, "SET spark.app.name")
        assert row["value"] == new, row
    has_ended(engine, java)
    assert ended_because(cluster, old) == "drained"
    (row,) = control.wait_ready(tenant)
    assert row["engine"] == new
    control.drop(tenant, pool, unit)


def test_an_engine_ends_with_its_spark_and_spark_with_its_agent(cluster, control):
    cluster.logs.allow("the engine failed reason=")
    tenant, pool, unit = control.make("killed", users="'erin'", options=SPARK)
    first = control.start(tenant, pool, unit, wait=STARTS_WITHIN)
    engine = cluster.engines.one(first)
    spark_of(engine).kill()
    assert "Spark ended with signal: 9" in ended_because(cluster, first)
    assert not engine.is_alive()
    second = wait_until(
        lambda: next((it["engine"] for it in control.engines(tenant) if it["state"] == "ready"), None),
        WITHIN_S,
        "its slot has another engine",
        0.3,
    )
    engine = cluster.engines.one(second)
    java = spark_of(engine)
    os.kill(engine.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(java.pid, java.create_time()), WITHIN_S, "Spark is ended with its agent")
    wait_until(lambda: not working_below(engine.folder), WITHIN_S, "nothing of the engine is left")
    control.execute(f"ALTER RESOURCE UNIT {unit} MIN_ENGINES 0")
    control.drop(tenant, pool, unit)


@only_long
def test_clients_of_a_stopped_spark_receive_08s01_and_it_goes_on(cluster, control):
    cluster.logs.allow("engine does not respond; leaving the registry", "engine lost while a statement was sent")
    tenant, pool, unit = control.make("stopped", users="'frank'", options=SPARK)
    name = control.start(tenant, pool, unit, wait=STARTS_WITHIN)
    java = spark_of(cluster.engines.one(name))
    with pyhive_session(cluster.addresses["proxy-b"], "frank") as session:
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
        java.suspend()
        began = time.monotonic()
        lost = refused(session, "SELECT 2 AS two")
        assert lost.sqlstate == "08S01" and time.monotonic() - began < 60, (lost, time.monotonic() - began)
    shown = control.engine(tenant, name)
    assert shown["state"] == "lost" and "does not answer" in shown["reason"], shown
    java.resume()
    wait_until(lambda: control.engine(tenant, name)["state"] == "ready", WITHIN_S, "its agent has registered again")
    with pyhive_session(cluster.addresses["proxy-b"], "frank") as session:
        assert rows(session, "SELECT 3 AS three") == [{"three": 3}]
    control.stop(pool, name)
    control.drop(tenant, pool, unit)


def test_a_spark_start_failure_is_reported(cluster, control):
    cluster.logs.allow("the engine failed reason=")
    broken = f"{SPARK}, PROPERTIES ('spark.serializer'='no.such.Serializer')"
    tenant, pool, unit = control.make("broken", options=broken)
    (answer,) = control.execute(f"START ENGINE {tenant} {pool} {unit}")
    reason = ended_because(cluster, answer["engine"])
    assert "did not start" in reason and "Spark ended with exit status: 1" in reason, reason
    ((log,),) = cluster.database.rows(f"SELECT log_tail FROM engine WHERE name = '{answer['engine']}'")
    assert "no.such.Serializer" in log, log
    control.drop(tenant, pool, unit)
