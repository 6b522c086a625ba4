"""A container's probes, asked in a thread of its own as long as the container runs.

Ready is a container without a readiness probe as soon as it has started, and one with such a probe by its answers.
Before its startup probe has succeeded no other is asked. A liveness or startup probe that failed often enough kills.
"""

import http.client
import socket
import ssl
import subprocess
import threading

SUCCESS = range(200, 400)


class Probes:
    """Calls `told(ready)` when that changes, and `failing(why)` once if the container has to be killed."""

    def __init__(self, process, ip, told, failing):
        self.process, self.ip, self.told, self.failing = process, ip, told, failing
        self.ready = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True, name=f"probes of {process.spec['name']}")
        self.thread.start()

    def end(self):
        self.ended.set()

    def tell(self, ready):
        if ready != self.ready and not self.ended.is_set():
            self.ready = ready
            self.told(ready)

    def run(self):
        spec = self.process.spec
        if not self.wait_started(spec.get("startupProbe")):
            return
        readiness, liveness = (Counted(spec.get(it)) for it in ("readinessProbe", "livenessProbe"))
        self.tell(readiness.probe is None)
        while (readiness.probe or liveness.probe) and not self.ended.is_set():
            for counted in (readiness, liveness):
                if counted.probe:
                    counted.count(self.ask(counted.probe))
            if readiness.succeeded:
                self.tell(True)
            elif readiness.failed:
                self.tell(False)
            if liveness.failed:
                self.failing("Liveness probe failed")
                return
            self.ended.wait(min(it.period_s for it in (readiness, liveness) if it.probe))

    def wait_started(self, probe):
        counted = Counted(probe)
        while probe and not self.ended.is_set():
            counted.count(self.ask(probe))
            if counted.succeeded:
                break
            if counted.failed:
                self.failing("Startup probe failed")
                return False
            self.ended.wait(counted.period_s)
        return not self.ended.is_set()

    def ask(self, probe):
        within_s = probe.get("timeoutSeconds", 1)
        try:
            if "httpGet" in probe:
                return self.ask_http(probe["httpGet"], within_s)
            if "tcpSocket" in probe:
                with socket.create_connection((self.ip, self.port(probe["tcpSocket"]["port"])), within_s):
                    return True
            command = self.process.command_inside(probe["exec"]["command"])
            return subprocess.run(command, capture_output=True, timeout=within_s, check=False).returncode == 0
        except (OSError, http.client.HTTPException, subprocess.TimeoutExpired):
            return False

    def ask_http(self, wanted, within_s):
        host, port = wanted.get("host", self.ip), self.port(wanted["port"])
        if wanted.get("scheme") == "HTTPS":
            # A kubelet doesn't look at the certificate either.
            context = ssl._create_unverified_context()  # noqa: S323
            connection = http.client.HTTPSConnection(host, port, timeout=within_s, context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=within_s)
        try:
            connection.request("GET", wanted.get("path", "/"))
            return connection.getresponse().status in SUCCESS
        finally:
            connection.close()

    def port(self, port):
        if isinstance(port, int):
            return port
        return next(it["containerPort"] for it in self.process.spec["ports"] if it.get("name") == port)


class Counted:
    """A probe with its last answers."""

    def __init__(self, probe):
        self.probe = probe
        self.period_s = (probe or {}).get("periodSeconds", 10)
        self.successes = self.failures = 0

    def count(self, succeeded):
        self.successes = self.successes + 1 if succeeded else 0
        self.failures = 0 if succeeded else self.failures + 1

    @property
    def succeeded(self):
        return self.successes >= (self.probe or {}).get("successThreshold", 1)

    @property
    def failed(self):
        return self.failures >= (self.probe or {}).get("failureThreshold", 3)
