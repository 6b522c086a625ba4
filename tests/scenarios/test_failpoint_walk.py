"""The failpoint walk: at every failpoint a process is killed, and what was said is what runs afterwards.

Pairs, not the cross product: PostgreSQL with one ZooKeeper, MariaDB with an ensemble of three, SQLite with the embedded
ZooKeeper (the only one of `--quick`). With engines that are pods (PostgreSQL, one ZooKeeper, a real API server) it goes
over the points of masters and of the orchestrator, a few of them by default. With `--long` processes are also stopped at
every point for longer than their session lives, and cut off from all that they depend on: ZooKeeper, the database, and the API
server where engines are pods; there a proxy is cut off from the API server alone as well. The points come from the program;
walk/table.py says who passes each and what drives it there. One point alone:
`pytest tests/scenarios/test_failpoint_walk.py -k master.tick.planned`.
"""

import contextlib
import dataclasses
import itertools

import pytest

from harness.databases import MariadbDatabase, PostgresDatabase
from harness.ensemble import Ensemble
from harness.pods import Pods
from harness.tier import LONG, only_long, parameter
from walk.grounds import PATIENT_S, ClusterGround, PodGround, StandaloneGround
from walk.lane import Lane
from walk.points import ONLY_OF_PODS, ONLY_OF_PROCESSES, of_the_page, of_the_page_only, of_the_program
from walk.schedule import Schedule
from walk.table import (
    CONCERNS_PODS, PODS_ONLY, PROCESSES_ONLY, QUICK_CUTS_FROM_API, QUICK_CUTS_WITH_PODS, QUICK_STOPS_WITH_PODS,
    QUICK_WITH_PODS, ROWS, ROWS_WITH_PODS,
)

ROW_WITHIN_S = 900


@dataclasses.dataclass(frozen=True)
class Walk:
    """A pair of database and ZooKeeper, what happens at each point, and how many installations walk at the same time:
    most of a row's time is waiting."""

    pair: str
    action: str
    lanes: int
    # Only these points; all that there are if empty.
    points: tuple = ()

    @property
    def name(self):
        return self.pair if self.action == "kill" else f"{self.pair}-{self.action}"

    @property
    def group(self):
        """Walks of one group go at the same time, one group after the other."""
        if self.pair == "pods":
            # A few rows go beside the others, all of them by themselves: the API server needs much of a processor.
            return ("kill", False) if self.points else ("pods", self.is_cut)
        return self.action, self.pair == "standalone"

    @property
    def is_cut(self):
        return self.action.startswith("cut")

    def rows(self):
        if self.pair == "pods":
            return [it for it in ROWS_WITH_PODS if not self.points or it.point in self.points]
        where = "standalone" if self.pair == "standalone" else "cluster"
        return [it for it in ROWS if it.where in ("both", where)]


STANDALONE = Walk("standalone", "kill", 8)
CLUSTERS = [Walk("postgres", "kill", 3), Walk("mariadb", "kill", 3)]
LONGER = [Walk(pair, action, 5) for action in ("stop", "cut") for pair in ("postgres", "mariadb")]
PODS_BRIEFLY = [
    Walk("pods", "kill", 2, QUICK_WITH_PODS), Walk("pods", "stop", 1, QUICK_STOPS_WITH_PODS),
    Walk("pods", "cut", 1, QUICK_CUTS_WITH_PODS), Walk("pods", "cut-from-api", 1, QUICK_CUTS_FROM_API),
]
# Where the database or a session of ZooKeeper is concerned: what the default tier walks on MariaDB and the ensemble.
OF_SERVERS = ("metadata.", "agent.alter.", "coordination.session.", "coordination.election.")
PODS = [Walk("pods", "kill", 3), Walk("pods", "stop", 2), Walk("pods", "cut", 3), Walk("pods", "cut-from-api", 3)]


def parameters(action):
    """Every row of every walk. Those that only `--long` runs have the marker; their walks are those over all points, and on
    MariaDB those that concern neither the database nor a session."""
    found = []
    for walk in [*CLUSTERS, STANDALONE, *LONGER, *PODS]:
        brief = next((it for it in PODS_BRIEFLY if (it.pair, it.action) == (walk.pair, walk.action)), None)
        for row in walk.rows() if walk.action == action else []:
            marks, of = [pytest.mark.quick] if walk is STANDALONE else [], walk
            if not LONG and brief and row.point in brief.points:
                of = brief
            elif walk in LONGER or brief or (walk.pair == "mariadb" and not row.point.startswith(OF_SERVERS)):
                marks = [only_long]
            found.append(parameter((of, row), marks, id=f"{walk.pair}-{row.name}"))
    return found


class Walks:
    """The walks of this run, each over exactly the rows that were selected."""

    def __init__(self, folder, selected):
        self.folder = folder
        self.selected = selected
        self.running = {}
        self.ensembles = []
        # One Kubernetes for all installations with pods.
        self.pods = None
        self.numbers = itertools.count(1)

    def result(self, walk, row):
        if walk not in self.running:
            # An API server computes for seconds when it starts: no session of a second is to live through that.
            for it in sorted(self.selected, key=lambda it: it.pair != "pods"):
                if it.group == walk.group:
                    self.begin(it)
        return self.running[walk].result(row, ROW_WITHIN_S)

    def begin(self, walk):
        folder = self.folder / walk.name
        folder.mkdir(parents=True)
        ensemble = None
        if walk.pair == "mariadb":
            ensemble = Ensemble(folder, 3)
            self.ensembles.append(ensemble)
            ensemble.start()
        if walk.pair == "pods" and self.pods is None:
            self.pods = Pods(self.folder / "kubernetes")
            self.pods.start()
        count = itertools.count()

        def ground():
            place = folder / f"ground-{next(count)}"
            place.mkdir()
            if walk.pair == "standalone":
                return StandaloneGround(place)
            if walk.pair == "pods":
                # Only who is cut off from ZooKeeper is to lose its session.
                patience = {"session_timeout_s": PATIENT_S} if walk.action == "cut-from-api" else {}
                return PodGround(place, self.pods, next(self.numbers), relayed=walk.is_cut, **patience)
            database = MariadbDatabase() if walk.pair == "mariadb" else PostgresDatabase()
            return ClusterGround(place, database, ensemble, relayed=walk.is_cut)

        rows = self.selected[walk]
        lanes = [Lane(f"{walk.name} {i + 1}", ground, walk.action) for i in range(min(walk.lanes, len(rows)))]
        self.running[walk] = Schedule(lanes, rows)

    def close(self):
        with contextlib.ExitStack() as everything:
            for it in [*filter(None, [self.pods]), *self.ensembles, *self.running.values()]:
                everything.callback(it.close)


@pytest.fixture(scope="module")
def walks(request, workspace):
    selected = {}
    for item in request.session.items:
        if item.path == request.path and hasattr(item, "callspec") and not item.get_closest_marker("skip"):
            selected.setdefault(item.callspec.params["walk"], []).append(item.callspec.params["row"])
    running = Walks(workspace / "walks", selected)
    try:
        yield running
    finally:
        running.close()


@pytest.mark.parametrize(("walk", "row"), parameters("kill"))
def test_what_was_said_is_what_runs_after_a_kill_at(walks, tell, walk, row):
    tell(walks.result(walk, row))


@pytest.mark.quick
def test_every_point_of_the_program_is_on_the_page_and_in_the_walk():
    points = of_the_program()
    assert len(points) > 90 and len(set(points)) == len(points)
    assert sorted(points) == sorted(of_the_page())
    for walk in [STANDALONE, *CLUSTERS, *LONGER]:
        assert {it.point for it in walk.rows()} == set(points) - set(PODS_ONLY), walk
    assert sorted(of_the_page_only(ONLY_OF_PROCESSES)) == sorted(PROCESSES_ONLY)
    assert sorted(of_the_page_only(ONLY_OF_PODS)) == sorted(PODS_ONLY)
    # A metadata agent makes the alter node, whatever engines are.
    concerned = {it.point for it in ROWS if it.role == "proxy" and it.point.startswith(CONCERNS_PODS)} | set(PODS_ONLY)
    for walk in PODS:
        assert {it.point for it in walk.rows()} == concerned - set(PROCESSES_ONLY), walk
    for walk in PODS_BRIEFLY:
        assert {it.point for it in walk.rows()} == set(walk.points), walk


@pytest.mark.parametrize(("walk", "row"), parameters("stop"))
def test_what_was_said_is_what_runs_after_a_stop_at(walks, tell, walk, row):
    tell(walks.result(walk, row))


@pytest.mark.parametrize(("walk", "row"), parameters("cut"))
def test_what_was_said_is_what_runs_after_a_cut_at(walks, tell, walk, row):
    tell(walks.result(walk, row))


@pytest.mark.parametrize(("walk", "row"), parameters("cut-from-api"))
def test_what_was_said_is_what_runs_after_a_cut_from_the_api_server_at(walks, tell, walk, row):
    tell(walks.result(walk, row))
