"""The tour: run with two seeds, its result recomputed from the formula, run again, nothing left over."""

import decimal
import re

import pytest

from harness import rides
from harness.processes import working_below

pytestmark = pytest.mark.quick


def table_after(text, words):
    rows = []
    for line in text[text.index(words) :].splitlines():
        if line.startswith("│"):
            rows.append([cell.strip() for cell in re.split("[│┆]", line.strip("│"))])
        elif line.startswith("└"):
            return rows[1:]
    raise AssertionError(f"no table after {words!r}:\n{text}")


def answers(text):
    return [
        (city, int(count), decimal.Decimal(fares), decimal.Decimal(farthest))
        for city, count, fares, farthest in table_after(text, "SELECT city, count(*) AS rides")
    ]


def assert_tour(done, seed, toured):
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("ready: jdbc:hive2://127.0.0.1:"), done.stdout
    assert f"from seed {seed}" in done.stdout
    assert "The tour is complete." in done.stdout
    assert answers(done.stdout) == rides.tour_query(seed)
    assert "shut down; no engine is left running" in done.stdout
    assert working_below(toured.installation.data) == {}


def test_the_tour_prints_the_expected_rows_and_leaves_nothing_running(toured):
    assert_tour(toured.done, toured.seed, toured)
    toured.installation.logs.check()


@pytest.mark.parametrize("step", [1])
def test_the_tour_runs_again_on_the_same_data_with_another_seed(toured, step):
    toured.installation.logs.begin()
    assert_tour(toured.run_tour(toured.seed + step), toured.seed + step, toured)
    toured.installation.logs.check()


def test_the_tour_shows_the_stand_in_while_the_new_engine_starts(toured):
    text = toured.done.stdout
    meanwhile = table_after(text, "The old engine serves until the new one is ready")
    states = {(row[6] if len(row) > 6 else "", row[4]) for row in meanwhile}
    assert len(meanwhile) == 2, meanwhile
    assert ("false", "ready") in states, f"the old engine is ready and no longer current: {meanwhile}"
    served = table_after(text, "rides_served_meanwhile")
    assert served == [[str(rides.TOUR_ROWS)]]
