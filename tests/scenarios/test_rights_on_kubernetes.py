"""The rights that `deploy/kubernetes` gives, with tokens of these accounts at the real API server: what a master needs works,
everything else is denied, and proxies and metadata agents may nothing."""

import contextlib
import itertools
import re

import pytest

from harness.control_plane import Kubernetes
from harness.kubernetes_client import ApiError
from harness.manifests import FOLDER, Applier, example, overlay, render
from harness.processes import REPOSITORY
from harness.waiting import wait_until

WITHIN_S = 60
OURS = "enginehouse"
ENGINES = "rp-1--t-1"
CORE = ""
RBAC = "rbac.authorization.k8s.io"
NETWORKING = "networking.k8s.io"
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch", "bind", "escalate", "impersonate")
LABEL = {"enginehouse.io/cluster": "enginehouse"}
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def verbs(group, resource, *names):
    return {(group, resource, name) for name in names}


# What a master may do in a namespace of engines, in its own, and everywhere.
AMONG_ENGINES = (
    verbs(CORE, "pods", "create", "delete", "get", "list", "patch", "watch")
    | verbs(CORE, "events", "list", "watch")
    | verbs(CORE, "services", "create", "get")
    | verbs(CORE, "configmaps", "create", "get")
    | verbs(CORE, "secrets", "create")
)
AT_HOME = verbs(CORE, "configmaps", "create", "get", "update")
EVERYWHERE = verbs(CORE, "nodes", "list", "watch")
WIDE = (
    AMONG_ENGINES
    | EVERYWHERE
    | verbs(CORE, "pods", "deletecollection")
    | verbs(CORE, "namespaces", "create", "get")
    | verbs(CORE, "serviceaccounts", "create")
    | verbs(RBAC, "roles", "create")
    | verbs(RBAC, "rolebindings", "create")
    | verbs(NETWORKING, "networkpolicies", "create")
)
# What the service account of engines may do in its namespace: what Spark's driver does.
OF_ENGINES = verbs(CORE, "pods", "create", "delete", "deletecollection", "get", "list", "patch", "watch")


@pytest.fixture(scope="module")
def narrow(workspace):
    with contextlib.closing(Kubernetes(workspace / "kubernetes-narrow")) as cluster:
        Applier(cluster.start()).apply(rights_of(example(workspace / "deploy-narrow")))
        yield cluster


@pytest.fixture(scope="module")
def wide(workspace):
    with contextlib.closing(Kubernetes(workspace / "kubernetes-wide")) as cluster:
        objects = overlay(workspace / "deploy-wide", ["base"], components=["every-namespace"])
        Applier(cluster.start()).apply(rights_of(objects))
        wait_for_the_fence(cluster)
        yield cluster


def rights_of(objects):
    return [it for it in objects if it["kind"] not in ("Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy")]


def client_of(cluster, account, namespace=OURS):
    return cluster.client_of(cluster.token(namespace, account))


def rules(client, namespace):
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}
    status = client.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review)["status"]
    assert not status["incomplete"], status
    found = set()
    for rule in status["resourceRules"]:
        names = rule.get("resourceNames") or [None]
        for group, resource, verb, name in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"], names):
            found.add((group, resource, verb) if name is None else (group, resource, verb, name))
    return found


def own_rules(cluster, account, namespace, of=OURS):
    """Without what every account may do: ask about itself, and read the API's description."""
    unprivileged = cluster.client_of(cluster.token("default", "default"))
    return rules(client_of(cluster, account, of), namespace) - rules(unprivileged, namespace)


def allowed(client, group, resource, verb, namespace, subresource=None):
    attributes = {"group": group, "resource": resource, "verb": verb}
    attributes |= {"namespace": namespace} if namespace else {}
    attributes |= {"subresource": subresource} if subresource else {}
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    review = kind | {"spec": {"resourceAttributes": attributes}}
    return client.create("selfsubjectaccessreviews", review)["status"]["allowed"]


def resources(client):
    """(group, resource, subresource or `None`) of all that the server has, discovered."""
    groups = client.request("GET", "/apis")["groups"]
    versions = [(CORE, "/api/v1")] + [(it["name"], f"/apis/{it['preferredVersion']['groupVersion']}") for it in groups]
    found = set()
    for group, path in versions:
        for it in client.request("GET", path)["resources"]:
            resource, _, subresource = it["name"].partition("/")
            found.add((group, resource, subresource or None))
    return sorted(found, key=str)


def test_proxies_and_metadata_agents_may_nothing(narrow):
    for account in ("enginehouse-proxy", "enginehouse-metadata-agent"):
        for namespace in (OURS, ENGINES, "default", "kube-system"):
            assert own_rules(narrow, account, namespace) == set(), (account, namespace)


def test_a_master_may_what_it_needs_where_it_needs_it(narrow):
    for namespace, expected in ((ENGINES, AMONG_ENGINES), (OURS, AT_HOME), ("default", set()), ("kube-system", set())):
        assert own_rules(narrow, "enginehouse-master", namespace) == expected | EVERYWHERE, namespace


def test_engines_may_only_create_and_delete_pods_in_their_namespace(narrow):
    for namespace, expected in ((ENGINES, OF_ENGINES), (OURS, set()), ("default", set())):
        assert own_rules(narrow, "enginehouse-engine", namespace, of=ENGINES) == expected, namespace


def test_a_master_that_creates_namespaces_has_only_the_rights_for_it(wide):
    for namespace, expected in ((OURS, WIDE | AT_HOME), ("default", WIDE), ("kube-system", WIDE)):
        assert own_rules(wide, "enginehouse-master", namespace) == expected, namespace
    assert own_rules(wide, "enginehouse-proxy", "default") == set()


@pytest.mark.parametrize("account", ["enginehouse-proxy", "enginehouse-master", "enginehouse-metadata-agent"])
def test_the_server_grants_exactly_the_listed_verbs_on_every_resource(narrow, account):
    client = client_of(narrow, account)
    unprivileged = narrow.client_of(narrow.token("default", "default"))
    may = {ENGINES: AMONG_ENGINES | EVERYWHERE, OURS: AT_HOME | EVERYWHERE, None: EVERYWHERE}
    asked = 0
    for group, resource, subresource in resources(client):
        for verb, place in itertools.product(VERBS, may):
            asked += 1
            granted = allowed(client, group, resource, verb, place, subresource)
            expected = account == "enginehouse-master" and subresource is None and (group, resource, verb) in may[place]
            if granted != expected:
                asked_for = (group, resource, verb, place, subresource)
                assert allowed(unprivileged, *asked_for), asked_for
    assert asked > 3000, f"only {asked} questions: did the server tell its resources?"


def refused(action, *words):
    with pytest.raises(ApiError) as refusal:
        action()
    assert refusal.value.code == 403, refusal.value
    for word in words:
        assert word in refusal.value.message, refusal.value.message


def pod(name, **labels):
    secure = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {
        "metadata": {"name": name, "labels": LABEL | labels},
        "spec": {
            "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "main", "image": "any", "securityContext": secure}],
        },
    }


def test_a_master_does_what_it_does_and_is_refused_the_rest(narrow):
    master = client_of(narrow, "enginehouse-master")
    made = master.create("pods", pod("engine"), ENGINES)
    assert master.items("pods", ENGINES)[0]["metadata"]["uid"] == made["metadata"]["uid"]
    master.patch("pods", "engine", {"metadata": {"annotations": {"x": "y"}}}, ENGINES)
    for resource, spec in (("services", {"spec": {"clusterIP": "None", "ports": [{"port": 7078}]}}), ("configmaps", {})):
        master.create(resource, {"metadata": {"name": "engine"}} | spec, ENGINES)
        assert master.get(resource, "engine", ENGINES)
        refused(lambda resource=resource: master.delete(resource, "engine", ENGINES), "cannot delete")
    epoch = master.create("configmaps", {"metadata": {"name": "enginehouse-epoch"}, "data": {"epoch": "1"}}, OURS)
    master.replace("configmaps", epoch | {"data": {"epoch": "2"}}, OURS)
    master.items("events", ENGINES)
    master.items("nodes")
    master.delete("pods", "engine", ENGINES, uid=made["metadata"]["uid"])
    for namespace in (ENGINES, OURS, "kube-system", None):
        refused(lambda namespace=namespace: master.items("secrets", namespace), "secrets")
    refused(lambda: master.get("secrets", "enginehouse-cluster", OURS), "secrets")
    refused(lambda: master.get("secrets", "engine", ENGINES), "secrets")
    refused(lambda: master.create("secrets", secret_of("engine", "uid"), OURS), "cannot create")
    for what in ("exec", "attach", "portforward", "log", "proxy", "ephemeralcontainers"):
        refused(lambda what=what: master.get("pods", "engine", ENGINES, what), f"pods/{what}")
    refused(lambda: master.create("pods", pod("engine"), "default"), "cannot create")
    refused(lambda: master.create("pods", pod("engine"), OURS), "cannot create")
    refused(lambda: master.create("namespaces", {"metadata": {"name": "mine", "labels": LABEL}}), "cannot create")
    refused(lambda: master.create("serviceaccounts", {"spec": {}}, OURS, "enginehouse-proxy", "token"), "token")


def secret_of(name, uid, **more):
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    return {"metadata": {"name": name, "ownerReferences": [owner]}, "type": "Opaque", "immutable": True} | more


@pytest.mark.parametrize("cluster", ["narrow", "wide"])
def test_a_master_creates_secrets_of_engines_and_no_others(cluster, request):
    cluster = request.getfixturevalue(cluster)
    master, place = client_of(cluster, "enginehouse-master"), f"{ENGINES}-secrets"
    cluster.namespace(place, LABEL | RESTRICTED)
    grant(cluster, place)
    fenced = "only immutable Opaque Secrets that the pod of the same name owns"

    def holds():
        try:
            master.create("secrets", {"metadata": {"name": "probe"}}, place, dryRun="All")
        except ApiError as error:
            return fenced in error.message
        return False

    wait_until(holds, WITHIN_S, "the policy of Secrets holds")
    made = cluster.admin.create("pods", pod("engine"), place)
    right = secret_of("engine", made["metadata"]["uid"])
    account = {"kubernetes.io/service-account.name": "default"}
    token = right["metadata"] | {"annotations": account}
    for wrong in (
        right | {"type": "kubernetes.io/service-account-token", "metadata": token},
        right | {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "e30="}},
        right | {"immutable": False},
        {key: value for key, value in right.items() if key != "immutable"},
        right | {"metadata": right["metadata"] | {"name": "other"}},
        right | {"metadata": {"name": "engine"}},
        right | {"metadata": {"generateName": "engine", "ownerReferences": right["metadata"]["ownerReferences"]}},
    ):
        refused(lambda wrong=wrong: master.create("secrets", wrong, place), fenced)
    master.create("secrets", right, place)
    refused(lambda: master.get("secrets", "engine", place), "secrets")
    refused(lambda: master.delete("secrets", "engine", place), "secrets")
    # What others do is their own affair.
    cluster.admin.create("secrets", {"metadata": {"name": "somebodys"}}, place)


def grant(cluster, place):
    """The rights of a master in one more namespace, as an overlay of `engines` gives them."""
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}
    cluster.admin.create("roles", {"metadata": {"name": "enginehouse-master"}, "rules": [rule]}, place)
    reference = {"apiGroup": RBAC, "kind": "Role", "name": "enginehouse-master"}
    subject = {"kind": "ServiceAccount", "name": "enginehouse-master", "namespace": OURS}
    binding = {"metadata": {"name": "enginehouse-master"}, "roleRef": reference, "subjects": [subject]}
    cluster.admin.create("rolebindings", binding, place)


def wait_for_the_fence(cluster):
    master = client_of(cluster, "enginehouse-master")

    def holds():
        try:
            master.create("configmaps", {"metadata": {"name": "probe"}}, "default", dryRun="All")
        except ApiError as error:
            return error.code == 403
        return False

    wait_until(holds, WITHIN_S, "the admission policy holds")


def test_the_fence_holds_a_master_to_its_namespaces(wide):
    master, admin = client_of(wide, "enginehouse-master"), wide.admin
    granted = "only what is in namespaces with the label enginehouse.io/cluster=enginehouse"
    for resource, it in (
        ("pods", pod("p")),
        ("configmaps", {"metadata": {"name": "c"}}),
        ("services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}}),
        ("serviceaccounts", {"metadata": {"name": "a"}}),
        ("roles", {"metadata": {"name": "r"}, "rules": []}),
        ("networkpolicies", {"metadata": {"name": "n"}, "spec": {"podSelector": {}}}),
    ):
        for namespace in ("default", "kube-system"):
            refused(lambda it=it, resource=resource, namespace=namespace: master.create(resource, it, namespace), granted)
    refused(lambda: master.create("pods", pod("p"), OURS), granted)
    for labels in (
        {},
        LABEL,
        RESTRICTED,
        LABEL | {"pod-security.kubernetes.io/enforce": "privileged"},
        {"enginehouse.io/cluster": "another"} | RESTRICTED,
    ):
        it = {"metadata": {"name": "mine", "labels": labels}}
        refused(lambda it=it: master.create("namespaces", it), granted)
    admin.create("configmaps", {"metadata": {"name": "somebodys"}}, "default")
    admin.create("pods", pod("somebodys"), wide.namespace("others"))
    refused(lambda: master.delete("pods", "somebodys", "others"), granted)
    refused(lambda: master.patch("pods", "somebodys", {"metadata": {"labels": LABEL}}, "others"), granted)
    # What it makes, it may fill.
    master.create("namespaces", {"metadata": {"name": ENGINES, "labels": LABEL | RESTRICTED}})
    master.create("networkpolicies", {"metadata": {"name": "deny-all"}, "spec": {"podSelector": {}}}, ENGINES)
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": sorted(verb for _, _, verb in OF_ENGINES)}
    master.create("roles", {"metadata": {"name": "enginehouse-engine"}, "rules": [rule]}, ENGINES)
    reference = {"apiGroup": RBAC, "kind": "Role", "name": "enginehouse-engine"}
    subject = {"kind": "ServiceAccount", "name": "enginehouse-engine", "namespace": ENGINES}
    binding = {"metadata": {"name": "enginehouse-engine"}, "roleRef": reference, "subjects": [subject]}
    master.create("rolebindings", binding, ENGINES)
    master.create("serviceaccounts", {"metadata": {"name": "enginehouse-engine"}}, ENGINES)
    wide.wait_namespace(ENGINES)
    made = master.create("pods", pod("engine"), ENGINES)
    master.delete("pods", "engine", ENGINES, uid=made["metadata"]["uid"])
    more = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    refused(lambda: master.create("roles", {"metadata": {"name": "more"}, "rules": [more]}, ENGINES), "secrets")
    worse = pod("worse")
    worse["spec"]["hostNetwork"] = True
    refused(lambda: master.create("pods", worse, ENGINES), "violates PodSecurity")
    # Its own epoch, and what others do.
    master.create("configmaps", {"metadata": {"name": "enginehouse-epoch"}}, OURS)
    admin.create("configmaps", {"metadata": {"name": "c"}}, "kube-system")


@pytest.mark.parametrize(
    ("file", "place", "expected"),
    [
        ("listed-namespaces", f'namespace "{ENGINES}"', AMONG_ENGINES),
        ("listed-namespaces", "the whole cluster", EVERYWHERE),
        ("listed-namespaces", f'namespace "{OURS}"', AT_HOME),
        ("whole-cluster", "the whole cluster", WIDE),
        ("whole-cluster", f'namespace "{OURS}"', AT_HOME),
    ],
)
def test_the_granted_rights_are_those_that_the_program_lists(file, place, expected):
    """The program's own list, which its doctor asks for, as its tests keep it."""
    lines = (REPOSITORY / f"crates/orchestrator/tests/kubernetes/golden/rights-{file}.txt").read_text().splitlines()
    granted = {re.fullmatch(r"(\S+) (\S+) in (.+)", it).groups() for it in lines}
    assert {(verb, resource) for verb, resource, where in granted if where == place} == {(verb, it) for _, it, verb in expected}


def test_the_base_alone_gives_masters_no_namespace_of_engines():
    kinds = [(it["kind"], it["metadata"]["name"]) for it in render(FOLDER / "base") if "Role" in it["kind"]]
    assert sorted(kinds) == [
        ("ClusterRole", "enginehouse-nodes"),
        ("ClusterRoleBinding", "enginehouse-nodes"),
        ("Role", "enginehouse-master"),
        ("RoleBinding", "enginehouse-master"),
    ]
