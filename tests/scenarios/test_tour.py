"""The tour: run with two seeds, its result recomputed from the formula, run again, nothing left over."""

import decimal
import re

import pytest

from harness import rides
from harness.processes import REPOSITORY, working_below

pytestmark = pytest.mark.quick

# What differs in each run: names of engines, ids of alterations, and where the sample data is.
VOLATILE = [
    (r"demo-local-small-0-\d+-[0-9a-f]{6}", "<engine>"),
    (r"\b[0-9a-f]{32}\b", "<id>"),
    (r"'[^']*/samples/", "'<samples>/"),
    (r"from seed \d+", "from <seed>"),
]


# Results that depend on the seed: none of their cells is compared. Of others, all but the columns that depend on timing.
OF_SEED = "FROM rides GROUP BY"
OF_TIMING = {"SHOW ENGINES demo;": {"state", "reason"}}


def cells(line):
    return [cell.strip() for cell in re.split("[│┆]", line.strip("│"))]


def tables(text):
    """Each table with the last line of its statement, as (statement, columns, rows)."""
    statement, found = "", None
    for line in text.splitlines():
        if line.startswith("│"):
            found.append(cells(line))
        elif line.startswith("┌"):
            found = []
        elif line.startswith("└"):
            yield masked(statement.strip()), found[0], found[1:]
        elif line.endswith(";") and not line.startswith("--"):
            statement = line


def table_after(text, words):
    rows = []
    for line in text[text.index(words) :].splitlines():
        if line.startswith("│"):
            rows.append(cells(line))
        elif line.startswith("└"):
            return rows[1:]
    raise AssertionError(f"no table after {words!r}:\n{text}")


def without_results(text):
    """Statements, remarks and errors, without the results."""
    return [it for it in text.splitlines() if it and it[0] not in "┌│╞└" and not re.fullmatch(r"\d+ rows?.*", it)]


def masked(line):
    for pattern, name in VOLATILE:
        line = re.sub(pattern, name, line)
    return line


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


def test_the_tour_shows_a_refusal_with_its_numbers_and_the_alter_that_resolves_it(toured):
    lines = without_results(toured.done.stdout)
    refused = lines.index("START ENGINE demo local small NOWAIT;")
    assert lines[refused + 1 : refused + 5] == [
        'error 53000: not enough CPU for an engine of resource unit "small"',
        '  Detail: Tenant "demo" on resource pool "local": asked 1, left 0 of 1 (TENANT_CPU, retryable).',
        "  Hint: Stop an engine of SHOW ENGINES POOL demo local, or ALTER RESOURCE QUOTA demo_share GUARANTEE (CPU 2).",
        "ALTER RESOURCE QUOTA demo_share GUARANTEE (CPU 2);",
    ]
    held = {row[2]: row[3:9] for row in table_after(toured.done.stdout, "What does the tenant hold now, and what is left?")}
    assert held["CPU"] == ["2", "0", "2", "0", "1", "1"], held


def test_the_readme_shows_statements_and_errors_of_the_real_tour(toured):
    block = (REPOSITORY / "README.md").read_text().split("\n## The tour, shortened\n")[1].split("```")[1]
    shown = [masked(it) for it in without_results(block)]
    printed = iter(masked(it) for it in without_results(toured.done.stdout))
    assert len(shown) > 20
    for line in shown[1:]:
        assert line in printed, f"the tour does not print, or not in this order: {line}"


def test_the_readme_shows_columns_and_cells_of_the_real_tour(toured):
    block = (REPOSITORY / "README.md").read_text().split("\n## The tour, shortened\n")[1].split("```")[1]
    printed = tables(toured.done.stdout)
    compared = 0
    for statement, columns, rows in tables(block):
        real = next(((of, real) for text, of, real in printed if text == statement), None)
        assert real, f"the tour has no table, or not in this order, after {statement}"
        assert [it for it in real[0] if it in columns] == columns, f"{statement}: {columns} of {real[0]}"
        if OF_SEED in statement:
            continue
        timing = next((of for text, of in OF_TIMING.items() if statement.startswith(text)), set())
        stable = [it for it in columns if it not in timing]

        def of(names, table, wanted=stable):
            return [[masked(row[names.index(it)]) for it in wanted] for row in table]

        assert of(columns, rows) == of(real[0], real[1]), statement
        compared += len(rows)
    assert compared > 15, compared
