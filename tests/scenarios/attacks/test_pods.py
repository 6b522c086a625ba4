"""Rows D12 and H7: what the service account of an engine can do in Kubernetes, and which Secret an engine starts with."""

import copy

import pytest

from harness import spark
from harness.clients import rows
from harness.kubernetes_client import ApiError
from harness.manifests import Applier, overlay
from harness.pods import HOME, rule
from harness.tier import only_long
from harness.waiting import wait_until

WITHIN_S = 120
SIGNATURE = "enginehouse.io/signature"
TOKEN = {"kubernetes.io/service-account.name": "default"}
# A pod that nothing runs.
NOWHERE = {"nodeSelector": {"no": "such-node"}}


@pytest.fixture(scope="module")
def shared_target(attacked_pods):
    return attacked_pods


def account_of(target, tenant="sales"):
    """A client with the service account of the tenant's engine, its namespace and its name."""
    namespace, kubernetes = target.namespace(tenant), target.pods.kubernetes
    name = target.pod(tenant)["spec"]["serviceAccountName"]
    return kubernetes.client_of(kubernetes.token(namespace, name)), namespace, name


def denied(action, *words):
    with pytest.raises(ApiError) as refusal:
        action()
    assert refusal.value.code == 403, refusal.value
    for word in words:
        assert word in refusal.value.message, refusal.value.message


def copied(pod, name):
    """A pod with the labels and annotations of another one, which nothing runs."""
    own = pod["spec"]["containers"][0]
    container = {"name": "main", "image": "nothing", "securityContext": own["securityContext"]}
    spec = {"containers": [container], "securityContext": pod["spec"]["securityContext"]} | NOWHERE
    kept = {key: pod["metadata"][key] for key in ("labels", "annotations")}
    return {"metadata": {"name": name} | kept, "spec": spec}


def its_account(target):
    """It may create and delete pods in its own namespace, as Spark's driver does."""
    client, own, account = account_of(target)
    other = target.namespace("finance")
    victim = target.engines["finance"]
    denied(lambda: client.items("pods", other), "cannot list")
    denied(lambda: client.delete("pods", victim, other), "cannot delete")
    denied(lambda: client.request("DELETE", f"/api/v1/namespaces/{other}/pods"), "cannot deletecollection")
    denied(lambda: client.patch("pods", victim, {"metadata": {"labels": {"tenant_name": "sales"}}}, other), "cannot patch")
    denied(lambda: client.create("pods", copied(target.pod("finance"), "copied"), other), "cannot create")
    for namespace, name in ((own, target.engines["sales"]), (other, victim), (HOME, "any")):
        denied(lambda namespace=namespace, name=name: client.get("secrets", name, namespace), "secrets")
        denied(lambda namespace=namespace: client.items("secrets", namespace), "secrets")
    denied(lambda: client.create("serviceaccounts", {"spec": {}}, own, account, "token"), "token")
    for what in ("exec", "attach", "ephemeralcontainers"):
        denied(lambda what=what: client.get("pods", target.engines["sales"], own, what), f"pods/{what}")
    assert target.pod("finance")["metadata"]["labels"]["tenant_name"] == "finance"


def a_copied_signature(target):
    client, own, _ = account_of(target)
    ours, theirs = target.pod("sales"), target.pod("finance")
    copies = [copied(ours, "copied"), copied(theirs, target.engines["finance"]), copied(theirs, "disguised")]
    for it in copies:
        assert SIGNATURE in it["metadata"]["annotations"]
        client.create("pods", it, own)
    try:
        for it in copies:
            path = f"{own}/{it['metadata']['name']}"
            wait_until(
                lambda path=path: named_by_master(target, path), WITHIN_S, f"SHOW MASTER names the foreign pod {path}", 0.2
            )
        # None of them is an engine of a tenant.
        target.check_health()
    finally:
        for it in copies:
            target.pods.admin.delete("pods", it["metadata"]["name"], own, grace_s=0)
    wait_until(lambda: not named_by_master(target, own), WITHIN_S, "SHOW MASTER names none of them", 0.2)


def named_by_master(target, path):
    _, log = target.control.look("SHOW MASTER")
    return any("not the signature of this installation; it is neither used nor touched" in it and path in it for it in log)


def changed_labels(target):
    """The engine of `finance` is replaced; two Sparks would need the same port of the tests' loopback."""
    client, own, _ = account_of(target, "finance")
    first, uid = target.engines["finance"], target.pod("sales")["metadata"]["uid"]
    labels = {key: target.pod("sales")["metadata"]["labels"][key] for key in ("tenant_name", "pool_name", "unit_name")}
    client.patch("pods", first, {"metadata": {"labels": labels}}, own)

    def gone():
        with target.session("alice") as alice:
            assert [it["engine"] for it in rows(alice, "SHOW ENGINES sales")] == [target.engines["sales"]]
            assert rows(alice, "SELECT version() AS v")[0]["v"].startswith(spark.version())
        return first not in target.pods.of(own)

    wait_until(gone, WITHIN_S, "the pod with changed labels is gone")
    wait_until(lambda: is_settled(target), WITHIN_S, "the engines of both tenants are ready, and no other", 0.2)
    target.await_engine("finance")
    assert target.pod("sales")["metadata"]["uid"] == uid
    target.check_health()


@only_long
@pytest.mark.parametrize("attack", [its_account, a_copied_signature, changed_labels])
def test_d12_the_service_account_of_an_engine_harms_no_other_tenant(target, attack):
    attack(target)


def is_settled(target):
    """Each tenant has one engine, with the labels of that tenant."""
    for tenant in ("sales", "finance"):
        engines = target.control.engines(tenant)
        if [it["state"] for it in engines] != ["ready"] or not engines[0]["current"]:
            return False
        pod = target.pods.of(target.namespace(tenant)).get(engines[0]["engine"])
        if pod is None or pod["metadata"]["labels"]["tenant_name"] != tenant:
            return False
    return True


def started_with(target, name, secret):
    """A pod like the engine of `finance`, with that Secret: as if an attacker had exchanged it."""
    pod = copy.deepcopy(target.pod("finance"))
    kept = {key: pod["metadata"][key] for key in ("labels", "annotations")}
    spec = {key: pod["spec"][key] for key in ("containers", "volumes", "securityContext", "terminationGracePeriodSeconds")}
    spec |= {"automountServiceAccountToken": False, "restartPolicy": "Never", "nodeName": pod["spec"]["nodeName"]}
    [volume] = [it for it in spec["volumes"] if "secret" in it]
    volume["secret"]["secretName"] = secret
    return {"metadata": {"name": name} | kept, "spec": spec}


def at_the_agent(target, _):
    """It starts with the Secret of its own pod only."""
    namespace, admin = target.namespace("finance"), target.pods.admin
    owner = target.pod("finance")["metadata"]["uid"]
    admin.create("pods", started_with(target, "another-uid", target.engines["finance"]), namespace)
    admin.create("pods", started_with(target, "missing", "no-such-secret"), namespace)
    try:

        def ended():
            [state] = admin.get("pods", "another-uid", namespace).get("status", {}).get("containerStatuses") or [{}]
            return state.get("state", {}).get("terminated")

        how = wait_until(ended, WITHIN_S, "the agent has ended", 0.2)
        assert how["exitCode"] != 0, how
        assert f"the Secret of this engine belongs to another pod, with uid {owner}" in how["message"], how

        def waits():
            events = admin.items("events", namespace)
            return [
                it["message"] for it in events if it["involvedObject"]["name"] == "missing" and it["reason"] == "FailedMount"
            ]

        [message, *_] = wait_until(waits, WITHIN_S, "the pod waits for its Secret", 0.2)
        assert "no-such-secret" in message, message
        assert admin.get("pods", "missing", namespace)["status"]["phase"] == "Pending"
    finally:
        for name in ("another-uid", "missing"):
            admin.delete("pods", name, namespace, grace_s=0)
    target.check_health()


def at_admission(target, workspace):
    """A master may create no other Secret."""
    kubernetes, namespace = target.pods.kubernetes, target.namespace("finance")
    token = kubernetes.service_account(HOME, "enginehouse-master", cluster_rules=[rule("", "create", "secrets")])
    master = kubernetes.client_of(token)
    fence = overlay(workspace / "fence-of-attacks", [], components=["secrets-fence"])
    Applier(kubernetes).apply(fence)
    fenced = "masters create only immutable Opaque Secrets that the pod of the same name owns"

    def refusal(**changed):
        try:
            master.create("secrets", secret | changed, namespace, dryRun="All")
        except ApiError as error:
            return error.code == 403 and fenced in error.message
        return False

    name = target.engines["finance"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": target.pod("finance")["metadata"]["uid"]}
    metadata = {"name": f"{name}-2", "ownerReferences": [owner | {"name": f"{name}-2"}]}
    secret = {"metadata": metadata, "type": "Opaque", "immutable": True}
    of_token = {"type": "kubernetes.io/service-account-token", "metadata": metadata | {"annotations": TOKEN}}
    wait_until(lambda: refusal(**of_token), WITHIN_S, "a Secret of type token is refused")
    assert refusal(metadata=metadata | {"ownerReferences": [owner]}), "a Secret of another pod's"
    assert refusal(immutable=False)
    # As masters create it.
    master.create("secrets", secret, namespace, dryRun="All")


@only_long
@pytest.mark.parametrize("attack", [at_the_agent, at_admission])
def test_h7_an_engine_has_the_secret_of_its_own_pod_only(target, workspace, attack):
    attack(target, workspace)
