"""Catalogs of DataFusion engines in an object store: every engine of a tenant has the tables, and they outlive engines."""

import concurrent.futures
import contextlib
import time

import pytest

from harness.clients import pyhive_session, refused, rows
from harness.control import Control
from harness.fixtures import started
from harness.object_store import ObjectStore
from harness.tier import only_long

ROUNDS = 5
REFUSED_WITHIN_S = 45


@pytest.fixture(scope="module")
def store(workspace):
    yield from started(ObjectStore(workspace / "object-store"))


def at(cluster, user, unit):
    return pyhive_session(cluster.addresses["proxy-a"], user, unit=unit)


def two_engines(control, nodes=("", "")):
    for unit in ("one", "two"):
        control.execute(f"CREATE RESOURCE UNIT {unit} DRIVER_CPU 1, DRIVER_MEMORY '256M', MIN_ENGINES 1")
    for unit, places in zip(("one", "two"), nodes, strict=True):
        control.execute(f"CREATE RESOURCE POOL of_{unit} UNIT_LIST ('{unit}'){places}")
    control.execute("CREATE TENANT keepers RESOURCE_POOL_LIST ('of_one', 'of_two'), USER_LIST ('alice') WAIT '2m'")
    return {it["unit"]: it["engine"] for it in control.wait_ready("keepers", 2)}


def tables_outlive_engines(cluster, control, engines):
    with at(cluster, "alice", "one") as session:
        rows(session, "CREATE VIEW answers AS SELECT 42 AS answer")
        rows(session, 'CREATE SCHEMA "Other one"')
        rows(session, 'CREATE VIEW "Other one"."ünï %20" AS SELECT 7 AS n')
    seen = 'SELECT answer, n FROM answers, "Other one"."ünï %20"'
    with at(cluster, "alice", "two") as session:
        assert rows(session, seen) == [{"answer": 42, "n": 7}], "a second engine has the tables of the first"
    control.execute("ALTER RESOURCE UNIT one DRIVER_MEMORY '300M' WAIT '2m'")
    control.execute(f"RESTART ENGINE of_two '{engines['two']}' FORCE WAIT '2m'")
    after = {it["unit"]: it["engine"] for it in control.wait_ready("keepers", 2)}
    assert not set(after.values()) & set(engines.values())
    for unit in ("one", "two"):
        with at(cluster, "alice", unit) as session:
            assert rows(session, seen) == [{"answer": 42, "n": 7}], "tables survive ALTER and RESTART"
    assert "catalog" not in control.described("of_one", after["one"]), "nothing is lost with the engine"


def test_tables_in_an_object_store_outlive_their_engines_and_are_shared(own_cluster, store):
    cluster = own_cluster(engines=store.settings())
    control = Control(cluster.addresses["proxy-b"])
    engines = two_engines(control)
    tables_outlive_engines(cluster, control, engines)
    assert any(it.endswith("/answers.json") for it in store.object_names())
    with (
        at(cluster, "alice", "one") as one,
        at(cluster, "alice", "two") as two,
        concurrent.futures.ThreadPoolExecutor(2) as both,
    ):
        for number in range(ROUNDS):
            create = "CREATE VIEW raced_{} AS SELECT '{}' AS by"

            def race(session, name, number=number, create=create):
                try:
                    rows(session, create.format(number, name))
                except Exception as error:
                    return str(error)
                return None

            outcomes = {"one": both.submit(race, one, "one"), "two": both.submit(race, two, "two")}
            outcomes = {name: it.result() for name, it in outcomes.items()}
            (winner,) = [name for name, error in outcomes.items() if error is None]
            (error,) = filter(None, outcomes.values())
            assert "42P07" in error, error
            assert (
                rows(one, f"SELECT by FROM raced_{number}") == rows(two, f"SELECT by FROM raced_{number}") == [{"by": winner}]
            )
        assert refused(one, 'DROP SCHEMA "Other one"').sqlstate == "2BP01"
        assert rows(two, 'SELECT n FROM "Other one"."ünï %20"') == [{"n": 7}]
        rows(one, 'DROP SCHEMA "Other one" CASCADE')
        assert refused(two, 'SELECT n FROM "Other one"."ünï %20"').sqlstate == "42P01"
    assert not any("ther" in it for it in store.object_names())


@only_long
def test_an_object_store_outage_fails_only_statements_that_need_it(own_cluster, folder):
    with contextlib.closing(ObjectStore(folder / "store").start()) as store:
        cluster = own_cluster(engines=store.settings())
        cluster.logs.allow("the catalog's object store failed")
        two_engines(Control(cluster.addresses["proxy-b"]))
        with at(cluster, "alice", "one") as session:
            rows(session, "CREATE VIEW answers AS SELECT 42 AS answer")
            store.pause()
            began = time.monotonic()
            assert refused(session, "SELECT answer FROM answers").sqlstate == "58030"
            print(f"a statement that names a table is refused after {time.monotonic() - began:.1f} s")
            assert time.monotonic() - began < REFUSED_WITHIN_S
            assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
            store.resume()
            assert rows(session, "SELECT answer FROM answers") == [{"answer": 42}]


@only_long
def test_pods_share_the_tables_of_an_object_store(own_pod_cluster, pods, store):
    cluster = own_pod_cluster(engines=store.settings() | {"catalog_url": "s3://tables/of-pods"})
    control = Control(cluster.addresses["proxy-b"])
    engines = two_engines(control, [f", {pods.nodes_of(it)}" for it in ("of_one", "of_two")])
    tables_outlive_engines(cluster, control, engines)
