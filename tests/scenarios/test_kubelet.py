"""The tests' kubelet with the real API server and scheduler: faults are injected; containers run in namespaces of their own,
end when they are terminated, and leave nothing."""

import functools
import itertools
import os
import pathlib
import signal

import psutil
import pytest

from harness.control_plane import Kubernetes
from harness.fixtures import started
from harness.waiting import stays, wait_until
from kubelet import Image, Kubelet, bearing, named
from kubelet.pod import refuse_unsupported

WITHIN_S = 60
QUIET_S = 1
numbers = itertools.count()
REPORT = 'echo "$$$$ $(id -u) $TEXT $(cat /etc/greeting/text) $(echo /proc/[0-9]*)"; '


@pytest.fixture(scope="module")
def kubernetes(workspace):
    yield from started(Kubernetes(workspace / "kubernetes-with-nodes"))


@pytest.fixture(scope="module")
def kubelet(kubernetes, workspace):
    it = Kubelet(kubernetes, workspace / "kubelet", {"pretended": Image(runs=False), "machine": Image()}).start()
    it.nodes.add("plain")
    yield it
    it.close()


@pytest.fixture
def cluster(kubernetes):
    it = Namespace(kubernetes.admin, kubernetes.namespace(f"kubelet-{next(numbers)}"))
    it.client.create("configmaps", {"metadata": {"name": "greeting"}, "data": {"GREETING": "hello"}}, it.name)
    return it


class Namespace:
    def __init__(self, client, name):
        self.client, self.name = client, name

    def make(self, name, script=None, restart="Never", labels=None, container=None, **spec):
        own = {"name": "main", "image": "machine" if script else "pretended"} | (container or {})
        if script:
            own["command"] = ["/bin/sh", "-c", script]
        pod = {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"containers": [own], "restartPolicy": restart} | spec,
        }
        self.client.create("pods", pod, self.name)

    def wait(self, name, condition, what):
        def look():
            it = self.client.find("pods", name, self.name)
            return it if it and condition(it["status"]) else None

        return wait_until(look, WITHIN_S, what)["status"].get("containerStatuses", [{}])[0]

    def wait_ready(self, name):
        ready = ("Ready", "True")
        self.wait(name, lambda it: ready in [(c["type"], c["status"]) for c in it.get("conditions", [])], f"{name} is ready")

    def wait_state(self, name, kind, reason=None):
        def is_so(status):
            state = status.get("containerStatuses", [{"state": {}}])[0]["state"].get(kind)
            return state is not None and reason in (None, state.get("reason"))

        return self.wait(name, is_so, f"{name} is {kind}: {reason}")["state"][kind]

    def delete(self, name, grace_s):
        self.client.delete("pods", name, self.name, grace_s=grace_s)

    def wait_gone(self, name):
        wait_until(lambda: self.client.find("pods", name, self.name) is None, WITHIN_S, f"pod {name} is gone")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("image", "ImagePullBackOff"), ("config", "CreateContainerConfigError"), ("start", "ContainerCreating")],
)
def test_a_pod_waits_for_the_reason_of_a_fault_until_it_is_lifted(kubelet, cluster, kind, reason):
    with kubelet.fault(kind, named("one", cluster.name), message="injected"):
        cluster.make("one")
        waiting = cluster.wait_state("one", "waiting", reason)
        assert kind == "start" or "injected" in waiting["message"]
    cluster.wait_ready("one")


def test_a_crash_ends_or_restarts_a_pod_by_its_policy(kubelet, cluster):
    with kubelet.fault("crash", bearing(crashes="yes"), code=3, message="no more"):
        for restart in ("Never", "Always"):
            cluster.make(restart.lower(), restart=restart, labels={"crashes": "yes"})
        ended = cluster.wait_state("never", "terminated")
        assert (ended["exitCode"], ended["message"]) == (3, "no more")
        cluster.wait_state("always", "waiting", "CrashLoopBackOff")
    cluster.wait_ready("always")
    kubelet.kill(cluster.name, "always", reason="OOMKilled")
    last = cluster.wait("always", lambda it: "OOMKilled" in str(it["containerStatuses"][0]["lastState"]), "it was killed")
    assert last["lastState"]["terminated"]["exitCode"] == 137


def test_a_pod_stays_terminating_until_its_end_is_confirmed(kubelet, cluster):
    cluster.make("stuck")
    cluster.wait_ready("stuck")
    with kubelet.fault("end", named("stuck", cluster.name)):
        cluster.delete("stuck", grace_s=5)
        cluster.wait_state("stuck", "terminated")
        stays(lambda: cluster.client.find("pods", "stuck", cluster.name) is not None, QUIET_S, "it terminates")
    cluster.wait_gone("stuck")


@pytest.mark.parametrize("user", [0, 12345])
def test_a_container_has_its_own_processes_and_file_system(kubelet, cluster, user):
    container = {
        "env": [
            {"name": "GREETING", "valueFrom": {"configMapKeyRef": {"name": "greeting", "key": "GREETING"}}},
            {"name": "TEXT", "value": "$(GREETING)-$$(GREETING)"},
        ],
        "volumeMounts": [{"name": "greeting", "mountPath": "/etc/greeting"}],
        "readinessProbe": {"exec": {"command": ["/usr/bin/test", "-e", "/tmp/ready"]}, "periodSeconds": 1},
    }
    volume = {"name": "greeting", "configMap": {"name": "greeting", "items": [{"key": "GREETING", "path": "text"}]}}
    script = REPORT + "exec sleep 300"
    cluster.make("one", script, container=container, volumes=[volume], securityContext={"runAsUser": user})
    text = wait_until(lambda: kubelet.log(cluster.name, "one"), WITHIN_S, "it prints")
    assert text.split()[:5] == ["1", str(user), "hello-$(GREETING)", "hello", "/proc/1"]
    process = kubelet.process(cluster.name, "one")
    (pathlib.Path(f"/proc/{process.pid}/root/tmp/ready")).touch()
    cluster.wait_ready("one")
    pathlib.Path(f"/proc/{process.pid}/root/usr/written-by-a-pod").touch()
    assert not pathlib.Path("/usr/written-by-a-pod").exists()
    assert not pathlib.Path("/etc/greeting").exists()
    # All processes of a container end with the one that waits for it.
    first = psutil.Process(process.pid)
    os.kill(process.process.pid, signal.SIGKILL)
    wait_until(lambda: not first.is_running(), WITHIN_S, "no process of the container is left")


def test_a_mounted_secret_is_waited_for_and_replaced_through_its_link(kubelet, cluster):
    volume = {"name": "key", "secret": {"secretName": "key", "defaultMode": 0o400, "items": [{"key": "one", "path": "file"}]}}
    container = {"volumeMounts": [{"name": "key", "mountPath": "/run/key", "readOnly": True}]}
    script = "stat -Lc '%a %u %g' /run/key/file; while :; do cat /run/key/file; sleep 0.1; done"
    context = {"runAsUser": 12345, "fsGroup": 54321}
    cluster.make("one", script, container=container, volumes=[volume], securityContext=context)

    def warned(reason):
        message = f'MountVolume.SetUp failed for volume "key" : {reason}'
        found = cluster.client.items("events", cluster.name, fieldSelector="involvedObject.name=one")
        return message in [it["message"] for it in found]

    wait_until(lambda: warned('secret "key" not found'), WITHIN_S, "it waits for the secret")
    cluster.wait_state("one", "waiting", "ContainerCreating")
    secret = {"metadata": {"name": "key"}, "stringData": {"other": "x"}}
    cluster.client.create("secrets", secret, cluster.name)
    wait_until(lambda: warned("references non-existent secret key: one"), WITHIN_S, "it waits for the key")
    cluster.client.patch("secrets", "key", {"stringData": {"one": "before\n"}}, cluster.name)
    read = functools.partial(kubelet.log, cluster.name, "one")
    wait_until(lambda: read() and read().startswith("440 0 54321\nbefore\n"), WITHIN_S, "it reads the secret as its group")
    cluster.client.patch("secrets", "key", {"stringData": {"one": "after\n"}}, cluster.name)
    wait_until(lambda: "after" in read(), WITHIN_S, "it reads the new secret")
    assert set(read().split("\n")[1:]) == {"before", "after", ""}


def test_a_container_is_terminated_and_killed_after_its_grace_period(kubelet, cluster):
    polite = "trap 'echo done >/dev/termination-log; exit 7' TERM; echo up; while :; do sleep 0.1; done"
    cluster.make("polite", polite)
    cluster.make("stubborn", "trap : TERM; echo up; while :; do sleep 0.1; done")
    for name in ("polite", "stubborn"):
        wait_until(lambda name=name: kubelet.log(cluster.name, name) == "up\n", WITHIN_S, f"{name} runs")
    with kubelet.fault("end", named("polite", cluster.name)):
        cluster.delete("polite", grace_s=300)
        ended = cluster.wait_state("polite", "terminated")
        assert (ended["exitCode"], ended["message"]) == (7, "done\n")
    stubborn = psutil.Process(kubelet.process(cluster.name, "stubborn").pid)
    cluster.delete("stubborn", grace_s=300)
    stays(stubborn.is_running, QUIET_S, "it has its grace period")
    cluster.delete("stubborn", grace_s=1)
    cluster.wait_gone("stubborn")
    assert not stubborn.is_running()


def test_a_pod_that_cannot_start_reports_why(kubelet, cluster):
    cluster.make("root", "x", container={"securityContext": {"runAsNonRoot": True}})
    cluster.wait_state("root", "waiting", "CreateContainerConfigError")
    reference = {"configMapKeyRef": {"name": "none", "key": "GREETING"}}
    cluster.make("no-map", "sleep 300", container={"env": [{"name": "X", "valueFrom": reference}]})
    waiting = cluster.wait_state("no-map", "waiting", "CreateContainerConfigError")
    assert waiting["message"] == 'configmap "none" not found'


@pytest.mark.quick
@pytest.mark.parametrize(
    "spec",
    [
        {"initContainers": [{"name": "first", "restartPolicy": "Always"}]},
        {"hostNetwork": True},
        {"containers": [{"name": "main", "livenessProbe": {"grpc": {"port": 1}}}]},
    ],
)
def test_unsupported_pod_fields_are_refused(spec):
    with pytest.raises(AssertionError, match="is not supported"):
        refuse_unsupported({"containers": [{"name": "main"}]} | spec)
