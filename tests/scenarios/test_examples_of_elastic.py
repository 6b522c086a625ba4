"""The how-tos of `docs/elastic.md` and `docs/migrate-from-kyuubi.md`: their blocks are run one after the other, as they are
printed, by an admin of a fresh `standalone`."""

import re

import pytest

from harness.clients import pyhive_session, rows
from harness.control import Control
from harness.processes import REPOSITORY, run
from harness.standalone import Standalone
from harness.waiting import wait_until

WITHIN_S = 60
WARM, OWN = "How to: keep an engine warm", "How to: one engine per user"
MOVE = "How to: move a user's team"
# Blocks of a list are indented.
BLOCK = re.compile(r"^ *```sql\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
URLS = re.compile(r"`jdbc:hive2://kyuubi:10009/db;#(\S+?)=(\S+?)` becomes\s+`jdbc:hive2://enginehouse:10009/db\?(\S+?)=(\S+?)`")


def how_to(heading, page):
    (section,) = [it for it in (REPOSITORY / "docs" / page).read_text().split("\n## ") if it.startswith(heading)]
    return section


def blocks(heading, page="elastic.md"):
    """The statements of each block of a how-to, in their order."""
    found = BLOCK.findall(how_to(heading, page))
    return [[text.strip() for text in block.split(";") if text.strip()] for block in found]


@pytest.fixture(scope="module")
def warm(workspace):
    installation = Standalone(workspace / "examples-of-elastic").start()
    yield installation
    try:
        installation.logs.check()
    finally:
        installation.close()


@pytest.fixture(scope="module")
def succeeds(warm):
    """Runs the statements of a block."""

    def each(block):
        for statement in block:
            ran = run(["sql", "--url", warm.address, "-e", statement])
            assert ran.returncode == 0, f"{statement}\n{ran.stdout}\n{ran.stderr}"

    return each


def test_every_statement_of_the_how_to_succeeds_and_does_what_it_says(warm, succeeds):
    control = Control(warm.address)
    on_demand, minimum, spare, back = blocks(WARM)
    succeeds(on_demand)
    assert control.engines("reports") == []
    succeeds(minimum)
    control.wait_ready("reports", 1)
    succeeds(spare)
    with pyhive_session(warm.address, "ann") as session:
        assert rows(session, "SELECT 42 AS answer") == [{"answer": 42}]
        control.wait_ready("reports", 2)
        succeeds(back)
        assert rows(session, "SELECT 43 AS answer") == [{"answer": 43}]


def test_the_users_of_the_how_to_have_an_engine_each_until_they_share_one(warm, succeeds):
    control = Control(warm.address)
    own, quota, group, job = blocks(OWN)
    succeeds(own)
    sessions = (pyhive_session(warm.address, user, tenant="science") for user in ("ann", "bob"))
    with next(sessions) as ann, next(sessions) as bob:
        for session in (ann, bob):
            assert rows(session, "SELECT 42 AS answer") == [{"answer": 42}]
        assert {it["owner"] for it in control.engines("science")} == {'user "ann"', 'user "bob"'}
        succeeds(quota)
        succeeds(group)

        def serves_the_group():
            # Until its engine drains, the session stays there.
            assert rows(ann, "SELECT 43 AS answer") == [{"answer": 43}]
            return 'user "ann" as a group' in {it["owner"] for it in control.engines("science")}

        wait_until(serves_the_group, WITHIN_S, "an engine of the user's group serves")
    succeeds(job)
    with pyhive_session(warm.address, "ann", tenant="science", unit="job") as session:
        assert rows(session, "SELECT 44 AS answer") == [{"answer": 44}]
        (engine,) = [it for it in control.engines("science") if it["unit"] == "job"]
        assert engine["owner"].startswith('session "')


def test_a_team_of_kyuubi_moves_as_the_how_to_says(warm, succeeds):
    page = "migrate-from-kyuubi.md"
    control = Control(warm.address)
    team, units = blocks(MOVE, page)
    (urls,) = URLS.findall(how_to(MOVE, page))
    theirs, ours = dict([urls[:2]]), dict([urls[2:]])
    succeeds(team)
    succeeds(units)
    # The setting of Kyuubi's URL has no effect, and that of ours chooses the unit.
    for user, settings, unit, owner in (
        ("ann", theirs, "adhoc", 'user "ann"'),
        ("bob", {}, "adhoc", 'user "bob"'),
        ("ann", ours, "etl", 'session "'),
    ):
        with pyhive_session(warm.address, user, tenant="team_a", **settings) as session:
            assert rows(session, "SELECT 42 AS answer") == [{"answer": 42}]
            engines = [it for it in control.engines("team_a") if it["owner"].startswith(owner)]
            assert [it["unit"] for it in engines] == [unit], engines
    # A session is served before its demand is gone, if agents are slow.
    wait_until(lambda: control.execute("SHOW DEMAND TENANT team_a") == [], WITHIN_S, "no session is recorded as waiting")
