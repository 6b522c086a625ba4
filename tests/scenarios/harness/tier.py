"""Tiers: `tests/run --long` runs every variant of what a few variants show in the default tier.

A test or variant that only `--long` runs has the marker `long`: it is collected in every tier, and every other tier reports
it as skipped.
"""

import os

import pytest

TIER = os.environ.get("EH_TEST_TIER", "default")
LONG = TIER == "long"

only_long = pytest.mark.long
SKIPPED = pytest.mark.skip(reason="only tests/run --long runs it")


def some(every, *default):
    """All variants as parameters; those that are not in `default` have the marker `long`."""
    every = list(every)
    assert default and all(it in every for it in default), default
    return [parameter(it, () if it in default else (only_long,)) for it in every]


def parameter(value, marks, **options):
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=marks, **options)


def skip_long(items):
    for item in items:
        if not LONG and item.get_closest_marker("long"):
            item.add_marker(SKIPPED)
