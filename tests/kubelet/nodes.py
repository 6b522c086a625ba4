"""The nodes of a scenario."""

from kubelet import status


class Nodes:
    """Creates nodes and changes them; the API server alone keeps them."""

    def __init__(self, client):
        self.client = client

    def add(self, name, cpu="8", memory="16Gi", labels=None):
        """Creates a node that is ready."""
        amounts = {"cpu": cpu, "memory": memory, "pods": "110"}
        now = status.now()
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now}
        labels = {"kubernetes.io/hostname": name} | (labels or {})
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        node_status = {"capacity": amounts, "allocatable": amounts, "addresses": addresses, "conditions": [ready]}
        self.client.create("nodes", {"metadata": {"name": name, "labels": labels}, "status": node_status})
        # The API server taints every new node as not ready; a controller removes the taint from a ready one.
        self.client.patch("nodes", name, {"spec": {"taints": []}})

    def change(self, name, labels):
        """Adds labels; `None` removes one."""
        self.client.patch("nodes", name, {"metadata": {"labels": labels}})
