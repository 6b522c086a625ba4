"""The kubelet of all nodes: one thread that owns the pods and receives messages.

Each look at a pod is the same function of the pod as the API server has it, its processes and the current faults, so a repeated
or a lost message changes nothing. A request that fails or is refused for now is repeated after a moment. Errors of this code,
and requests that the server will never accept, are reported by `close`.
"""

import heapq
import itertools
import pathlib
import queue
import signal
import threading
import time
import traceback

from harness.kubernetes_client import ApiError, Unreachable
from kubelet import status
from kubelet.addresses import Addresses
from kubelet.container import stop_with_hook
from kubelet.faults import Faults
from kubelet.names import Names
from kubelet.nodes import Nodes
from kubelet.pod import Pod
from kubelet.probes import Probes
from kubelet.reports import Reports
from kubelet.starting import Starter
from kubelet.watcher import Watcher

RETRY_AFTER_S = 0.2
ENDS_WITHIN_S = 60
NOT_FOUND = 404
INVALID = (400, 422)
START_ERROR = 128


class Kubelet:
    """The nodes of `cluster` (a `harness.control_plane.Kubernetes`). `images`: name → `Image`; an image without an entry
    cannot be pulled. `lifecycle`: whether the cluster's controllers find out which nodes are ready."""

    def __init__(self, cluster, folder, images=None, lifecycle=False):
        self.cluster = cluster
        self.client = cluster.client_of(cluster.token_of_admin)
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, mode=0o700)
        self.starter = Starter(self, dict(images or {}))
        self.reports = Reports(self.client)
        self.messages = queue.SimpleQueue()
        self.timers, self.order = [], itertools.count()
        self.pods, self.changed, self.names_changed = {}, set(), False
        self.failures = []
        self.nodes = Nodes(self.client, lifecycle)
        self.faults = Faults(lambda: self.send(self.look_at_all))
        self.addresses = Addresses()
        self.names = Names()
        self.watchers = [
            Watcher(
                self.client, "services", *(self.sender(self.see_services, it) for it in (self.names.see_all, self.names.see))
            ),
            Watcher(self.client, "pods", self.sender(self.see_all), self.sender(self.see)),
            Watcher(self.client, "secrets", self.sender(self.see_all_secrets), self.sender(self.see_secret)),
        ]
        self.closing = False
        self.thread = threading.Thread(target=self.work, daemon=True, name="kubelet")

    def start(self):
        self.thread.start()
        for it in self.watchers:
            it.start()
        return self

    def close(self):
        for it in self.watchers:
            it.close()
        self.send(self.end_all)
        self.thread.join(ENDS_WITHIN_S)
        self.nodes.close()
        self.addresses.close()
        assert not self.thread.is_alive(), "the kubelet does not end"
        assert not self.failures, "\n".join(self.failures)

    def fault(self, kind, match, **options):
        return self.faults.add(kind, match, options)

    def process(self, namespace, name, container=None):
        found = self.container(namespace, name, container)
        return found and found[1].process

    def log(self, namespace, name, container=None):
        found = self.container(namespace, name, container)
        path = found and found[0].folder / f"{found[1].name}-{found[1].runs_begun - 1}" / "log"
        return path.read_text(errors="replace") if path and path.exists() else None

    def container(self, namespace, name, container=None):
        """(pod, container); without a name the first one that is no init container."""
        for pod in list(self.pods.values()):
            if pod.key == (namespace, name):
                found = [it for it in (pod.containers if container is None else pod.every()) if container in (None, it.name)]
                return (pod, found[0]) if found else None
        return None

    def kill(self, namespace, name, container=None, reason=None):
        """kill -9 of a container's processes; `reason="OOMKilled"` as if for lack of memory. Also of a pretended one."""
        self.send(self.kill_now, namespace, name, container, reason)

    def evict(self, namespace, name, message="The node was low on resource: memory."):
        """Ends a pod as a kubelet under resource pressure does: it is *Failed*, and stays."""
        self.send(self.evict_now, namespace, name, message)

    def fail_node(self, name, number=signal.SIGKILL):
        """The machine fails: its kubelet is silent from now on, and all processes of its pods receive the signal. With SIGSTOP
        they are as if cut off, and go on when the node returns."""
        self.send(self.fail_node_now, name, number)

    def return_node(self, name):
        """The machine is back, and its kubelet reports what still runs."""
        self.send(self.return_node_now, name)

    def send(self, action, *arguments):
        self.messages.put((action, arguments))

    def sender(self, action, *first):
        return lambda *arguments: self.send(action, *first, *arguments)

    def later(self, after_s, action, *arguments):
        heapq.heappush(self.timers, (time.monotonic() + after_s, next(self.order), action, arguments))

    def work(self):
        while not self.closing:
            due = self.timers[0][0] - time.monotonic() if self.timers else None
            try:
                if due is not None and due <= 0:
                    _, _, action, arguments = heapq.heappop(self.timers)
                else:
                    action, arguments = self.messages.get(timeout=due)
            except queue.Empty:
                continue
            try:
                action(*arguments)
            except Exception:
                self.failures.append(traceback.format_exc())

    def see_all(self, pods):
        present = {it["metadata"]["uid"] for it in pods}
        for uid in [uid for uid in self.pods if uid not in present]:
            self.forget(uid)
        for it in pods:
            self.see("MODIFIED", it)

    def see(self, kind, seen):
        uid = seen["metadata"]["uid"]
        if kind == "DELETED":
            self.forget(uid)
            return
        pod = self.pods.get(uid)
        if pod is None:
            pod = self.pods[uid] = Pod(seen, self.folder / uid)
        elif int(seen["metadata"]["resourceVersion"]) < int(pod.seen["metadata"]["resourceVersion"]):
            return
        pod.seen = seen
        # Processed after all queued changes: of several changes only the last one matters.
        if uid not in self.changed:
            self.changed.add(uid)
            self.send(self.look_at_changed, uid)

    def look_at_changed(self, uid):
        self.changed.discard(uid)
        self.look(uid)

    def forget(self, uid):
        pod = self.pods.pop(uid, None)
        if pod is not None:
            pod.forget()

    def look_at_all(self):
        for uid in list(self.pods):
            self.look(uid)

    def see_all_secrets(self, secrets):
        for it in secrets:
            self.see_secret("MODIFIED", it)

    def see_secret(self, kind, secret):
        """Replaces its files in the pods that mount it; those of a deleted one stay, as in a real kubelet."""
        if kind != "DELETED":
            for pod in self.pods.values():
                if pod.sight is not None and pod.key[0] == secret["metadata"]["namespace"]:
                    pod.sight.replace_secret(secret, pod.volumes)

    def see_services(self, see, *arguments):
        see(*arguments)
        self.names.write(self.pods.values())

    def look(self, uid):
        pod = self.pods.get(uid)
        if pod is None:
            return
        try:
            self.step(pod)
        except ApiError as error:
            # On 404 and 409 it is gone, or another object has its name: the watch will report that.
            if error.code in INVALID:
                self.failures.append(str(error))
            elif error.code != NOT_FOUND:
                self.later(RETRY_AFTER_S, self.look, uid)
        except Unreachable:
            self.later(RETRY_AFTER_S, self.look, uid)

    def step(self, pod):
        if pod.node is None or pod.confirmed or pod.node in self.nodes.failed:
            return
        if pod.terminating:
            self.end(pod)
        elif not pod.over:
            self.advance(pod)

    def advance(self, pod):
        if pod.ip is None:
            pod.begin(self.addresses.next())
        turn = pod.current()
        for container in turn:
            if container.is_to_start():
                self.starter.try_start(pod, container)
            crash = self.faults.of("crash", pod.seen)
            if container.runs and crash is not None:
                if container.process is None:
                    self.ended(pod, container, crash.get("code", 1), crash.get("reason"), crash.get("message"))
                else:
                    container.process.kill()
        self.write_status(pod)
        # A pretended init container ends immediately.
        if pod.current() != turn:
            self.send(self.look, pod.uid)

    def follow(self, pod, container):
        process, uid = container.process, pod.uid

        def wait():
            code = process.wait()
            self.send(self.process_ended, uid, process, code)

        threading.Thread(target=wait, daemon=True, name=f"waits for {pod.key[1]}").start()
        on_ready, failing = self.sender(self.set_ready, uid, process), self.sender(self.kill_unhealthy, uid, process)
        container.probes = Probes(process, pod.ip, on_ready, failing, self.failures.append)

    def find(self, uid, process):
        """The pod and its container that runs as this process; a later run is another process."""
        pod = self.pods.get(uid)
        found = [it for it in pod.every() if it.process is process] if pod else []
        return (pod, found[0]) if found else (None, None)

    def set_ready(self, uid, process, ready):
        _, container = self.find(uid, process)
        if container is not None:
            container.ready = ready
            self.look(uid)

    def kill_unhealthy(self, uid, process, why):
        pod, container = self.find(uid, process)
        if container is not None and pod.node not in self.nodes.failed:
            self.reports.event(pod, "Warning", "Unhealthy", why)
            process.kill()

    def process_ended(self, uid, process, code):
        pod, container = self.find(uid, process)
        if container is None:
            return
        crash = self.faults.of("crash", pod.seen)
        reason, message = process.killed_for, None
        if crash is not None:
            code, reason, message = crash.get("code", 1), crash.get("reason"), crash.get("message")
        elif reason is None and code == START_ERROR:
            reason, message = "StartError", process.log().strip()[-1000:]
        self.ended(pod, container, code, reason, message or process.last_words(code))
        self.look(uid)

    def ended(self, pod, container, code, reason=None, message=None):
        policy = "Never" if pod.terminating else pod.restart_policy_of(container)
        restart_in_s = container.ended(code, reason, message, policy)
        if restart_in_s is not None:
            self.reports.event(pod, "Warning", "BackOff", f"Back-off restarting failed container {container.name}")
            self.later(restart_in_s, self.look, pod.uid)

    def end(self, pod):
        """The pod is being deleted: SIGTERM, SIGKILL after its grace period, and a confirmation when nothing runs."""
        grace_s = pod.seen["metadata"].get("deletionGracePeriodSeconds", 0)
        if not pod.stopping:
            pod.stopping = True
            for process in pod.processes():
                if process.spec.get("lifecycle", {}).get("preStop"):
                    threading.Thread(target=stop_with_hook, args=(process, grace_s), daemon=True).start()
                else:
                    process.send(signal.SIGTERM)
        kill_at = time.monotonic() + grace_s
        if pod.kill_at is None or kill_at < pod.kill_at:
            pod.kill_at = kill_at
            self.later(grace_s, self.look, pod.uid)
        if time.monotonic() >= pod.kill_at:
            for process in pod.processes():
                process.kill()
        if pod.processes():
            return
        if pod.ip is not None and not pod.over:
            for container in pod.every():
                if container.runs:
                    container.ended(0)
            self.write_status(pod)
        if self.faults.of("end", pod.seen) is None:
            namespace, name = pod.key
            self.client.delete("pods", name, namespace, grace_s=0, uid=pod.uid)
            pod.confirmed = True

    def write_status(self, pod):
        # Host names once for all queued changes: there may be thousands of pods.
        if not self.names_changed:
            self.names_changed = True
            self.send(self.write_names)
        made = pod.status()
        if made is not None:
            self.reports.status(pod, made)
            pod.written = made
            pod.seen.setdefault("status", {})["phase"] = made["phase"]

    def write_names(self):
        self.names_changed = False
        self.names.write(self.pods.values())

    def by_name(self, namespace, name):
        return next((it for it in self.pods.values() if it.key == (namespace, name)), None)

    def kill_now(self, namespace, name, container, reason):
        pod = self.by_name(namespace, name)
        for it in pod.every() if pod else []:
            if it.runs and container in (None, it.name):
                if it.process is None:
                    self.ended(pod, it, 137, reason)
                else:
                    it.process.killed_for = reason
                    it.process.kill()
        if pod:
            self.look(pod.uid)

    def evict_now(self, namespace, name, message):
        pod = self.by_name(namespace, name)
        for container in pod.every() if pod else []:
            process = container.process
            if container.runs:
                container.ended(137)
            if process is not None:
                process.kill()
        if pod:
            disruption = status.condition("DisruptionTarget", True, "TerminationByKubelet", message)
            made = {"phase": "Failed", "reason": "Evicted", "message": message}
            made["containerStatuses"] = [it.entry() for it in pod.containers]
            made["conditions"] = [disruption, status.condition("Ready", False, "PodFailed")]
            self.reports.status(pod, made)
            pod.seen.setdefault("status", {})["phase"] = "Failed"
            self.reports.event(pod, "Warning", "Evicted", message)

    def fail_node_now(self, name, number):
        self.nodes.fail(name)
        for process in self.processes_on(name):
            process.signal_all(number)

    def return_node_now(self, name):
        self.nodes.resume(name)
        for process in self.processes_on(name):
            process.signal_all(signal.SIGCONT)
        self.look_at_all()

    def processes_on(self, node):
        return [process for pod in self.pods.values() if pod.node == node for process in pod.processes()]

    def end_all(self):
        for uid in list(self.pods):
            self.forget(uid)
        self.closing = True
