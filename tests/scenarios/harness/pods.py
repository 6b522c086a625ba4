"""An installation of separate processes whose engines are pods in a cluster of the tests' own; the program under test runs in
every engine's pod. The proxies use a service account with exactly a master's rights."""

import contextlib

from harness.clients import pyhive_session
from harness.cluster import Cluster
from harness.control import Control
from harness.control_plane import CONTROLLERS, NODE_LIFECYCLE, Kubernetes
from harness.logs import Logs
from harness.pod_engines import PodEngines
from harness.processes import BINARY
from harness.secret_scan import MARK
from harness.waiting import wait_until
from kubelet import Image, Kubelet

HOME = "enginehouse"
IMAGE = "registry.example/enginehouse:1"
PROGRAM = "/opt/enginehouse"
CORE, RBAC, NETWORKING = "", "rbac.authorization.k8s.io", "networking.k8s.io"
GONE_WITHIN_S = 60


def rule(group, verbs, *resources):
    return {"apiGroups": [group], "verbs": verbs.split(), "resources": list(resources)}


# What `orchestrator::kubernetes::rights` lists.
CLUSTER_RULES = [
    rule(CORE, "create delete deletecollection get list patch watch", "pods"),
    rule(CORE, "list watch", "events", "nodes"),
    rule(CORE, "create get", "services", "configmaps", "namespaces"),
    rule(CORE, "create", "secrets"),
    rule(CORE, "create", "serviceaccounts"),
    rule(RBAC, "create", "roles", "rolebindings"),
    rule(NETWORKING, "create", "networkpolicies"),
]
HOME_RULES = [rule(CORE, "create get update", "configmaps")]


class Pods:
    """A Kubernetes with one node, where the program is the one that is tested; with `audit` it writes every request down,
    without `scheduler` pods wait until they are bound. `images` are further ones by name. With `lifecycle` the control plane
    itself finds out that a node has failed."""

    def __init__(self, folder, images=None, audit=False, scheduler=True, lifecycle=False):
        self.images = {IMAGE: Image({PROGRAM: BINARY})} | (images or {})
        controllers = CONTROLLERS + (NODE_LIFECYCLE if lifecycle else ())
        self.kubernetes = Kubernetes(folder / "kubernetes", audit=audit, scheduler=scheduler, controllers=controllers)
        self.lifecycle = lifecycle
        self.kubelet = None
        self.folder = folder
        # The masters' token, and their kubeconfig.
        self.token = self.master = None

    def start(self):
        self.kubernetes.start()
        self.kubelet = Kubelet(self.kubernetes, self.folder / "kubelet", self.images, lifecycle=self.lifecycle).start()
        self.kubelet.nodes.add("node-1", cpu="64", memory="64Gi")
        self.kubernetes.namespace(HOME)
        self.token = self.kubernetes.service_account(HOME, "master", HOME_RULES, CLUSTER_RULES, hours=24)
        self.master = self.kubernetes.kubeconfig_of(self.token, "master", HOME)
        return self

    def nodes_of(self, name):
        node = f"node-of-{name}".replace("_", "-")
        self.kubelet.nodes.add(node, cpu="64", memory="64Gi")
        return f"NODE_LIST ('{node}')"

    @property
    def admin(self):
        return self.kubernetes.admin

    def of(self, namespace):
        """The pods of a namespace by name; none if there is no such namespace."""
        return {it["metadata"]["name"]: it for it in self.admin.items("pods", namespace)}

    def close(self):
        with contextlib.ExitStack() as stack:
            stack.callback(self.kubernetes.close)
            if self.kubelet is not None:
                stack.callback(self.kubelet.close)


class PodCluster(Cluster):
    """Two metadata agents and two proxies, whose engines are pods. `kubeconfig` may lead through a relay; `kubernetes` and
    `engines` are further keys of those sections. Several in one Kubernetes need names of their own
    (`cluster={"name": …}`), and tenants and pools that no other has: their namespaces are called after them."""

    def __init__(self, folder, pods, kubeconfig=None, kubernetes=None, engines=None, **settings):
        self.pods = pods
        section = {"kubeconfig": str(kubeconfig or pods.master), "program": PROGRAM} | (kubernetes or {})
        super().__init__(
            folder,
            orchestrator={"kind": "kubernetes"},
            kubernetes=section,
            engines={"images": {"datafusion": IMAGE}, "allowed_locations": []} | (engines or {}),
            **settings,
        )
        self.engines = PodEngines(pods, self.name)
        self.logs.close()
        self.logs = Logs(str(self.folder / "*.log"), str(pods.folder / "kubelet/*/engine-agent-*/log"))

    def relay_kubernetes(self, name, relay, **settings):
        """The program of that name is to reach the API server through a relay."""
        kubeconfig = self.pods.kubernetes.kubeconfig_of(self.pods.token, f"{self.name}-{name}", HOME, relay.address)
        self.settings_of[name] = {"kubernetes": {"kubeconfig": str(kubeconfig)} | settings}

    def namespace(self, tenant, pool):
        return f"{pool}--{tenant}".replace("_", "-")


class PodTenant:
    """A tenant of a `PodCluster` with a user, a unit, and a pool on a node of its own unless `places` names others."""

    def __init__(self, cluster, name, options="", places=None):
        self.pods, self.user = cluster.pods, f"{name}_user"
        self.control = Control(cluster.addresses["proxy-b"])
        places = self.pods.nodes_of(name) if places is None else places
        if not ("PROPERTIES" in options or "ENGINE_TYPE" in options):
            # What the Secret of its engines alone may have.
            options += f", PROPERTIES ('s3.secret_key' = '{MARK}of-{name}')"
        self.link = self.name, self.pool, self.unit = self.control.make(
            name, users=f"'{self.user}'", options=options, places=places
        )
        self.namespace = cluster.namespace(self.name, self.pool)

    def start(self, wait="5m"):
        return self.control.start(*self.link, wait=wait)

    def session(self):
        return pyhive_session(self.control.address, self.user)

    def pod(self, name):
        return self.pods.admin.get("pods", name, self.namespace)

    def uids(self):
        """name → uid of its pods."""
        return {name: it["metadata"]["uid"] for name, it in self.pods.of(self.namespace).items()}

    def gone(self, name):
        wait_until(lambda: name not in self.pods.of(self.namespace), GONE_WITHIN_S, f"pod {name} is gone")

    def answers(self):
        assert self.control.execute("SELECT 40 + 2 AS answer", self.user) == [{"answer": 42}]

    def drop(self):
        self.control.drop(*self.link)
        wait_until(lambda: not self.uids(), GONE_WITHIN_S, f"the pods of {self.name} are gone")
