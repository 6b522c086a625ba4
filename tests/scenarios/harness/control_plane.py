"""A Kubernetes of the tests' own: the real etcd, kube-apiserver, controllers and scheduler, four processes on loopback.

`EH_TEST_KUBERNETES_PROGRAM` names the program (built from `tests/kubernetes/server` by `tests/run.d/kubernetes.sh`). There are
no nodes; `kubelet` makes them, and without it a pod stays pending.

RBAC decides: `Kubernetes.admin` is in `system:masters`, all others get a service account (`service_account`)
and only the rights that are bound. The processes end with this one. Also a program, for tests that are not in Python:

    python control_plane.py FOLDER [--without-scheduler]

which prints `ready: <path of the admin's kubeconfig>` and ends on SIGTERM or SIGINT.
"""

import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import threading
import urllib.request

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.kubernetes_client import ApiError, Client, Unreachable
from harness.ports import free_port
from harness.server_process import ServerProcess
from harness.waiting import wait_until

# What the system relies on: namespaces that end with all that is in them, quotas that count, default service accounts
# and their tokens, the cluster's certificate in every namespace, and executors that go with their driver.
CONTROLLERS = (
    "namespace-controller",
    "resourcequota-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "root-ca-certificate-publisher-controller",
    "garbage-collector-controller",
)
# For what is deployed by Deployments and such, in addition.
WORKLOADS = ("deployment-controller", "replicaset-controller", "statefulset-controller", "disruption-controller")
# What finds out that a node has failed, in addition; the kubelets then have to renew their leases.
NODE_LIFECYCLE = ("node-lifecycle-controller", "taint-eviction-controller")
KEY_WITHIN_S = 60
ANSWER_WITHIN_S = 10
CONTROLLERS_WITHIN_S = 120
# Bound to its server's name only, which is what a cluster's own clients call it.
ISSUER_HOST = "kubernetes.default.svc"


def program():
    """The path of the program; without it a scenario fails, it is never skipped."""
    value = os.environ.get("EH_TEST_KUBERNETES_PROGRAM")
    assert value, "EH_TEST_KUBERNETES_PROGRAM is not set: run tests/run, which builds it"
    return value


class Component(ServerProcess):
    """One of the processes. It has the read end of a pipe as its standard input, and ends when we do."""

    stdin = subprocess.PIPE
    # An API server begins with seconds of computing: on a machine that is busy these are minutes.
    start_within_s = 240
    env = {"END_WITH_STDIN": "1", "PATH": os.environ.get("PATH", ""), "HOME": "/nonexistent"}

    def __init__(self, name, folder, arguments, answers):
        self.name = name
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.arguments = arguments
        self.answers = answers

    def command(self):
        return [program(), self.name, *self.arguments()]

    def kill(self):
        # Which ends it too.
        self.process.stdin.close()
        super().kill()


class Kubernetes:
    """One cluster. With `audit` every request is recorded; without `scheduler` a pod gets its node from the test (`bind`)."""

    def __init__(self, folder, audit=False, scheduler=True, controllers=CONTROLLERS):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.controllers = controllers
        self.audit_log = self.folder / "audit.json" if audit else None
        self.certificates = self.folder / "certificates"
        self.authority = self.certificates / "apiserver.crt"
        self.key = self.folder / "service-account.key"
        self.etcd_address = f"127.0.0.1:{free_port()}"
        self.address = f"127.0.0.1:{free_port()}"
        self.token_of_admin = secrets.token_hex(24)
        self.admin = None
        self.etcd = Component("etcd", self.folder / "etcd", self.etcd_arguments, self.etcd_answers)
        components = self.folder / "apiserver", self.folder / "controllers"
        self.apiserver = Component("kube-apiserver", components[0], self.apiserver_arguments, self.apiserver_answers)
        self.manager = Component("kube-controller-manager", components[1], self.manager_arguments, self.manager_answers)
        scheduler_ = Component("kube-scheduler", self.folder / "scheduler", self.scheduler_arguments, lambda: True)
        self.scheduler = scheduler_ if scheduler else None

    def start(self):
        self.write_files()
        self.etcd.start()
        self.apiserver.start()
        if self.scheduler:
            self.scheduler.start()
        self.manager.start()
        return self

    def write_files(self):
        write_secret(self.folder / "tokens.csv", f"{self.token_of_admin},admin,admin,system:masters\n")
        subprocess.run([program(), "service-account-key", self.key], check=True, timeout=KEY_WITHIN_S)
        if self.audit_log:
            policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
            policy["omitStages"] = ["RequestReceived"]
            (self.folder / "audit-policy.json").write_text(json.dumps(policy))

    def etcd_arguments(self):
        return [self.etcd.folder / "data", self.etcd_address]

    def etcd_answers(self):
        try:
            with urllib.request.urlopen(f"http://{self.etcd_address}/health", timeout=ANSWER_WITHIN_S) as answer:
                return json.load(answer)["health"] == "true"
        except OSError:
            return False

    def apiserver_arguments(self):
        audit = [f"--audit-policy-file={self.folder}/audit-policy.json", f"--audit-log-path={self.audit_log}"]
        audit.append("--audit-log-mode=blocking")
        return [
            f"--etcd-servers=http://{self.etcd_address}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.address.rsplit(':', 1)[1]}",
            f"--cert-dir={self.certificates}",
            # The server is not reachable by its service's address: it is on loopback.
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
            "--anonymous-auth=false",
            f"--token-auth-file={self.folder}/tokens.csv",
            f"--service-account-issuer=https://{ISSUER_HOST}",
            f"--service-account-key-file={self.key}",
            f"--service-account-signing-key-file={self.key}",
            "--profiling=false",
            *(audit if self.audit_log else ()),
        ]

    def apiserver_answers(self):
        if not self.authority.exists():
            return False
        if self.admin is None:
            self.admin = self.client_of(self.token_of_admin)
        try:
            return self.admin.request("GET", "/readyz") == "ok"
        except (ApiError, Unreachable):
            return False

    def manager_arguments(self):
        return [
            f"--kubeconfig={self.kubeconfig()}",
            f"--controllers={','.join(self.controllers)}",
            f"--service-account-private-key-file={self.key}",
            f"--root-ca-file={self.authority}",
            "--use-service-account-credentials=false",
            "--leader-elect=false",
            "--secure-port=0",
            # A tenth of what is usual.
            "--node-monitor-grace-period=4s",
            "--node-monitor-period=500ms",
        ]

    def manager_answers(self):
        """It has given the namespace that was there first what every namespace gets."""
        try:
            return (
                self.admin.find("serviceaccounts", "default", "default") is not None
                and self.admin.find("configmaps", "kube-root-ca.crt", "default") is not None
            )
        except Unreachable:
            return False

    def scheduler_arguments(self):
        path = self.scheduler.folder / "scheduler.json"
        connection = {"kubeconfig": str(self.kubeconfig()), "qps": 500, "burst": 1000}
        # Unschedulable pods are retried as early as the configuration allows.
        settings = {"clientConnection": connection, "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
        kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        path.write_text(json.dumps(kind | settings | {"leaderElection": {"leaderElect": False}}))
        return [f"--config={path}", "--secure-port=0"]

    def client_of(self, token):
        return Client(self.address, self.authority, token)

    def kubeconfig(self):
        return self.kubeconfig_of(self.token_of_admin, "admin")

    def kubeconfig_of(self, token, name, namespace="default", address=None):
        """The path of a kubeconfig; `address` may be that of a relay before the server."""
        path = self.folder / f"{name}.kubeconfig"
        server = {"server": f"https://{address or self.address}", "certificate-authority": str(self.authority)}
        context = {"cluster": "tests", "user": name, "namespace": namespace}
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "tests"}
        config["clusters"] = [{"name": "tests", "cluster": server}]
        config["users"] = [{"name": name, "user": {"token": token}}]
        config["contexts"] = [{"name": "tests", "context": context}]
        # JSON is YAML.
        write_secret(path, json.dumps(config))
        return path

    def namespace(self, name, labels=None):
        """Makes a namespace and waits until pods can be made in it: a pod needs the service account of its namespace."""
        self.admin.create("namespaces", {"metadata": {"name": name, "labels": labels or {}}})
        self.wait_namespace(name)
        return name

    def wait_namespace(self, name):
        what = f"namespace {name} has its default service account"
        wait_until(lambda: self.admin.find("serviceaccounts", "default", name), CONTROLLERS_WITHIN_S, what)

    def service_account(self, namespace, name, rules=(), cluster_rules=(), hours=1):
        """Makes a service account with these rules (of a Role, of a ClusterRole), and answers a token of it."""
        self.admin.create("serviceaccounts", {"metadata": {"name": name}}, namespace)
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}

        def grant(kind, name, rules, namespace=None):
            metadata, plural = {"metadata": {"name": name}}, kind.lower() + "s"
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
            self.admin.create(plural, metadata | {"rules": list(rules)}, namespace)
            self.admin.create(plural[:-1] + "bindings", metadata | {"subjects": [subject], "roleRef": role}, namespace)

        if rules:
            grant("Role", name, rules, namespace)
        if cluster_rules:
            grant("ClusterRole", f"{namespace}-{name}", cluster_rules)
        return self.token(namespace, name, hours)

    def token(self, namespace, name, hours=1):
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": hours * 3600}}
        return self.admin.create("serviceaccounts", asked, namespace, name, "token")["status"]["token"]

    def bind(self, namespace, name, node):
        target = {"kind": "Node", "name": node}
        self.admin.create("pods", {"metadata": {"name": name}, "target": target}, namespace, name, "binding")

    def requests(self, user):
        """The audited requests of a user so far."""
        events = map(json.loads, self.audit_log.read_text().rpartition("\n")[0].splitlines())
        return [it for it in events if it["user"].get("username") == user]

    def close(self):
        components = [it for it in (self.scheduler, self.manager, self.apiserver, self.etcd) if it and it.process]
        ended = [it.name for it in components if it.process.poll() not in (None, -signal.SIGKILL)]
        for component in components:
            component.kill()
        assert not ended, f"ended by themselves: {ended}"


def write_secret(path, text):
    """Whole or not at all: a component that starts may read it at any moment."""
    beside = path.with_name(f"{path.name}.new")
    beside.touch(mode=0o600)
    beside.write_text(text)
    beside.rename(path)


def serve(folder, scheduler):
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    cluster = Kubernetes(folder, scheduler=scheduler)
    try:
        cluster.start()
        print(f"ready: {cluster.kubeconfig()}", flush=True)
        asked.wait()
    finally:
        cluster.close()


if __name__ == "__main__":
    serve(sys.argv[1], scheduler=sys.argv[2:] != ["--without-scheduler"])
