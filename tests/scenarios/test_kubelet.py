"""The kubelets that the harness plays, against the real API server and scheduler: what is pretended must be told as real
ones tell it, and what runs must really run, and really end."""

import itertools
import json
import os
import pathlib
import signal
import time
import urllib.request

import psutil
import pytest

from harness.fixtures import started
from harness.kubernetes import Kubernetes
from harness.processes import BINARY
from harness.waiting import stays, wait_until
from kubelet import Image, Kubelet, bearing, named

WITHIN_S = 60
QUIET_S = 1
PORT = 18080
# Answers who it is, is ready when the file is there, and ends on SIGTERM with 7 when it is told to, else goes on.
SERVER = """
import http.server, json, os, pathlib, signal, sys, time

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = self.path != "/ready" or pathlib.Path("/shared/ready").exists()
        self.send_response(200 if ready else 503)
        self.end_headers()
        told = {"pid": os.getpid(), "uid": os.getuid(), "host": os.uname().nodename, "env": dict(os.environ),
                "greeting": pathlib.Path("/etc/greeting/text").read_text(),
                "processes": [it for it in os.listdir("/proc") if it.isdigit()]}
        self.wfile.write(json.dumps(told).encode())

    def log_message(self, *_):
        pass

def end(*_):
    if os.environ.get("STUBBORN"):
        return
    print("drained", flush=True)
    pathlib.Path("/dev/termination-log").write_text("it was told to end")
    os._exit(7)

signal.signal(signal.SIGTERM, end)
print("serving", flush=True)
http.server.HTTPServer((os.environ["POD_IP"], PORT), Answer).serve_forever()
""".replace("PORT", str(PORT))


@pytest.fixture(scope="module")
def kubernetes(workspace):
    yield from started(Kubernetes(workspace / "kubernetes-with-nodes"))


@pytest.fixture(scope="module")
def kubelet(kubernetes, workspace):
    images = {
        "pretended": Image(runs=False),
        "machine": Image(entrypoint=["/usr/bin/python3", "-c", SERVER]),
        "enginehouse": Image({"/opt/enginehouse": BINARY}, entrypoint=["/opt/enginehouse"], user=12345),
    }
    it = Kubelet(kubernetes, workspace / "kubelet", images).start()
    it.nodes.add("plain")
    it.nodes.add("pool", labels={"pool": "rp_1"}, taints=[{"key": "pool", "value": "rp_1", "effect": "NoSchedule"}])
    yield it
    it.close()


@pytest.fixture(scope="module")
def admin(kubernetes):
    return kubernetes.admin


numbers = itertools.count()


@pytest.fixture
def namespace(kubernetes):
    return kubernetes.namespace(f"kubelet-{next(numbers)}")


def pod(name, image="pretended", cpu="100m", restart="Never", labels=None, container=None, **spec):
    own = {"name": "main", "image": image, "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}} | (container or {})
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"containers": [own], "restartPolicy": restart} | spec}


def seen(admin, namespace, name, condition, what):
    """Waits until the pod's status is so, and answers the pod."""

    def look():
        it = admin.find("pods", name, namespace)
        return it if it and condition(it["status"]) else None

    return wait_until(look, WITHIN_S, what)


def warnings(admin, namespace, name):
    """(reason, message) of the warnings about a pod, each once."""
    found = [it for it in admin.items("events", namespace) if it["involvedObject"]["name"] == name and it["type"] == "Warning"]
    return sorted({(it["reason"], it["message"]) for it in found})


def is_ready(status):
    return any(it["type"] == "Ready" and it["status"] == "True" for it in status.get("conditions", []))


def main_state(status, kind):
    return status.get("containerStatuses", [{"state": {}}])[0]["state"].get(kind)


def waits_for(reason):
    return lambda status: (main_state(status, "waiting") or {}).get("reason") == reason


def gone(admin, namespace, name):
    wait_until(lambda: admin.find("pods", name, namespace) is None, WITHIN_S, f"pod {name} is gone")


def test_a_pretended_pod_runs_where_it_may_and_ends_when_it_is_deleted(kubelet, admin, namespace):
    admin.create("pods", pod("anywhere"), namespace)
    admin.create(
        "pods", pod("pooled", nodeSelector={"pool": "rp_1"}, tolerations=[{"key": "pool", "operator": "Exists"}]), namespace
    )
    first, second = (seen(admin, namespace, name, is_ready, "it is ready") for name in ("anywhere", "pooled"))
    assert (first["spec"]["nodeName"], second["spec"]["nodeName"]) == ("plain", "pool")
    assert first["status"]["phase"] == "Running" and main_state(first["status"], "running")
    assert first["status"]["podIP"] != second["status"]["podIP"]
    assert first["status"]["podIP"].startswith("127.")
    admin.delete("pods", "anywhere", namespace, grace_s=30)
    gone(admin, namespace, "anywhere")


def test_a_pod_stays_terminating_until_its_end_is_confirmed(kubelet, admin, namespace):
    admin.create("pods", pod("stuck", labels={"tenant_name": "t_1"}), namespace)
    seen(admin, namespace, "stuck", is_ready, "it is ready")
    with kubelet.fault("end", bearing(tenant_name="t_1")):
        admin.delete("pods", "stuck", namespace, grace_s=5)
        seen(admin, namespace, "stuck", lambda it: main_state(it, "terminated"), "its container has ended")
        stays(lambda: "deletionTimestamp" in admin.get("pods", "stuck", namespace)["metadata"], QUIET_S, "it terminates")
    gone(admin, namespace, "stuck")


def test_images_and_containers_that_can_not_be_had(kubelet, admin, namespace):
    admin.create("pods", pod("unknown", image="example.com/no/such:1"), namespace)
    status = seen(admin, namespace, "unknown", waits_for("ImagePullBackOff"), "its image can't be pulled")["status"]
    assert status["phase"] == "Pending" and "example.com/no/such:1" in main_state(status, "waiting")["message"]
    with kubelet.fault("image", named("pulled", namespace), message="pull QPS exceeded"):
        admin.create("pods", pod("pulled"), namespace)
        status = seen(admin, namespace, "pulled", waits_for("ImagePullBackOff"), "its image can't be pulled")["status"]
        assert "pull QPS exceeded" in main_state(status, "waiting")["message"]
    seen(admin, namespace, "pulled", is_ready, "it runs since the fault is lifted")
    with kubelet.fault("start", named("slow", namespace)):
        admin.create("pods", pod("slow"), namespace)
        seen(admin, namespace, "slow", waits_for("ContainerCreating"), "it is being made")
    seen(admin, namespace, "slow", is_ready, "it runs since the fault is lifted")
    with kubelet.fault("config", named("odd", namespace), message='secret "x" not found'):
        admin.create("pods", pod("odd"), namespace)
        seen(admin, namespace, "odd", waits_for("CreateContainerConfigError"), "its container can't be made")


def test_a_crash_ends_or_restarts_a_pod_by_its_policy(kubelet, admin, namespace):
    with kubelet.fault("crash", bearing(crashes="yes"), code=3, message="no more"):
        for restart in ("Never", "Always"):
            admin.create("pods", pod(restart.lower(), restart=restart, labels={"crashes": "yes"}), namespace)
        ended = seen(admin, namespace, "never", lambda it: it["phase"] == "Failed", "it failed")["status"]
        assert main_state(ended, "terminated")["exitCode"] == 3 and main_state(ended, "terminated")["message"] == "no more"
        again = seen(admin, namespace, "always", waits_for("CrashLoopBackOff"), "it crashes in a loop")["status"]
        assert again["phase"] == "Running"
        seen(admin, namespace, "always", lambda it: it["containerStatuses"][0]["restartCount"] >= 2, "it was tried again")
    healed = seen(admin, namespace, "always", is_ready, "it runs since the fault is lifted")["status"]
    assert healed["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 3
    kubelet.kill(namespace, "always", reason="OOMKilled")
    killed = seen(
        admin,
        namespace,
        "always",
        lambda it: (it["containerStatuses"][0]["lastState"].get("terminated") or {}).get("reason") == "OOMKilled",
        "it was killed",
    )["status"]
    assert killed["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137


def real(name, env=(), grace_s=10, **options):
    """A pod that serves on its own address."""
    container = {
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            {"name": "SAID", "value": "$(GREETING) and $$(GREETING)"},
            *env,
        ],
        "envFrom": [{"configMapRef": {"name": "greeting"}}],
        "volumeMounts": [{"name": "greeting", "mountPath": "/etc/greeting"}, {"name": "shared", "mountPath": "/shared"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": PORT}, "periodSeconds": 1},
    }
    return pod(
        name,
        "machine",
        container=container,
        terminationGracePeriodSeconds=grace_s,
        volumes=[
            {"name": "greeting", "configMap": {"name": "greeting", "items": [{"key": "GREETING", "path": "text"}]}},
            {"name": "shared", "emptyDir": {}},
        ],
        **options,
    )


def ask(status, path="/"):
    with urllib.request.urlopen(f"http://{status['podIP']}:{PORT}{path}", timeout=5) as answer:
        return json.load(answer)


def is_running(status):
    return main_state(status, "running") is not None


def test_a_pod_has_its_own_address_file_system_and_processes(kubelet, admin, namespace):
    admin.create("configmaps", {"metadata": {"name": "greeting"}, "data": {"GREETING": "hello"}}, namespace)
    for name, user in (("first", 0), ("second", 12345)):
        admin.create("pods", real(name, securityContext={"runAsUser": user}), namespace)
    first, second = (seen(admin, namespace, name, is_running, "it runs") for name in ("first", "second"))
    # Both listen on the same port.
    answers = [wait_until(lambda it=it: answered(it["status"]), WITHIN_S, "it answers") for it in (first, second)]
    assert [it["uid"] for it in answers] == [0, 12345]
    assert [it["env"]["UID"] for it in answers] == [first["metadata"]["uid"], second["metadata"]["uid"]]
    for it in answers:
        assert it["greeting"] == "hello" and it["env"]["SAID"] == "hello and $(GREETING)"
        assert it["pid"] == 1 and it["processes"] == ["1"]
        assert "EH_TEST_KUBERNETES_PROGRAM" not in it["env"]
    # Ready is what its probe says.
    stays(lambda: not is_ready(admin.get("pods", "first", namespace)["status"]), 2 * QUIET_S, "it isn't ready")
    process = kubelet.process(namespace, "first")
    (pathlib.Path(f"/proc/{process.pid}/root/shared/ready")).touch()
    seen(admin, namespace, "first", is_ready, "it is ready since it says so")
    # What it writes is nobody else's.
    pathlib.Path(f"/proc/{process.pid}/root/usr/written-by-a-pod").touch()
    assert not pathlib.Path("/usr/written-by-a-pod").exists()
    assert not pathlib.Path("/etc/greeting").exists()
    assert "127.0.0.1" in pathlib.Path(f"/proc/{process.pid}/root/etc/hosts").read_text()


def answered(status):
    try:
        return ask(status)
    except OSError:
        return None


def test_a_pod_is_terminated_and_killed_after_its_grace_period(kubelet, admin, namespace):
    admin.create("configmaps", {"metadata": {"name": "greeting"}, "data": {"GREETING": "hello"}}, namespace)
    stubborn = [{"name": "STUBBORN", "value": "yes"}]
    for it in (real("polite"), real("stubborn", env=stubborn), real("shot"), real("patient", env=stubborn, grace_s=300)):
        admin.create("pods", it, namespace)
    names = ("polite", "stubborn", "shot", "patient")
    statuses = {name: seen(admin, namespace, name, is_running, "it runs")["status"] for name in names}
    for it in statuses.values():
        wait_until(lambda it=it: answered(it), WITHIN_S, "it answers")
    processes = {name: kubelet.process(namespace, name) for name in names}
    pids = {name: psutil.Process(it.pid) for name, it in processes.items()}
    with kubelet.fault("end", named("polite", namespace)):
        admin.delete("pods", "polite", namespace)
        ended = seen(admin, namespace, "polite", lambda it: main_state(it, "terminated"), "it ended")["status"]
        assert main_state(ended, "terminated")["exitCode"] == 7
        assert main_state(ended, "terminated")["message"] == "it was told to end"
        assert processes["polite"].log() == "serving\ndrained\n"
    gone(admin, namespace, "polite")
    # It has its grace, which may be made shorter.
    admin.delete("pods", "patient", namespace)
    asked_at = time.monotonic()
    admin.delete("pods", "stubborn", namespace, grace_s=2)
    gone(admin, namespace, "stubborn")
    assert time.monotonic() - asked_at >= 2
    assert pids["patient"].is_running()
    admin.delete("pods", "patient", namespace, grace_s=1)
    gone(admin, namespace, "patient")
    os.kill(processes["shot"].pid, signal.SIGKILL)
    failed = seen(admin, namespace, "shot", lambda it: it["phase"] == "Failed", "it failed")["status"]
    assert main_state(failed, "terminated")["exitCode"] == 137
    assert not any(it.is_running() for it in pids.values())


def test_a_pod_that_cannot_start_reports_why(kubelet, admin, namespace):
    admin.create("pods", pod("no-program", "machine", container={"command": ["/no/such/program"]}), namespace)
    failed = seen(admin, namespace, "no-program", lambda it: it["phase"] == "Failed", "it failed")["status"]
    assert main_state(failed, "terminated")["reason"] == "StartError"
    assert "/no/such/program" in main_state(failed, "terminated")["message"]
    admin.create("pods", real("too-early"), namespace)
    # A volume keeps the whole pod from its start, and only an event says so; a variable keeps its container.
    why = 'MountVolume.SetUp failed for volume "greeting" : configmap "greeting" not found'
    wait_until(lambda: warnings(admin, namespace, "too-early") == [("FailedMount", why)], WITHIN_S, "it is told")
    status = seen(admin, namespace, "too-early", waits_for("ContainerCreating"), "it waits")["status"]
    assert "message" not in main_state(status, "waiting")
    by_variable = pod(
        "by-variable",
        "machine",
        container={"command": ["/bin/sleep", "300"], "envFrom": [{"configMapRef": {"name": "greeting"}}]},
    )
    admin.create("pods", by_variable, namespace)
    status = seen(admin, namespace, "by-variable", waits_for("CreateContainerConfigError"), "it waits")["status"]
    assert main_state(status, "waiting")["message"] == 'configmap "greeting" not found'
    admin.create("configmaps", {"metadata": {"name": "greeting"}, "data": {"GREETING": "hello"}}, namespace)
    for name in ("too-early", "by-variable"):
        seen(admin, namespace, name, is_running, "it runs since that is there")
    root = pod("root", "machine", container={"securityContext": {"runAsNonRoot": True}})
    admin.create("pods", root, namespace)
    seen(admin, namespace, "root", waits_for("CreateContainerConfigError"), "it may not be root")
    failing = pod(
        "failing",
        "machine",
        container={
            "command": ["/bin/sh", "-c", "echo one; echo two >&2; exit 4"],
            "terminationMessagePolicy": "FallbackToLogsOnError",
        },
    )
    admin.create("pods", failing, namespace)
    failed = seen(admin, namespace, "failing", lambda it: it["phase"] == "Failed", "it failed")["status"]
    assert (main_state(failed, "terminated")["exitCode"], main_state(failed, "terminated")["message"]) == (4, "one\ntwo\n")


def test_a_pod_talks_to_the_api_server_as_its_service_account(kubernetes, kubelet, admin, namespace):
    kubernetes.service_account(namespace, "driver", rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}])
    script = """
import os, ssl, urllib.error, urllib.request
place = "/var/run/secrets/kubernetes.io/serviceaccount/"
token, namespace = (open(place + it).read() for it in ("token", "namespace"))
base = "https://%s:%s/api/v1/namespaces/" % (os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"])
for path in (namespace + "/pods", namespace + "/secrets", "default/pods"):
    request = urllib.request.Request(base + path, headers={"Authorization": "Bearer " + token})
    try:
        print(urllib.request.urlopen(request, context=ssl.create_default_context(cafile=place + "ca.crt")).status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""
    command = {"command": ["/usr/bin/python3", "-c", script]}
    admin.create("pods", pod("asks", "machine", container=command, serviceAccountName="driver"), namespace)
    seen(admin, namespace, "asks", lambda it: it["phase"] in ("Succeeded", "Failed"), "it ended")
    assert kubelet.log(namespace, "asks") == "200\n403\n403\n"
