"""Outdated, adopted, replaced and drained engines, in a cluster."""

import re
import time

import pytest
from TCLIService.ttypes import TOperationState

from harness.clients import pyhive_session, refused, rows
from harness.control import Control
from harness.processes import is_alive
from harness.waiting import stays, wait_until

GONE_WITHIN_S = 2.0
SERVES_S = 4
LONG_S = 8
# Longer than it takes to query both sessions meanwhile, on a machine that is busy.
GRACE_S = 12
ENDLESS = 100_000_000_000


def test_an_engine_whose_config_label_is_changed_by_hand_is_replaced(cluster, control, cluster_tenant):
    tenant, pool, unit, _ = cluster_tenant("label")
    name = control.start(tenant, pool, unit)
    engine = cluster.engines.one(name)
    engine.set_label("enginehouse.io/config", "0123456789abcdef")
    replaced = wait_until(lambda: [it for it in cluster.engines.of(tenant) if it.name != name], 30, "another engine is made")
    (row,) = control.wait_ready(tenant)
    assert row["engine"] == replaced[0].name
    wait_until(lambda: not engine.is_alive(), 20, "the engine with the changed label is gone")


def test_an_engine_with_right_labels_from_another_master_is_adopted(own_cluster):
    cluster = own_cluster()
    control = Control(cluster.addresses["proxy-b"])
    tenant, pool, unit = control.make("adopted", users="'alice'")
    # This master dies as soon as it has made the engine: its uid is recorded nowhere.
    cluster.programs["proxy-a"].stop()
    cluster.start_program("proxy-a", wait=False, failpoints="master.after.create_engine=kill")
    (answer,) = control.execute(f"START ENGINE {tenant} {pool} {unit}")
    wait_until(lambda: not cluster.programs["proxy-a"].is_running(), 30, "the master died")
    engine = cluster.engines.one(answer["engine"])
    before = engine.process
    assert cluster.database.rows(f"SELECT uid FROM engine WHERE name = '{engine.name}'") == [[None]]
    cluster.start_program("proxy-a")
    (row,) = control.wait_ready(tenant)
    assert row["engine"] == engine.name
    assert cluster.engines.one(engine.name).process == before
    assert cluster.database.rows(f"SELECT uid FROM engine WHERE name = '{engine.name}'") == [[engine.uid]]
    assert control.execute("SELECT 1 AS one", "alice") == [{"one": 1}]


def cannot_start(cluster, control, cluster_tenant, tenant_name, broken, repaired, parts):
    tenant, pool, unit, user = cluster_tenant(tenant_name)
    old = control.start(tenant, pool, unit)
    before = cluster.engines.one(old).process
    cluster.logs.allow(*(f'the engine failed reason=".*{re.escape(part)}' for part in parts))
    with pyhive_session(cluster.addresses["proxy-b"], user) as session:
        (answer,) = control.execute(f"ALTER RESOURCE UNIT {unit} {broken}")
        wait_until(
            lambda: [it["progress"] for it in control.alterations() if it["id"] == answer["alteration"]] == ["converged"],
            20,
            "the alteration converges although the new engine can't start",
            0.3,
        )

        def names_reason():
            shown = control.engines(tenant)
            reasons = " ".join(str(it["reason"]) for it in shown)
            return shown if all(part in reasons for part in parts) else None

        shown = wait_until(names_reason, 30, f"SHOW ENGINES says {parts}", 0.3)
        (stand_in,) = [it for it in shown if it["engine"] == old]
        assert (stand_in["state"], stand_in["current"]) == ("ready", False), stand_in
        assert "waits for replacement" in stand_in["reason"], stand_in
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
        other = Control(cluster.addresses["proxy-a"])
        served = [{"one": 1}]
        stays(lambda: other.execute("SELECT 1 AS one", user) == served, SERVES_S, "the old engine answers new sessions")
        assert cluster.engines.one(old).process == before
        control.execute(f"ALTER RESOURCE UNIT {unit} {repaired} WAIT '1m'")
        (row,) = control.wait_ready(tenant)
        assert row["engine"] != old
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]


def test_an_alter_to_a_rejected_property_stops_no_engine(cluster, control, cluster_tenant):
    cannot_start(
        cluster,
        control,
        cluster_tenant,
        "bad_property",
        "PROPERTIES ('datafusion.execution.batch_size'='many')",
        "PROPERTIES RESET",
        ["datafusion.execution.batch_size"],
    )


def test_an_alter_to_a_missing_engine_type_stops_no_engine(cluster, control, cluster_tenant):
    cannot_start(cluster, control, cluster_tenant, "no_spark", "ENGINE_TYPE 'spark'", "ENGINE_TYPE 'datafusion'", ["spark"])


def seconds_of_work(session, seconds):
    count = 20_000_000
    while True:
        began = time.monotonic()
        rows(session, statement(count))
        took = time.monotonic() - began
        if took > 1:
            return int(count * seconds / took)
        count *= 4


def statement(count):
    return f"SELECT sum(value % 7) AS s FROM generate_series(1, {count})"


def sum_of(count):
    return sum(((count - r) // 7 + 1) * r for r in range(1, 7) if count >= r)


def runs(cursor):
    return cursor.poll().operationState == TOperationState.RUNNING_STATE


def is_draining(control, tenant, name):
    shown = control.engine(tenant, name)
    assert shown, f"engine {name} is gone, and its statement was not finished"
    return shown["state"] == "draining"


@pytest.mark.alone
def test_a_running_statement_is_finished_before_a_drained_engine_exits(cluster, control, cluster_tenant):
    tenant, pool, unit, user = cluster_tenant("drained")
    name = control.start(tenant, pool, unit)
    process = cluster.engines.one(name).process
    with pyhive_session(cluster.addresses["proxy-b"], user) as session:
        count = seconds_of_work(session, LONG_S)
        cursor = session.cursor()
        cursor.execute(statement(count), async_=True)
        control.execute(f"STOP ENGINE {pool} '{name}' WITHIN '5m'")
        wait_until(lambda: is_draining(control, tenant, name), 10, "the engine drains", 0.2)
        # How long it takes follows from what else the machine has to do: what counts is that it ran, and was finished.
        assert runs(cursor) and is_alive(*process), "void: the statement has ended before the engine drained"
        assert cursor.fetchall() == [(sum_of(count),)]
        cursor.close()
        fetched = time.monotonic()
        wait_until(lambda: not is_alive(*process), 10, "the engine exits", 0.01)
        gone = time.monotonic() - fetched
    assert gone < GONE_WITHIN_S, f"it exited {gone:.1f} s after its result was fetched"


@pytest.mark.alone
def test_an_idle_engine_exits_within_two_seconds_of_its_drain(cluster, control, cluster_tenant):
    tenant, pool, unit, _ = cluster_tenant("idle")
    name = control.start(tenant, pool, unit)
    process = cluster.engines.one(name).process
    control.execute(f"STOP ENGINE {pool} '{name}' WITHIN '5m'")
    # From the moment at which the order was written: what comes before it is the master's tick.
    order = wait_until(lambda: cluster.nodes.client.exists(cluster.nodes.path(f"drains/{name}")), 10, "it is to drain", 0.01)
    wait_until(lambda: not is_alive(*process), 10, "the engine exits", 0.01)
    took = time.time() - order.created
    assert took < GONE_WITHIN_S, f"it exited {took:.1f} s after the order to drain"
    wait_until(lambda: control.engines(tenant) == [], 20, "SHOW ENGINES lists it no more", 0.3)
    wait_until(
        lambda: not cluster.nodes.exists(f"drains/{name}") and not cluster.nodes.exists(f"engines/{name}"),
        20,
        "neither drain order nor permit is left",
    )


def test_a_stateful_session_stays_on_a_drained_engine_until_the_deadline(cluster, control, cluster_tenant):
    tenant, pool, unit, user = cluster_tenant("own_state")
    name = control.start(tenant, pool, unit)
    engine = cluster.engines.one(name)
    with pyhive_session(cluster.addresses["proxy-b"], user) as own, pyhive_session(cluster.addresses["proxy-b"], user) as free:
        rows(own, "CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer")
        rows(free, "SELECT 1")
        began = time.monotonic()
        control.execute(f"RESTART ENGINE {pool} '{name}' WITHIN '{GRACE_S}s'")
        control.wait_engine(tenant, name, "draining", within_s=20)
        # Its own state is on the old engine; a session without any moves and does not notice.
        assert rows(own, "SELECT answer FROM mine") == [{"answer": 42}]
        assert rows(free, "SELECT 1 AS one") == [{"one": 1}]
        assert engine.is_alive()
        wait_until(lambda: not engine.is_alive(), GRACE_S + 20, "the old engine exits at the deadline")
        assert time.monotonic() - began > GRACE_S - 1
        refusal = refused(own, "SELECT answer FROM mine")
        assert refusal.sqlstate == "08S01", refusal
        assert rows(free, "SELECT 1 AS one") == [{"one": 1}]


def test_an_alter_there_and_back_while_the_first_engine_drains(cluster, control, cluster_tenant):
    tenant, pool, unit, user = cluster_tenant("there_and_back")
    first = control.start(tenant, pool, unit)
    process = cluster.engines.one(first).process
    with pyhive_session(cluster.addresses["proxy-b"], user) as session:
        cursor = session.cursor()
        cursor.execute(statement(ENDLESS), async_=True)
        control.execute(f"ALTER RESOURCE UNIT {unit} DRIVER_MEMORY '1G'")
        second = control.wait_another(tenant, first)
        assert second["config"].startswith("1_1G"), second
        wait_until(lambda: is_draining(control, tenant, first), 20, "the first engine drains", 0.2)
        control.execute(f"ALTER RESOURCE UNIT {unit} DRIVER_MEMORY '512M'")
        # A drained engine is never taken back.
        third = control.wait_another(tenant, first, second["engine"])
        assert third["config"].startswith("1_512M"), third
        assert runs(cursor) and is_alive(*process), "the first engine still works"
        cursor.cancel()
        cursor.close()
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
    (row,) = control.wait_ready(tenant)
    assert row["engine"] == third["engine"]
    wait_until(lambda: not is_alive(*process), 10, "the first engine is gone")
