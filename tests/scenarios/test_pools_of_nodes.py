"""Queues that mean pools, and pools whose nodes are another's, or none: with engines that are local processes."""

import socket
from concurrent.futures import ThreadPoolExecutor

import pyhive.exc
import pytest

from harness.clients import open_pyhive, pyhive_session, refusal_of, refused, rows
from harness.java import Jdbc, JdbcError, beeline_ok
from harness.waiting import wait_until


@pytest.fixture
def two_pools(control):
    tenant, first, unit = control.make("queued", users="'quinn'")
    second = f"{tenant}_ten"
    control.execute(f"ALTER RESOURCE POOL {first} QUEUE_PREFIX 'pool1'")
    control.execute(f"CREATE RESOURCE POOL {second} UNIT_LIST ('{unit}'), QUEUE_PREFIX 'pool10'")
    control.execute(f"ALTER TENANT {tenant} RESOURCE_POOL_LIST ('{first}', '{second}')")
    engines = {pool: control.start(tenant, pool, unit) for pool in (first, second)}
    yield tenant, first, second, engines
    control.execute(f"DROP TENANT {tenant} WAIT '1m'")
    for pool in (first, second):
        control.execute(f"DROP RESOURCE POOL {pool}")
    control.execute(f"DROP RESOURCE UNIT {unit}")


def opening_refused(address, user, **settings):
    try:
        open_pyhive(address, user, **settings).close()
    except pyhive.exc.OperationalError as error:
        return refusal_of(error)
    raise AssertionError(f"was not refused: {settings}")


def wait_serving(control, tenant, engine):
    def serving():
        return [it["engine"] for it in control.engines(tenant) if it["sessions"]]

    wait_until(lambda: serving() == [engine], 60, f"engine {engine} alone has a session")


def test_a_queue_chooses_the_pool_through_every_driver(standalone, control, two_pools):
    tenant, first, second, engines = two_pools
    for settings, pool in [
        ({"spark.yarn.queue": "pool1.etl"}, first),
        ({"enginehouse.queue": "pool10.x"}, second),
        ({"set:hiveconf:spark.yarn.queue": "pool10"}, second),
    ]:
        with pyhive_session(standalone.address, "quinn", **settings) as session:
            assert rows(session, "SELECT 42 AS answer") == [{"answer": 42}]
            wait_serving(control, tenant, engines[pool])
    with Jdbc(standalone.address, "quinn", "?spark.yarn.queue=pool10.y") as jdbc:
        assert jdbc.rows("SET spark.yarn.queue") == [{"key": "spark.yarn.queue", "value": "pool10.y"}]
        assert jdbc.rows("SELECT 42 AS answer") == [{"answer": "42"}]
        wait_serving(control, tenant, engines[second])
    done = beeline_ok(standalone.address, "SELECT 42 AS answer", user="quinn", query="?enginehouse.queue=pool1")
    assert "42" in done.lines()


def test_an_unknown_queue_is_an_error_of_opening_the_session(standalone, two_pools):
    for key in ("spark.yarn.queue", "enginehouse.queue"):
        refusal = opening_refused(standalone.address, "quinn", **{key: "pool100.x"})
        assert refusal.sqlstate == "42704"
        assert 'queue "pool100.x" belongs to no resource pool' in refusal.message
        assert "'pool1', 'pool10'" in refusal.message, refusal
    # The Hive driver has one state of its own for whatever it could not open a session for, and keeps the message.
    with pytest.raises(JdbcError, match='queue "nowhere" belongs to no resource pool'):
        Jdbc(standalone.address, "quinn", "?spark.yarn.queue=nowhere")
    with pyhive_session(standalone.address, "quinn") as session:
        assert refused(session, "SET spark.yarn.queue=nowhere").sqlstate == "42704"
        assert rows(session, "SELECT 42 AS answer") == [{"answer": 42}]


def test_a_node_or_queue_of_another_pool_is_refused_with_its_owner(standalone, control, two_pools):
    _, first, second, _ = two_pools
    control.execute(f"ALTER RESOURCE POOL {first} NODE_LIST ('node-of-first', '{socket.gethostname()}')")
    with pyhive_session(standalone.address) as session:
        refusal = refused(session, f"ALTER RESOURCE POOL {second} NODE_LIST ('node-9', 'node-of-first')")
        assert refusal.sqlstate == "55000" and f'node "node-of-first" belongs to resource pool "{first}"' in refusal.message
        refusal = refused(session, f"ALTER RESOURCE POOL {second} QUEUE_PREFIX 'pool1'")
        assert refusal.sqlstate == "55000" and f'queue prefix "pool1" belongs to resource pool "{first}"' in refusal.message
        refusal = refused(session, f"ALTER RESOURCE POOL {second} CPU_OVERCOMMIT 50")
        assert refusal.sqlstate == "22023" and "from 100 to 1000" in refusal.message
    (shown,) = control.execute(f"SHOW RESOURCE POOLS LIKE '{second}'")
    assert (shown["nodes"], shown["queue_prefix"]) == ("any", "pool10")


def test_an_emptied_pool_keeps_its_engine_and_reports_what_waits(standalone, control, two_pools):
    tenant, first, _, engines = two_pools
    unit = f"{tenant}_u"
    engine = standalone.engines.one(engines[first])
    with ThreadPoolExecutor(1) as beside:
        control.execute(f"ALTER RESOURCE POOL {first} NODE_LIST ()")
        with pyhive_session(standalone.address, "quinn") as session:
            refusal = refused(session, f"START ENGINE {tenant} {first} {unit} WAIT '5m'")
            assert refusal.sqlstate == "55000" and f'resource pool "{first}" has no nodes' in refusal.message
        assert len(control.execute(f"SHOW ENGINES POOL {tenant} {first}")) == 1, "nothing was created"
        control.execute(f"ALTER RESOURCE POOL {first} NODE_LIST ('{socket.gethostname()}')")
        begun = control.start(tenant, first, unit)
        control.execute(f"ALTER RESOURCE POOL {first} NODE_LIST ()")
        standalone.engines.one(begun).kill()
        name = wait_until(
            lambda: [it for it in control.engines(tenant) if it["state"] == "pending" and "no nodes" in (it["reason"] or "")],
            60,
            "its successor waits for a node",
        )[0]["engine"]
        waiting = beside.submit(control.refused, f"ALTER RESOURCE UNIT {unit} MAX_ENGINES 4 WAIT '5m'")
        assert "has no nodes" in waiting.result(timeout=120).message
        with pyhive_session(standalone.address, "quinn", pool=first) as session:
            assert rows(session, "SELECT 42 AS answer") == [{"answer": 42}], "what runs lives on"
        assert engine.is_alive()
        control.execute(f"ALTER RESOURCE POOL {first} NODE_LIST DEFAULT")
        control.wait_engine(tenant, name, "ready")
        assert engine.is_alive() and control.engine(tenant, engines[first])["current"], "and nothing was replaced"
