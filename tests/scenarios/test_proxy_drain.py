"""A terminated proxy lets its sessions continue (`proxy.drain_grace`): all proxies of an installation are replaced in turn, and
neither an engine nor an accepted statement is lost."""

import signal

import pytest

from harness.clients import open_pyhive, rows
from harness.control import Control
from harness.draining import GRACE, WITHIN_S, begin_to_leave, probe
from harness.waiting import wait_until


def discovered(cluster):
    return {it.split(";")[0].removeprefix("serverUri=") for it in cluster.nodes.below(f"/{cluster.discovery}")}


def test_replacing_all_proxies_in_turn_keeps_their_sessions(own_cluster):
    proxy = GRACE | {"unbind_after": "1s"}
    cluster = own_cluster(proxy=proxy, master={"status_poll": "500ms"}, candidates=("proxy-a", "proxy-b"))
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
    leaves_its_engine_when_idle(open_pyhive(cluster.addresses["proxy-a"], "ann"), control, engine)
    assert set(made) <= {it["unit"] for it in control.execute("SHOW RESOURCE UNITS")}
    wait_until(lambda: {it["progress"] for it in control.alterations()} == {"converged"}, WITHIN_S, "everything converged")


def leaves_its_engine_when_idle(session, control, engine):
    """The session is counted while it is used, then no more, and goes on: with `proxy.unbind_after`."""

    def sessions():
        return control.engine("leaving", engine)["sessions"]

    rows(session, "SET datafusion.execution.batch_size=17")
    wait_until(lambda: rows(session, "SELECT 1 AS one") and sessions() == 1, WITHIN_S, "SHOW ENGINES counts the session")
    wait_until(lambda: sessions() == 0, WITHIN_S, "the idle session has left its engine")
    assert rows(session, "SHOW datafusion.execution.batch_size")[0]["value"] == "17"
    session.close()


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
