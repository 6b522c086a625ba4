"""What kubelets tell of pods: statuses and events."""

import contextlib

from harness.kubernetes_client import ApiError, Unreachable
from kubelet import status

# An event's name begins with its pod's, and gets a few letters more.
NAME_LETTERS = 50


class Reports:
    """Without `events` none are written; statuses are always."""

    def __init__(self, client, events):
        self.client, self.events = client, events

    def status(self, pod, made):
        namespace, name = pod.key
        # With its uid: a pod of the same name that came later is another one.
        self.client.patch("pods", name, {"metadata": {"uid": pod.uid}, "status": made}, namespace, "status")

    def event(self, pod, kind, reason, message):
        if not self.events:
            return
        namespace, name = pod.key
        now = status.now()
        about = {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": namespace, "uid": pod.uid}
        event = {
            "metadata": {"generateName": f"{name[:NAME_LETTERS].rstrip('.-')}.", "namespace": namespace},
            "involvedObject": about,
            "type": kind,
            "reason": reason,
            "message": message,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": "kubelet"},
        }
        # Nobody may rely on events: one that can't be written is lost.
        with contextlib.suppress(ApiError, Unreachable):
            self.client.create("events", event, namespace)
