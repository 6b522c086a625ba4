"""The network between the master and the API server alone is cut for longer than the master trusts its cache: it keeps its
session and stays master, creates and ends nothing, reports why, and continues when the cut is healed."""

import re
import time

import pytest

from harness.control import Control
from harness.masters import Masters
from harness.pods import HOME, PodCluster, Pods
from harness.rest import at_rest
from harness.session_monitor import SessionMonitor
from harness.tcp_relay import TcpRelay
from harness.tier import only_long
from harness.waiting import wait_until

# In silence it is a minute until a watch that has died is noticed.
WITHIN_S = 180
BROKEN = re.compile("the orchestrator: .*watch pods")
CANDIDATES = ("proxy-a", "proxy-b")


@pytest.fixture(scope="module")
def pods(workspace):
    it = Pods(workspace / "cut-off-pods")
    try:
        yield it.start()
    finally:
        it.close()


@pytest.fixture
def relays(pods):
    made = {name: TcpRelay(pods.kubernetes.address) for name in CANDIDATES}
    yield made
    for it in made.values():
        it.close()


@pytest.fixture
def cluster(pods, relays, folder):
    it = PodCluster(folder / "cluster", pods, cluster={"name": "cut-off"}, candidates=CANDIDATES)
    for name, relay in relays.items():
        kubeconfig = pods.kubernetes.kubeconfig_of(pods.token, f"cut-off-{name}", HOME, relay.address)
        it.settings_of[name] = {"kubernetes": {"kubeconfig": str(kubeconfig)}}
    it.logs.begin()
    it.logs.allow("watch failed", "still waiting", "decision failed")
    try:
        yield it.start()
        it.logs.check()
    finally:
        for relay in relays.values():
            relay.heal()
        it.close()


def master_row(control):
    (row,) = control.execute("SHOW MASTER")
    return row


@only_long
@pytest.mark.parametrize("kind", ["silence", "reset"])
def test_a_master_cut_off_from_the_api_server_reports_it_and_recovers(cluster, pods, relays, kind):
    masters = Masters(cluster)
    control = Control(cluster.addresses["proxy-b"])
    names = control.make(f"cut_{kind}", users="'alice'", places=pods.nodes_of(f"cut_{kind}"))
    engine = control.start(*names, wait="2m")
    before = at_rest(cluster)
    with SessionMonitor(cluster, "alice") as monitor:
        term = masters.wait_acting()
        relay = relays[masters.program_of(term)]
        relay.cut(kind)
        began = time.monotonic()
        row = wait_until(
            lambda: (it := master_row(control)) and BROKEN.search(it["waits_for"] or "") and it,
            WITHIN_S,
            "SHOW MASTER reports what the master waits for",
            0.5,
        )
        print(f"cut off ({kind}), SHOW MASTER reports it after {time.monotonic() - began:.0f} s")
        assert row["epoch"] == term.epoch, row
        (asked,) = control.execute(f"START ENGINE {' '.join(names)}")

        def reported():
            it = control.engine(names[0], asked["engine"])
            return it and it["state"] == "pending" and BROKEN.search(it["reason"] or "")

        wait_until(reported, WITHIN_S, "SHOW ENGINES reports why it waits", 0.5)
        monitor.wait_round()
        relay.heal()
        began = time.monotonic()
        control.wait_ready(names[0], 2, WITHIN_S)
        print(f"healed, the statement is carried out after {time.monotonic() - began:.1f} s")
        wait_until(lambda: not master_row(control)["waits_for"], WITHIN_S, "the master waits for nothing", 0.2)
        monitor.wait_round()
        print(f"the longest that a user waited: {monitor.slowest_s:.2f} s")
    assert masters.wait_acting().epoch == term.epoch
    after = at_rest(cluster)
    assert after.items() >= before.items() and after.keys() == {engine, asked["engine"]}
    control.drop(*names)
