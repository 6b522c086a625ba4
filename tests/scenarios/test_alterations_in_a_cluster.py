"""Alterations with separate processes, the real ZooKeeper and the real PostgreSQL."""

import time

from harness.clients import pyhive_session, rows
from harness.cluster import ALTER_WAIT_S
from harness.control import Control
from harness.decisions import applied, different, explained, out_of_order, without_ledger
from harness.waiting import stays, wait_until

TICKS_S = 5
BUSY_S = 10


def test_with_a_stopped_master_one_alter_commits_and_the_next_is_refused(cluster, control, cluster_tenant):
    tenant, pool, unit, user = cluster_tenant("stopped", options=", PROPERTIES ('app.token'='hidden')")
    old = control.start(tenant, pool, unit)
    cluster.settled(control)
    generation = cluster.database.rows(f"SELECT generation FROM resource_unit WHERE name = '{unit}'")[0][0]
    master = cluster.programs["proxy-a"]
    master.pause()
    try:
        (answer,) = control.execute(f"ALTER RESOURCE UNIT {unit} DRIVER_MEMORY '1G'")
        assert answer["state"] == "committed, converging", answer
        node = cluster.nodes.read("lock/alter")
        assert node["version"] == 1 and node["id"] == answer["alteration"]
        assert cluster.nodes.children("lock/alter") == [answer["alteration"]]
        assert (node["by"], node["base_generation"]) == ("admin", int(generation)), node
        # The complete old object, as it was before: secrets are masked in it.
        text = str(node["old"])
        assert unit in text and "512M" in text and "hidden" not in text and "******" in text, node["old"]
        assert "1G" in node["statement"] and "hidden" not in str(node)
        began = time.monotonic()
        refusal = control.refused(f"ALTER RESOURCE UNIT {unit} DRIVER_MEMORY '2G'")
        waited = time.monotonic() - began
        assert refusal.sqlstate == "55P03", refusal
        for part in (f'resource unit "{unit}"', '"admin"', "requested at 20", answer["alteration"]):
            assert part in refusal.message, (part, refusal)
        assert ALTER_WAIT_S - 0.5 <= waited < ALTER_WAIT_S + BUSY_S, waited
        assert cluster.nodes.read("lock/alter")["id"] == answer["alteration"]
        assert control.execute("SELECT 1 AS one", user) == [{"one": 1}]
        # Stopped for longer than its session lives: it comes back as a deposed master and has to win again.
        wait_until(lambda: not cluster.nodes.children("lock/master"), 30, "the stopped master's lock has expired")
    finally:
        master.resume()
    cluster.settled(control)
    (engine,) = control.wait_ready(tenant)
    assert engine["config"].startswith("1_1G") and engine["engine"] != old, engine
    (converged,) = [it for it in control.alterations() if it["id"] == answer["alteration"]]
    assert (converged["outcome"], converged["progress"]) == ("committed", "converged")


def test_no_master_acts_while_another_client_holds_the_lock(cluster, control, cluster_tenant):
    tenant, pool, unit, _ = cluster_tenant("without_master")
    cluster.settled(control)
    cluster.programs["proxy-a"].stop()
    lock = cluster.nodes.master_lock("a scenario")
    assert lock.acquire(timeout=30)
    try:
        cluster.start_program("proxy-a")
        before = len(applied(cluster.logs))
        (started,) = control.execute(f"START ENGINE {tenant} {pool} {unit}")
        stays(
            lambda: (
                not cluster.engines.of(tenant)
                and len(applied(cluster.logs)) == before
                and started["engine"] not in cluster.nodes.children("engines")
            ),
            TICKS_S,
            "no master creates the engine",
        )
        shown = control.engine(tenant, started["engine"])
        assert shown["state"] == "pending" and shown["reason"], shown
    finally:
        lock.release()
    control.wait_ready(tenant)


def test_a_freshly_started_master_makes_no_create_call_when_all_is_well(cluster, control, cluster_tenant):
    tenant, *_ = cluster_tenant("all_is_well", options=", MIN_ENGINES 2")
    control.wait_ready(tenant, 2)
    cluster.settled(control)
    engines = {name: it.process for name, it in cluster.engines.all().items()}
    before = applied(cluster.logs)
    started = cluster.logs.count(r"engine started")
    cluster.restart("proxy-a")
    cluster.wait_for_master()
    ticked = cluster.last_tick()
    wait_until(lambda: cluster.last_tick() >= ticked + 3000, 20, "the new master ticks twice more")
    assert applied(cluster.logs)[len(before) :] == []
    assert cluster.logs.count(r"engine started") == started
    assert {name: it.process for name, it in cluster.engines.all().items()} == engines


def test_everything_converges_without_any_watch_event(own_cluster):
    cluster = own_cluster(zookeeper={"watch_events": False})
    control = Control(cluster.addresses["proxy-b"])
    made = tenant, pool, unit = control.make("no_events", users="'alice'")
    first = control.start(*made)
    with pyhive_session(cluster.addresses["proxy-a"], "alice") as session:
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
        control.execute(f"ALTER RESOURCE UNIT {unit} DRIVER_MEMORY '1G' WAIT '1m'")
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
    cluster.settled(control)
    (engine,) = control.wait_ready(tenant)
    assert engine["engine"] != first and engine["config"].startswith("1_1G")
    control.stop(pool, engine["engine"], "WITHIN '10s'")
    wait_until(lambda: not cluster.engines.all(), 20, "no engine is left")
    control.drop(*made)


def test_the_rows_of_explain_are_the_decisions_that_are_then_executed(cluster, control, cluster_tenant):
    tenant, pool, unit, _ = cluster_tenant("explained", options=", MIN_ENGINES 1")
    control.wait_ready(tenant)
    cluster.settled(control)
    for change, compare in (
        (f"ALTER RESOURCE UNIT {unit} DRIVER_MEMORY '1G'", out_of_order),
        (f"ALTER RESOURCE UNIT {unit} MIN_ENGINES 2", out_of_order),
        (f"ALTER RESOURCE UNIT {unit} DRIVER_MEMORY '600M'", different),
        (f"ALTER TENANT {tenant} RESOURCE_POOL_LIST ()", different),
    ):
        promised = explained(control.execute(f"EXPLAIN {change}"))
        assert promised, change
        before = len(without_ledger(applied(cluster.logs, "proxy-a")))
        control.execute(f"{change} WAIT '1m'")

        def done(before=before, promised=promised):
            return len(without_ledger(applied(cluster.logs, "proxy-a"))) - before >= len(promised)

        wait_until(done, 60, f"as many decisions as {change} promised: {promised}", 0.3)
        cluster.settled(control)
        executed = without_ledger(applied(cluster.logs, "proxy-a"))[before:]
        difference = compare(promised, executed)
        assert not difference, f"{change}\n{difference}"
