"""A container's probes, asked in a thread of its own as long as the container runs.

Ready is a container without a readiness probe as soon as it has started, and one with such a probe by its answers.
Before its startup probe has succeeded no other is asked. A liveness or startup probe that failed often enough kills.
"""

import http.client
import socket
import ssl
import subprocess
import threading
import time
import traceback

SUCCESS = range(200, 400)
BEGUN_ASKED_EVERY_S = 0.05
# The kinds of probes that can be asked.
KINDS = ("httpGet", "tcpSocket", "exec")


class Probes:
    """Calls `told(ready)` when that changes, `failing(why)` once if the container has to be killed, and `broken(why)` if the
    probes can't be asked at all."""

    def __init__(self, process, ip, on_ready, failing, broken):
        self.process, self.ip, self.on_ready, self.failing, self.broken = process, ip, on_ready, failing, broken
        self.ready = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True, name=f"probes of {process.spec['name']}")
        self.thread.start()

    def end(self):
        self.ended.set()

    def set_ready(self, ready):
        if ready != self.ready and not self.ended.is_set():
            self.ready = ready
            self.on_ready(ready)

    def run(self):
        try:
            self.ask_all()
        except Exception:
            self.broken(traceback.format_exc())

    def ask_all(self):
        spec = self.process.spec
        # An answer of what is not the container yet would count.
        while not self.process.has_begun():
            if self.ended.wait(BEGUN_ASKED_EVERY_S):
                return
        if not self.wait_started(spec.get("startupProbe")):
            return
        readiness, liveness = (Counted(spec.get(it)) for it in ("readinessProbe", "livenessProbe"))
        self.set_ready(readiness.probe is None)
        asked = [it for it in (readiness, liveness) if it.probe]
        while asked and not self.ended.is_set():
            for it in asked:
                if it.is_due():
                    it.count(self.ask(it.probe))
            if readiness.succeeded:
                self.set_ready(True)
            elif readiness.failed:
                self.set_ready(False)
            if liveness.failed:
                self.failing("Liveness probe failed")
                return
            self.ended.wait(min(it.due_in_s() for it in asked))

    def wait_started(self, probe):
        counted = Counted(probe)
        while probe and not self.ended.wait(counted.due_in_s()):
            counted.count(self.ask(probe))
            if counted.succeeded:
                break
            if counted.failed:
                self.failing("Startup probe failed")
                return False
        return not self.ended.is_set()

    def ask(self, probe):
        within_s = probe.get("timeoutSeconds", 1)
        try:
            if "httpGet" in probe:
                return ask_http(self.process.spec, self.ip, probe["httpGet"], within_s) in SUCCESS
            if "tcpSocket" in probe:
                wanted = probe["tcpSocket"]
                address = wanted.get("host", self.ip), port_of(self.process.spec, wanted["port"])
                with socket.create_connection(address, within_s):
                    return True
            return self.process.run_inside(probe["exec"]["command"], within_s) == 0
        except (OSError, http.client.HTTPException, subprocess.TimeoutExpired):
            return False


def ask_http(spec, ip, wanted, within_s):
    """What is answered to an `httpGet` of a container: the status."""
    host, port = wanted.get("host", ip), port_of(spec, wanted["port"])
    if wanted.get("scheme") == "HTTPS":
        # A kubelet doesn't look at the certificate either.
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(host, port, timeout=within_s, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=within_s)
    try:
        headers = {it["name"]: it["value"] for it in wanted.get("httpHeaders", [])}
        connection.request("GET", wanted.get("path", "/"), headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def port_of(spec, port):
    """The number of a container's port."""
    return port if isinstance(port, int) else next(it["containerPort"] for it in spec["ports"] if it.get("name") == port)


class Counted:
    """A probe with its last answers, and when it is asked next."""

    def __init__(self, probe):
        self.probe = probe
        self.period_s = (probe or {}).get("periodSeconds", 10)
        self.successes = self.failures = 0
        self.due_at = time.monotonic() + (probe or {}).get("initialDelaySeconds", 0)

    def is_due(self):
        return self.due_in_s() == 0

    def due_in_s(self):
        return max(0.0, self.due_at - time.monotonic())

    def count(self, succeeded):
        self.due_at = time.monotonic() + self.period_s
        self.successes = self.successes + 1 if succeeded else 0
        self.failures = 0 if succeeded else self.failures + 1

    @property
    def succeeded(self):
        return self.successes >= (self.probe or {}).get("successThreshold", 1)

    @property
    def failed(self):
        return self.failures >= (self.probe or {}).get("failureThreshold", 3)
