"""A master with pods that is stopped for longer than its session lives, between its last check and a call of the API server or
with the call in flight: at most that one call arrives, and the next tick of its successor undoes its effect.

It stops before it reads the epoch that the API server keeps, or just after, when only names and uids can refuse the call. A
relay between masters and API server counts the calls and may hold the late one back.
"""

import contextlib
import itertools

import pytest

from harness.api_relay import api_calls
from harness.decisions import applied_in
from harness.deposed_master import CANDIDATES, SESSION_TIMEOUT_S, TICK_S, DeposedMaster
from harness.failpoints import Failpoints
from harness.fixtures import started
from harness.pods import HOME, PodCluster
from harness.rest import at_rest
from harness.tier import some
from harness.waiting import wait_until

BEFORE_CREATE, CREATE_ADMITTED = "master.before.create_engine", "orchestrator.ensure.admitted"
BEFORE_DELETE, DELETE_ADMITTED = "master.before.delete_engine", "orchestrator.delete.admitted"
# It has sent the call, which has not arrived.
ON_THE_WAY = "on the way"
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def points(workspace):
    return Failpoints(workspace / "points-of-contested-pods")


@pytest.fixture(scope="module")
def shared_cluster(pods, relay, points, workspace):
    it = PodCluster(
        workspace / "contested-cluster",
        pods,
        relay.kubeconfig_of(pods.token, "master", HOME),
        candidates=CANDIDATES,
        session_timeout_s=SESSION_TIMEOUT_S,
        env=points.env,
        master={"tick_interval": f"{TICK_S}s"},
    )
    yield from started(it)


@pytest.fixture
def deposed(cluster, pods, points):
    # A call that was stopped for longer than it may take is given up, and one whose answer was lost has failed.
    cluster.logs.allow("decision failed", "watch failed")
    name = f"contested_{next(numbers)}"
    it = DeposedMaster(cluster, points, name, pods.nodes_of(name))
    try:
        it.served_by = it.control.start(*it.link)
        at_rest(cluster)
        yield it
    finally:
        it.end()
    it.masters.wait_queued(len(CANDIDATES))
    it.control.drop(*it.link)
    assert at_rest(cluster) == {}


@contextlib.contextmanager
def late(deposed, relay, point, verb, begin, meanwhile=lambda begun: None):
    """The master stops before or within its next call of this verb, and another follows it; afterwards a call that is on its
    way arrives. What `begin` answers; with `ON_THE_WAY` the call was sent and is held back by the relay, so that nothing but
    names and uids refuses it."""
    if point != ON_THE_WAY:
        deposed.points.arm(point, "stop")
        begun = begin()
        deposed.wait_followed(point, lambda: meanwhile(begun))
        yield begun
        return
    held = relay.fault("hold", api_calls(verb, resource="pods"))
    try:
        begun = begin()
        deposed.stop_while_held(held)
        deposed.follow(lambda: meanwhile(begun))
        yield begun
    finally:
        held.lift()
    assert held.left == 0, "its connection stood until the call went on"


def calls(relay, verb):
    return relay.requests[verb, "pods"]


def start(deposed):
    return lambda: deposed.control.execute(f"START ENGINE {' '.join(deposed.link)}")[0]["engine"]


@pytest.mark.parametrize("point", some([BEFORE_CREATE, CREATE_ADMITTED, ON_THE_WAY], ON_THE_WAY))
def test_a_create_that_comes_late_makes_no_second_pod(deposed, relay, point):
    with late(deposed, relay, point, "create", start(deposed)) as name:
        assert at_rest(deposed.cluster).keys() == {deposed.served_by, name}, "the successor makes the pod under the same name"
        sent = calls(relay, "create")
    done, rejected, _ = deposed.go_on_in_vain()
    # Its master has given the call up. With the way free, it finds the pod that is there.
    deposed.gives_up(done, rejected, "create engine", name)
    assert calls(relay, "create") - sent <= (point == CREATE_ADMITTED)


@pytest.mark.parametrize("point", some([CREATE_ADMITTED, ON_THE_WAY], ON_THE_WAY))
def test_a_pod_that_is_made_late_never_registers_and_goes(deposed, relay, point):
    # It is not desired any more, so the successor makes no call about it, and the API server keeps no newer epoch.
    def stop(name):
        deposed.control.execute(f"STOP ENGINE {deposed.link[1]} '{name}' FORCE")

    with late(deposed, relay, point, "create", start(deposed), stop) as name:
        serving = at_rest(deposed.cluster)
        assert serving.keys() == {deposed.served_by}
        sent = calls(relay, "create")
    if point == ON_THE_WAY:
        other = deposed.cluster.programs[deposed.other]
        wait_until(lambda: ("drain engine", name) in [it[:2] for it in applied_in(other.logged())], 20, "it is drained")
    done, rejected, _ = deposed.go_on()
    deposed.gives_up(done, rejected, "create engine", name)
    assert calls(relay, "create") - sent <= (point == CREATE_ADMITTED)
    assert at_rest(deposed.cluster) == serving
    assert f"registered engine={name} " not in deposed.cluster.logs.text("engine-agent")


@pytest.mark.parametrize("point", some([BEFORE_DELETE, DELETE_ADMITTED, ON_THE_WAY], ON_THE_WAY))
def test_a_delete_that_comes_late_hits_no_other_pod(deposed, relay, point):
    old = deposed.served_by

    def restart():
        return deposed.control.execute(f"RESTART ENGINE {deposed.link[1]} '{old}' FORCE")[0]["engine"]

    with late(deposed, relay, point, "delete", restart) as new:
        assert at_rest(deposed.cluster).keys() == {new} != {old}
        sent = calls(relay, "delete")
    done, rejected, _ = deposed.go_on_in_vain()
    deposed.gives_up(done, rejected, "delete engine", old)
    assert calls(relay, "delete") - sent <= (point == DELETE_ADMITTED)
