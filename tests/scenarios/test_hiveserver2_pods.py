"""Engines of type hiveserver2 as pods: the server is a child of the agent, really run by the tests' kubelet."""

import psutil
import pytest

from harness import hiveserver2
from harness.clients import rows
from harness.fixtures import started
from harness.pods import IMAGE, PROGRAM, PodCluster, Pods
from harness.processes import BINARY
from harness.tier import only_long
from harness.waiting import wait_until
from kubelet import Image

WITHIN_S = 60
SERVER_IMAGE = "registry.example/server:1"
SERVER = "/opt/datafusion_server"


@pytest.fixture(scope="module")
def pods(workspace):
    image = Image({PROGRAM: BINARY, SERVER: hiveserver2.DATAFUSION})
    yield from started(Pods(workspace / "hiveserver2-pods", {SERVER_IMAGE: image}))


@pytest.fixture(scope="module")
def shared_cluster(pods, workspace):
    yield from started(
        PodCluster(
            workspace / "hiveserver2-pod-cluster",
            pods,
            engines={"images": {"datafusion": IMAGE, "hiveserver2": SERVER_IMAGE}},
            hiveserver2=hiveserver2.datafusion(SERVER, unconfined=False),
        )
    )


@only_long
def test_a_server_in_a_pod_is_a_child_in_the_agent_s_container(cluster, control, pods, pod_tenant):
    tenant = pod_tenant("served", options=", ENGINE_TYPE 'hiveserver2'")
    name = tenant.start()
    (container,) = tenant.pod(name)["spec"]["containers"]
    assert (container["name"], container["image"]) == ("engine-agent", SERVER_IMAGE), container
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "768Mi"}, container["resources"]
    tenant.answers()
    with tenant.session() as session:
        assert rows(session, "SELECT sum(x) AS total FROM (VALUES (1), (44)) AS t(x)") == [{"total": 45}]
    agent = psutil.Process(pods.kubelet.process(tenant.namespace, name, "engine-agent").pid)
    (server,) = [it for it in agent.children(recursive=True) if it.name().startswith("datafusion_serv")]
    ours = {it for it in server.environ() if it.startswith("ENGINEHOUSE")}
    assert ours == {"ENGINEHOUSE_SERVER_PASSWORD"}, ours
    control.stop(tenant.pool, name)
    tenant.gone(name)
    wait_until(lambda: not server.is_running(), WITHIN_S, "the server has ended with its agent")
    assert cluster.wait_ended(name) == "drained"
