"""What happens to a process at a point: it dies, it is stopped for longer than its session lives, it is cut off from
everything, or a proxy is cut off from the API server alone.

An action says what the point is armed with, and what is done once a process has passed it.
"""

import collections
import os
import re
import signal
import time

from harness.pod_witness import PodWitness
from harness.waiting import wait_until

from walk.table import RESET_AT

# In session timeouts: long enough that the session is over whatever was answered last.
AWAY = 2
SAID_WITHIN_S = 60
LOOK_EVERY_S = 0.2
# What is said of an engine that can't be made, because the API server does not answer or can't be reached.
MISSED = re.compile("no answer within|config map")


def kill(lane, pid):
    """It killed itself; nobody but it is dead. It is started again; an engine is the master's business."""
    lane.ground.revive(pid)


def stop(lane, pid):
    """It stopped itself; it goes on when its session has long been over."""
    lane.ground.points.wait_stopped(lane.row.point)
    away(lane)
    os.kill(pid, signal.SIGCONT)
    lane.ground.went_on(pid)


def cut(lane, pid):
    """It is held at the point while its connections are cut, and goes on without them until its session is over."""
    relays = lane.ground.relays_of(pid)
    assert relays, f"process {pid} has no connection that could be cut"
    for relay, how in relays:
        relay.cut(how)
    passed = [relay.passed for relay, _ in relays]
    try:
        lane.ground.points.let_go(lane.row.point)
        away(lane)
        assert [relay.passed for relay, _ in relays] == passed, "nothing passes a cut"
    finally:
        for relay, _ in relays:
            relay.heal()
    lane.ground.went_on(pid)


def cut_from_api(lane, pid):
    """A proxy is held at the point while its connections to the API server are cut, and goes on without these: it has its
    session and all else. If it is the master it stays master and says of an engine that is asked for meanwhile what it
    can't do; and that engine is made when the cut is healed, once. If it is not, nobody misses it."""
    ground = lane.ground
    relay = ground.relays.api[ground.name_of(pid)]
    with PodWitness(ground.pods.admin, ground.namespace) as witness:
        relay.cut("reset" if lane.row.point.startswith(RESET_AT) else "silence")
        try:
            ground.points.let_go(lane.row.point)
            # Also one that has just been started gets ready without the API server.
            ground.all_run()
            lane.done(f"START ENGINE {lane.tenant} {lane.pool} {lane.unit}")
            is_cut_off = ground.pid_of("master") == pid
            term = ground.masters.wait_acting()
            wait_until(
                lambda: any(told(is_cut_off, it) for it in lane.shown_started()), SAID_WITHIN_S,
                "SHOW ENGINES says why the engine is not made" if is_cut_off else "the engine is ready", LOOK_EVERY_S,
            )
        finally:
            relay.heal()
        ground.at_rest()
        assert ground.masters.term().epoch == term.epoch, "whoever was master is it all the while"
    ground.went_on(pid)
    twice = [name for name, count in collections.Counter(witness.names.values()).items() if count > 1]
    assert not twice, f"made more than once: {twice}"
    for *_, name in lane.started():
        lane.done(f"STOP ENGINE {lane.pool} '{name}' FORCE")


def told(is_cut_off, row):
    return MISSED.search(row["reason"] or "") if is_cut_off else row["state"] == "ready"


def away(lane):
    """Not a wait for something: being away is what happens here."""
    time.sleep(lane.ground.session_timeout_s * AWAY)


# What a point is armed with, and what is done then.
ACTIONS = {
    "kill": ("kill", kill), "stop": ("stop", stop), "cut": ("hold", cut), "cut-from-api": ("hold", cut_from_api),
}
