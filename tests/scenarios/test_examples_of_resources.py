"""The how-to of `docs/resources.md`: its blocks are run one after the other, as they are printed, by an admin of a fresh
`standalone`."""

import re

import pytest

from harness.control import Control
from harness.processes import REPOSITORY, run
from harness.standalone import Standalone
from harness.waiting import wait_until

HEADING = "How to: share one cluster among three teams"
BLOCK = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def statements():
    """The statements of the how-to in their order."""
    page = (REPOSITORY / "docs/resources.md").read_text()
    (section,) = [it for it in page.split("\n## ") if it.startswith(HEADING)]
    blocks = BLOCK.findall(section)
    return [statement.strip() for block in blocks for statement in block.split(";") if statement.strip()]


@pytest.fixture(scope="module")
def shared(workspace):
    installation = Standalone(workspace / "examples-of-resources").start()
    yield installation
    try:
        installation.logs.check()
    finally:
        installation.close()


def test_every_statement_of_the_how_to_succeeds_and_its_limits_hold(shared):
    texts = statements()
    assert len(texts) >= 20 and any(text.startswith("EXPLAIN START") for text in texts)
    for statement in texts:
        done = run(["sql", "--url", shared.address, "-e", statement])
        assert done.returncode == 0, f"{statement}\n{done.stdout}\n{done.stderr}"
    control = Control(shared.address)
    control.wait_ready("a", 2)

    def of(tenant, resource):
        rows = control.execute(f"SHOW QUOTAS TENANT {tenant}")
        return next(row for row in rows if row["resource"] == resource)

    wait_until(lambda: of("a", "CPU")["used"] == "2", 30, "both reservations are used", 0.5)
    cpu = of("a", "CPU")
    assert (cpu["guarantee"], cpu["limit"], cpu["locked"], cpu["left"]) == ("18", "18", "0", "16"), cpu
    assert of("b", "CPU")["limit"] == "18" and of("c", "CPU")["limit"] == "12"
    # The user's limit of four engines: two more fit, the fifth can wait and is refused with NOWAIT.
    for _ in range(2):
        control.start("a", "shared", "core")
    refused = control.refused("START ENGINE b shared core NOWAIT")
    assert "asked 1, left 0 of 4 (USER_ENGINES, retryable)" in str(refused), refused
