"""How much is run: `tests/run --long` tries every variant of what is otherwise shown by a few."""

import os

LONG = os.environ.get("EH_TEST_TIER") == "long"


def some(every, *quick):
    """All of the variants, or those that stand for the others."""
    every = list(every)
    assert quick and all(it in every for it in quick), quick
    return every if LONG else list(quick)
