"""The nodes: made, labelled, tainted and lost by a scenario, and what runs on each."""

from harness.kubelet import status
from harness.kubelet.scheduler import Load
from harness.kubelet.watcher import Watcher

LOST = [{"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")]


class Nodes:
    """Follows the nodes; `changed` is called after each change."""

    def __init__(self, client, changed):
        self.client, self.changed = client, changed
        self.known = {}
        self.loads = {}
        self.watcher = Watcher(client, "nodes", self.see_all, self.see)

    def start(self):
        self.watcher.start()

    def close(self):
        self.watcher.close()

    def see_all(self, nodes):
        self.known = {it["metadata"]["name"]: it for it in nodes}
        self.changed()

    def see(self, kind, node):
        # Replaced as a whole: another thread goes through them.
        others = {name: it for name, it in self.known.items() if name != node["metadata"]["name"]}
        self.known = others if kind == "DELETED" else others | {node["metadata"]["name"]: node}
        self.changed()

    def ready(self):
        """The nodes that take pods; the others only keep theirs."""
        return list(self.known.values())

    def load(self, name):
        return self.loads.setdefault(name, Load())

    def add(self, name, cpu="8", memory="16Gi", pods=110, labels=None, taints=()):
        """Makes a node that is ready. `taints`: {"key": …, "value": …, "effect": …}."""
        amounts = {"cpu": str(cpu), "memory": str(memory), "pods": str(pods)}
        self.client.create("nodes", {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name} | (labels or {})},
            "status": {
                "capacity": amounts, "allocatable": amounts,
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
                "conditions": [ready("True", "KubeletReady", "kubelet is posting ready status")],
            },
        })
        # The API server taints every new node as not ready; a controller takes that away when it is.
        self.client.patch("nodes", name, {"spec": {"taints": list(taints)}})

    def set_ready(self, name, holds, reason, message):
        """`holds`: True, False or Unknown, as a condition has it. One that isn't heard of is tainted."""
        self.client.patch(
            "nodes", name, {"status": {"conditions": [ready(holds, reason, message)]}}, subresource="status", kind="strategic",
        )
        node = self.client.get("nodes", name)
        keys = {it["key"] for it in LOST}
        taints = [it for it in node["spec"].get("taints", []) if it["key"] not in keys]
        taints += LOST if holds == "Unknown" else []
        self.client.patch("nodes", name, {"spec": {"taints": taints}})


def ready(holds, reason, message):
    return {"type": "Ready", "status": holds, "reason": reason, "message": message, "lastHeartbeatTime": status.now(),
            "lastTransitionTime": status.now()}
