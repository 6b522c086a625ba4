"""The whole loop with pods: separate processes of the program, a real API server, its controllers and scheduler, the tests'
kubelet, and in each pod the program, which answers queries."""

import base64
import json
import tomllib

import pytest

from harness.clients import refused, rows
from harness.doctor import check, ill
from harness.fixtures import started
from harness.pods import HOME, PodCluster
from harness.processes import run
from harness.waiting import wait_until
from kubelet import bearing

WITHIN_S = 60


@pytest.fixture(scope="module")
def shared_cluster(pods, workspace):
    yield from started(PodCluster(workspace / "pod-cluster", pods))


def in_no_object_but_its_secret(pods, tenant, engine):
    """The keys of the engine, which its Secret has, are in nothing that the role `view` reads."""
    secret = pods.admin.get("secrets", engine, tenant.namespace)
    assert [it["uid"] for it in secret["metadata"]["ownerReferences"]] == [tenant.uids()[engine]]
    file = tomllib.loads(base64.b64decode(secret["data"]["file-0"]).decode())
    keys = [file["credential"]["password"], file["tls"]["key"]["seed"]]
    kinds = ("pods", "configmaps", "services", "events", "serviceaccounts")
    shown = json.dumps([pods.admin.items(it, tenant.namespace) for it in kinds])
    assert engine in shown
    for key in keys:
        assert len(key) >= 44
        assert key not in shown


def test_a_pod_answers_a_query_and_stop_ends_it(pods, control, pod_tenant):
    tenant = pod_tenant("first")
    engine = tenant.start()
    assert list(tenant.uids()) == [engine]
    tenant.answers()
    in_no_object_but_its_secret(pods, tenant, engine)
    (row,) = control.engines(tenant.name)
    assert row["address"] == f"{tenant.pod(engine)['status']['podIP']}:10021", row
    control.stop(tenant.pool, engine)
    tenant.gone(engine)
    assert control.engines(tenant.name) == []


def test_alter_replaces_a_pod_after_its_sessions_finish(cluster, control, pod_tenant):
    tenant = pod_tenant("altered")
    old = tenant.start()
    with tenant.session() as session:
        rows(session, "CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer")
        control.execute(f"ALTER RESOURCE UNIT {tenant.unit} DRIVER_MEMORY '600M'")
        new = control.wait_another(tenant.name, old)
        control.wait_engine(tenant.name, old, "draining")
        assert set(tenant.uids()) == {old, new["engine"]}
        assert new["config"].split("_")[1] == "600M", new
        assert rows(session, "SELECT answer FROM mine") == [{"answer": 42}]
        tenant.answers()
    tenant.gone(old)
    (row,) = control.wait_ready(tenant.name)
    assert row["engine"] == new["engine"]
    assert cluster.wait_ended(old) == f"replaced by {new['engine']}"


def test_a_session_that_created_a_view_in_its_pod_is_never_moved(control, pod_tenant):
    """The catalog of a pod is its own: DESCRIBE and EXPLAIN report it, and a session that uses it stays."""
    tenant = pod_tenant("kept_here")
    old = tenant.start()
    described = control.described(tenant.pool, old)
    assert described["catalog"].startswith("own: "), described
    change = f"ALTER RESOURCE UNIT {tenant.unit} DRIVER_MEMORY '600M'"
    _, log = control.look(f"EXPLAIN {change}")
    assert any("warning: " in it and f'"{old}"' in it for it in log), log
    with tenant.session() as session:
        rows(session, "CREATE VIEW mine AS SELECT 42 AS answer")
        control.execute(change)
        control.wait_engine(tenant.name, old, "draining")
        assert rows(session, "SELECT answer FROM mine") == [{"answer": 42}]
    tenant.gone(old)
    control.wait_ready(tenant.name)


def test_a_deleted_pod_drains_and_its_slot_gets_another(control, pods, pod_tenant):
    tenant = pod_tenant("deleted")
    first = tenant.start()
    with tenant.session() as session:
        rows(session, "CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer")
        pods.admin.delete("pods", first, tenant.namespace)
        control.wait_engine(tenant.name, first, "terminating")
        assert rows(session, "SELECT answer FROM mine") == [{"answer": 42}]
    tenant.gone(first)
    (row,) = control.wait_ready(tenant.name)
    assert row["engine"] != first


def test_an_engine_of_a_failed_machine_is_replaced_while_its_pod_remains(cluster, control, pods, pod_tenant):
    """Here the kubelet writes the condition that the node controllers of `test_failed_machines` write."""
    nodes = ["machine-1", "machine-2"]
    for node in nodes:
        pods.kubelet.nodes.add(node, cpu="2100m", memory="64Gi")
    tenant = pod_tenant("on_machines", places="NODE_LIST ('machine-1', 'machine-2')")
    old = tenant.start()
    node = tenant.pod(old)["spec"]["nodeName"]
    pods.kubelet.fail_node(node)
    new = control.wait_another(tenant.name, old)
    assert tenant.pod(new["engine"])["spec"]["nodeName"] != node, new
    control.wait_engine(tenant.name, old, reason=f'node "{node}" has not been ready for ')
    assert old in tenant.uids(), "its pod remains"
    tenant.answers()
    pods.kubelet.return_node(node)
    tenant.gone(old)
    assert [it["engine"] for it in control.wait_ready(tenant.name)] == [new["engine"]]


def test_a_foreign_pod_is_named_and_not_touched(control, pods, pod_tenant):
    tenant = pod_tenant("guarded")
    engine = tenant.start()
    own = tenant.pod(engine)
    security = own["spec"]["containers"][0]["securityContext"]
    spec = {
        "containers": [{"name": "main", "image": "nothing", "securityContext": security}],
        "securityContext": own["spec"]["securityContext"],
        "nodeSelector": {"no": "such-node"},
    }
    metadata = {"name": "stranger", "labels": own["metadata"]["labels"]}
    stranger = pods.admin.create("pods", {"metadata": metadata, "spec": spec}, tenant.namespace)
    row = control.wait_engine(tenant.name, "stranger", "foreign")
    assert (row["tenant"], row["pool"], row["unit"], row["current"]) == (tenant.name, tenant.pool, None, False), row
    assert f"{tenant.namespace}/stranger" in row["reason"] and "no signature" in row["reason"], row
    _, log = control.look("SHOW MASTER")
    assert any("foreign" in line and "stranger" in line for line in log), log
    assert [it["engine"] for it in control.execute(f"SHOW ENGINES {tenant.name}", tenant.user)] == [engine]
    control.stop(tenant.pool, engine)
    tenant.gone(engine)
    after = tenant.pod("stranger")
    assert after["metadata"]["uid"] == stranger["metadata"]["uid"]
    assert "deletionTimestamp" not in after["metadata"]
    pods.admin.delete("pods", "stranger", tenant.namespace, grace_s=0)
    wait_until(lambda: control.engines(tenant.name) == [], WITHIN_S, "SHOW ENGINES names it no longer", 0.2)


def test_an_image_pull_failure_is_reported_and_recovered_from(control, pods, pod_tenant):
    tenant = pod_tenant("imageless")
    with pods.kubelet.fault("image", bearing(tenant_name=tenant.name), message="manifest unknown"):
        (answer,) = control.execute(f"START ENGINE {' '.join(tenant.link)}")
        row = control.wait_engine(tenant.name, answer["engine"], reason="could not pull image")
        assert row["state"] in ("pending", "starting") and "manifest unknown" in row["reason"], row
        described = control.described(tenant.pool, answer["engine"])
        assert "manifest unknown" in described["reason"] and described["pod"].endswith(answer["engine"]), described
    (row,) = control.wait_ready(tenant.name)
    assert row["engine"] == answer["engine"]
    control.stop(tenant.pool, answer["engine"])


def test_a_missing_right_is_reported_by_show_and_the_doctor(cluster, control, pods):
    cluster.logs.allow("permissions are missing")
    file = cluster.write("doctor")

    def look():
        done = run(["doctor", "--config", file, "--format", "json"], within_s=WITHIN_S, cwd=cluster.folder)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    status, report = look()
    assert status == 0 and check(report, "rights")["verdict"] == "ok", report
    role = pods.admin.get("clusterroles", f"{HOME}-master")
    less = [it | {"resources": [r for r in it["resources"] if r != "rolebindings"]} for it in role["rules"]]
    pods.admin.patch("clusterroles", f"{HOME}-master", {"rules": less})
    missing = "create rolebindings in the whole cluster"
    status, report = wait_until(lambda: next((it for it in [look()] if ill(it[1])), None), WITHIN_S, "the doctor finds it", 0.2)
    assert status == 1 and ill(report) == {"rights"}, report
    assert [it["subject"] for it in check(report, "rights")["findings"]] == [missing]
    cluster.restart("proxy-a")

    def waits_for():
        return [it["waits_for"] or "" for it in control.execute("SHOW MASTER")]

    wait_until(lambda: any(missing in it for it in waits_for()), WITHIN_S, "SHOW MASTER tells it", 0.2)
    pods.admin.patch("clusterroles", f"{HOME}-master", {"rules": role["rules"]})
    wait_until(lambda: not any("rights" in it for it in waits_for()), WITHIN_S, "SHOW MASTER tells it no longer", 0.2)


def described(control, pool):
    rows_of = control.execute(f"DESCRIBE RESOURCE POOL {pool}")
    return {it["property"]: it["value"] for it in rows_of}, [it["value"] for it in rows_of if it["property"] == "warning"]


def test_pods_run_on_the_nodes_and_cpu_of_their_pool(cluster, control, pods, pod_tenant):
    cluster.logs.allow("a node is in two resource pools")
    for node, labels in (("fast-1", {"disk": "fast", "tier": "gold"}), ("slow-1", {"disk": "slow"})):
        pods.kubelet.nodes.add(node, cpu="8", memory="16Gi", labels=labels)
    tenant = pod_tenant("labelled", places="NODE_SELECTOR ('disk'='fast'), CPU_OVERCOMMIT 200")
    engine = tenant.start()
    spec = tenant.pod(engine)["spec"]
    assert spec["nodeName"] == "fast-1"
    (container,) = spec["containers"]
    assert (container["resources"]["requests"]["cpu"], container["resources"]["limits"]["cpu"]) == ("500m", "1")

    def wait_described(wanted):
        return wait_until(
            lambda: (found := described(control, tenant.pool)) and wanted(*found) and found, WITHIN_S, "DESCRIBE tells it", 0.2
        )

    # 16 cores may be promised where 8 are; the engine asked for a half of its one.
    shown, _ = wait_described(lambda shown, _: shown.get("used by engines", "").startswith("0.5 CPU"))
    assert shown["nodes"] == "any with disk=fast" and shown["nodes that are there"] == "fast-1", shown
    assert shown["capacity of its nodes"] == "8 CPU and 16G" and shown["nodes that take engines"] == "1 of 1", shown
    assert shown["largest engine that fits"].startswith("15 CPU and 15."), shown
    assert shown["largest engine that fits"].endswith("on node fast-1"), shown
    control.execute("CREATE RESOURCE POOL golden NODE_SELECTOR ('tier'='gold')")
    _, warnings = wait_described(lambda _, warnings: warnings)
    assert warnings == ['node "fast-1" is also in resource pool "golden"']
    control.execute("DROP RESOURCE POOL golden")
    pods.kubelet.nodes.change("slow-1", labels={"disk": "fast"})
    pods.kubelet.nodes.change("fast-1", labels={"disk": None})
    another = control.wait_another(tenant.name, engine)["engine"]
    assert tenant.pod(another)["spec"]["nodeName"] == "slow-1"


def test_a_pool_without_nodes_starts_nothing_and_keeps_what_runs(control, pods, pod_tenant):
    tenant = pod_tenant("nodeless", places="")
    start = f"START ENGINE {' '.join(tenant.link)} WAIT '2m'"
    with tenant.session() as session:
        refusal = refused(session, start)
        assert refusal.sqlstate == "55000" and f'resource pool "{tenant.pool}" has no nodes' in refusal.message, refusal
        assert "neither NODE_LIST nor NODE_SELECTOR" in refusal.message, refusal
    assert control.engines(tenant.name) == [], "nothing was created"
    assert pods.admin.find("namespaces", tenant.namespace) is None, "nothing was created"
    control.execute(f"ALTER RESOURCE POOL {tenant.pool} {pods.nodes_of('nodeless')}")
    engine = tenant.start()
    uids = tenant.uids()
    control.execute(f"ALTER RESOURCE POOL {tenant.pool} NODE_LIST ()")
    with tenant.session() as session:
        assert "NODE_LIST is empty" in refused(session, start).message
        assert rows(session, "SELECT 40 + 2 AS answer") == [{"answer": 42}]
    (row,) = control.engines(tenant.name)
    assert (row["engine"], row["state"], row["current"]) == (engine, "ready", True), row
    assert tenant.uids() == uids
