"""ZooKeeper is away for longer than a session lives, and the leader of an ensemble dies. Sessions continue, new ones go to the
engines that the proxies know, SHOW reports what is missing, and afterwards recorded requests take effect."""

import time

import pytest

from harness.control import Control
from harness.ensemble import Ensemble
from harness.fixtures import started
from harness.masters import Masters
from harness.rest import at_rest
from harness.session_monitor import SessionMonitor
from harness.waiting import wait_until

SESSION_TIMEOUT_S = 3
TICK_S = 1
AWAY_S = SESSION_TIMEOUT_S * 2
BACK_WITHIN_S = 30
SETTINGS = {
    "candidates": ("proxy-a", "proxy-b"),
    "session_timeout_s": SESSION_TIMEOUT_S,
    "master": {"tick_interval": f"{TICK_S}s"},
}


@pytest.fixture
def ensemble(folder, request):
    yield from started(Ensemble(folder, request.param))


def installed(own_cluster, ensemble):
    cluster = own_cluster(ensemble=ensemble, **SETTINGS)
    control = Control(cluster.addresses["proxy-b"])
    names = control.make("out", users="'alice'")
    control.start(*names)
    at_rest(cluster)
    cluster.logs.allow("could not stand for election", "still waiting")
    return cluster, control, names


@pytest.mark.parametrize("ensemble", [1], indirect=True, ids=["one server"])
def test_sessions_survive_a_zookeeper_outage_and_changes_apply_afterwards(ensemble, own_cluster):
    cluster, control, names = installed(own_cluster, ensemble)
    masters = Masters(cluster)
    with SessionMonitor(cluster, "alice") as monitor:
        term = masters.wait_acting()
        ensemble.kill()
        gone = time.monotonic()
        stale = "stale: the master's last tick was"
        wait_until(lambda: stale in control.execute("SHOW MASTER")[0]["state"], 20, "SHOW MASTER reports that no master acts")
        (master,), log = control.look("SHOW MASTER")
        assert master["epoch"] == term.epoch and "zookeeper is not available" in str(log), (master, log)
        (engine,) = control.engines("out")
        assert engine["state"] == "unknown" and stale in engine["reason"], engine
        _, log = control.look("SHOW ALTERATIONS")
        assert "undecided alterations are not shown" in str(log) and "zookeeper is not available" in str(log), log
        (started,) = control.execute(f"START ENGINE {' '.join(names)}")
        refusal = control.refused(f"ALTER RESOURCE UNIT {names[2]} DRIVER_MEMORY '1G'")
        assert "zookeeper is not available" in refusal.message and "Nothing was changed" in refusal.message, refusal
        assert control.engine("out", started["engine"])["state"] == "pending"
        wait_until(lambda: time.monotonic() - gone >= AWAY_S, AWAY_S + 1, "every session is given up")
        monitor.wait_round()
        ensemble.start()
        back = time.monotonic()
        engines = at_rest(cluster, BACK_WITHIN_S)
        print(f"ZooKeeper was away for {back - gone:.1f} s; {time.monotonic() - back:.1f} s later all was at rest")
        assert started["engine"] in engines and len(engines) == 2
        assert masters.wait_acting(term.epoch).epoch > term.epoch
        assert control.execute("SHOW MASTER")[0]["state"] == "acting"
        monitor.wait_round()


@pytest.mark.parametrize("ensemble", [3], indirect=True, ids=["three servers"])
def test_when_the_leader_of_the_ensemble_dies_the_others_go_on(ensemble, own_cluster):
    cluster, control, names = installed(own_cluster, ensemble)
    masters = Masters(cluster)
    with SessionMonitor(cluster, "alice") as monitor:
        term = masters.wait_acting()
        leader = ensemble.leader()
        leader.kill()
        gone = time.monotonic()
        (started,) = control.execute(f"START ENGINE {' '.join(names)}")
        ticked = wait_until(
            lambda: masters.term().last_tick_ms > term.last_tick_ms + 2000 and masters.term(),
            BACK_WITHIN_S,
            "a master ticks again",
            0.1,
        )
        acted = time.monotonic() - gone
        assert ensemble.leader() is not leader
        engines = at_rest(cluster, BACK_WITHIN_S)
        print(f"{acted:.1f} s after the leader's end a master of epoch {ticked.epoch} (before: {term.epoch}) ticked")
        assert started["engine"] in engines and len(engines) == 2
        control.execute(f"ALTER RESOURCE UNIT {names[2]} MAX_ENGINES 5 WAIT '30s'")
        leader.start()
        leader.wait_serving()
        assert at_rest(cluster) == engines
        monitor.wait_round()
