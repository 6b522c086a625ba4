"""`deploy/kubernetes`: rendered by the real kustomize, every object through the real API server, every file and variable
through the program. NetworkPolicies are evaluated by `harness.network_policy`."""

import contextlib
import copy
import json
import os
import re

import pytest

from harness.cert_manager import define
from harness.control_plane import Kubernetes
from harness.kubernetes_client import ApiError
from harness.manifests import FOLDER, KEYS, SECRETS, Applier, NotRendered, example, named, of_kind, overlay, render
from harness.network_peers import ENGINES, PORTS, peers
from harness.network_policy import permits
from harness.pod_templates import FILES, OURS, POD_IP, checked, templates
from harness.processes import REPOSITORY


@pytest.fixture(scope="module")
def objects(workspace):
    return example(workspace / "deploy")


@pytest.fixture(scope="module")
def applier(workspace, objects):
    with contextlib.closing(Kubernetes(workspace / "kubernetes-of-manifests")) as cluster:
        made = Applier(cluster.start())
        made.apply([it for it in objects if it["kind"] in ("Namespace", "ServiceAccount")])
        yield made


def test_every_object_is_accepted_with_strict_fields(applier, objects, workspace):
    components = ["every-namespace", "data-over-https", "directory", "issuer", "kerberos", "database"]
    wide = overlay(workspace / "wide", ["base"], components=components, namespace="enginehouse")
    tried = 0
    for it in [*objects, *wide]:
        if it["kind"] in ("Namespace", "ServiceAccount"):
            continue  # made for real, or there is one of that name
        tried += 1
        accepted = applier.try_out(it)
        assert accepted["metadata"]["name"] == it["metadata"]["name"]
    assert tried > 50, f"only {tried} objects"
    wrong = copy.deepcopy(named(objects, "NetworkPolicy", "proxy"))
    wrong["spec"]["ingres"] = []
    with pytest.raises(ApiError, match="unknown field"):
        applier.try_out(wrong)


def test_the_certificate_of_cert_manager_is_accepted_with_strict_fields(applier, objects, workspace):
    define(applier.cluster)
    rendered = overlay(workspace / "cert-manager", ["base"], components=["cert-manager"])
    made = [it for it in rendered if it["apiVersion"] == "cert-manager.io/v1"]
    assert [it["kind"] for it in made] == ["Certificate"] * 2 + ["Issuer"] * 2
    for it in made:
        assert applier.try_out(it)["metadata"]["namespace"] == OURS
    spec = named(made, "Certificate", "enginehouse-tls")["spec"]
    mounted = next(it for it in templates(objects)["proxy"]["spec"]["volumes"] if it["name"] == "tls")
    assert spec["secretName"] == mounted["secret"]["secretName"]
    # The Service, as clients in the cluster call it.
    service = named(rendered, "Service", "enginehouse-proxy")["metadata"]
    assert f"{service['name']}.{service['namespace']}" in spec["dnsNames"]
    wrong = copy.deepcopy(named(made, "Certificate", "enginehouse-tls"))
    wrong["spec"]["privateKey"]["algorithm"] = "DSA"
    with pytest.raises(ApiError, match="spec.privateKey.algorithm: Unsupported value"):
        applier.try_out(wrong)


def test_pods_of_every_template_pass_restricted_pod_security(applier, objects):
    for role, pod in templates(objects).items():
        made = applier.try_out(pod)
        volumes = [it["name"] for it in made["spec"]["volumes"] if it["name"].startswith("kube-api-access")]
        assert bool(volumes) == (role == "master"), f"{role}: only a master speaks to the API server"
        worse = copy.deepcopy(pod)
        worse["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
        with pytest.raises(ApiError, match="violates PodSecurity"):
            applier.try_out(worse)


def test_nothing_is_applied_without_the_secrets(workspace):
    with pytest.raises(NotRendered, match="proxy.key.*no such file"):
        render(FOLDER / "example")
    folder = workspace / "half"
    example(folder)
    (folder / "example/database.url").unlink()
    with pytest.raises(NotRendered, match="database.url.*no such file"):
        render(folder / "example")


def test_manifests_have_no_password_and_only_the_agent_gets_the_databases(objects):
    assert [it for it in render(FOLDER / "base") if it["kind"] == "Secret"] == []
    # A user with a password in a URL (the example's comment has an ellipsis there), a key, a hashed password, a long number.
    secret = re.compile(r"://[^/\s:@]+:[^…@\s]+@|-----BEGIN|\$argon2|\b[0-9a-fA-F]{32,}\b|kind: Secret|literals:|envs:")
    files = [it for it in (REPOSITORY / "deploy").rglob("*") if it.is_file()]
    assert len(files) > 15
    assert [(it, secret.search(it.read_text())) for it in files if secret.search(it.read_text())] == []
    database = next(it for it in of_kind(objects, "Secret") if it.startswith("enginehouse-database"))
    users = []
    for role, pod in templates(objects).items():
        for container in pod["spec"].get("initContainers", []) + pod["spec"]["containers"]:
            for variable in container["env"]:
                reference = variable.get("valueFrom", {}).get("secretKeyRef")
                if reference:
                    assert not reference.get("optional") and reference["name"] == database
                    users.append((role, container["name"], variable["name"]))
    assert users == [
        ("metadata-agent", "migrate", "ENGINEHOUSE_DATABASE_URL"),
        ("metadata-agent", "metadata-agent", "ENGINEHOUSE_DATABASE_URL"),
    ]


# What clients can make a proxy use, in MiB beyond the keys of its configuration: docs/gateway.md has these limits.
REPLIES_MIB = 256
HASHES_MIB = 2 * 8 * 19
UNCOUNTED_REQUEST_MIB = 64 / 1024
IDLE_TLS_CONNECTION_MIB = 24 / 1024
# The program without clients, and what it reads of the catalog.
REST_MIB = 64


def test_the_worst_case_of_a_proxy_fits_its_memory(objects, tmp_path):
    container = templates(objects)["proxy"]["spec"]["containers"][0]
    proxy = checked(container, objects, tmp_path)["proxy"]
    of_connections = proxy["max_connections"] * (IDLE_TLS_CONNECTION_MIB + UNCOUNTED_REQUEST_MIB)
    of_keys = (proxy["request_memory"] + proxy["max_held_bytes"]) / 2**20
    worst = of_connections + of_keys + REPLIES_MIB + HASHES_MIB + REST_MIB
    limit = container["resources"]["limits"]["memory"]
    print(f"{worst:.0f} MiB at worst, and the limit is {limit}")
    assert worst <= int(limit.removesuffix("Mi")), (worst, limit)


def test_proxies_require_tls_and_passwords_of_two_secrets_and_no_other_role_has_them(objects, tmp_path):
    secrets = {"tls": "enginehouse-tls", "users": "enginehouse-users"}
    for role, pod in templates(objects).items():
        volumes = {it["name"]: it["secret"] for it in pod["spec"]["volumes"] if "secret" in it}
        expected = {"keys", *secrets} if role == "proxy" else {"keys"}
        assert {it["secretName"].split("-")[1] for it in volumes.values()} == expected
        assert volumes["keys"]["secretName"] == f"enginehouse-keys-{role}", "of this role, and without a hash"
        assert [it["key"] for it in volumes["keys"]["items"]] == [f"{it}.key" for it in KEYS[role]]
        assert all(not it.get("optional") and it["defaultMode"] == 0o440 and it["items"] for it in volumes.values())
        assert not [it for it in pod["spec"]["containers"][0]["volumeMounts"] if "subPath" in it], "it would not be replaced"
    pods = templates(objects)
    proxy, master = (checked(pods[role]["spec"]["containers"][0], objects, tmp_path) for role in ("proxy", "master"))
    for settings in (proxy, master):
        assert settings["access"]["authentication"] == ["file"] and not settings["access"]["insecure"]
        assert settings["tls"]["mode"] == "required"
    assert proxy["proxy"]["serves_clients"] and not master["proxy"]["serves_clients"]
    volumes = {it["name"]: it["secret"] for it in pods["proxy"]["spec"]["volumes"] if "secret" in it}
    mounts = {it["name"]: it["mountPath"] for it in pods["proxy"]["spec"]["containers"][0]["volumeMounts"]}
    files = {f"{mounts[name]}/{it['path']}" for name in secrets for it in volumes[name]["items"]}
    assert files == {proxy[section][key] for section, key in FILES if section != "cluster"}


def test_the_program_takes_the_file_and_the_variables_of_every_role(objects, tmp_path):
    for role, pod in templates(objects).items():
        containers = {it["name"]: it for it in pod["spec"]["containers"] + pod["spec"].get("initContainers", [])}
        settings = {name: checked(it, objects, tmp_path) for name, it in containers.items()}[role]
        container = containers[role]
        assert container["args"][1:] == ["--config", "/etc/enginehouse/enginehouse.toml"]
        places = {it["name"]: it["mountPath"] for it in container["volumeMounts"]}
        assert settings["cluster"]["keys"] == places["keys"]
        if role != "metadata-agent":
            assert settings["master"]["candidate"] == (role == "master"), "only masters have the rights that a master needs"
            assert settings["proxy"]["serves_clients"] == (role == "proxy")
        port = container["ports"][0]["containerPort"]
        section = "metadata_agent" if role == "metadata-agent" else "proxy"
        assert settings[section]["listen"] == f"{POD_IP}:{port}"
        hook_s = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        drain_s = seconds(settings["proxy"]["drain_grace"]) if role != "metadata-agent" else 0
        # What the program itself takes to end is 10 s at most, twice for one that is a master too.
        assert hook_s + drain_s + 20 < pod["spec"]["terminationGracePeriodSeconds"], role
        password = SECRETS["database.url"].split(":")[2].split("@")[0]
        assert password not in str(settings)


def test_the_patch_of_the_page_on_upgrades_keeps_the_old_behavior(workspace, tmp_path):
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", (REPOSITORY / "docs/upgrade.md").read_text(), re.MULTILINE | re.DOTALL)
    folder = workspace / "old"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(f"resources:\n- {os.path.relpath(FOLDER / 'base', folder)}\n{block}")
    objects = render(folder)
    container = templates(objects)["proxy"]["spec"]["containers"][0]
    assert {it["name"] for it in container["volumeMounts"]} == {"config", "keys"}
    assert {it["name"] for it in templates(objects)["proxy"]["spec"]["volumes"]} == {"config", "keys"}
    settings = checked(container, objects, tmp_path)
    assert settings["access"]["authentication"] == ["none"] and settings["access"]["insecure"]
    assert settings["tls"]["mode"] == "off" and settings["proxy"]["serves_clients"]
    master = templates(objects)["master"]["spec"]["containers"][0]
    assert not checked(master, objects, tmp_path)["proxy"]["serves_clients"]


def seconds(text):
    return sum(int(number) * {"s": 1, "m": 60, "h": 3600}[unit] for number, unit in re.findall(r"(\d+)([smh])", text))


def test_engines_run_from_the_image_that_the_overlay_names_where_it_may(objects, tmp_path):
    master = templates(objects)["master"]["spec"]["containers"][0]
    settings = checked(master, objects, tmp_path)
    assert settings["engines"]["images"] == {"datafusion": master["image"]}
    assert settings["kubernetes"]["namespaces"] == [ENGINES] and not settings["kubernetes"]["make_namespaces"]
    assert [it.split(":")[0].endswith(f".{OURS}") for it in settings["zookeeper"]["connect"].split(",")] == [True]
    labels = named(objects, "Namespace", ENGINES)["metadata"]["labels"]
    assert labels["enginehouse.io/cluster"] == settings["cluster"]["name"]
    assert named(objects, "ServiceAccount", settings["kubernetes"]["service_account"], ENGINES)
    ports = {
        it["port"]
        for policy in of_kind_in(objects, "NetworkPolicy", ENGINES)
        if policy["metadata"]["name"] == "engine"
        for rule in policy["spec"]["ingress"]
        for it in rule["ports"]
    }
    assert ports == {settings["kubernetes"]["agent_port"]}


def of_kind_in(objects, kind, namespace):
    return [it for it in objects if it["kind"] == kind and it["metadata"]["namespace"] == namespace]


def test_each_deployment_has_a_budget_and_clients_come_to_proxies_only(objects):
    service = named(objects, "Service", "enginehouse-proxy")["spec"]["selector"]
    for role, pod in templates(objects).items():
        labels = pod["metadata"]["labels"].items()
        budget = named(objects, "PodDisruptionBudget", f"enginehouse-{role}")["spec"]
        deployment = named(objects, "Deployment", f"enginehouse-{role}")["spec"]
        assert budget["selector"] == deployment["selector"] and budget["maxUnavailable"] == 1
        assert deployment["selector"]["matchLabels"].items() <= labels and deployment["replicas"] >= 2
        assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
        assert (service.items() <= labels) == (role == "proxy")


def test_masters_make_the_policies_that_an_admin_applies(objects):
    made = json.loads((REPOSITORY / "crates/orchestrator/tests/kubernetes/golden/network-policies.json").read_text())
    applied = {it["metadata"]["name"]: it["spec"] for it in of_kind_in(objects, "NetworkPolicy", ENGINES)}
    del applied["data-over-https"]
    assert {it["metadata"]["name"]: it["spec"] for it in made} == applied


# Everything that is open, of all peers and ports; nothing else may be.
OPEN = {
    ("client", "proxy", 10009),
    *(
        (role, "zookeeper", 2181)
        for role in ("proxy", "master", "agent", "engine", "another engine", "driver", "another driver")
    ),
    ("zookeeper", "zookeeper", 2888),
    ("zookeeper", "zookeeper", 3888),
    ("proxy", "agent", 10020),
    ("master", "agent", 10020),
    ("agent", "database", 5432),
    ("agent", "database", 3306),
    *(
        (role, engine, 10021)
        for role in ("proxy", "master")
        for engine in ("engine", "another engine", "driver", "another driver")
    ),
    *(("executor", driver, port) for driver in ("driver", "another driver") for port in (7078, 7079)),
    *(("master", it, port) for it in ("api server", "internet", "client", "stranger", "names") for port in (443, 6443)),
    *((it, "internet", 443) for it in ("engine", "another engine", "driver", "another driver", "executor")),
}


def test_policies_open_what_the_roles_need_and_nothing_else(objects):
    policies = [it for it in objects if it["kind"] == "NetworkPolicy"]
    known = peers()
    inside = {name for name, it in known.items() if it.namespace in (OURS, ENGINES)}
    # Executors and drivers of one namespace speak among themselves as they like; names are asked of everywhere.
    executors = {("driver", "executor"), ("another driver", "executor"), ("executor", "executor")}
    found = {
        (source, target, port)
        for source in known
        for target in known
        for port in PORTS
        if ({source, target} & inside) and permits(policies, known[source], known[target], port)
    }
    names = {(source, "names", 53) for source in inside}
    free = {(source, target, port) for source, target in executors for port in PORTS}
    assert found - names - free == OPEN
    assert names | free <= found
    for it in ("engine", "driver", "executor", "pod among engines"):
        assert not any(permits(policies, known[it], known["metadata address"], port) for port in PORTS)
