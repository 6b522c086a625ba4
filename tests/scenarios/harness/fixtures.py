"""Fixtures that lend something to tests."""

import pytest

# Whether the test of an item failed: what it left is not searched then.
FAILED = pytest.StashKey[bool]()


def started(it):
    """Lends what has `start` and `close`; closed, too, when it did not come up."""
    try:
        yield it.start()
    finally:
        it.close()


def searched(installation, request):
    """Lends an installation that runs to one test and searches its logs afterwards, unless the test failed anyway."""
    installation.logs.begin()
    yield installation
    if not request.node.stash.get(FAILED, False):
        installation.logs.check()
