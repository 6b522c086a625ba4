"""The network between the master and the API server alone is cut for longer than the master trusts its cache: it keeps its
session and stays master, creates and ends nothing, reports why, and continues when the cut is healed."""

import contextlib
import re
import time

import pytest

from harness.control import Control
from harness.masters import Masters
from harness.rest import at_rest
from harness.session_monitor import SessionMonitor
from harness.tcp_relay import TcpRelay
from harness.tier import only_long
from harness.waiting import wait_until

# In silence it is a minute until a watch that has died is noticed.
WITHIN_S = 180
BROKEN = re.compile("the orchestrator: .*watch pods")
CANDIDATES = ("proxy-a", "proxy-b")


@pytest.fixture
def relays(pods):
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(TcpRelay(pods.kubernetes.address)) for name in CANDIDATES}


@pytest.fixture
def cluster(relays, own_pod_cluster):
    cluster = own_pod_cluster(start=False, cluster={"name": "cut-off"}, candidates=CANDIDATES)
    for name, relay in relays.items():
        cluster.relay_kubernetes(name, relay)
    cluster.logs.allow("watch failed", "still waiting", "decision failed")
    yield cluster.start()
    for relay in relays.values():
        relay.heal()


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
        control.wait_engine(names[0], asked["engine"], "pending", BROKEN, WITHIN_S)
        monitor.wait_round()
        relay.heal()
        began = time.monotonic()
        control.wait_ready(names[0], 2, WITHIN_S)
        print(f"healed, the statement is carried out after {time.monotonic() - began:.1f} s")
        wait_until(lambda: not master_row(control)["waits_for"], WITHIN_S, "the master waits for nothing", 0.2)
        monitor.wait_round()
    assert masters.wait_acting().epoch == term.epoch
    after = at_rest(cluster)
    assert after.items() >= before.items() and after.keys() == {engine, asked["engine"]}
    control.drop(*names)
