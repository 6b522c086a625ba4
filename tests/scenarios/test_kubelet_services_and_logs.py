"""What pods see of each other, and what others see of them, through the kubelets that the harness plays: names of
services, logs over the API server, what is done before a container is told to end."""

import pytest

from harness.fixtures import started
from harness.kubernetes import Kubernetes
from harness.kubernetes_client import ApiError, path_of
from harness.waiting import wait_until
from kubelet import Image, Kubelet
from kubelet.pod import refuse_unsupported

WITHIN_S = 60
LONG = 300


@pytest.fixture(scope="module")
def kubernetes(workspace):
    yield from started(Kubernetes(workspace / "kubernetes-with-names"))


@pytest.fixture(scope="module")
def kubelet(kubernetes, workspace):
    it = Kubelet(kubernetes, workspace / "kubelet-with-names", {"machine": Image(), "pretended": Image(runs=False)}).start()
    it.nodes.add("plain")
    yield it
    it.close()


@pytest.fixture(scope="module")
def admin(kubernetes):
    return kubernetes.admin


def pod(name, script, labels=None, image="machine", container=None, **spec):
    own = {"name": "main", "image": image, "command": ["/bin/sh", "-c", script]} | (container or {})
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"containers": [own], "restartPolicy": "Never"} | spec}


def status_of(admin, namespace, name, condition, what):
    def look():
        it = admin.find("pods", name, namespace)
        return it["status"] if it and condition(it["status"]) else None

    return wait_until(look, WITHIN_S, what)


def is_over(status):
    return status["phase"] in ("Succeeded", "Failed")


def is_ready(status):
    return any(it["type"] == "Ready" and it["status"] == "True" for it in status.get("conditions", []))


def log(client, namespace, name, **query):
    return client.request("GET", path_of("pods", namespace, name, "log"), query=query)


def test_a_service_name_resolves_once_it_has_a_ready_pod(kubernetes, kubelet, admin):
    here, there = kubernetes.namespace("names-here"), kubernetes.namespace("names-there")
    # It is made and runs before there is anything to find.
    ask = "until getent hosts driver.names-here.svc; do sleep 0.1; done; exec sleep 300"
    admin.create("pods", pod("asks", ask), there)
    own = "until getent hosts driver; do sleep 0.1; done; exec sleep 300"
    admin.create("pods", pod("asks-too", own), here)
    admin.create(
        "services", {"metadata": {"name": "driver"}, "spec": {"clusterIP": "None", "selector": {"role": "driver"}}}, here
    )
    admin.create("pods", pod("other", "", {"role": "driver"}, "pretended"), there)
    admin.create("pods", pod("driver", "", {"role": "driver"}, "pretended"), here)
    address = status_of(admin, here, "driver", is_ready, "it is ready")["podIP"]
    for namespace, name, found in ((there, "asks", "driver.names-here.svc"), (here, "asks-too", "driver")):
        text = wait_until(lambda at=(namespace, name): kubelet.log(*at), WITHIN_S, "the name is known")
        assert text.split()[0] == address and found in text.split()
    hosts = kubelet.process(here, "asks-too").folder.parent / "hosts"
    admin.delete("pods", "driver", here)
    wait_until(lambda: address not in hosts.read_text(), WITHIN_S, "what has gone is known no longer")


def test_logs_are_served_through_the_api_server_with_its_rights(kubernetes, kubelet, admin):
    namespace = kubernetes.namespace("logs")
    admin.create("pods", pod("says", "echo one; echo two; echo three; exit 1"), namespace)
    status_of(admin, namespace, "says", is_over, "it ended")
    assert log(admin, namespace, "says") == "one\ntwo\nthree\n"
    assert log(admin, namespace, "says", tailLines=2) == "two\nthree\n"
    assert log(admin, namespace, "says", tailLines=2, limitBytes=3) == "two"
    with pytest.raises(ApiError, match="there is no such container"):
        log(admin, namespace, "says", previous="true")
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    reader = kubernetes.client_of(kubernetes.service_account(namespace, "reader", rules))
    with pytest.raises(ApiError) as refusal:
        log(reader, namespace, "says")
    assert refusal.value.code == 403


def test_the_previous_log_is_kept_when_a_container_restarts(kubernetes, kubelet, admin):
    namespace = kubernetes.namespace("previous")
    script = "if [ -e /kept/once ]; then echo second; exec sleep 300; fi; touch /kept/once; echo first; exit 5"
    again = pod(
        "again",
        script,
        container={"volumeMounts": [{"name": "kept", "mountPath": "/kept"}]},
        volumes=[{"name": "kept", "emptyDir": {}}],
    )
    again["spec"]["restartPolicy"] = "OnFailure"
    admin.create("pods", again, namespace)
    wait_until(lambda: kubelet.log(namespace, "again") == "second\n", WITHIN_S, "it runs a second time")
    status = status_of(admin, namespace, "again", is_ready, "it is ready")
    assert status["containerStatuses"][0]["restartCount"] == 1
    assert log(admin, namespace, "again") == "second\n"
    assert log(admin, namespace, "again", previous="true") == "first\n"


def test_the_pre_stop_hook_runs_before_termination(kubernetes, kubelet, admin):
    namespace = kubernetes.namespace("hooks")
    hook = {"lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", "echo drained >>/proc/1/fd/1; sleep 1"]}}}}
    script = "trap 'echo told; exit 0' TERM; echo serves; while :; do sleep 0.1; done"
    admin.create("pods", pod("drains", script, container=hook, terminationGracePeriodSeconds=LONG), namespace)
    wait_until(lambda: kubelet.log(namespace, "drains") == "serves\n", WITHIN_S, "it runs")
    status_of(admin, namespace, "drains", is_ready, "it is ready")
    record = kubelet.process(namespace, "drains").folder / "log"
    with kubelet.fault("end", lambda it: it["metadata"]["namespace"] == namespace):
        admin.delete("pods", "drains", namespace)
        status_of(admin, namespace, "drains", lambda it: "terminated" in it["containerStatuses"][0]["state"], "it ended")
        assert record.read_text() == "serves\ndrained\ntold\n"
    wait_until(lambda: admin.find("pods", "drains", namespace) is None, WITHIN_S, "it is gone")


def test_probes_run_inside_the_container_at_their_own_period(kubernetes, kubelet, admin):
    namespace = kubernetes.namespace("probes")
    ask = 'test "$MODE" = served && test $(id -u) = 12345 && echo {} >>/told/{}'
    container = {
        "env": [{"name": "MODE", "value": "served"}],
        "volumeMounts": [{"name": "told", "mountPath": "/told"}],
        "readinessProbe": {"exec": {"command": ["/bin/sh", "-c", ask.format("x", "often")]}, "periodSeconds": 1},
        "livenessProbe": {"exec": {"command": ["/bin/sh", "-c", ask.format("x", "rarely")]}, "periodSeconds": 3600},
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", ask.format("x", "hook")]}}},
    }
    admin.create(
        "pods",
        pod(
            "asked",
            "exec sleep 300",
            container=container,
            securityContext={"runAsUser": 12345},
            volumes=[{"name": "told", "emptyDir": {}}],
        ),
        namespace,
    )
    status_of(admin, namespace, "asked", is_ready, "its probe succeeds")
    record = kubelet.process(namespace, "asked").folder.parent / "volumes/told"
    wait_until(lambda: len((record / "often").read_text().splitlines()) >= 3, WITHIN_S, "it is asked again and again")
    assert (record / "rarely").read_text() == "x\n"
    with kubelet.fault("end", lambda it: it["metadata"]["namespace"] == namespace):
        admin.delete("pods", "asked", namespace, grace_s=30)
        wait_until((record / "hook").exists, WITHIN_S, "the hook has run")
        # It listens for no signal.
        admin.delete("pods", "asked", namespace, grace_s=1)
        status_of(admin, namespace, "asked", lambda it: "terminated" in it["containerStatuses"][0]["state"], "it ended")


@pytest.mark.quick
@pytest.mark.parametrize(
    "spec",
    [
        {"initContainers": [{"name": "first", "restartPolicy": "Always"}]},
        {"shareProcessNamespace": True},
        {"hostNetwork": True},
        {"containers": [{"name": "main", "livenessProbe": {"grpc": {"port": 1}}}]},
        {"containers": [{"name": "main", "lifecycle": {"postStart": {"exec": {"command": ["x"]}}}}]},
    ],
)
def test_unsupported_pod_fields_are_refused(spec):
    with pytest.raises(AssertionError, match="is not played"):
        refuse_unsupported({"containers": [{"name": "main"}]} | spec)


def initial(name, script, image="machine"):
    return {
        "name": name,
        "image": image,
        "command": ["/bin/sh", "-c", script],
        "volumeMounts": [{"name": "told", "mountPath": "/told"}],
    }


def with_initial(name, restart, *initials, image="machine"):
    """A pod that tells what was written before it began."""
    own = {"volumeMounts": [{"name": "told", "mountPath": "/told"}]}
    made = pod(
        name,
        "cat /told/all; exec sleep 300",
        image=image,
        container=own,
        initContainers=list(initials),
        volumes=[{"name": "told", "emptyDir": {}}],
    )
    made["spec"]["restartPolicy"] = restart
    return made


def test_initial_containers_come_one_after_the_other_before_all_others(kubernetes, kubelet, admin):
    namespace = kubernetes.namespace("initial")
    # The first one waits until it may, the second one fails once.
    first = initial("first", "until [ -e /told/go ]; do sleep 0.1; done; echo first >>/told/all")
    again = initial(
        "again", "echo $(cat /told/all) again >>/told/all; echo tried; [ -e /told/once ] || { touch /told/once; exit 1; }"
    )
    admin.create("pods", with_initial("patient", "Always", first, again), namespace)
    status = status_of(
        admin,
        namespace,
        "patient",
        lambda it: "running" in it.get("initContainerStatuses", [{"state": {}}])[0]["state"],
        "the first one runs",
    )
    assert status["phase"] == "Pending"
    for it in (status["initContainerStatuses"][1], status["containerStatuses"][0]):
        assert it["state"] == {"waiting": {"reason": "PodInitializing"}}
    text = {it["type"]: (it["status"], it.get("reason")) for it in status["conditions"]}
    assert text["Initialized"] == ("False", "ContainersNotInitialized") and text["Ready"][0] == "False"
    (kubelet.process(namespace, "patient", "first").folder.parent / "volumes/told/go").touch()
    status = status_of(admin, namespace, "patient", is_ready, "it is ready")
    assert [(it["restartCount"], it["ready"]) for it in status["initContainerStatuses"]] == [(0, True), (1, True)]
    wait_until(
        lambda: kubelet.log(namespace, "patient") == "first\nfirst again\nfirst first again again\n", WITHIN_S, "in order"
    )
    assert log(admin, namespace, "patient", container="again") == "tried\n"
    admin.delete("pods", "patient", namespace, grace_s=1)
    wait_until(lambda: admin.find("pods", "patient", namespace) is None, WITHIN_S, "it is gone")


def test_a_failed_init_container_fails_a_pod_that_never_restarts(kubernetes, kubelet, admin):
    namespace = kubernetes.namespace("initial-failure")
    admin.create("pods", with_initial("failed", "Never", initial("first", "exit 3"), initial("never", "exit 0")), namespace)
    status = status_of(admin, namespace, "failed", is_over, "it is over")
    assert status["phase"] == "Failed" and status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert "waiting" in status["initContainerStatuses"][1]["state"] and "waiting" in status["containerStatuses"][0]["state"]
    pretended = with_initial(
        "pretended", "Never", initial("one", "", "pretended"), initial("two", "", "pretended"), image="pretended"
    )
    admin.create("pods", pretended, namespace)
    status = status_of(admin, namespace, "pretended", is_ready, "it is ready")
    assert [it["state"]["terminated"]["exitCode"] for it in status["initContainerStatuses"]] == [0, 0]
    # One that is told to end before its turn has come ends too.
    admin.create("pods", with_initial("stopped", "Never", initial("long", "exec sleep 300")), namespace)
    status_of(admin, namespace, "stopped", lambda it: it.get("initContainerStatuses"), "it has begun")
    process = wait_until(lambda: kubelet.process(namespace, "stopped", "long"), WITHIN_S, "it runs")
    admin.delete("pods", "stopped", namespace, grace_s=1)
    wait_until(lambda: admin.find("pods", "stopped", namespace) is None and not process.is_running(), WITHIN_S, "it is gone")


def test_a_container_that_stays_unhealthy_is_killed_and_started_again(kubernetes, kubelet, admin):
    namespace = kubernetes.namespace("unhealthy")
    probe = {"exec": {"command": ["/bin/test", "!", "-e", "/ill"]}, "periodSeconds": 1, "failureThreshold": 2}
    script = "echo begins; sleep 2; touch /ill; exec sleep 300"
    ill = pod("ill", script, container={"livenessProbe": probe})
    ill["spec"]["restartPolicy"] = "Always"
    admin.create("pods", ill, namespace)
    status = status_of(
        admin,
        namespace,
        "ill",
        lambda it: any(each["restartCount"] > 0 for each in it.get("containerStatuses", [])),
        "it was started again",
    )
    last = status["containerStatuses"][0]["lastState"]["terminated"]
    assert last["exitCode"] == 137
    assert "Unhealthy" in [it["reason"] for it in admin.items("events", namespace)]
