"""The database server dies in the middle of a commit, and both metadata agents are away for half a minute. Sessions continue,
new ones go to registered engines, control statements fail quickly with a reason, and afterwards the outcome of each statement
is the one that its client received."""

import concurrent.futures
import time

import pyhive.exc
import pytest

from harness.clients import refusal_of
from harness.control import Control
from harness.databases import MariadbServer, PostgresServer
from harness.failpoints import Failpoints
from harness.fixtures import started
from harness.masters import Masters
from harness.rest import at_rest
from harness.session_monitor import SessionMonitor
from harness.tier import some
from harness.waiting import wait_until

SETTINGS = {"candidates": ("proxy-a", "proxy-b"), "session_timeout_s": 4, "master": {"tick_interval": "1s"}}
POINT = "metadata.commit.before_commit"
AGENTS_AWAY_S = 30
BACK_WITHIN_S = 45
EXPECTED = (
    "no metadata agent responds; using the last catalog",
    "could not settle an alteration yet",
    "still waiting",
    "metadata database does not respond",
)
SERVERS = some([PostgresServer, MariadbServer], PostgresServer)


@pytest.fixture(params=SERVERS, ids=lambda it: it.kind)
def server(request):
    yield from started(request.param())


def installed(own_cluster, **settings):
    cluster = own_cluster(**(SETTINGS | settings))
    control = Control(cluster.addresses["proxy-b"])
    names = control.make("out", users="'alice'")
    control.start(*names)
    at_rest(cluster)
    cluster.logs.allow(*EXPECTED)
    return cluster, control, names


def refused_statement(control, statement):
    try:
        control.execute(statement)
    except pyhive.exc.OperationalError as error:
        return refusal_of(error)
    return None


def test_a_database_crash_during_a_commit_leaves_a_definite_outcome(server, own_cluster, folder):
    points = Failpoints(folder / "points")
    cluster, control, names = installed(own_cluster, database=server.database(), env=points.env)
    with SessionMonitor(cluster, "alice") as monitor, concurrent.futures.ThreadPoolExecutor(1) as clients:
        points.arm(POINT, "hold")
        altering = clients.submit(refused_statement, control, f"ALTER RESOURCE UNIT {names[2]} MAX_ENGINES 7")
        points.wait_claimed(POINT)
        server.kill()
        gone = time.monotonic()
        points.let_go(POINT)
        refusal = control.refused("SHOW ENGINES out")
        waited = time.monotonic() - gone
        assert refusal.sqlstate == "57P03" and "the metadata database is not available" in refusal.message, refusal
        assert "refused" in refusal.message, f"the reason is named: {refusal}"
        monitor.wait_round()
        server.start()
        back = time.monotonic()
        answer = altering.result(timeout=BACK_WITHIN_S)
        print(f"{server.kind} was away for {back - gone:.1f} s, SHOW was refused after {waited:.1f} s")
        print(f"the ALTER was answered after {time.monotonic() - gone:.1f} s: {answer or 'committed'}")
        at_rest(cluster, BACK_WITHIN_S)
        assert answer is not None and "nothing changed" in answer.message, answer
        last = control.alterations()[0]
        assert last["outcome"] == "aborted" and "MAX_ENGINES 7" in last["statement"], last
        assert last["reason"].startswith("a reply was lost: "), last
        control.execute(f"ALTER RESOURCE UNIT {names[2]} MAX_ENGINES 7 WAIT '30s'")
        monitor.wait_round()


def test_without_metadata_agents_for_half_a_minute_queries_go_on(own_cluster):
    cluster, control, names = installed(own_cluster, session_timeout_s=10)
    masters = Masters(cluster)
    with SessionMonitor(cluster, "alice") as monitor:
        term = masters.wait_acting()
        for name in ("agent-1", "agent-2"):
            cluster.programs[name].kill()
        gone = time.monotonic()

        def names_missing():
            refusal = refused_statement(control, "SHOW MASTER")
            return refusal and "no metadata agent can be reached" in refusal.message and refusal

        refusal = wait_until(names_missing, 20, "SHOW says that no metadata agent can be reached")
        assert "The proxy uses the catalog that it read" in refusal.message, refusal
        refusal = refused_statement(control, f"ALTER RESOURCE UNIT {names[2]} MAX_ENGINES 7")
        assert "no metadata agent can be reached" in refusal.message, refusal
        wait_until(lambda: cluster.logs.count(r'waits_for="a metadata agent'), 20, "the master says that it waits for an agent")
        wait_until(lambda: time.monotonic() - gone >= AGENTS_AWAY_S, AGENTS_AWAY_S, "half a minute is over", 0.5)
        monitor.wait_round()
        for name in ("agent-1", "agent-2"):
            cluster.start_program(name, wait=False)
        back = time.monotonic()
        for name in ("agent-1", "agent-2"):
            cluster.wait_ready(name)
        wait_until(lambda: masters.term().last_tick_ms > term.last_tick_ms + AGENTS_AWAY_S * 1000, 20, "the master ticks")
        took = time.monotonic() - back
        at_rest(cluster, BACK_WITHIN_S)
        print(f"the agents were away for {back - gone:.1f} s; the master ticked {took:.1f} s after their start")
        assert masters.term().epoch == term.epoch, "it was the master all the time"
        control.execute(f"ALTER RESOURCE UNIT {names[2]} MAX_ENGINES 7 WAIT '30s'")
        monitor.wait_round()
