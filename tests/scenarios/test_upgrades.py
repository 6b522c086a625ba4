"""Upgrades from recorded versions (`tests/upgrade`, `docs/upgrade.md`): the state that an earlier version left is loaded into
real servers, its engines run, and the program that is tested takes over.

Engines are started from their recorded files by the program that is tested: the earlier program is not built.
"""

import contextlib
import json

import pytest

from harness.adoption import adopted
from harness.clients import pyhive_session, rows
from harness.control import Control
from harness.databases import MariadbDatabase, PostgresDatabase, SqliteDatabase
from harness.decisions import REPLACING, applied
from harness.ledger import TENANT, Ledger
from harness.processes import run
from harness.recorded import Recorded, wait_registered
from harness.recording import rows as rows_of
from harness.rest import at_rest
from harness.tier import LONG
from harness.waiting import wait_until

VERSIONS = ["0.1.0"]
WITHIN_S = 60
# Rows of what is declared, and of the engine that each slot has. An upgrade keeps all of them.
KEPT = ("tenant", "resource_pool", "resource_unit", "slot", "request", "alteration", "namespace")


def settings(recorded):
    return recorded.about["settings"] | {"cluster": {"name": recorded.about["cluster"]}}


def is_kept(table, had, found):
    """Whether a row is the recorded one. What the master counts may go on after the record. A spec may have gained fields,
    and a later generation with them; the fields that it had have the same values."""
    changing = {"failures"} if table == "slot" else set()
    if "spec" in had and had["spec"] != found["spec"]:
        changing |= {"spec", "generation"}
        gained = json.loads(had["spec"]).items() <= json.loads(found["spec"]).items()
        if not gained or found["generation"] < had["generation"]:
            return False
    return all(str(had[it]) == str(found[it]) for it in had.keys() - changing)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["postgres", "mariadb", "sqlite"])
def test_migration_keeps_every_row_of_a_recorded_version(folder, version, kind):
    recorded = Recorded(version, "processes")
    recorded.names = {}
    database = {"postgres": PostgresDatabase, "mariadb": MariadbDatabase}.get(kind, lambda: None)()
    try:
        if database is None:
            path = folder / "enginehouse.db"
            recorded.load_sqlite(path)
            database = SqliteDatabase(path)
            url = f"sqlite://{path}"
        else:
            recorded.load_rows(database.rows, kind)
            url = database.url
        (folder / "enginehouse.toml").write_text(f'[database]\nurl = "{url}"\n')
        for _ in range(2):
            done = run(["migrate", "--config", folder / "enginehouse.toml"], cwd=folder)
            assert done.returncode == 0, done.stdout + done.stderr
        for table, had in recorded.rows().items():
            if table == "schema_version":
                continue
            names = list(had[0]) if had else []
            found = database.rows(f"SELECT {', '.join(names)} FROM {table}") if names else []
            assert sorted(map(str, found)) == sorted(
                str([None if it[name] is None else str(it[name]) for name in names]) for it in had
            ), table
    finally:
        if database is not None:
            database.close()


def takes_over(cluster, recorded, names):
    cluster.logs.begin()
    cluster.start()
    wait_registered(cluster, names)
    cluster.wait_for_master()
    control = Control(cluster.addresses["proxy-b"])
    assert at_rest(cluster).keys() == set(names)
    cluster.wait_for_master()
    replaced = [it for it in applied(cluster.logs) if it[0] in REPLACING]
    assert replaced == [], "an upgrade replaces no engine"
    for statement, had in recorded.about["shown"].items():
        assert control.execute(statement) == had, statement
    kept_rows(cluster, recorded)
    assert adopted(cluster, names).keys() == set(names), "no other reservation was ever made"
    return control


def kept_rows(cluster, recorded):
    now = rows_of(cluster.database)
    for table in KEPT:
        had = recorded.rows()[table]
        for row in had:
            assert any(is_kept(table, row, it) for it in now[table]), (table, row)


def answered(address, user, query):
    with pyhive_session(address, user, unit="small") as session:
        return rows(session, query)


@pytest.fixture
def children():
    """The engines that a test starts; they end before it does."""
    found = []
    yield found
    for child in found:
        child.wait(timeout=WITHIN_S)


def recorded_processes(version, own_cluster, children):
    """The recorded installation with its engines, and no other program."""
    recorded = Recorded(version, "processes")
    master = {"status_poll": "500ms"}
    cluster = own_cluster(start=False, secret=recorded.about["secret"], master=master, **settings(recorded))
    recorded.place(cluster)
    recorded.load_rows(cluster.database.rows, "postgres")
    recorded.load_znodes(cluster)
    recorded.load_files()
    children += recorded.start_processes(cluster)
    return recorded, cluster


@pytest.mark.parametrize("version", VERSIONS)
def test_an_upgrade_keeps_engines_catalogs_and_declarations(children, own_cluster, version):
    recorded, cluster = recorded_processes(version, own_cluster, children)
    names = recorded.about["engines"]
    control = takes_over(cluster, recorded, names)
    assert {it.pid for it in cluster.engines.all().values()} == {it.pid for it in children}
    for query, had in recorded.about["answers"].items():
        assert answered(cluster.addresses["proxy-a"], "alice", query) == had, query
    starts_on_demand(cluster, control, names)
    control.execute("ALTER RESOURCE UNIT nightly DRIVER_MEMORY '320M' WAIT '1m'")
    control.wait_ready("lab")
    left = cluster.engines.all().keys() & set(names)
    assert left == {it for it in names if "-nightly-" not in it}


def starts_on_demand(cluster, control, names):
    """Units receive the options on demand without a new engine. One more is started when the seats of the recorded ones are
    taken, and released when it is idle; those stay."""
    address, small = cluster.addresses["proxy-b"], [it for it in names if "-small-" in it]
    control.execute("ALTER RESOURCE UNIT small START_ON_DEMAND TRUE, SESSIONS_PER_ENGINE 1, IDLE_TIMEOUT '1s' WAIT '1m'")
    assert at_rest(cluster).keys() == set(names)
    with contextlib.ExitStack() as sessions:
        for _ in range(len(small) + 1):
            session = sessions.enter_context(pyhive_session(address, "alice", unit="small"))
            assert rows(session, "SELECT 42 AS answer") == [{"answer": 42}]
        assert len(cluster.engines.all().keys() - set(names)) == 1
    wait_until(lambda: cluster.engines.all().keys() == set(names), WITHIN_S, "the engine on demand is released")
    assert at_rest(cluster).keys() == set(names)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_upgrade_grants_nothing_before_it_has_counted_the_running_engines(children, own_cluster, version):
    """Before there is a master, a tenant is guaranteed what it runs, and starts another engine."""
    recorded, cluster = recorded_processes(version, own_cluster, children)
    names = recorded.about["engines"]
    cluster.start(["agent-1", "agent-2", "proxy-b"])
    control = Control(cluster.addresses["proxy-b"])
    control.execute("CREATE RESOURCE QUOTA q_lab TENANT lab, POOL side, GUARANTEE (ENGINES 1)")
    (started,) = control.execute("START ENGINE lab side nightly")
    refusal = control.refused("START ENGINE lab side nightly NOWAIT")
    assert refusal.sqlstate == "53000" and 'has not counted the engines of resource pool "side"' in refusal.message, refusal
    before = Ledger(cluster.database)
    assert before.reservations == [] and before.held(TENANT, "lab/side") == (0, 0, 0)

    cluster.start_program("proxy-a")
    queued = r"^queued at position .*left 0 of 1 \(TENANT_ENGINES, retryable\)$"
    control.wait_engine("lab", started["engine"], "pending", queued)
    assert at_rest(cluster).keys() == adopted(cluster, names).keys() == set(names)
    control.execute("ALTER RESOURCE QUOTA q_lab GUARANTEE (ENGINES 2) WAIT '1m'")
    control.wait_ready("lab", 2)
    when = adopted(cluster, names)
    granted = Ledger(cluster.database).of_engine(started["engine"])
    assert granted.locked_at_ms > max(when[it] for it in names)
    assert at_rest(cluster).keys() == {*names, granted.id}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_upgrade_keeps_pods(pods, own_pod_cluster, version):
    recorded = Recorded(version, "pods")
    cluster = own_pod_cluster(start=False, secret=recorded.about["secret"], **settings(recorded))
    recorded.place(cluster)
    recorded.load_objects(pods)
    recorded.load_rows(cluster.database.rows, "postgres")
    recorded.load_znodes(cluster)
    names = recorded.about["engines"]
    uids = {name: it.uid for name, it in cluster.engines.all().items()}
    control = takes_over(cluster, recorded, names)
    assert {name: it.uid for name, it in cluster.engines.all().items()} == uids
    assert answered(cluster.addresses["proxy-a"], "alice", "SELECT 42 AS answer") == [{"answer": 42}]
    if LONG:
        control.execute("ALTER RESOURCE UNIT nightly DRIVER_MEMORY '320M' WAIT '2m'")
        wait_until(lambda: len(cluster.engines.all().keys() & set(names)) == 2, WITHIN_S, "two pods were replaced")
