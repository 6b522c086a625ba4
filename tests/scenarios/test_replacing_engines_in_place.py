"""Engines of a full pool are replaced in place: at most one is down at a time, there are never more than the pool has capacity
for, clients are served all the time, and no request of another tenant takes the capacity in between."""

import threading

import pytest

from harness.clients import open_pyhive, rows
from harness.cluster import Cluster
from harness.control import Control
from harness.databases import MariadbDatabase, SqliteDatabase
from harness.fixtures import searched, started
from harness.ledger import POOL, Ledger
from harness.pods import PodCluster
from harness.standalone import Standalone
from harness.tier import LONG, some
from harness.waiting import wait_until

# `master.surge` by default.
SURGE = 1
ENGINES = 4 if LONG else 2
WITHIN_S = 60
PAUSE_S = 0.05
ORDER = ["drain engine", "create engine"]
REJECTED = "PROPERTIES ('datafusion.execution.batch_size'='many')"


class Watch(threading.Thread):
    """Looks again and again at the instances of a tenant, at what the pool holds, and at the answers of a session that stays
    open and of new ones."""

    def __init__(self, full):
        super().__init__(name="watch", daemon=True)
        self.full, self.ended = full, threading.Event()
        self.looks, self.wrong, self.fewest, self.seen = 0, [], ENGINES, set()

    def __enter__(self):
        """Returns when it has looked at what is there before anything changes."""
        self.start()
        wait_until(lambda: self.looks or self.wrong, WITHIN_S, "the watch has looked")
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join(timeout=WITHIN_S)
        assert not self.is_alive(), "the watch hangs"
        assert not self.wrong, f"in {self.looks} looks:\n" + "\n".join(self.wrong[:20])

    def run(self):
        try:
            session = open_pyhive(self.full.control.address, "ida", tenant="in_place")
            while not self.ended.wait(PAUSE_S):
                self.look(session)
            # What became ready since.
            self.look(session)
            session.close()
        except Exception as error:
            self.wrong.append(f"the watch failed: {type(error).__name__}: {error}")

    def look(self, session):
        # A look takes time, in which one instance may follow another. Those of both looks were there at one moment.
        one, other = ({it.name for it in self.full.installation.engines.of("in_place")} for _ in range(2))
        self.seen |= one | other
        self.fewest = min(self.fewest, len(one | other))
        if len(one & other) > ENGINES or len(one | other) < ENGINES - SURGE:
            self.wrong.append(f"instances of {ENGINES}: {sorted(one)}, then {sorted(other)}")
        held = Ledger(self.full.database).held(POOL, "full")[2]
        if held != ENGINES:
            self.wrong.append(f"the pool holds {held} engines of {ENGINES}")
        with_another = open_pyhive(self.full.control.address, "ida", tenant="in_place")
        for connection in (session, with_another):
            answer = rows(connection, "SELECT 40 + 2 AS answer")
            if answer != [{"answer": 42}]:
                self.wrong.append(f"a session was answered {answer}")
        with_another.close()
        self.looks += 1


class FullPool:
    """A pool with capacity for `ENGINES` engines, all of which one tenant has; an engine of another tenant is queued."""

    def __init__(self, installation, address, database, places=""):
        self.installation, self.database = installation, database
        self.control = Control(address)
        self.execute = self.control.execute
        for unit in ("full_u", "other_u"):
            self.execute(f"CREATE RESOURCE UNIT {unit} DRIVER_CPU 1, DRIVER_MEMORY '512M'")
        self.execute(f"CREATE RESOURCE POOL full UNIT_LIST ('full_u', 'other_u'), CAPACITY (ENGINES {ENGINES}){places}")
        for tenant in ("in_place", "waiting"):
            self.execute(f"CREATE TENANT {tenant} RESOURCE_POOL_LIST ('full'), USER_LIST ('ida')")
        for _ in range(ENGINES):
            self.execute("START ENGINE in_place full full_u")
        self.names = self.ready()
        (row,) = self.execute("START ENGINE waiting full other_u")
        assert row["state"] == "queued", row
        self.queued = row["engine"]
        self.control.wait_engine("waiting", self.queued, "pending", "^queued at position 1")

    def ready(self):
        return {it["engine"] for it in self.control.wait_ready("in_place", ENGINES)}

    def alter_in_place(self, options):
        """ALTER of the unit until all engines are replaced; returns the decisions that EXPLAIN printed."""
        statement = f"ALTER RESOURCE UNIT full_u {options} IN PLACE"
        explained = self.execute(f"EXPLAIN {statement}")
        self.execute(f"{statement} WAIT '2m'")
        return [it["decision"] for it in explained]

    def replaced(self, count=ENGINES):
        """The engines are ready, `count` of them under another name; the queued one has not started."""
        before, self.names = self.names, self.ready()
        assert len(self.names - before) == count, (before, self.names)
        (row,) = self.control.engines("waiting")
        assert (row["engine"], row["state"]) == (self.queued, "pending"), row
        assert not self.installation.engines.of("waiting")
        return before


@pytest.fixture(scope="module")
def made(request, workspace):
    """The installation, and the full pool in it."""
    kind = request.param
    if kind == "postgres":
        cluster = request.getfixturevalue("shared_cluster")
        full = FullPool(cluster, cluster.addresses["proxy-b"], cluster.database)
        yield cluster, full
        for tenant in ("waiting", "in_place"):
            full.execute(f"DROP TENANT {tenant} WAIT '1m'")
        full.execute("DROP RESOURCE POOL full")
        for unit in ("full_u", "other_u"):
            full.execute(f"DROP RESOURCE UNIT {unit}")
    elif kind == "mariadb":
        for cluster in started(Cluster(workspace / "in-place", database=MariadbDatabase())):
            yield cluster, FullPool(cluster, cluster.addresses["proxy-b"], cluster.database)
    elif kind == "sqlite":
        for alone in started(Standalone(workspace / "in-place-standalone")):
            yield alone, FullPool(alone, alone.address, SqliteDatabase(alone.data / "metadata.sqlite"))
    else:
        pods = request.getfixturevalue("pods")
        for cluster in started(PodCluster(workspace / "in-place-pods", pods)):
            places = f", {pods.nodes_of('full')}"
            yield cluster, FullPool(cluster, cluster.addresses["proxy-b"], cluster.database, places)


@pytest.fixture
def full(made, request):
    installation, full_pool = made
    for _ in searched(installation, request):
        yield full_pool


pytestmark = pytest.mark.parametrize("made", some(["postgres", "mariadb", "sqlite", "pods"], "postgres"), indirect=True)


def decisions(explained):
    return [it["decision"] for it in explained]


def test_an_alter_in_place_replaces_all_engines_of_a_full_pool(full):
    options = "PROPERTIES ('datafusion.execution.batch_size'='4096')"
    explained = full.execute(f"EXPLAIN ALTER RESOURCE UNIT full_u {options}")
    assert "drain engine" not in decisions(explained) and explained[-1]["decision"] == "wait", explained
    assert "asked 1, left 0" in explained[-1]["because"], explained
    with Watch(full) as watch:
        explained = full.alter_in_place(options)
        before = full.replaced()
    assert watch.seen == before | full.names
    assert [it for it in explained if it in ORDER] == ORDER * ENGINES, explained


def test_without_in_place_the_engines_stay_until_there_is_capacity(full):
    full.execute("ALTER RESOURCE UNIT full_u PROPERTIES ('datafusion.execution.batch_size'='2048')")
    (current, *_) = [it["engine"] for it in full.control.engines("in_place") if it["current"]]
    full.control.wait_engine("in_place", current, "pending", "asked 1, left 0")
    assert {it.name for it in full.installation.engines.of("in_place")} == full.names
    # The next one decides again how they are replaced.
    with Watch(full):
        full.execute("ALTER RESOURCE UNIT full_u PROPERTIES RESET IN PLACE WAIT '2m'")
        full.replaced()


def test_a_restart_in_place_replaces_one_engine(full):
    old = sorted(full.names)[0]
    explained = full.execute(f"EXPLAIN RESTART ENGINE full '{old}' IN PLACE")
    assert [it for it in decisions(explained) if it in ORDER] == ORDER, explained
    with Watch(full) as watch:
        (row,) = full.execute(f"RESTART ENGINE full '{old}' IN PLACE WITHIN '10s' WAIT '2m'")
        assert row["state"] == "ready" and row["engine"] != old, row
        full.replaced(1)
    assert watch.seen == full.names | {old}


def test_a_rejected_property_takes_down_one_engine_and_its_correction_brings_it_back(full):
    full.installation.logs.allow(r'the engine failed reason=".*datafusion\.execution\.batch_size')
    serving = full.names
    with Watch(full) as watch:
        full.execute(f"ALTER RESOURCE UNIT full_u {REJECTED} IN PLACE")

        def failed_again():
            shown = full.control.engines("in_place")
            return shown if any("failure 2" in str(it["reason"]) for it in shown) else None

        shown = wait_until(failed_again, WITHIN_S, "an engine has failed twice", 0.3)
        (down,) = [it["engine"] for it in shown if "failure 2" in str(it["reason"])]
        assert full.control.described("full", down)["replacement"] == "in place"
        left = {it["engine"] for it in shown if it["state"] == "ready"}
        assert len(left) == ENGINES - SURGE and left < serving, shown
        waiting = [it["reason"] for it in shown if it["current"] and it["engine"] != down]
        assert all("waits for its turn" in it for it in waiting), shown
        full.execute("ALTER RESOURCE UNIT full_u PROPERTIES RESET IN PLACE WAIT '2m'")
        full.ready()
    assert watch.fewest == ENGINES - SURGE
    full.names = full.ready()


def test_a_larger_engine_is_queued_while_the_old_ones_serve(full):
    held = Ledger(full.database).held(POOL, "full")[1]
    full.execute(f"ALTER RESOURCE POOL full CAPACITY (MEMORY '{held // 2**20}M', ENGINES {ENGINES})")
    explained = full.execute("EXPLAIN ALTER RESOURCE UNIT full_u DRIVER_MEMORY '640M' IN PLACE")
    assert "drain engine" not in decisions(explained) and explained[-1]["decision"] == "wait", explained
    full.execute("ALTER RESOURCE UNIT full_u DRIVER_MEMORY '640M' IN PLACE")
    (current, *_) = [it["engine"] for it in full.control.engines("in_place") if it["current"]]
    full.control.wait_engine("in_place", current, "pending", "^queued at position .*POOL_MEMORY")
    assert {it.name for it in full.installation.engines.of("in_place")} == full.names
    with Watch(full):
        full.execute(f"ALTER RESOURCE POOL full CAPACITY (ENGINES {ENGINES})")
        wait_until(lambda: not full.ready() & full.names, WITHIN_S, "all engines are larger", 0.2)
        full.replaced()


def test_the_queued_engine_of_the_other_tenant_starts_when_one_is_stopped(full):
    full.control.stop("full", sorted(full.names)[0])
    full.control.wait_engine("waiting", full.queued, "ready")
