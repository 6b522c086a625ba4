"""What happens to a process at a point: it dies, it is stopped for longer than its session lives, or it is cut off.

An action says what the point is armed with, and what is done once a process has passed it.
"""

import os
import signal
import time

# In session timeouts: long enough that the session is over whatever was answered last.
AWAY = 2


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
    try:
        lane.ground.points.let_go(lane.row.point)
        away(lane)
    finally:
        for relay, _ in relays:
            relay.heal()
    lane.ground.went_on(pid)


def away(lane):
    """Not a wait for something: being away is what happens here."""
    time.sleep(lane.ground.session_timeout_s * AWAY)


# What a point is armed with, and what is done then.
ACTIONS = {"kill": ("kill", kill), "stop": ("stop", stop), "cut": ("hold", cut)}
