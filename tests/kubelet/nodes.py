"""The nodes: made, labelled, tainted, cordoned and lost by a scenario."""

from kubelet import status

LOST = [{"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")]


class Nodes:
    """Makes nodes and changes them. What a node is, the API server alone knows."""

    def __init__(self, client):
        self.client = client
        # Where the kubelet of all of them serves logs.
        self.log_port = None

    def add(self, name, cpu="8", memory="16Gi", pods=110, labels=None, taints=()):
        """Makes a node that is ready. `taints`: {"key": …, "value": …, "effect": …}."""
        amounts = {"cpu": str(cpu), "memory": str(memory), "pods": str(pods)}
        self.client.create(
            "nodes",
            {
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name} | (labels or {})},
                "status": {
                    "capacity": amounts,
                    "allocatable": amounts,
                    "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                    "daemonEndpoints": {"kubeletEndpoint": {"Port": self.log_port}},
                    "conditions": [ready("True", "KubeletReady", "kubelet is posting ready status")],
                },
            },
        )
        # The API server taints every new node as not ready; a controller takes that away when it is.
        self.client.patch("nodes", name, {"spec": {"taints": list(taints)}})

    def change(self, name, labels=None, taints=None):
        """Gives it further labels (`None` takes one away), other taints."""
        spec = {} if taints is None else {"spec": {"taints": list(taints)}}
        self.client.patch("nodes", name, {"metadata": {"labels": labels or {}}} | spec)

    def cordon(self, *names):
        """They take no more pods."""
        for name in names:
            self.client.patch("nodes", name, {"spec": {"unschedulable": True}})

    def uncordon(self, *names):
        for name in names:
            self.client.patch("nodes", name, {"spec": {"unschedulable": None}})

    def set_ready(self, name, holds, reason, message):
        """`holds`: True, False or Unknown, as a condition has it. One that isn't heard of is tainted."""
        self.client.patch(
            "nodes", name, {"status": {"conditions": [ready(holds, reason, message)]}}, subresource="status", kind="strategic"
        )
        node = self.client.get("nodes", name)
        keys = {it["key"] for it in LOST}
        taints = [it for it in node["spec"].get("taints", []) if it["key"] not in keys]
        taints += LOST if holds == "Unknown" else []
        self.client.patch("nodes", name, {"spec": {"taints": taints}})


def ready(holds, reason, message):
    return {
        "type": "Ready",
        "status": holds,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": status.now(),
        "lastTransitionTime": status.now(),
    }
