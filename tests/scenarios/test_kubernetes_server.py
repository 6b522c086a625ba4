"""The Kubernetes that other scenarios run on, by itself: what it refuses, what its controllers do, that it ends with us."""

import os
import pathlib
import signal
import subprocess
import sys

import psutil
import pytest

from harness.fixtures import started
from harness.kubernetes import Kubernetes
from harness.kubernetes_client import ApiError, Unreachable
from harness.processes import is_alive, process_of
from harness.waiting import stays, wait_until

WITHIN_S = 60
STARTS_WITHIN_S = 600
QUIET_S = 1


@pytest.fixture(scope="module")
def kubernetes(workspace):
    yield from started(Kubernetes(workspace / "kubernetes", audit=True))


@pytest.fixture(scope="module")
def admin(kubernetes):
    return kubernetes.admin


def pod(name, labels=None, **spec):
    container = {"name": "main", "image": "any", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [container]} | spec,
    }


def refused(action, code):
    with pytest.raises(ApiError) as refusal:
        action()
    assert refusal.value.code == code, refusal.value
    return refusal.value.message


def test_a_misspelt_field_is_refused_and_a_dry_run_makes_nothing(kubernetes, admin):
    namespace = kubernetes.namespace("strict")
    wrong = pod("wrong", restartPolicies="Never")
    message = refused(lambda: admin.create("pods", wrong, namespace), 400)
    assert 'unknown field "spec.restartPolicies"' in message
    answer = admin.create("pods", pod("dry"), namespace, dryRun="All")
    assert answer["metadata"]["uid"] and answer["spec"]["serviceAccountName"] == "default"
    assert admin.find("pods", "dry", namespace) is None


def test_a_bound_pod_terminates_only_when_it_is_confirmed(kubernetes, admin):
    namespace = kubernetes.namespace("bindings")
    for name in ("unbound", "bound"):
        made = admin.create("pods", pod(name), namespace)
        assert made["status"]["phase"] == "Pending"
    admin.create(
        "pods", {"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "nowhere"}}, namespace, "bound", "binding"
    )
    for name in ("unbound", "bound"):
        admin.delete("pods", name, namespace, grace_s=30)
    assert admin.find("pods", "unbound", namespace) is None
    uid = admin.get("pods", "bound", namespace)["metadata"]["uid"]

    def terminates():
        metadata = admin.get("pods", "bound", namespace)["metadata"]
        return metadata["uid"] == uid and metadata["deletionGracePeriodSeconds"] == 30

    stays(terminates, QUIET_S, "the bound pod is terminating and there")
    assert "uid" in refused(lambda: admin.delete("pods", "bound", namespace, grace_s=0, uid="another"), 409).lower()
    admin.delete("pods", "bound", namespace, grace_s=0, uid=uid)
    assert admin.find("pods", "bound", namespace) is None


def test_a_role_grants_exactly_its_rules(kubernetes, admin):
    namespace = kubernetes.namespace("rights")
    token = kubernetes.service_account(
        namespace, "reader", rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    )
    reader = kubernetes.client_of(token)
    assert reader.items("pods", namespace) == []
    assert "cannot create resource" in refused(lambda: reader.create("pods", pod("x"), namespace), 403)
    refused(lambda: reader.items("pods", "default"), 403)
    refused(lambda: reader.items("secrets", namespace), 403)
    refused(lambda: kubernetes.client_of("invented").items("pods", namespace), 401)
    admin.delete("serviceaccounts", "reader", namespace)
    wait_until(lambda: code_of(lambda: reader.items("pods", namespace)) == 401, WITHIN_S, "the token went with its account")


def code_of(action):
    try:
        action()
    except ApiError as error:
        return error.code
    return None


def test_a_namespace_goes_with_all_that_is_in_it(kubernetes, admin):
    namespace = kubernetes.namespace("doomed")
    admin.create("pods", pod("one"), namespace)
    admin.create("configmaps", {"metadata": {"name": "two"}}, namespace)
    admin.delete("namespaces", namespace)
    wait_until(lambda: admin.find("namespaces", namespace) is None, WITHIN_S, "the namespace is gone")
    assert admin.items("pods", namespace) == []


def test_what_a_pod_owns_goes_with_it(kubernetes, admin):
    namespace = kubernetes.namespace("owners")
    owner = admin.create("pods", pod("driver"), namespace)
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": owner["metadata"]["uid"], "controller": True}
    owned = pod("executor")
    owned["metadata"]["ownerReferences"] = [reference]
    admin.create("pods", owned, namespace)
    admin.create(
        "services",
        {
            "metadata": {"name": "driver", "ownerReferences": [reference]},
            "spec": {"clusterIP": "None", "selector": {"name": "driver"}},
        },
        namespace,
    )
    admin.create("pods", pod("bystander"), namespace)
    admin.delete("pods", "driver", namespace)
    wait_until(lambda: not admin.items("services", namespace), WITHIN_S, "the service went")
    wait_until(lambda: admin.find("pods", "executor", namespace) is None, WITHIN_S, "the executor went")
    assert admin.find("pods", "bystander", namespace) is not None


def test_a_quota_counts_and_refuses(kubernetes, admin):
    namespace = kubernetes.namespace("quota")
    admin.create("resourcequotas", {"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "1"}}}, namespace)
    wait_until(lambda: admin.get("resourcequotas", "small", namespace)["status"].get("used"), WITHIN_S, "it counts")
    admin.create("pods", pod("first"), namespace)
    assert "exceeded quota: small" in refused(lambda: admin.create("pods", pod("second"), namespace), 403)


def test_a_restricted_namespace_refuses_a_pod_that_asks_for_more(kubernetes, admin):
    namespace = kubernetes.namespace("restricted", {"pod-security.kubernetes.io/enforce": "restricted"})
    message = refused(lambda: admin.create("pods", pod("root"), namespace), 403)
    assert "violates PodSecurity" in message and "runAsNonRoot" in message
    modest = pod("modest", securityContext={"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}})
    modest["spec"]["containers"][0]["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    admin.create("pods", modest, namespace)


def test_a_watch_reports_changes(kubernetes, admin):
    namespace = kubernetes.namespace("watched")
    version = admin.list("pods", namespace)["metadata"]["resourceVersion"]
    watch = admin.watch("pods", namespace, resourceVersion=version)
    events = ((kind, it["metadata"]["name"]) for kind, it in watch if kind != "BOOKMARK")
    admin.create("pods", pod("seen"), namespace)
    assert next(events) == ("ADDED", "seen")
    admin.patch("pods", "seen", {"metadata": {"labels": {"a": "b"}}}, namespace)
    assert next(events) == ("MODIFIED", "seen")
    admin.delete("pods", "seen", namespace)
    assert next(it for it in events if it[0] == "DELETED") == ("DELETED", "seen")
    watch.close()
    assert list(events) == []


def test_every_request_is_written_down(kubernetes, admin):
    namespace = kubernetes.namespace("audited")
    token = kubernetes.service_account(
        namespace, "watched", rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    )
    client = kubernetes.client_of(token)
    client.items("pods", namespace)
    refused(lambda: client.items("services", namespace), 403)
    user = f"system:serviceaccount:{namespace}:watched"

    def audited():
        return [
            (it["verb"], it["objectRef"]["resource"], it["responseStatus"]["code"]) for it in kubernetes.requests(user=user)
        ]

    # Written down when the answer is on its way.
    wait_until(lambda: audited() == [("list", "pods", 200), ("list", "services", 403)], WITHIN_S, "both are written down")
    assert len(kubernetes.requests(user=user, resource="pods")) == 1


def test_a_killed_api_server_keeps_its_objects(kubernetes, admin):
    namespace = kubernetes.namespace("killed")
    uid = admin.create("pods", pod("kept"), namespace)["metadata"]["uid"]
    kubernetes.apiserver.kill()
    with pytest.raises(Unreachable):
        admin.get("pods", "kept", namespace)
    kubernetes.apiserver.start()
    assert admin.get("pods", "kept", namespace)["metadata"]["uid"] == uid
    # The controllers come back to it by themselves.
    kubernetes.namespace("after-the-kill")


def test_the_servers_end_with_their_starter(folder):
    script = pathlib.Path(__file__).parent / "harness/kubernetes.py"
    with open(folder / "out", "wb") as out, open(folder / "log", "wb") as log:
        starter = subprocess.Popen([sys.executable, script, folder / "cluster"], stdout=out, stderr=log)
    try:
        wait_until(lambda: "ready: " in (folder / "out").read_text(), STARTS_WITHIN_S, "it is ready")
        servers = [process_of(it.pid) for it in psutil.Process(starter.pid).children()]
        assert len(servers) == 4
    finally:
        os.kill(starter.pid, signal.SIGKILL)
        starter.wait()
    wait_until(lambda: not any(is_alive(*it) for it in servers), WITHIN_S, "none of the servers runs")
