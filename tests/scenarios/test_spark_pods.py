"""Engines of type spark as pods: Spark in a container of its own beside its agent, really run by the tests' kubelet."""

import psutil
import pytest

from harness import spark
from harness.clients import pyhive_session, rows
from harness.control import Control
from harness.fixtures import followed, started
from harness.java import beeline_ok
from harness.pods import IMAGE, PodCluster, Pods
from harness.ports import free_port
from harness.waiting import wait_until

WITHIN_S = 120
STARTS_WITHIN = "5m"


@pytest.fixture(scope="module")
def pods(workspace):
    yield from started(Pods(workspace / "spark-pods", {spark.IMAGE: spark.image(workspace / "image-of-spark")}))


@pytest.fixture(scope="module")
def installation(pods, workspace):
    kubernetes = {"agent_image": IMAGE, "api_server": f"https://{pods.kubernetes.address}"}
    it = PodCluster(workspace / "spark-pod-cluster", pods, kubernetes=kubernetes, spark=spark.in_pods(free_port()))
    yield from started(it)


@pytest.fixture
def cluster(installation):
    yield from followed(installation)


@pytest.fixture
def control(cluster):
    return Control(cluster.addresses["proxy-b"])


def make(control, pods, name, user, options=", MAX_EXECUTORS 0"):
    return control.make(
        name,
        users=f"'{user}'",
        options=f", ENGINE_TYPE 'spark'{options}",
        places=f"{pods.nodes_of(name)}, IMAGE '{spark.IMAGE}'",
    )


def ended_because(cluster, name):
    return wait_until(
        lambda: cluster.database.rows(f"SELECT ended_reason FROM engine WHERE name = '{name}' AND ended_reason IS NOT NULL"),
        WITHIN_S,
        f"the end of engine {name} is written down",
    )[0][0]


def test_spark_answers_beside_its_agent_and_outlives_it_in_a_drain(cluster, control, pods):
    tenant, pool, unit = make(control, pods, "beside", "alice")
    name = control.start(tenant, pool, unit, wait=STARTS_WITHIN)
    namespace = cluster.namespace(tenant, pool)
    pod = pods.admin.get("pods", name, namespace)
    assert [it["name"] for it in pod["spec"]["containers"]] == ["engine-agent", "spark"]
    assert pod["metadata"]["labels"]["spark-version"] == spark.version()
    with pyhive_session(cluster.addresses["proxy-b"], "alice") as session:
        (row,) = rows(session, "SELECT version() AS version, current_user() AS me")
        assert row["version"].startswith(f"{spark.version()} ") and row["me"] == "alice", row
        (row,) = rows(session, "SET spark.app.name")
        assert row["value"] == name, row
    done = beeline_ok(cluster.addresses["proxy-a"], "SELECT sum(id) AS total FROM range(1000)", user="alice")
    assert "499500" in done.lines(), done.out
    process = psutil.Process(pods.kubelet.process(namespace, name, "spark").pid)
    assert process.uids().real == spark.USER
    assert not [it for it in process.environ() if it.startswith("ENGINEHOUSE")], process.environ()
    with pyhive_session(cluster.addresses["proxy-b"], "alice") as session:
        spark.done(session, "CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer")
        control.execute(f"STOP ENGINE {pool} '{name}' WITHIN '10m'")
        wait_until(lambda: (control.engine(tenant, name) or {}).get("state") == "draining", WITHIN_S, "it drains", 0.2)
        assert rows(session, "SELECT answer FROM mine") == [{"answer": 42}]
    pods.gone(namespace, name)
    assert ended_because(cluster, name) == "drained"
    control.drop(tenant, pool, unit)


def test_a_deleted_pod_keeps_its_spark_until_its_agent_is_done(cluster, control, pods):
    tenant, pool, unit = make(control, pods, "evicted", "bob")
    first = control.start(tenant, pool, unit, wait=STARTS_WITHIN)
    namespace = cluster.namespace(tenant, pool)
    with pyhive_session(cluster.addresses["proxy-b"], "bob") as session:
        spark.done(session, "CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer")
        pods.admin.delete("pods", first, namespace)
        wait_until(
            lambda: (control.engine(tenant, first) or {}).get("state") == "terminating",
            WITHIN_S,
            "SHOW ENGINES tells that it is on its way out",
            0.2,
        )
        assert rows(session, "SELECT answer FROM mine") == [{"answer": 42}]
    pods.gone(namespace, first)
    (row,) = control.wait_ready(tenant, within_s=WITHIN_S)
    assert row["engine"] != first
    control.stop(pool, row["engine"])
    pods.gone(namespace, row["engine"])
    control.drop(tenant, pool, unit)


def test_an_engine_ends_with_its_sparks_container(cluster, control, pods):
    cluster.logs.allow("the engine failed reason=", "the engine ended")
    tenant, pool, unit = make(control, pods, "oom", "carol")
    first = control.start(tenant, pool, unit, wait=STARTS_WITHIN)
    namespace = cluster.namespace(tenant, pool)
    pods.kubelet.kill(namespace, first, "spark", reason="OOMKilled")
    reason = ended_because(cluster, first)
    assert "it used more than its unit allows" in reason and "container spark" in reason, reason
    pods.gone(namespace, first)
    (row,) = control.wait_ready(tenant, within_s=WITHIN_S)
    control.stop(pool, row["engine"])
    control.drop(tenant, pool, unit)


def test_a_spark_pod_start_failure_is_reported_at_once(cluster, control, pods):
    cluster.logs.allow("the engine failed reason=")
    broken = ", MAX_EXECUTORS 0, PROPERTIES ('spark.serializer'='no.such.Serializer')"
    tenant, pool, unit = make(control, pods, "broken", "dave", broken)
    (answer,) = control.execute(f"START ENGINE {tenant} {pool} {unit}")
    reason = ended_because(cluster, answer["engine"])
    assert reason == "container spark: exit code 1", reason
    ((log,),) = cluster.database.rows(f"SELECT log_tail FROM engine WHERE name = '{answer['engine']}'")
    # Kubernetes keeps 2 KiB: the end of Java's stack trace.
    assert "instantiateSerializer" in log, log
    control.drop(tenant, pool, unit)


def test_executors_are_pods_that_come_and_go_with_their_driver(cluster, control, pods):
    sizes = ", EXECUTOR_CPU 1, EXECUTOR_MEMORY '512M', MIN_EXECUTORS 1, MAX_EXECUTORS 1"
    tenant, pool, unit = make(control, pods, "driving", "erin", sizes)
    name = control.start(tenant, pool, unit, wait=STARTS_WITHIN)
    namespace = cluster.namespace(tenant, pool)
    with pyhive_session(cluster.addresses["proxy-b"], "erin") as session:
        assert rows(session, "SELECT count(DISTINCT id % 7) AS n FROM range(0, 1000, 1, 4)") == [{"n": 7}]
    others = [it for it in pods.of(namespace).values() if it["metadata"]["name"] != name]
    (executor,) = others
    labels = executor["metadata"]["labels"]
    assert (labels["enginehouse.io/role"], labels["spark-role"]) == ("executor", "executor"), labels
    assert labels["tenant_name"] == tenant and labels["spark-version"] == spark.version(), labels
    (owner,) = executor["metadata"]["ownerReferences"]
    assert owner["uid"] == pods.of(namespace)[name]["metadata"]["uid"]
    (container,) = executor["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == "896Mi", container["resources"]
    assert [it["engine"] for it in control.engines(tenant)] == [name]
    control.stop(pool, name)
    wait_until(lambda: not pods.of(namespace), WITHIN_S, "driver and executor are gone")
    control.drop(tenant, pool, unit)
