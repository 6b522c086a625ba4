"""Statuses and events of pods, as the kubelet writes them."""

import contextlib

from harness.kubernetes_client import ApiError, Unreachable
from kubelet import status

# An event's name is its pod's name with a generated suffix.
NAME_LETTERS = 50


class Reports:
    def __init__(self, client):
        self.client = client

    def status(self, pod, made):
        namespace, name = pod.key
        # With its uid: a later pod of the same name is another one.
        self.client.patch("pods", name, {"metadata": {"uid": pod.uid}, "status": made}, namespace, "status")

    def event(self, pod, kind, reason, message):
        namespace, name = pod.key
        now = status.now()
        event = {
            "metadata": {"generateName": f"{name[:NAME_LETTERS].rstrip('.-')}.", "namespace": namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": namespace, "uid": pod.uid},
            "source": {"component": "kubelet"},
        } | {"type": kind, "reason": reason, "message": message, "firstTimestamp": now, "lastTimestamp": now, "count": 1}
        # Events are best effort.
        with contextlib.suppress(ApiError, Unreachable):
            self.client.create("events", event, namespace)
