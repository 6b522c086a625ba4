"""A master whose engines are pods, and that is stopped between its last look and a call of the API server, for longer than
its session lives: at most that one call goes out, and what it changed is gone with what its successor does next.

It may stop before it looks at the epoch that the API server keeps, or just after, when nothing refuses the call any more but
names and uids. Between masters and API server is a relay that counts the calls, and may lose the answer of the late one.
"""

import contextlib
import itertools

import pytest

from harness.api_relay import ApiRelay, asking
from harness.duel import CANDIDATES, SESSION_TIMEOUT_S, TICK_S, Duel
from harness.failpoints import Failpoints
from harness.lending import started
from harness.pods import HOME, PodCluster, Pods
from harness.rest import at_rest
from harness.tier import some

BEFORE_CREATE, CREATE_ADMITTED = "master.before.create_engine", "orchestrator.ensure.admitted"
BEFORE_DELETE, DELETE_ADMITTED = "master.before.delete_engine", "orchestrator.delete.admitted"
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def pods(workspace):
    yield from started(Pods(workspace / "contested-pods"))


@pytest.fixture(scope="module")
def relay(pods):
    with ApiRelay(pods.kubernetes) as it:
        yield it


@pytest.fixture(scope="module")
def points(workspace):
    return Failpoints(workspace / "points-of-contested-pods")


@pytest.fixture(scope="module")
def installation(pods, relay, points, workspace):
    it = PodCluster(
        workspace / "contested-cluster", pods, relay.kubeconfig_of(pods.token, "master", HOME), candidates=CANDIDATES,
        session_timeout_s=SESSION_TIMEOUT_S, env=points.env, master={"tick_interval": f"{TICK_S}s"},
    )
    try:
        yield it.start()
    finally:
        points.clear()
        it.close()


@pytest.fixture
def duel(installation, pods, points):
    """With one engine that serves, so that nothing has to be prepared for another one."""
    installation.logs.begin()
    # A call that was stopped for longer than it may take is given up, and one whose answer was lost has failed.
    installation.logs.allow("decision failed", "the watch is broken")
    name = f"contested_{next(numbers)}"
    it = Duel(installation, points, name, pods.nodes_of(name))
    try:
        it.served_by = it.control.start(*it.link)
        at_rest(installation)
        yield it
    finally:
        it.end()
    it.masters.wait_queued(len(CANDIDATES))
    it.control.drop(*it.link)
    assert at_rest(installation) == {}
    installation.logs.check()


def calls(relay, verb):
    return relay.requests[verb, "pods"]


@pytest.mark.parametrize("point", some([BEFORE_CREATE, CREATE_ADMITTED], CREATE_ADMITTED))
def test_a_create_that_comes_late_makes_no_second_pod(duel, relay, point):
    name = duel.start_stopping_at(point)
    duel.wait_followed(point)
    assert at_rest(duel.cluster).keys() == {duel.served_by, name}, "the successor makes the pod under the same name"
    before = calls(relay, "create")
    done, rejected, _ = duel.go_on_in_vain()
    if point == BEFORE_CREATE:
        assert (done, rejected) == ([], [("create engine", name)])
        assert calls(relay, "create") == before, "the epoch refuses it before it is made"
    else:
        # It finds the pod that is there, or was given up; nothing more is sent in any case.
        assert done in ([], [("create engine", name)]) and len(rejected) <= 1, (done, rejected)
        assert not done or rejected == [("record uid", name)], (done, rejected)
        assert calls(relay, "create") - before <= 1


@pytest.mark.parametrize(("point", "lost"), some(
    [(BEFORE_CREATE, False), (BEFORE_CREATE, True), (CREATE_ADMITTED, False)], (BEFORE_CREATE, True),
))
def test_a_pod_that_is_made_late_never_registers_and_goes(duel, relay, point, lost):
    name = duel.start_stopping_at(point)
    # Nobody wants it any more, so the successor calls nobody about it, and the API server keeps no newer epoch.
    duel.wait_followed(point, lambda: duel.control.say(f"STOP ENGINE {duel.link[1]} '{name}' FORCE"))
    serving, before = at_rest(duel.cluster), calls(relay, "create")
    assert serving.keys() == {duel.served_by}
    with contextlib.ExitStack() as stack:
        if lost:
            # A create that is given up before it is sent meets no fault.
            stack.callback(relay.fault("hang_up", asking("create", resource="pods"), after=True).lift)
        done, rejected, _ = duel.go_on()
    if point == BEFORE_CREATE:
        # The call was given up, or it took effect and nothing more was sent.
        assert done in ([], [("create engine", name)] * (not lost)) and len(rejected) <= 1, (done, rejected)
    assert calls(relay, "create") - before <= 1
    assert at_rest(duel.cluster) == serving
    assert f"registered engine={name} " not in duel.cluster.logs.text("engine-agent")


@pytest.mark.parametrize("point", some([BEFORE_DELETE, DELETE_ADMITTED], DELETE_ADMITTED))
def test_a_delete_that_comes_late_hits_no_other_pod(duel, relay, point):
    old = duel.served_by
    duel.points.arm(point, "stop")
    (answer,) = duel.control.say(f"RESTART ENGINE {duel.link[1]} '{old}' FORCE")
    duel.wait_followed(point)
    assert at_rest(duel.cluster).keys() == {answer["engine"]} != {old}
    before = calls(relay, "delete")
    done, rejected, _ = duel.go_on_in_vain()
    assert done in ([], [("delete engine", old)]) and rejected in ([], [("delete engine", old)]), (done, rejected)
    assert calls(relay, "delete") - before <= 1
    if point == BEFORE_DELETE:
        assert len(done) + len(rejected) == 1, (done, rejected)
