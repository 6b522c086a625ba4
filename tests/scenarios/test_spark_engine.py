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
from harness.fixtures import started
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
def shared_cluster(workspace):
    yield from started(Cluster(workspace / "spark-cluster", spark=spark.on_this_machine()))


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


def has_ended(engine, java):
    wait_until(lambda: not engine.is_alive() and not java.is_running(), WITHIN_S, "agent and Spark have ended")


def test_pyhive_and_beeline_are_answered_by_spark(cluster, control, cluster_tenant):
    tenant, pool, unit, user = cluster_tenant("sparkling", options=f"{SPARK}, PROPERTIES ('spark.sql.shuffle.partitions'='3')")
    name = control.start(tenant, pool, unit, wait=STARTS_WITHIN)
    with pyhive_session(cluster.addresses["proxy-b"], user) as session:
        (row,) = rows(session, "SELECT version() AS version, current_user() AS me")
        assert row["version"].startswith(f"{spark.version()} "), row
        assert row["me"] == user
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
    done = beeline_ok(cluster.addresses["proxy-a"], "SELECT answer, version() AS v FROM kept", user=user)
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


def test_a_cancelled_statement_gives_sparks_only_core_free(cluster, control, cluster_tenant):
    tenant, pool, unit, user = cluster_tenant("cancelled", options=SPARK)
    name = control.start(tenant, pool, unit, wait=STARTS_WITHIN)
    with pyhive_session(cluster.addresses["proxy-b"], user) as session:
        cursor = session.cursor()
        cursor.execute(ENDLESS, async_=True)
        wait_until(lambda: (control.engine(tenant, name) or {}).get("running") == 1, WITHIN_S, "SHOW ENGINES counts it", 0.2)
        assert cursor.poll().operationState == TOperationState.RUNNING_STATE
        cursor.cancel()
        wait_until(lambda: cursor.poll().operationState == TOperationState.CANCELED_STATE, WITHIN_S, "it is cancelled")
        # Beside one that still runs this would wait for days.
        assert rows(session, "SELECT sum(id) AS total FROM range(10)") == [{"total": 45}]
    control.stop(pool, name)


@only_long
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
        new = control.wait_another(tenant, old, within_s=WITHIN_S)["engine"]
        control.wait_engine(tenant, old, "draining")
        assert cursor.poll().operationState == TOperationState.RUNNING_STATE
        cursor.cancel()
        assert rows(session, "SELECT answer FROM mine") == [{"answer": 42}]
        (row,) = rows(another, "SET spark.app.name")
        assert row["value"] == new, row
    has_ended(engine, java)
    assert cluster.wait_ended(old) == f"replaced by {new}"
    (row,) = control.wait_ready(tenant)
    assert row["engine"] == new
    control.drop(tenant, pool, unit)


def test_an_engine_ends_with_its_spark_and_spark_with_its_agent(cluster, control, cluster_tenant):
    cluster.logs.allow("the engine failed reason=")
    tenant, pool, unit, user = cluster_tenant("killed", options=SPARK)
    first = control.start(tenant, pool, unit, wait=STARTS_WITHIN)
    engine = cluster.engines.one(first)
    spark_of(engine).kill()
    assert "Spark ended with signal: 9" in cluster.wait_ended(first)
    assert not engine.is_alive()
    engine = cluster.engines.one(control.wait_another(tenant, first, within_s=WITHIN_S)["engine"])
    java = spark_of(engine)
    os.kill(engine.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(java.pid, java.create_time()), WITHIN_S, "Spark is ended with its agent")
    wait_until(lambda: not working_below(engine.folder), WITHIN_S, "nothing of the engine is left")
    control.execute(f"ALTER RESOURCE UNIT {unit} MIN_ENGINES 0")


@only_long
def test_clients_of_a_stopped_spark_receive_08s01_and_it_goes_on(cluster, control, cluster_tenant):
    cluster.logs.allow("engine does not respond; leaving the registry", "engine lost while a statement was sent")
    tenant, pool, unit, user = cluster_tenant("stopped", options=SPARK)
    name = control.start(tenant, pool, unit, wait=STARTS_WITHIN)
    java = spark_of(cluster.engines.one(name))
    with pyhive_session(cluster.addresses["proxy-b"], user) as session:
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
        java.suspend()
        began = time.monotonic()
        lost = refused(session, "SELECT 2 AS two")
        assert lost.sqlstate == "08S01" and time.monotonic() - began < 60, (lost, time.monotonic() - began)
    shown = control.engine(tenant, name)
    assert shown["state"] == "lost" and "does not answer" in shown["reason"], shown
    java.resume()
    control.wait_engine(tenant, name, "ready", within_s=WITHIN_S)
    assert control.execute("SELECT 3 AS three", user) == [{"three": 3}]
    control.stop(pool, name)


def test_a_spark_start_failure_is_reported(cluster, control, cluster_tenant):
    cluster.logs.allow("the engine failed reason=")
    broken = f"{SPARK}, PROPERTIES ('spark.serializer'='no.such.Serializer')"
    tenant, pool, unit, _ = cluster_tenant("broken", options=broken)
    (answer,) = control.execute(f"START ENGINE {tenant} {pool} {unit}")
    reason = cluster.wait_ended(answer["engine"])
    assert "did not start" in reason and "Spark ended with exit status: 1" in reason, reason
    ((log,),) = cluster.database.rows(f"SELECT log_tail FROM engine WHERE name = '{answer['engine']}'")
    assert "no.such.Serializer" in log, log
