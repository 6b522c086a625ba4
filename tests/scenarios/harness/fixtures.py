"""What fixtures lend: something that is started before the tests that have it and closed after the last of them."""

import pytest

# Whether the test of an item failed: what it left is not searched then.
FAILED = pytest.StashKey[bool]()


def started(it):
    """Lends what has `start` and `close`; closed, too, when it did not come up."""
    try:
        yield it.start()
    finally:
        it.close()


def followed(installation):
    """Lends an installation that runs to one test, after which its logs are searched."""
    installation.logs.begin()
    yield installation
    installation.logs.check()
