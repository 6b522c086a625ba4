"""Engines that are pods, as `harness.engines` has those that are processes: read with a client of the tests' own from the API
server, and from the processes of this machine that the kubelets of the tests run for them."""

import contextlib
import pathlib

from harness.engines import EnginesByName
from harness.kubernetes_client import ApiError, Unreachable
from harness.rest import described
from harness.waiting import wait_until

CLUSTER = "enginehouse.io/cluster"
OVER = ("Succeeded", "Failed")
GONE_WITHIN_S = 60


class PodEngine:
    def __init__(self, pods, seen):
        self.pods = pods
        self.name, self.namespace = seen["metadata"]["name"], seen["metadata"]["namespace"]
        self.uid, self.labels = seen["metadata"]["uid"], seen["metadata"].get("labels", {})

    @property
    def process(self):
        """What names its process for ever: a pod that is never restarted has one."""
        return self.uid

    def kill(self):
        self.pods.kubelet.kill(self.namespace, self.name)

    def set_label(self, key, value):
        assert key in self.labels, self.labels
        self.pods.admin.patch("pods", self.name, {"metadata": {"labels": {key: value}}}, self.namespace)


class PodEngines(EnginesByName):
    """The engines of one installation, by its name, in the Kubernetes that `pods` (a `harness.pods.Pods`) has."""

    def __init__(self, pods, cluster):
        self.pods, self.cluster = pods, cluster

    def own(self):
        return self.pods.admin.items("pods", labelSelector=f"{CLUSTER}={self.cluster}")

    def all(self):
        running = [it for it in self.own() if it.get("status", {}).get("phase") not in OVER]
        return {it["metadata"]["name"]: PodEngine(self.pods, it) for it in running}

    def running(self):
        """As `harness.rest` needs it: the engines whose pods run, with their labels; everything else is a difference. A process
        without a pod is one in every installation."""
        found, different = {}, []
        processes = dict(processes_below(self.pods.kubelet.folder))
        every = self.pods.admin.items("pods")
        for it in every:
            metadata, phase = it["metadata"], it.get("status", {}).get("phase")
            name, uid, labels = metadata["name"], metadata["uid"], metadata.get("labels", {})
            if labels.get(CLUSTER) != self.cluster:
                continue
            if "deletionTimestamp" in metadata:
                different.append(f"pod {name} is on its way out")
            elif phase != "Running":
                different.append(f"pod {name} is {phase}")
            elif uid not in processes:
                different.append(f"pod {name} is reported running and has no process")
            elif name in found:
                different.append(f"there are two pods {name}")
            else:
                found[name] = described(uid, processes[uid], labels)
        there = {it["metadata"]["uid"] for it in every}
        for uid, pid in processes.items():
            if uid not in there:
                different.append(f"process {pid} is of the pod with uid {uid}, which is not there")
        return found, different

    def end_all(self):
        def gone():
            left = self.own()
            for it in left:
                # It goes by itself at this moment.
                with contextlib.suppress(ApiError):
                    self.pods.admin.delete("pods", it["metadata"]["name"], it["metadata"]["namespace"], grace_s=0)
            return not left

        # Without an API server the kubelet ends all processes when it ends.
        with contextlib.suppress(Unreachable):
            wait_until(gone, GONE_WITHIN_S, f"no pod of {self.cluster} is left")


def processes_below(folder):
    """(uid of the pod, pid) of each container that a kubelet with this folder runs: its first process's parent names the
    file that describes it, which is below a folder with the pod's uid."""
    beginning = str(pathlib.Path(folder)) + "/"
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended
        for word in words:
            if word.startswith(beginning) and word.endswith("/container.json"):
                yield word.removeprefix(beginning).split("/")[0], int(entry.name)
