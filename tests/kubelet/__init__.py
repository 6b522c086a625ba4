"""The kubelets of all nodes, played by the tests in front of a real API server and scheduler (`harness.kubernetes`).

`agent.Kubelet` is what scenarios use. Pods whose image `runs` are processes of this machine, with an address of their
own in 127.0.0.0/8, a file system and a process namespace of their own (this needs root); those of other images are
pretended, which is enough to see what a master does with thousands.
"""

from kubelet.agent import Kubelet
from kubelet.container import Image
from kubelet.faults import bearing, named

__all__ = ["Image", "Kubelet", "bearing", "named"]
