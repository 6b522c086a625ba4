"""The network between one proxy and ZooKeeper is cut, with and without resets. That proxy was the master: another one takes
over in time. It keeps serving its sessions and new ones, and after the cut it stands for election again."""

import re

import pytest

from harness import zookeeper
from harness.control import Control
from harness.masters import Masters, wall_ms
from harness.rest import at_rest
from harness.session_monitor import SessionMonitor
from harness.tcp_relay import TcpRelay
from harness.tier import some
from harness.waiting import wait_until

pytestmark = pytest.mark.alone

SESSION_TIMEOUT_S = 4
TAKEN_OVER_WITHIN_MS = SESSION_TIMEOUT_S * 1000 + 2000
CUT_OFF = "proxy-b"
LOST = re.compile(
    "warning: this proxy (has had no connection to ZooKeeper for .*[0-9].*|receives no replies from ZooKeeper), and knows "
    "the engines that were registered .*[0-9].* ago; new engines are not visible until ZooKeeper is back"
)


@pytest.fixture
def relay():
    with TcpRelay(zookeeper.address()) as relay:
        yield relay


def with_warning(control, tenant):
    engines, log = control.look(f"SHOW ENGINES {tenant}")
    warnings = [line for line in log if "ZooKeeper" in line]
    return (engines, warnings[0]) if warnings else None


# The relay comes first, so that it is there until the cluster has ended.
@pytest.fixture
def relayed(relay, own_cluster):
    """A cluster whose proxy b is the master and reaches ZooKeeper through a relay; its engine, which proxy a started,
    does not."""
    cluster = own_cluster(
        candidates=("proxy-a", "proxy-b"), session_timeout_s=SESSION_TIMEOUT_S, master={"tick_interval": "1s"}
    )
    masters = Masters(cluster)
    cluster.programs[CUT_OFF].stop()
    control = Control(cluster.addresses["proxy-a"])
    names = control.make("out", users="'alice'")
    control.start(*names)
    at_rest(cluster)
    term = masters.wait_acting()
    assert masters.program_of(term) == "proxy-a"
    cluster.connect_of[CUT_OFF] = relay.address
    cluster.start_program(CUT_OFF)
    masters.wait_queued(2)
    cluster.restart("proxy-a")
    term = masters.wait_acting(term.epoch)
    assert masters.program_of(term) == CUT_OFF
    masters.wait_queued(2)
    at_rest(cluster)
    cluster.logs.allow("could not stand for election")
    yield cluster, masters, relay, names
    relay.heal()


@pytest.mark.parametrize("kind", some(["silence", "reset"], "silence"))
def test_a_master_cut_off_from_zookeeper_is_replaced_and_stays_a_proxy(relayed, kind):
    cluster, masters, relay, names = relayed
    with SessionMonitor(cluster, "alice") as monitor:
        term = masters.wait_acting()
        relay.cut(kind)
        at, passed = wall_ms(), relay.passed
        after = masters.wait_term_after(term.epoch)
        took = after.since_ms - at
        assert masters.program_of(after) == "proxy-a"
        print(f"cut off ({kind}), another master's epoch after {took:.0f} ms")
        assert took <= TAKEN_OVER_WITHIN_MS
        masters.wait_acting(term.epoch)
        control = Control(cluster.addresses[CUT_OFF])
        (master,) = control.execute("SHOW MASTER")
        assert master["epoch"] == after.epoch and master["state"] == "acting", master
        (started,) = control.execute(f"START ENGINE {' '.join(names)}")
        assert len(at_rest(cluster)) == 2, "its statements take effect"
        wait_until(lambda: "zookeeper is not available" in cluster.programs[CUT_OFF].logged(), 30, "it says what it lacks")
        engines, warning = wait_until(lambda: with_warning(control, names[0]), 30, "SHOW ENGINES says what is missing")
        assert sorted(it["engine"] for it in engines) == sorted(at_rest(cluster)), engines
        assert LOST.fullmatch(warning), warning
        assert all("this proxy" in it["reason"] and "ZooKeeper" in it["reason"] for it in engines), engines
        described = control.described(names[1], started["engine"])
        assert "this proxy" in described["reason"], described
        _, log = Control(cluster.addresses["proxy-a"]).look(f"SHOW ENGINES {names[0]}")
        assert not [line for line in log if "ZooKeeper" in line], log
        monitor.wait_round()
        assert relay.passed == passed, "nothing passed the cut"
        connections = relay.connections
        relay.heal()
        masters.wait_queued(2)
        assert relay.connections > connections and relay.passed > passed
        engines = at_rest(cluster)
        assert started["engine"] in engines and masters.wait_acting().epoch == after.epoch
        (old,) = set(engines) - {started["engine"]}
        monitor.wait_round()
        wait_until(lambda: not with_warning(control, names[0]), 30, "SHOW ENGINES misses nothing any more")
        assert not [it for it in control.engines(names[0]) if "this proxy" in (it["reason"] or "")]
    control.stop(names[1], old)
    wait_until(lambda: list(at_rest(cluster)) == [started["engine"]], 30, "the old engine is gone")
    assert Control(cluster.addresses[CUT_OFF]).execute("SELECT 3 AS three", user="alice") == [{"three": 3}]
