"""The failpoint matrix: at every failpoint a process is killed, and afterwards the running engines match the catalog.

Pairs, not the cross product: PostgreSQL with one ZooKeeper, MariaDB with an ensemble of three, SQLite with the embedded
ZooKeeper (all that `--quick` runs), and engines that are pods, over the points of masters and of the orchestrator. The default
tier runs all points on PostgreSQL, and on the others those that concern their servers, or pods. `--long` adds all points,
processes that are stopped for longer than their session lives, and cuts from ZooKeeper, the database and the API server. The
points come from the program; failpoint_matrix/table.py has the role and the trigger of each. One point alone:
`pytest tests/scenarios/test_failpoint_matrix.py -k master.tick.planned`.
"""

import contextlib
import dataclasses
import itertools

import pytest

from failpoint_matrix.installations import PATIENT_S, ClusterInstallation, PodInstallation, StandaloneInstallation
from failpoint_matrix.points import ONLY_OF_PODS, ONLY_OF_PROCESSES, marked_on_the_page, of_the_page, of_the_program
from failpoint_matrix.schedule import Schedule
from failpoint_matrix.table import (
    CONCERNS_PODS,
    PODS_ONLY,
    PROCESSES_ONLY,
    QUICK_CUTS_FROM_API,
    QUICK_CUTS_WITH_PODS,
    QUICK_STOPS_WITH_PODS,
    QUICK_WITH_PODS,
    ROWS,
    ROWS_WITH_PODS,
)
from failpoint_matrix.worker import Worker
from harness.databases import MariadbDatabase, PostgresDatabase
from harness.ensemble import Ensemble
from harness.pods import Pods
from harness.tier import LONG, TIER, only_long, parameter

ROW_WITHIN_S = 900


@dataclasses.dataclass(frozen=True)
class Matrix:
    pair: str
    action: str
    workers: int
    points: tuple = ()

    @property
    def name(self):
        return self.pair if self.action == "kill" else f"{self.pair}-{self.action}"

    @property
    def group(self):
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


STANDALONE = Matrix("standalone", "kill", 8)
# They run at the same time, and both take about as long: in shorter tiers MariaDB has a third of the rows.
CLUSTERS = [Matrix("postgres", "kill", 3 if LONG else 4), Matrix("mariadb", "kill", 3 if LONG else 2)]
LONGER = [Matrix(pair, action, 5) for action in ("stop", "cut") for pair in ("postgres", "mariadb")]
PODS_BRIEFLY = [
    Matrix("pods", "kill", 2, QUICK_WITH_PODS),
    Matrix("pods", "stop", 1, QUICK_STOPS_WITH_PODS),
    Matrix("pods", "cut", 1, QUICK_CUTS_WITH_PODS),
    Matrix("pods", "cut-from-api", 1, QUICK_CUTS_FROM_API),
]
OF_SERVERS = ("metadata.", "agent.alter.", "coordination.session.", "coordination.election.")
PODS = [Matrix("pods", "kill", 3), Matrix("pods", "stop", 2), Matrix("pods", "cut", 3), Matrix("pods", "cut-from-api", 3)]


def parameters(action):
    """Every row of every matrix. Rows for `--long` alone have the marker: those over all points, and on MariaDB, and in the
    default tier on SQLite, those that concern neither the database nor a session."""
    of_servers_only = ["mariadb"] if TIER == "quick" else ["mariadb", "standalone"]
    found = []
    for matrix in [*CLUSTERS, STANDALONE, *LONGER, *PODS]:
        brief = next((it for it in PODS_BRIEFLY if (it.pair, it.action) == (matrix.pair, matrix.action)), None)
        for row in matrix.rows() if matrix.action == action else []:
            marks, of = [pytest.mark.quick] if matrix is STANDALONE else [], matrix
            if not LONG and brief and row.point in brief.points:
                of = brief
            elif matrix in LONGER or brief or (matrix.pair in of_servers_only and not row.point.startswith(OF_SERVERS)):
                marks = [only_long]
            found.append(parameter((of, row), marks, id=f"{matrix.pair}-{row.name}"))
    return found


class Matrices:
    def __init__(self, folder, selected):
        self.folder = folder
        self.selected = selected
        self.running = {}
        self.ensembles = []
        self.pods = None
        self.numbers = itertools.count(1)
        # By group: why its installations could not be started. Each of its tests fails with that.
        self.unstarted = {}

    def result(self, matrix, row):
        if matrix.group in self.unstarted:
            raise AssertionError("the installations could not be started") from self.unstarted[matrix.group]
        if matrix not in self.running:
            try:
                for it in sorted(self.selected, key=lambda it: it.pair != "pods"):
                    if it.group == matrix.group:
                        self.begin(it)
            except Exception as error:
                self.unstarted[matrix.group] = error
                raise
        return self.running[matrix].result(row, ROW_WITHIN_S)

    def begin(self, matrix):
        folder = self.folder / matrix.name
        folder.mkdir(parents=True)
        ensemble = None
        if matrix.pair == "mariadb":
            ensemble = Ensemble(folder, 3)
            self.ensembles.append(ensemble)
            ensemble.start()
        if matrix.pair == "pods" and self.pods is None:
            self.pods = Pods(self.folder / "kubernetes")
            self.pods.start()
        count = itertools.count()

        def make_installation():
            own = folder / f"installation-{next(count)}"
            own.mkdir()
            if matrix.pair == "standalone":
                return StandaloneInstallation(own)
            if matrix.pair == "pods":
                # Only who is cut off from ZooKeeper is to lose its session.
                patience = {"session_timeout_s": PATIENT_S} if matrix.action == "cut-from-api" else {}
                return PodInstallation(own, self.pods, next(self.numbers), relayed=matrix.is_cut, **patience)
            database = MariadbDatabase() if matrix.pair == "mariadb" else PostgresDatabase()
            return ClusterInstallation(own, database, ensemble, relayed=matrix.is_cut)

        rows = self.selected[matrix]
        workers = [
            Worker(f"{matrix.name} {i + 1}", make_installation, matrix.action) for i in range(min(matrix.workers, len(rows)))
        ]
        self.running[matrix] = Schedule(workers, rows)

    def close(self):
        with contextlib.ExitStack() as everything:
            for it in [*filter(None, [self.pods]), *self.ensembles, *self.running.values()]:
                everything.callback(it.close)


@pytest.fixture(scope="module")
def matrices(request, workspace):
    selected = {}
    for item in request.session.items:
        if item.path == request.path and hasattr(item, "callspec") and not item.get_closest_marker("skip"):
            selected.setdefault(item.callspec.params["matrix"], []).append(item.callspec.params["row"])
    running = Matrices(workspace / "walks", selected)
    try:
        yield running
    finally:
        running.close()


@pytest.mark.parametrize(("matrix", "row"), parameters("kill"))
def test_running_engines_match_the_catalog_after_a_kill_at(matrices, report, matrix, row):
    report(matrices.result(matrix, row))


@pytest.mark.quick
def test_every_failpoint_is_on_the_page_and_in_the_matrix():
    points = of_the_program()
    assert len(points) > 90 and len(set(points)) == len(points)
    assert sorted(points) == sorted(of_the_page())
    for matrix in [STANDALONE, *CLUSTERS, *LONGER]:
        assert {it.point for it in matrix.rows()} == set(points) - set(PODS_ONLY), matrix
    assert sorted(marked_on_the_page(ONLY_OF_PROCESSES)) == sorted(PROCESSES_ONLY)
    assert sorted(marked_on_the_page(ONLY_OF_PODS)) == sorted(PODS_ONLY)
    # A metadata agent makes the alter node, whatever engines are.
    concerned = {it.point for it in ROWS if it.role == "proxy" and it.point.startswith(CONCERNS_PODS)} | set(PODS_ONLY)
    for matrix in PODS:
        assert {it.point for it in matrix.rows()} == concerned - set(PROCESSES_ONLY), matrix
    for matrix in PODS_BRIEFLY:
        assert {it.point for it in matrix.rows()} == set(matrix.points), matrix


@pytest.mark.parametrize(("matrix", "row"), parameters("stop"))
def test_running_engines_match_the_catalog_after_a_stop_at(matrices, report, matrix, row):
    report(matrices.result(matrix, row))


@pytest.mark.parametrize(("matrix", "row"), parameters("cut"))
def test_running_engines_match_the_catalog_after_a_cut_at(matrices, report, matrix, row):
    report(matrices.result(matrix, row))


@pytest.mark.parametrize(("matrix", "row"), parameters("cut-from-api"))
def test_running_engines_match_the_catalog_after_an_api_server_cut_at(matrices, report, matrix, row):
    report(matrices.result(matrix, row))
