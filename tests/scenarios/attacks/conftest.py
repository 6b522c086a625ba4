"""The attack corpus: one test function for each number of docs/attacks.md, against one installation; what is about one method
of authentication has a gateway of its own (`harness.attacked_gateway`).

No attempt succeeds. Afterwards logins, queries and control statements work, and no log has an unexpected warning.
"""

import pytest

from harness.attacked import Attacked
from harness.attacked_pods import AttackedPods
from harness.fixtures import searched, started


def pytest_collection_modifyitems(items):
    """C17 searches what all others of the process have left."""
    items.sort(key=lambda item: item.name.startswith("test_c17_"))


@pytest.fixture(scope="session")
def shared_target(workspace):
    yield from started(Attacked(workspace / "attacked"))


@pytest.fixture(scope="session")
def attacked_pods(workspace):
    """The installation that hostile code in an engine attacks, for files whose `shared_target` it is."""
    folder = workspace / "attacked-pods"
    folder.mkdir()
    yield from started(AttackedPods(folder))


@pytest.fixture(scope="module", autouse=True)
def healthy(shared_target):
    """After each class of attempts the installation serves as before it."""
    yield
    shared_target.check_health()


@pytest.fixture
def target(shared_target, request):
    """The installation (`harness.attacked`); its logs are searched after the test."""
    yield from searched(shared_target, request)
