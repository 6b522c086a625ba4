"""A container's probes, in a thread of their own while the container runs.

A container without a readiness probe is ready as soon as it has started. Before its startup probe has succeeded no other runs.
A liveness or startup probe that fails often enough kills the container.
"""

import http.client
import subprocess
import threading
import time
import traceback

SUCCESS = range(200, 400)
LOOK_EVERY_S = 0.05


class Probes:
    """Calls `on_ready(ready)` when that changes, `failing(why)` once if the container has to be killed, and `broken(why)` if
    the probes cannot run at all."""

    def __init__(self, process, ip, on_ready, failing, broken):
        self.process, self.ip, self.on_ready, self.failing, self.broken = process, ip, on_ready, failing, broken
        self.ready = None
        self.ended = threading.Event()
        threading.Thread(target=self.run, daemon=True, name=f"probes of {process.spec['name']}").start()

    def end(self):
        self.ended.set()

    def set_ready(self, ready):
        if ready != self.ready and not self.ended.is_set():
            self.ready = ready
            self.on_ready(ready)

    def run(self):
        try:
            self.run_all()
        except Exception:
            self.broken(traceback.format_exc())

    def run_all(self):
        spec = self.process.spec
        # Before that another program would answer.
        while not self.process.has_begun():
            if self.ended.wait(LOOK_EVERY_S):
                return
        if not self.wait_started(spec.get("startupProbe")):
            return
        readiness, liveness = (Counted(spec.get(it)) for it in ("readinessProbe", "livenessProbe"))
        self.set_ready(readiness.probe is None)
        probes = [it for it in (readiness, liveness) if it.probe]
        while probes and not self.ended.is_set():
            for it in probes:
                if it.due_in_s() == 0:
                    it.count(self.succeeds(it.probe))
            if readiness.succeeded or readiness.failed:
                self.set_ready(readiness.succeeded)
            if liveness.failed:
                self.failing("Liveness probe failed")
                return
            self.ended.wait(min(it.due_in_s() for it in probes))

    def wait_started(self, probe):
        counted = Counted(probe)
        while probe and not self.ended.wait(counted.due_in_s()):
            counted.count(self.succeeds(probe))
            if counted.succeeded:
                break
            if counted.failed:
                self.failing("Startup probe failed")
                return False
        return not self.ended.is_set()

    def succeeds(self, probe):
        within_s = probe.get("timeoutSeconds", 1)
        try:
            if "httpGet" in probe:
                return get(self.process.spec, self.ip, probe["httpGet"], within_s) in SUCCESS
            return self.process.run_inside(probe["exec"]["command"], within_s) == 0
        except (OSError, http.client.HTTPException, subprocess.TimeoutExpired):
            return False


def get(spec, ip, action, within_s):
    port = action["port"]
    if not isinstance(port, int):
        port = next(it["containerPort"] for it in spec["ports"] if it.get("name") == port)
    connection = http.client.HTTPConnection(ip, port, timeout=within_s)
    try:
        connection.request("GET", action.get("path", "/"))
        return connection.getresponse().status
    finally:
        connection.close()


class Counted:
    """A probe with the number of its last successes or failures, and when it is due."""

    def __init__(self, probe):
        self.probe, settings = probe, probe or {}
        self.period_s = settings.get("periodSeconds", 10)
        self.success_threshold = settings.get("successThreshold", 1)
        self.failure_threshold = settings.get("failureThreshold", 3)
        self.successes = self.failures = 0
        self.due_at = time.monotonic() + settings.get("initialDelaySeconds", 0)

    def due_in_s(self):
        return max(0.0, self.due_at - time.monotonic())

    def count(self, succeeded):
        self.due_at = time.monotonic() + self.period_s
        self.successes = self.successes + 1 if succeeded else 0
        self.failures = 0 if succeeded else self.failures + 1

    @property
    def succeeded(self):
        return self.successes >= self.success_threshold

    @property
    def failed(self):
        return self.failures >= self.failure_threshold
