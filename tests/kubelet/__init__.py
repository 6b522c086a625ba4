"""The kubelet of all nodes, with a real API server and scheduler (`harness.kubernetes`). README.md says why it exists."""

from kubelet.agent import Kubelet
from kubelet.container import Image
from kubelet.faults import bearing, named

__all__ = ["Image", "Kubelet", "bearing", "named"]
