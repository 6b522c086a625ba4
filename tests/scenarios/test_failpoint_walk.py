"""The failpoint walk: at every failpoint a process is killed, and what was said is what runs afterwards.

Pairs, not the cross product: PostgreSQL with one ZooKeeper, MariaDB with an ensemble of three, SQLite with the embedded
ZooKeeper (`--quick`). The points come from the program; walk/table.py says who passes each and what drives it there.
One point alone: `pytest tests/scenarios/test_failpoint_walk.py -k master.tick.planned`.
"""

import os
import re
import pathlib

import pytest

from harness.databases import MariadbDatabase, PostgresDatabase
from harness.ensemble import Ensemble
from harness.processes import REPOSITORY
from walk.grounds import ClusterGround, StandaloneGround
from walk.lane import Lane
from walk.points import of_the_binary
from walk.schedule import Schedule
from walk.table import ROWS

TIER = os.environ.get("EH_TEST_TIER", "default")
ROW_WITHIN_S = 1800
# Where the database or ZooKeeper matters: the points that the default tier walks on the second pair too.
BACKEND_POINTS = ("coordination.", "metadata.", "master.", "agent.")
LANES = {"postgres": 3, "mariadb": 3, "standalone": 5}


def rows_of(pair):
    where = "standalone" if pair == "standalone" else "cluster"
    rows = [it for it in ROWS if it.where in ("both", where)]
    if pair == "mariadb" and TIER == "default":
        rows = [it for it in rows if it.point.startswith(BACKEND_POINTS)]
    return rows


def pairs():
    return {"quick": ["standalone"], "default": ["postgres", "mariadb"]}.get(TIER, ["postgres", "mariadb", "standalone"])


def parameters():
    quick = [pytest.mark.quick]
    return [
        pytest.param(pair, row, id=f"{pair}-{row.name}", marks=quick if pair == "standalone" else [])
        for pair in pairs() for row in rows_of(pair)
    ]


@pytest.fixture(scope="module")
def schedules(request, workspace):
    """Starts the walk of exactly the rows that were selected, on every pair at once."""
    selected = {}
    for item in request.session.items:
        if item.originalname == "test_killed_at":
            selected.setdefault(item.callspec.params["pair"], []).append(item.callspec.params["row"])
    running, ensembles = {}, []
    try:
        for pair, rows in selected.items():
            folder = workspace / f"walk-{pair}"
            folder.mkdir()
            if pair == "mariadb":
                ensembles.append(Ensemble(folder, 3).start())
            grounds = grounds_of(pair, folder, ensembles)
            lanes = [Lane(f"{pair} {i + 1}", grounds) for i in range(min(LANES[pair], len(rows)))]
            running[pair] = Schedule(pair, lanes, rows)
        yield running
    finally:
        for it in running.values():
            it.close()
        for it in ensembles:
            it.close()


def grounds_of(pair, folder, ensembles):
    count = iter(range(1_000_000))

    def make():
        place = pathlib.Path(folder) / f"ground-{next(count)}"
        place.mkdir()
        if pair == "standalone":
            return StandaloneGround(place)
        if pair == "mariadb":
            return ClusterGround(place, MariadbDatabase(), ensembles[0])
        return ClusterGround(place, PostgresDatabase())

    return make


@pytest.mark.parametrize(("pair", "row"), parameters())
def test_killed_at(schedules, pair, row):
    schedules[pair].result(row, ROW_WITHIN_S)


@pytest.mark.quick
def test_every_point_of_the_program_is_on_the_page_and_in_the_walk():
    points = of_the_binary()
    assert len(points) > 90 and len(set(points)) == len(points)
    page = (REPOSITORY / "docs/failpoints.md").read_text()
    described = re.findall(r"^\| `([a-z0-9_.]+)` \| [a-z-]+", page, re.MULTILINE)
    assert sorted(points) == sorted(described)
    assert sorted(set(points)) == sorted({it.point for it in ROWS})
    for pair in ("postgres", "standalone"):
        assert {it.point for it in rows_of(pair)} == set(points), pair
