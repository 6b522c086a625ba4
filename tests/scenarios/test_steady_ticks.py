"""A master's calls of an API server that audits every request: while nothing changes, ticks use only the watches."""

import collections

import pytest

from harness.control import Control
from harness.fixtures import started
from harness.pods import HOME, Pods
from harness.waiting import wait_until

WITHIN_S = 60
ENGINES = 3
TICKS = 40
MASTER = f"system:serviceaccount:{HOME}:master"
# Periodic calls that are no tick's: watches are renewed every minute, lists and our rights every ten.
BY_THE_CLOCK = {
    ("watch", "pods"),
    ("watch", "events"),
    ("watch", "nodes"),
    ("list", "pods"),
    ("list", "events"),
    ("list", "nodes"),
    ("create", "selfsubjectaccessreviews"),
    ("create", "selfsubjectrulesreviews"),
}
# Of each of these in the time of that many ticks, which may be ten minutes on a machine that is very busy.
OF_EACH = TICKS // 2


@pytest.fixture(scope="module")
def pods(workspace):
    yield from started(Pods(workspace / "pods-that-are-at-rest", audit=True))


def asked(pods, since):
    counted = [
        it
        for it in pods.kubernetes.requests(MASTER)
        if it["stage"] == ("ResponseStarted" if it["verb"] == "watch" else "ResponseComplete")
    ]
    return collections.Counter((it["verb"], it["objectRef"]["resource"]) for it in counted[since:]), len(counted)


def test_while_nothing_changes_no_tick_asks_the_api_server_for_anything(own_pod_cluster, pods):
    cluster = own_pod_cluster(master={"tick_interval": "200ms"})
    control = Control(cluster.addresses["proxy-b"])
    tenant, pool, unit = control.make(
        "resting", options=f", MIN_ENGINES {ENGINES}, MAX_ENGINES {ENGINES}", places=pods.nodes_of("resting")
    )
    control.wait_ready(tenant, ENGINES, within_s=120)
    cluster.settled(control)
    before, count = asked(pods, 0)
    assert before["create", "pods"] >= ENGINES and before["get", "configmaps"] >= 1, before
    ticks = set()

    def ticked():
        ticks.add(cluster.last_tick())
        return len(ticks) > TICKS

    wait_until(ticked, 10 * WITHIN_S, f"the master has ticked {TICKS} times")
    during, _ = asked(pods, count)
    assert set(during) <= BY_THE_CLOCK, during
    assert all(times <= OF_EACH for times in during.values()), during
    control.drop(tenant, pool, unit)
    wait_until(lambda: asked(pods, count)[0]["delete", "pods"] >= ENGINES, 2 * WITHIN_S, "the pods' deletes are written down")
