"""The nodes of a scenario."""

import contextlib
import datetime
import threading

from harness.kubernetes_client import ApiError, Unreachable
from harness.waiting import wait_until
from kubelet import status

LEASES = "kube-node-lease"
RENEWED_EVERY_S = 1
LEASE_S = 40
NOT_FOUND = 404
UNTAINTED_WITHIN_S = 60


class Nodes:
    """Creates nodes, changes them and lets them fail; the API server keeps them. With `lifecycle` each node renews its lease,
    and the controllers of the control plane find out whether it is ready; without it the kubelet writes what they would, and no
    taint."""

    def __init__(self, client, lifecycle=False):
        self.client = client
        self.failed = frozenset()
        self.leases = Leases(client) if lifecycle else None

    def add(self, name, cpu="8", memory="16Gi", labels=None):
        """Creates a node that is ready."""
        amounts = {"cpu": cpu, "memory": memory, "pods": "110"}
        labels = {"kubernetes.io/hostname": name} | (labels or {})
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        node_status = {"capacity": amounts, "allocatable": amounts, "addresses": addresses, "conditions": [ready("True")]}
        self.client.create("nodes", {"metadata": {"name": name, "labels": labels}, "status": node_status})
        # The API server taints every new node as not ready; a controller removes the taint from a ready one.
        if self.leases is None:
            self.client.patch("nodes", name, {"spec": {"taints": []}})
            return
        self.leases.renew(name)
        self.leases.begin(name)

        def untainted():
            return not self.client.get("nodes", name)["spec"].get("taints")

        wait_until(untainted, UNTAINTED_WITHIN_S, f"the controllers have seen that node {name} is ready", 0.2)

    def change(self, name, labels):
        """Adds labels; `None` removes one."""
        self.client.patch("nodes", name, {"metadata": {"labels": labels}})

    def fail(self, name):
        self.failed |= {name}
        if self.leases is None:
            self.report(name, ready("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."))
        else:
            self.leases.end(name)

    def resume(self, name):
        self.failed -= {name}
        if self.leases is not None:
            self.leases.begin(name)
        self.report(name, ready("True"))

    def report(self, name, condition):
        self.client.patch("nodes", name, {"status": {"conditions": [condition]}}, subresource="status")

    def is_ready(self, name):
        conditions = self.client.get("nodes", name)["status"]["conditions"]
        return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)

    def close(self):
        if self.leases is not None:
            self.leases.close()


def ready(value, reason="KubeletReady", message=""):
    now = status.now()
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {"type": "Ready", "status": value, "reason": reason, "message": message} | times


class Leases:
    """Renews the leases of the nodes whose kubelets work."""

    def __init__(self, client):
        self.client, self.working, self.closed = client, frozenset(), threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True, name="leases of nodes")
        self.thread.start()

    def begin(self, name):
        self.working |= {name}

    def end(self, name):
        self.working -= {name}

    def work(self):
        while not self.closed.wait(RENEWED_EVERY_S):
            for name in self.working:
                # Renewed again soon.
                with contextlib.suppress(ApiError, Unreachable):
                    self.renew(name)

    def renew(self, name):
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_S, "renewTime": now}
        try:
            self.client.patch("leases", name, {"spec": spec}, LEASES)
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
            self.client.create("leases", {"metadata": {"name": name}, "spec": spec}, LEASES)

    def close(self):
        self.closed.set()
        self.thread.join()
