"""The kubelets of all nodes, played by one thread that alone knows the pods; everybody else sends it messages.

Each look at a pod is the same function of the pod as the API server has it, its processes and the faults that hold, so
that a message too many, or one that was lost, changes nothing. What the API server doesn't answer, or refuses for now, is
tried again after a moment. An error of this code ends nothing and is told by `close`, and so is what the server will never
take.
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
from kubelet.container import stop_politely
from kubelet.faults import Faults
from kubelet.logs import Logs
from kubelet.names import Names
from kubelet.nodes import Nodes
from kubelet.pod import Pod
from kubelet.probes import Probes
from kubelet.reports import Reports
from kubelet.starting import Starter
from kubelet.watcher import Watcher

AGAIN_AFTER_S = 0.2
ENDS_WITHIN_S = 60
NOT_FOUND = 404
# What was asked is wrong, and will be.
WRONG = (400, 422)
START_ERROR = 128


class Kubelet:
    """Plays the nodes of `cluster` (a `harness.kubernetes.Kubernetes`). `images`: name → `Image`; an image without an
    entry can't be pulled. `default_image` stands for every other name."""

    def __init__(self, cluster, folder, images=None, default_image=None, events=True):
        self.cluster = cluster
        self.client = cluster.client("admin", "kubelet")
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, mode=0o700)
        self.starter = Starter(self, dict(images or {}), default_image)
        self.reports = Reports(self.client, events)
        self.messages = queue.SimpleQueue()
        self.timers = []
        self.order = itertools.count()
        self.pods = {}
        self.lost = set()
        self.changed = set()
        self.names_changed = False
        self.failures = []
        self.nodes = Nodes(self.client)
        self.faults = Faults(lambda: self.send(self.look_at_all))
        self.addresses = Addresses()
        self.names = Names()
        self.logs = Logs(self.log, cluster.certificates)
        self.nodes.log_port = self.logs.port
        self.watcher = Watcher(
            self.client, "pods", lambda pods: self.send(self.see_all, pods), lambda kind, pod: self.send(self.see, kind, pod)
        )
        self.service_watcher = Watcher(
            self.client,
            "services",
            lambda services: self.send(self.see_services, self.names.see_all, services),
            lambda kind, service: self.send(self.see_services, self.names.see, kind, service),
        )
        self.closing = False
        self.thread = threading.Thread(target=self.work, daemon=True, name="kubelet")

    # What scenarios call.

    def start(self):
        self.thread.start()
        self.service_watcher.start()
        self.watcher.start()
        return self

    def close(self):
        """Ends all processes; fails if this code did."""
        self.watcher.close()
        self.service_watcher.close()
        self.logs.close()
        self.send(self.end_all)
        self.thread.join(ENDS_WITHIN_S)
        self.addresses.close()
        assert not self.thread.is_alive(), "the kubelet does not end"
        assert not self.failures, "\n".join(self.failures)

    def fault(self, kind, match, **options):
        """A fault of `kubelet.faults`, until it is lifted; also for `with`."""
        return self.faults.add(kind, match, options)

    def process(self, namespace, name, container=None):
        """The process of a running container, the first one by default; `None` if there is none."""
        found = self.container(namespace, name, container)
        return found and found[1].process

    def log(self, namespace, name, container=None, previous=False):
        """What a container has printed in its present run or in the one before; `None` if there is none such."""
        found = self.container(namespace, name, container)
        if found is None:
            return None
        pod, it = found
        path = pod.folder / f"{it.name}-{it.runs_begun - (2 if previous else 1)}" / "log"
        return path.read_text(errors="replace") if path.exists() else None

    def container(self, namespace, name, container=None):
        """(pod, container); without a name the first one that isn't initial."""
        for pod in list(self.pods.values()):
            if pod.key == (namespace, name):
                found = [it for it in (pod.containers if container is None else pod.every()) if container in (None, it.name)]
                return (pod, found[0]) if found else None
        return None

    def kill(self, namespace, name, container=None, reason=None):
        """kill -9 of a container's processes; `reason="OOMKilled"` as if for lack of memory. Also of a pretended one."""
        self.send(self.kill_now, namespace, name, container, reason)

    def evict(self, namespace, name, message="The node was low on resource: memory."):
        """Ends a pod as a kubelet does that runs out of something: it is *Failed*, and stays."""
        self.send(self.evict_now, namespace, name, message)

    def lose_node(self, name):
        """The node is heard of no more: its pods run on, and nothing about them is told or confirmed."""
        self.send(self.set_lost, name, True)
        self.nodes.set_ready(name, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")

    def find_node(self, name):
        self.nodes.set_ready(name, "True", "KubeletReady", "kubelet is posting ready status")
        self.send(self.set_lost, name, False)

    # The thread.

    def send(self, action, *arguments):
        self.messages.put((action, arguments))

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
        there = {it["metadata"]["uid"] for it in pods}
        for uid in [uid for uid in self.pods if uid not in there]:
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
        # Looked at when all that is known by now has been seen: of several changes only the last one matters.
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

    def see_services(self, see, *arguments):
        see(*arguments)
        self.names.write(self.pods.values())

    def set_lost(self, node, lost):
        if lost:
            self.lost.add(node)
        else:
            self.lost.discard(node)
            self.look_at_all()

    def look(self, uid):
        pod = self.pods.get(uid)
        if pod is None or pod.node in self.lost:
            return
        try:
            self.step(pod)
        except ApiError as error:
            # It is gone, or another object has its name by now: the watch will tell.
            if error.code in WRONG:
                self.failures.append(str(error))
            elif error.code != NOT_FOUND:
                self.later(AGAIN_AFTER_S, self.look, uid)
        except Unreachable:
            self.later(AGAIN_AFTER_S, self.look, uid)

    def step(self, pod):
        """One look at one pod."""
        if pod.node is None or pod.confirmed:
            return
        if pod.terminating:
            self.end(pod)
        elif not pod.over:
            self.advance(pod)

    def advance(self, pod):
        if pod.ip is None:
            pod.begin(self.addresses.next())
        turn = pod.present()
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
        # An initial one that is pretended is over at once.
        if pod.present() != turn:
            self.send(self.look, pod.uid)

    def follow(self, pod, container):
        """Waits for the end of a process, and asks its probes."""
        process, uid = container.process, pod.uid

        def wait():
            code = process.wait()
            self.send(self.process_ended, uid, process, code)

        threading.Thread(target=wait, daemon=True, name=f"waits for {pod.key[1]}").start()
        container.probes = Probes(
            process,
            pod.ip,
            lambda ready: self.send(self.set_ready, uid, process, ready),
            lambda why: self.send(self.kill_unhealthy, uid, process, why),
            self.failures.append,
        )

    def find(self, uid, process):
        """The pod and its container that runs as this process; a later run is another process."""
        pod = self.pods.get(uid)
        found = [it for it in pod.every() if it.process is process] if pod else []
        return (pod, found[0]) if found else (None, None)

    def set_ready(self, uid, process, ready):
        pod, container = self.find(uid, process)
        if container is not None:
            container.ready = ready
            self.look(uid)

    def kill_unhealthy(self, uid, process, why):
        pod, container = self.find(uid, process)
        if container is not None:
            self.reports.event(pod, "Warning", "Unhealthy", why)
            process.kill()

    def process_ended(self, uid, process, code):
        pod, container = self.find(uid, process)
        if container is None:
            return
        crash = self.faults.of("crash", pod.seen)
        reason = message = None
        if crash is not None:
            code, reason, message = crash.get("code", 1), crash.get("reason"), crash.get("message")
        elif process.killed_for:
            reason = process.killed_for
        elif code == START_ERROR:
            reason = "StartError"
            message = process.log().strip()[-1000:]
        self.ended(pod, container, code, reason, message or process.last_words(code))
        self.look(uid)

    def ended(self, pod, container, code, reason=None, message=None):
        policy = "Never" if pod.terminating else pod.restart_policy_of(container)
        again_in_s = container.ended(code, reason, message, policy)
        if again_in_s is not None:
            self.reports.event(pod, "Warning", "BackOff", f"Back-off restarting failed container {container.name}")
            self.later(again_in_s, self.look, pod.uid)

    def end(self, pod):
        """The pod is being deleted: SIGTERM, SIGKILL when its grace is over, and a confirmation when nothing runs."""
        grace_s = pod.seen["metadata"].get("deletionGracePeriodSeconds", 0)
        if not pod.terminating_since:
            pod.terminating_since = True
            for process in pod.processes():
                if process.spec.get("lifecycle", {}).get("preStop"):
                    threading.Thread(target=stop_politely, args=(process, pod.ip, grace_s), daemon=True).start()
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
        """Writes the pod's status if it isn't what was written last."""
        # Once for all that changes now: there may be thousands of pods.
        if not self.names_changed:
            self.names_changed = True
            self.send(self.write_names)
        made = pod.status(may_be_ready=self.faults.of("readiness", pod.seen) is None)
        if made is not None:
            self.reports.status(pod, made)
            pod.written = made
            # What is over is over, whenever the watch tells.
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
        if pod is None:
            return
        for container in pod.every():
            process = container.process
            if container.runs:
                container.ended(137)
            if process is not None:
                process.kill()
        entries = [it.entry() for it in pod.containers]
        self.reports.status(
            pod,
            {
                "phase": "Failed",
                "reason": "Evicted",
                "message": message,
                "containerStatuses": entries,
                "conditions": [
                    status.condition("DisruptionTarget", True, "TerminationByKubelet", message),
                    status.condition("Ready", False, "PodFailed"),
                ],
            },
        )
        pod.seen.setdefault("status", {})["phase"] = "Failed"
        self.reports.event(pod, "Warning", "Evicted", message)

    def end_all(self):
        for uid in list(self.pods):
            self.forget(uid)
        self.closing = True
