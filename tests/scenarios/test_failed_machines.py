"""Machines that fail, with the node controllers of a real control plane: the kubelet of a node is silent, its lease is not
renewed, and the controllers find out and taint the node. Nothing here writes a taint or a condition of a failed node."""

import re
import signal
import time

import pytest

from harness.control import Control
from harness.fixtures import started
from harness.pods import PodCluster, Pods, PodTenant
from harness.tier import only_long, some
from harness.waiting import wait_until

# 4 s until the controllers report a node, 2 s until a registration is gone, 5 s of grace, and the start of an engine.
SERVED_WITHIN_S = 60
SERVED_AFTER_EVIDENCE_S = 20
ENDED_WITHIN_S = 90
NOTHING_FOR_S = 12
SUSPENDED = r"3 of 3 nodes with engines are not ready: no engine is replaced because of its node"


@pytest.fixture(scope="module")
def pods(workspace):
    yield from started(Pods(workspace / "kubernetes-with-node-controllers", lifecycle=True))


@pytest.fixture(scope="module")
def shared_cluster(pods, workspace):
    yield from started(PodCluster(workspace / "failed-machines", pods, session_timeout_s=2))


@pytest.fixture
def tenant(cluster, pods, request):
    """A tenant on three nodes of its own, on which the scheduler spreads engines."""
    name = request.node.name.split("[")[0].removeprefix("test_")[:12].rstrip("_") + str(len(request.node.name))
    nodes = [f"{name}-{number}".replace("_", "-") for number in range(3)]
    for node in nodes:
        pods.kubelet.nodes.add(node, cpu="2100m", memory="64Gi")
    listed = ", ".join(f"'{node}'" for node in nodes)
    tenant = PodTenant(cluster, name, places=f"NODE_LIST ({listed})")
    tenant.nodes = nodes
    yield tenant
    for node in nodes:
        pods.kubelet.return_node(node)
    tenant.drop()


def rows_of(tenant):
    return {it["engine"]: it for it in tenant.control.engines(tenant.name)}


def node_of(tenant, engine):
    return tenant.pod(engine)["spec"]["nodeName"]


def fail(tenant, node, number=signal.SIGKILL):
    """The machine fails. Returns when the controllers have found out."""
    nodes = tenant.pods.kubelet.nodes
    tenant.pods.kubelet.fail_node(node, number)
    wait_until(lambda: not nodes.is_ready(node), SERVED_WITHIN_S, f"the controllers report node {node}", 0.1)


def come_back(tenant, node):
    nodes = tenant.pods.kubelet.nodes
    tenant.pods.kubelet.return_node(node)
    wait_until(lambda: nodes.is_ready(node), SERVED_WITHIN_S, f"node {node} is ready again", 0.1)


def wait_replaced(tenant, old, count):
    """Waits until `count` current engines are ready without the old ones; returns their names."""

    def served():
        rows = rows_of(tenant)
        found = {name for name, it in rows.items() if it["current"] and it["state"] == "ready"}
        return found if len(found) == count and not found & set(old) else None

    return wait_until(served, SERVED_WITHIN_S, f"{count} engines other than {old} serve", 0.1)


@pytest.mark.parametrize("number", some([signal.SIGKILL, signal.SIGSTOP], signal.SIGKILL), ids=["dead", "cut_off"])
def test_slots_of_a_failed_machine_are_served_while_its_pods_remain(cluster, tenant, number):
    old = tenant.start()
    node = node_of(tenant, old)
    pod = tenant.pod(old)
    fail(tenant, node, number)
    began = time.monotonic()
    (new,) = wait_replaced(tenant, {old}, 1)
    took_s = time.monotonic() - began
    print(f"served {took_s:.1f} s after the controllers reported the node ({number.name})")
    assert took_s < SERVED_AFTER_EVIDENCE_S
    left = tenant.pod(old)
    assert left["metadata"]["uid"] == pod["metadata"]["uid"], "the old pod remains"
    taints = tenant.pods.admin.get("nodes", node)["spec"]["taints"]
    assert {it["key"] for it in taints} == {"node.kubernetes.io/unreachable"}, "written by the controllers"
    row = rows_of(tenant)[old]
    assert not row["current"], row
    assert re.search(rf'node "{node}" has not been ready for \d', row["reason"]), row
    tenant.answers()
    come_back(tenant, node)
    wait_until(lambda: old not in tenant.uids(), ENDED_WITHIN_S, f"the pod of {old} has ended")
    tenant.control.wait_ready(tenant.name)
    assert list(tenant.uids()) == [new], "and nothing else was replaced"
    cluster.wait_ended(old)
    tenant.answers()


@only_long
def test_a_machine_fails_during_an_alter(cluster, tenant):
    """The founding story: the alteration converges, and both slots have the new configuration, one on another machine."""
    old = {tenant.start(), tenant.start()}
    lost = min(old)
    node = node_of(tenant, lost)
    tenant.pods.kubelet.fail_node(node)
    tenant.control.execute(f"ALTER RESOURCE UNIT {tenant.unit} DRIVER_MEMORY '600M' WAIT '2m'")
    new = wait_replaced(tenant, old, 2)
    rows = rows_of(tenant)
    assert all(rows[name]["config"].split("_")[1] == "600M" and node_of(tenant, name) != node for name in new), rows
    assert lost in tenant.uids(), "its pod remains"
    tenant.answers()
    come_back(tenant, node)
    tenant.control.wait_ready(tenant.name, 2, ENDED_WITHIN_S)
    assert set(tenant.uids()) == new


@only_long
def test_most_machines_fail_and_nothing_is_replaced_blindly(cluster, tenant):
    cluster.logs.allow("still waiting")
    engines = {tenant.start() for _ in tenant.nodes}
    before = rows_of(tenant)
    assert {node_of(tenant, it) for it in engines} == set(tenant.nodes), "one on each"
    for node in tenant.nodes:
        tenant.pods.kubelet.fail_node(node, signal.SIGSTOP)

    def suspended():
        (row,) = Control(tenant.control.address).execute("SHOW MASTER")
        return re.search(SUSPENDED, row["waits_for"] or "")

    wait_until(suspended, SERVED_WITHIN_S, "SHOW MASTER says that nothing is replaced", 0.2)
    time.sleep(NOTHING_FOR_S)
    after = rows_of(tenant)
    assert after.keys() == before.keys() and all(it["current"] for it in after.values()), after
    for node in tenant.nodes:
        tenant.pods.kubelet.return_node(node)
    tenant.control.wait_ready(tenant.name, len(engines), ENDED_WITHIN_S)
    assert rows_of(tenant).keys() == engines, "the same engines serve"
    wait_until(lambda: not suspended(), SERVED_WITHIN_S, "the rule holds again", 0.2)
    tenant.answers()
