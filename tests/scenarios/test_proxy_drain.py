"""A terminated proxy lets its sessions continue (`proxy.drain_grace`): all proxies of an installation are replaced in turn, and
neither an engine nor an accepted statement is lost."""

import http.client
import signal

import pytest

from harness.clients import open_pyhive, rows
from harness.control import Control
from harness.waiting import wait_until

WITHIN_S = 60
GRACE = {"drain_grace": "1h"}
LEAVES = (503, "the proxy is shutting down")


def probe(address, path="/readyz"):
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=WITHIN_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode().strip()
    except ConnectionRefusedError:
        return 0, ""
    finally:
        connection.close()


def discovered(cluster):
    return {it.split(";")[0].removeprefix("serverUri=") for it in cluster.nodes.below(f"/{cluster.discovery}")}


def begin_to_leave(cluster, name):
    """Terminates a proxy and waits until it drains: a second signal would otherwise merge with the pending first one."""
    cluster.programs[name].send(signal.SIGTERM)
    wait_until(lambda: probe(cluster.addresses[name]) == LEAVES, WITHIN_S, f"{name} says that it leaves")


def test_replacing_all_proxies_in_turn_keeps_their_sessions(own_cluster):
    cluster = own_cluster(proxy=GRACE, candidates=("proxy-a", "proxy-b"))
    control = Control(cluster.addresses["proxy-b"])
    names = control.make("leaving", users="'ann'")
    engine = control.start(*names)
    processes = {name: it.process for name, it in cluster.engines.all().items()}
    made = []
    for name, other in (("proxy-a", "proxy-b"), ("proxy-b", "proxy-a")):
        leaving = cluster.addresses[name]
        wait_until(lambda leaving=leaving: probe(leaving) == (200, "ok"), WITHIN_S, f"{name} is ready")
        wait_until(lambda leaving=leaving: leaving in discovered(cluster), WITHIN_S, f"discovery names {name}")
        session = open_pyhive(leaving, "ann")
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
        begin_to_leave(cluster, name)
        assert probe(leaving, "/livez") == (200, "ok")
        with pytest.raises(Exception) as refused:
            open_pyhive(leaving, "ann")
        assert "routed to another proxy" in str(refused.value), refused.value
        wait_until(lambda leaving=leaving: leaving not in discovered(cluster), WITHIN_S, f"discovery names {name} no more")
        assert rows(session, "SELECT 2 AS two") == [{"two": 2}]
        unit = f"while_{name.replace('-', '_')}_leaves"
        Control(cluster.addresses[other]).execute(f"CREATE RESOURCE UNIT {unit} WAIT '1m'")
        made.append(unit)
        assert cluster.programs[name].is_running()
        session.close()
        assert cluster.programs[name].wait(WITHIN_S) == 0
        cluster.start_program(name)
    assert {name: it.process for name, it in cluster.engines.all().items()} == processes
    control = Control(cluster.addresses["proxy-a"])
    assert [it["engine"] for it in control.wait_ready("leaving")] == [engine]
    assert set(made) <= {it["unit"] for it in control.execute("SHOW RESOURCE UNITS")}
    wait_until(lambda: {it["progress"] for it in control.alterations()} == {"converged"}, WITHIN_S, "everything converged")


def test_a_second_signal_ends_a_proxy_that_waits_for_its_sessions(own_cluster):
    cluster = own_cluster(proxy=GRACE)
    session = open_pyhive(cluster.addresses["proxy-b"])
    begin_to_leave(cluster, "proxy-b")
    assert cluster.programs["proxy-b"].is_running()
    # The same signal within 200 ms would be the same request.
    cluster.programs["proxy-b"].send(signal.SIGINT)
    assert cluster.programs["proxy-b"].wait(WITHIN_S) == 130
    with pytest.raises(Exception):
        rows(session, "SHOW TENANTS")


def test_without_a_grace_period_a_proxy_ends_at_once(own_cluster):
    cluster = own_cluster()
    session = open_pyhive(cluster.addresses["proxy-b"])
    assert rows(session, "SHOW TENANTS LIKE 'none'") == []
    status, _ = cluster.programs["proxy-b"].stop(signal.SIGTERM)
    assert status == 0 and probe(cluster.addresses["proxy-b"]) == (0, "")
