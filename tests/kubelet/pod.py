"""One pod: the object as last observed, its containers, and the status as last written."""

import shutil
import time

from kubelet import status

ENDED = ("Succeeded", "Failed")
# Shorter than a real kubelet's 10 s and 5 min.
RESTART_AFTER_S = 0.5
RESTART_AFTER_AT_MOST_S = 8


UNSUPPORTED = {
    "pod": {"ephemeralContainers", "hostAliases", "hostIPC", "hostNetwork", "hostPID", "shareProcessNamespace", "subdomain"},
    "container": {"envFrom", "terminationMessagePath"},
    "initContainer": {"restartPolicy"},
    "volumeMount": {"subPathExpr"},
    "probe": {"grpc", "tcpSocket"},
    "httpGet": {"httpHeaders", "host"},
    "lifecycle": {"postStart"},
    "preStop": {"httpGet", "tcpSocket"},
}
DEFAULTS = {"terminationMessagePath": "/dev/termination-log"}


def refuse_unsupported(spec):
    """Fails on fields that a kubelet acts on and this one ignores, so that no test relies on them."""
    refuse("pod", spec)
    for it in spec.get("initContainers", []):
        refuse("initContainer", it)
    for container in (*spec.get("initContainers", []), *spec["containers"]):
        refuse("container", container)
        for it in container.get("volumeMounts", []):
            refuse("volumeMount", it)
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container.get(kind, {})
            refuse("probe", probe)
            refuse("httpGet", probe.get("httpGet", {}))
            assert probe.get("httpGet", {}).get("scheme", "HTTP") == "HTTP", f"the scheme of {kind} is not supported"
        refuse("lifecycle", container.get("lifecycle", {}))
        refuse("preStop", container.get("lifecycle", {}).get("preStop", {}))


def refuse(kind, part):
    for word in UNSUPPORTED[kind]:
        assert not part.get(word) or part[word] == DEFAULTS.get(word), f"{word} is not supported"


class Container:
    """One container of a pod, over all its runs. An init container has to succeed before the next begins."""

    def __init__(self, spec, initial=False, state=status.NOT_STARTED):
        self.spec = spec
        self.name = spec["name"]
        self.initial = initial
        self.state = state
        self.last = None
        self.restarts = 0
        self.runs_begun = 0
        self.ready = False
        # Both are `None` unless it really runs.
        self.process = None
        self.probes = None
        self.tries = 0
        self.next_at = 0.0

    @property
    def runs(self):
        return "running" in self.state

    @property
    def over(self):
        return "terminated" in self.state

    @property
    def succeeded(self):
        return self.over and self.state["terminated"]["exitCode"] == 0

    def started_at(self):
        return self.state["running"]["startedAt"] if self.runs else status.now()

    def entry(self):
        ready = self.succeeded if self.initial else self.ready and self.runs
        return status.container(self.name, self.spec["image"], self.state, ready, self.restarts, self.last)

    def is_to_start(self):
        return "waiting" in self.state and time.monotonic() >= self.next_at

    def started(self, process=None):
        self.process = process
        self.state = status.running(status.now())
        self.tries = 0

    def ended(self, code, reason=None, message=None, restart_policy="Never"):
        """It has ended, or was; answers in how many seconds it is started again, `None` if never."""
        over = status.terminated(code, self.started_at(), reason, message)
        if self.probes is not None:
            self.probes.end()
        self.process = self.probes = None
        self.ready = False
        if restart_policy == "Never" or (restart_policy == "OnFailure" and code == 0):
            self.state = over
            return None
        self.restarts += 1
        delay_s = min(RESTART_AFTER_S * 2 ** (self.restarts - 1), RESTART_AFTER_AT_MOST_S)
        self.last = over
        self.state = status.waiting("CrashLoopBackOff", f"back-off {delay_s:g}s restarting failed container={self.name}")
        self.next_at = time.monotonic() + delay_s
        return delay_s

    def waits(self, reason, message, again_in_s):
        self.state = status.waiting(reason, message)
        self.next_at = time.monotonic() + again_in_s


class Pod:
    def __init__(self, seen, folder):
        self.seen = seen
        self.uid = seen["metadata"]["uid"]
        self.folder = folder
        self.initial = []
        self.containers = []
        self.start_time = None
        self.ip = None
        self.sight = None
        self.volumes = None
        self.not_mounted = None
        self.hosts = folder / "hosts"
        self.names = None
        self.written = None
        self.kill_at = None
        self.stopping = False
        self.confirmed = False

    @property
    def key(self):
        return self.seen["metadata"]["namespace"], self.seen["metadata"]["name"]

    @property
    def node(self):
        return self.seen["spec"].get("nodeName")

    @property
    def terminating(self):
        return "deletionTimestamp" in self.seen["metadata"]

    @property
    def phase(self):
        return self.seen.get("status", {}).get("phase", "Pending")

    @property
    def over(self):
        return self.phase in ENDED

    @property
    def restart_policy(self):
        return self.seen["spec"].get("restartPolicy", "Always")

    def begin(self, ip):
        """Its kubelet takes it: from now on it has containers and an address."""
        spec = self.seen["spec"]
        refuse_unsupported(spec)
        initial = spec.get("initContainers", [])
        state = status.INITIALIZING if initial else status.NOT_STARTED
        self.initial = [Container(it, initial=True, state=state) for it in initial]
        self.containers = [Container(it, state=state) for it in spec["containers"]]
        self.start_time = status.now()
        self.ip = ip

    def every(self):
        return [*self.containers, *self.initial]

    def current(self):
        """The containers whose turn it is: the first init container that has not succeeded, or all others."""
        waited_for = next((it for it in self.initial if not it.succeeded), None)
        return self.containers if waited_for is None else [waited_for]

    def restart_policy_of(self, container):
        return "OnFailure" if container.initial and self.restart_policy == "Always" else self.restart_policy

    def processes(self):
        return [it.process for it in self.every() if it.process is not None]

    def is_ready(self):
        return bool(self.containers) and all(it.ready and it.runs for it in self.containers)

    def status(self):
        """Its status as it is to be written, or `None` if that was written already."""
        entries = [it.entry() for it in self.containers]
        initial = [it.entry() for it in self.initial]
        made = status.of_pod(entries, self.restart_policy, self.start_time, self.ip, "127.0.0.1", initial)
        if self.written is not None:
            status.keep_times(made["conditions"], self.written["conditions"])
        if made == self.written:
            return None
        return made

    def forget(self):
        for container in self.every():
            if container.probes is not None:
                container.probes.end()
            if container.process is not None:
                container.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
