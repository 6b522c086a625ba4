"""Failover of masters with pods: the next master writes as soon as with any engines, adopts the existing pods, ends
none of them, and carries out later statements. No name ever has two pods."""

import signal

import pytest

from harness.control import Control
from harness.failovers import CANDIDATES, terms_ended_by, with_a_third
from harness.masters import summary
from harness.pod_recorder import PodRecorder
from harness.rest import at_rest
from harness.tier import LONG
from harness.waiting import wait_until

pytestmark = pytest.mark.alone

RUNS = 10 if LONG else 2
WITHIN_S = 60
ENDS = [(signal.SIGKILL, 2, 4), (signal.SIGTERM, 10, 5)]


@pytest.mark.parametrize(("number", "session_timeout_s", "within_s"), ENDS, ids=["SIGKILL", "SIGTERM"])
def test_the_next_master_goes_on_with_the_pods_that_are_there(pods, own_pod_cluster, number, session_timeout_s, within_s):
    name = f"after_{number.name.lower()}"
    cluster = own_pod_cluster(
        cluster={"name": name.replace("_", "-")}, candidates=CANDIDATES, session_timeout_s=session_timeout_s
    )
    took = failovers(cluster, with_a_third(cluster), pods, name, number)
    summary(f"from {number.name} to the successor's epoch, with pods and a session timeout of {session_timeout_s} s", took)
    assert max(took) <= within_s * 1000, took


def failovers(cluster, masters, pods, name, number):
    control = Control(cluster.addresses[masters.program_of(masters.wait_acting())])
    names = control.make(name, users="'alice'", places=pods.nodes_of(name))
    engine = control.start(*names, wait="2m")
    before = at_rest(cluster)
    took, made = [], [engine]
    with PodRecorder(pods.admin, cluster.namespace(names[0], names[1])) as monitor:
        for at, _, term in terms_ended_by(cluster, masters, number, RUNS):
            took.append(term.since_ms - at)
            master = masters.program_of(term)
            cluster.wait_ready(master)
            control = Control(cluster.addresses[master])
            assert control.execute("SELECT 40 + 2 AS answer", "alice") == [{"answer": 42}]
            made.append(control.start(*names, wait="2m"))
            control.stop(names[1], made[-1])
        assert at_rest(cluster) == before, "the pod that was there is the one that is there"
        wait_until(lambda: set(monitor.names.values()) >= set(made), WITHIN_S, "the recorder has seen them all")
        assert sorted(monitor.names.values()) == sorted(made), "each was made once, and nothing else"
    control.drop(*names)
    return took
