"""The actions at a point: a process is killed, stopped for longer than its session lives, cut off from everything, or a proxy
is cut off from the API server alone. An action names the armed mode and what follows once a process has passed the point."""

import collections
import os
import re
import signal
import time

from failpoint_matrix.table import RESET_AT
from harness.pod_recorder import PodRecorder
from harness.waiting import wait_until

AWAY = 2
REPORTED_WITHIN_S = 60
LOOK_EVERY_S = 0.2
# The reason of an engine that cannot be created because the API server does not respond or cannot be reached.
MISSED = re.compile("no (?:answer|reply) within|config map")


def kill(worker, pid):
    worker.installation.revive(pid)


def stop(worker, pid):
    worker.installation.points.wait_stopped(worker.row.point)
    away(worker)
    os.kill(pid, signal.SIGCONT)
    worker.installation.went_on(pid)


def cut(worker, pid):
    relays = worker.installation.relays_of(pid)
    assert relays, f"process {pid} has no connection that could be cut"
    for relay, how in relays:
        relay.cut(how)
    passed = [relay.passed for relay, _ in relays]
    try:
        worker.installation.points.let_go(worker.row.point)
        away(worker)
        assert [relay.passed for relay, _ in relays] == passed, "nothing passes a cut"
    finally:
        for relay, _ in relays:
            relay.heal()
    worker.installation.went_on(pid)


def cut_from_api(worker, pid):
    """A proxy is held at the point while its connections to the API server are cut, and continues without them, its session
    intact. A master stays master and reports why a requested engine is not created; after the cut it is created once. Without
    another proxy nothing depends on it."""
    installation = worker.installation
    relay = installation.relays.api[installation.name_of(pid)]
    with PodRecorder(installation.pods.admin, installation.namespace) as monitor:
        relay.cut("reset" if worker.row.point.startswith(RESET_AT) else "silence")
        try:
            installation.points.let_go(worker.row.point)
            installation.all_run()
            worker.done(f"START ENGINE {worker.tenant} {worker.pool} {worker.unit}")
            is_cut_off = installation.pid_of("master") == pid
            term = installation.masters.wait_acting()
            wait_until(
                lambda: any(is_reported(is_cut_off, it) for it in worker.shown_started()),
                REPORTED_WITHIN_S,
                "SHOW ENGINES says why the engine is not made" if is_cut_off else "the engine is ready",
                LOOK_EVERY_S,
            )
        finally:
            relay.heal()
        installation.at_rest()
        assert installation.masters.term().epoch == term.epoch, "the master stays master"
    installation.went_on(pid)
    twice = [name for name, count in collections.Counter(monitor.names.values()).items() if count > 1]
    assert not twice, f"made more than once: {twice}"
    for *_, name in worker.started():
        worker.done(f"STOP ENGINE {worker.pool} '{name}' FORCE")


def is_reported(is_cut_off, row):
    return MISSED.search(row["reason"] or "") if is_cut_off else row["state"] == "ready"


def away(worker):
    time.sleep(worker.installation.session_timeout_s * AWAY)


ACTIONS = {"kill": ("kill", kill), "stop": ("stop", stop), "cut": ("hold", cut), "cut-from-api": ("hold", cut_from_api)}
