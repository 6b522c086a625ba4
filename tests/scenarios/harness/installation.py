"""An installation on Kubernetes as an operator makes it: `deploy/kubernetes` through the real kustomize, API server,
controllers and scheduler; its pods are processes with the image's file system. NetworkPolicies are not enforced."""

import base64
import json
import uuid

from harness import zookeeper
from harness.certificates import Certificate
from harness.clients import open_pyhive
from harness.control import Control
from harness.control_plane import CONTROLLERS, WORKLOADS, Kubernetes
from harness.databases import PostgresDatabase
from harness.image import image
from harness.manifests import KEYS, Applier, overlay
from harness.processes import run
from harness.role_keys import RoleKeys
from harness.waiting import wait_until
from kubelet import Kubelet

NAMESPACE = "enginehouse"
ENGINES = "rp-1--t-1"
IMAGE = "enginehouse"
RUNS_WITHIN_S = 120
RESTARTED_WITHIN_S = 300
PORT = 10009
# What clients in every namespace connect to, and the certificate is for.
SERVICE = "enginehouse-proxy.enginehouse"
PASSWORD = "of the test"


class Installation:
    def __init__(self, folder):
        self.folder = folder
        self.folder.mkdir()
        self.certificate = Certificate(folder, "server", f"DNS:{SERVICE}")
        self.root = f"/enginehouse-on-kubernetes-{uuid.uuid4().hex[:8]}"
        self.cluster = Kubernetes(folder / "kubernetes", controllers=CONTROLLERS + WORKLOADS)
        self.kubelet = self.database = self.objects = None

    def start(self):
        """Everything but the secrets, which are for the test to make: until then no pod runs."""
        self.cluster.start()
        self.database = PostgresDatabase()
        self.kubelet = Kubelet(self.cluster, self.folder / "kubelet", {IMAGE: image(self.folder / "image")}).start()
        for node in ("one", "two"):
            self.kubelet.nodes.add(node)
        self.objects = [*self.rendered(), self.of_certificate(self.certificate), self.of_users("admin", "ann")]
        Applier(self.cluster).apply([it for it in self.objects if it["kind"] != "Secret"])
        return self

    def rendered(self):
        settings = {"ENGINEHOUSE_ZOOKEEPER_CONNECT": zookeeper.address(), "ENGINEHOUSE_ZOOKEEPER_ROOT": self.root}
        of_masters = {
            "ENGINEHOUSE_KUBERNETES_NAMESPACES": json.dumps([ENGINES]),
            "ENGINEHOUSE_ENGINES_IMAGES": f'{{datafusion = "{IMAGE}"}}',
        }
        of_proxies = {"ENGINEHOUSE_TLS_RELOAD": "1s"}
        agent = {"kind": "Deployment", "name": "enginehouse-metadata-agent"}
        folder = self.folder / "overlay"
        folder.mkdir()
        self.keys = RoleKeys(folder, "enginehouse")
        return overlay(
            folder,
            ["base", "example/rp-1--t-1"],
            files={"database.url": self.database.url},
            secretGenerator=[
                *(
                    {"name": f"enginehouse-keys-{role}", "namespace": NAMESPACE, "files": [f"keys/{it}.key" for it in files]}
                    for role, files in KEYS.items()
                ),
                {"name": "enginehouse-database", "namespace": NAMESPACE, "files": ["url=database.url"]},
            ],
            patches=[
                {"target": {"kind": "Deployment"}, "patch": json.dumps(added(settings))},
                {"target": {"kind": "Deployment", "name": "enginehouse-master"}, "patch": json.dumps(added(of_masters))},
                {"target": {"kind": "Deployment", "name": "enginehouse-proxy"}, "patch": json.dumps(added(of_proxies))},
                {"target": agent, "patch": json.dumps(added(settings, "initContainers"))},
            ],
        )

    def of_certificate(self, certificate):
        """The Secret that `kubectl create secret tls` makes."""
        files = {"tls.crt": certificate.certificate, "tls.key": certificate.key}
        return secret("enginehouse-tls", "kubernetes.io/tls", files)

    def of_users(self, *users):
        """The Secret that `kubectl create secret generic --from-file` makes of a users file."""
        file = self.folder / "users"
        for user in users:
            done = run(["passwd", "--file", file, user], text=f"{PASSWORD}\n")
            assert done.returncode == 0, done.stderr
        return secret("enginehouse-users", "Opaque", {"users": file})

    def make_secret(self, name):
        """One of the overlay's has a suffix in its name."""
        names = [it["metadata"]["name"] for it in self.objects if it["kind"] == "Secret"]
        (found,) = [it for it in names if it == name or it.startswith(f"{name}-")]
        if not self.cluster.admin.find("secrets", found, NAMESPACE):
            Applier(self.cluster).apply([it for it in self.objects if it["metadata"]["name"] == found])

    def replace_secret(self, made):
        self.cluster.admin.patch("secrets", made["metadata"]["name"], {"data": made["data"]}, NAMESPACE)

    def login(self):
        return {"ca": self.certificate.certificate, "server_name": SERVICE, "password": PASSWORD}

    def control(self, pod):
        return Control(address(pod), **self.login())

    def session(self, pod, user="admin"):
        return open_pyhive(address(pod), user, **self.login())

    def pods(self, role=None):
        """Those of a role that are not on their way out, or all."""
        selector = "app.kubernetes.io/name=enginehouse" + (f",app.kubernetes.io/component={role}" if role else "")
        found = self.cluster.admin.items("pods", NAMESPACE, labelSelector=selector)
        return [it for it in found if "deletionTimestamp" not in it["metadata"]] if role else found

    def ready(self, role):
        return [it for it in self.pods(role) if is_ready(it)]

    def waits(self, pod):
        status = pod["status"]
        states = [it["state"] for it in status.get("initContainerStatuses", []) + status.get("containerStatuses", [])]
        diagnosis = next((it["waiting"] for it in states if "waiting" in it), {})
        events = self.cluster.admin.items("events", NAMESPACE)
        own = [it for it in events if it["involvedObject"].get("uid") == pod["metadata"]["uid"] and it["type"] == "Warning"]
        reasons = [f"{diagnosis.get('reason')}: {diagnosis.get('message', '')}"]
        return "; ".join(reasons + [f"{it['reason']}: {it['message']}" for it in own])

    def wait_runs(self):
        for role in ("metadata-agent", "proxy", "master"):
            wait_until(lambda role=role: self.is_rolled_out(role), RUNS_WITHIN_S, f"{role} runs: {self.diagnosis(role)}", 0.2)

    def is_rolled_out(self, role):
        deployment = self.cluster.admin.get("deployments", f"enginehouse-{role}", NAMESPACE)
        wanted, status = deployment["spec"]["replicas"], deployment.get("status", {})
        return status.get("observedGeneration", 0) >= deployment["metadata"]["generation"] and {
            status.get(it, 0) for it in ("replicas", "updatedReplicas", "availableReplicas")
        } == {wanted}

    def restart(self, role):
        """`kubectl rollout restart`; answers the uids of the pods that have to go."""
        before = {it["metadata"]["uid"] for it in self.pods(role)}
        mark = {"spec": {"template": {"metadata": {"annotations": {"restarted": uuid.uuid4().hex}}}}}
        self.cluster.admin.patch("deployments", f"enginehouse-{role}", mark, NAMESPACE)
        return before

    def gone(self, uids):
        return not uids & {it["metadata"]["uid"] for it in self.pods()}

    def log(self, pod):
        return self.kubelet.log(NAMESPACE, pod["metadata"]["name"]) or ""

    def diagnosis(self, role):
        return "\n".join(f"{it['metadata']['name']}: {self.waits(it)}\n{self.log(it)[-2000:]}" for it in self.pods(role))

    def engines(self):
        return self.cluster.admin.items("pods", ENGINES)

    def close(self):
        for it in (self.kubelet, self.cluster, self.database):
            if it is not None:
                it.close()


def secret(name, kind, files):
    data = {key: base64.b64encode(path.read_bytes()).decode() for key, path in files.items()}
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind, "data": data}


def address(pod):
    return f"{pod['status']['podIP']}:{PORT}"


def is_ready(pod):
    return any(it["type"] == "Ready" and it["status"] == "True" for it in pod["status"].get("conditions", []))


def added(variables, containers="containers"):
    return [
        {"op": "add", "path": f"/spec/template/spec/{containers}/0/env/-", "value": {"name": name, "value": value}}
        for name, value in variables.items()
    ]
