"""The kubelet of all nodes, for a real API server and scheduler. README.md gives the reasons for it."""

from kubelet.agent import Kubelet
from kubelet.container import Image
from kubelet.faults import bearing, named

__all__ = ["Image", "Kubelet", "bearing", "named"]
