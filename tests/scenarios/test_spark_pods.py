"""Engines of type spark as pods: Spark in a container of its own beside its agent, really run by the tests' kubelet."""

import time

import psutil
import pytest

from harness import spark
from harness.clients import refused, rows
from harness.fixtures import started
from harness.java import beeline_ok
from harness.pods import IMAGE, PodCluster, Pods
from harness.ports import free_port
from harness.tier import only_long
from harness.waiting import wait_until

WITHIN_S = 120
# Much less than a statement waits for an engine.
AT_ONCE_S = 30
UNKNOWN = "registry.example/spark:unknown"
MISSING = "registry.example/spark:missing"


@pytest.fixture(scope="module")
def pods(workspace):
    yield from started(Pods(workspace / "spark-pods", {spark.IMAGE: spark.image(workspace / "image-of-spark")}))


@pytest.fixture(scope="module")
def shared_cluster(pods, workspace):
    kubernetes = {"agent_image": IMAGE, "api_server": f"https://{pods.kubernetes.address}"}
    section = spark.in_pods(free_port())
    section["versions"] = section["versions"] | {MISSING: spark.version()}
    it = PodCluster(workspace / "spark-pod-cluster", pods, kubernetes=kubernetes, spark=section)
    yield from started(it)


@pytest.fixture
def spark_tenant(pod_tenant, pods):
    def make(name, options=", MAX_EXECUTORS 0"):
        places = f"{pods.nodes_of(name)}, IMAGE '{spark.IMAGE}'"
        return pod_tenant(name, options=f", ENGINE_TYPE 'spark'{options}", places=places)

    return make


def test_spark_answers_beside_its_agent_and_outlives_it_in_a_drain(cluster, control, pods, spark_tenant):
    tenant = spark_tenant("beside")
    name = tenant.start()
    pod = tenant.pod(name)
    assert [it["name"] for it in pod["spec"]["containers"]] == ["engine-agent", "spark"]
    assert pod["metadata"]["labels"]["spark-version"] == spark.version()
    with tenant.session() as session:
        (row,) = rows(session, "SELECT version() AS version, current_user() AS me")
        assert row["version"].startswith(f"{spark.version()} ") and row["me"] == tenant.user, row
        (row,) = rows(session, "SET spark.app.name")
        assert row["value"] == name, row
    done = beeline_ok(cluster.addresses["proxy-a"], "SELECT sum(id) AS total FROM range(1000)", user=tenant.user)
    assert "499500" in done.lines(), done.out
    process = psutil.Process(pods.kubelet.process(tenant.namespace, name, "spark").pid)
    assert process.uids().real == spark.USER
    assert not [it for it in process.environ() if it.startswith("ENGINEHOUSE")], process.environ()
    with tenant.session() as session:
        spark.done(session, "CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer")
        control.execute(f"STOP ENGINE {tenant.pool} '{name}' WITHIN '10m'")
        control.wait_engine(tenant.name, name, "draining")
        assert rows(session, "SELECT answer FROM mine") == [{"answer": 42}]
    tenant.gone(name)
    assert cluster.wait_ended(name) == "drained"


def test_a_deleted_pod_keeps_its_spark_until_its_agent_is_done(control, pods, spark_tenant):
    tenant = spark_tenant("evicted")
    first = tenant.start()
    with tenant.session() as session:
        spark.done(session, "CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer")
        pods.admin.delete("pods", first, tenant.namespace)
        control.wait_engine(tenant.name, first, "terminating", within_s=WITHIN_S)
        assert rows(session, "SELECT answer FROM mine") == [{"answer": 42}]
    tenant.gone(first)
    (row,) = control.wait_ready(tenant.name, within_s=WITHIN_S)
    assert row["engine"] != first
    control.stop(tenant.pool, row["engine"])
    tenant.gone(row["engine"])


def test_an_engine_ends_with_its_sparks_container(cluster, control, pods, spark_tenant):
    cluster.logs.allow("the engine failed reason=", "the engine ended")
    tenant = spark_tenant("oom")
    first = tenant.start()
    pods.kubelet.kill(tenant.namespace, first, "spark", reason="OOMKilled")
    reason = cluster.wait_ended(first)
    assert "it used more than its unit allows" in reason and "container spark" in reason, reason
    tenant.gone(first)
    (row,) = control.wait_ready(tenant.name, within_s=WITHIN_S)
    control.stop(tenant.pool, row["engine"])


def test_a_spark_pod_start_failure_is_reported_at_once(cluster, control, spark_tenant):
    cluster.logs.allow("the engine failed reason=")
    tenant = spark_tenant("broken", ", MAX_EXECUTORS 0, PROPERTIES ('spark.serializer'='no.such.Serializer')")
    (answer,) = control.execute(f"START ENGINE {' '.join(tenant.link)}")
    reason = cluster.wait_ended(answer["engine"])
    assert reason == "container spark: exit code 1", reason
    ((log,),) = cluster.database.rows(f"SELECT log_tail FROM engine WHERE name = '{answer['engine']}'")
    # Kubernetes keeps 2 KiB: the end of Java's stack trace.
    assert "instantiateSerializer" in log, log


@only_long
def test_a_spark_that_exits_for_good_fails_its_session_within_seconds(cluster, control, spark_tenant):
    cluster.logs.allow("the engine failed reason=")
    broken = ", MAX_EXECUTORS 0, START_ON_DEMAND TRUE, PROPERTIES ('spark.extraListeners'='no.such.Listener')"
    tenant = spark_tenant("hopeless", broken)
    with tenant.session() as session:
        began = time.monotonic()
        refusal = refused(session, "SELECT 1 AS one")
        assert (refusal.sqlstate, time.monotonic() - began < AT_ONCE_S) == ("55000", True), refusal
    for part in (
        "container spark: exit code 1: java.lang.ClassNotFoundException: no.such.Listener",
        "correct the name of the class in PROPERTIES of the resource unit",
    ):
        assert part in refusal.message, refusal
    history = f"SHOW ENGINE HISTORY {tenant.name} UNIT {tenant.pool} {tenant.unit}"
    failed = wait_until(lambda: [it for it in control.execute(history) if it["word"] == "failed"], WITHIN_S, "it is history")
    assert {it["retryable"] for it in failed} == {False}, failed


def test_a_pod_whose_image_is_missing_ends_as_soon_as_it_is_stopped(control, pods, pod_tenant):
    """Its agent runs, and Spark's container never does."""
    places = f"{pods.nodes_of('imageless')}, IMAGE '{MISSING}'"
    tenant = pod_tenant("imageless", options=", ENGINE_TYPE 'spark', MAX_EXECUTORS 0", places=places)
    (answer,) = control.execute(f"START ENGINE {' '.join(tenant.link)}")
    shown = f'could not pull image "{MISSING}"'
    wait_until(lambda: shown in (control.engine(tenant.name, answer["engine"]) or {}).get("reason", ""), WITHIN_S, shown)
    began = time.monotonic()
    control.execute(f"STOP ENGINE {tenant.pool} '{answer['engine']}' WITHIN '10m'")
    tenant.gone(answer["engine"])
    print(f"gone after {time.monotonic() - began:.1f} s")


@only_long
def test_a_spark_that_can_never_start_is_refused_at_once_with_its_reason(cluster, control, pods, pod_tenant):
    """A Spark that exits is started again unless the cause is known to be final. An unknown version is final, too."""
    cluster.logs.allow(f'decision failed decision="create engine" .*{UNKNOWN}" is unknown')
    options = ", ENGINE_TYPE 'spark', MAX_EXECUTORS 0, START_ON_DEMAND TRUE"
    tenant = pod_tenant("unknown", options=options, places=f"{pods.nodes_of('unknown')}, IMAGE '{UNKNOWN}'")
    with tenant.session() as session:
        began = time.monotonic()
        refusal = refused(session, "SELECT 1 AS one")
        assert (refusal.sqlstate, time.monotonic() - began < AT_ONCE_S) == ("55000", True), refusal
    for part in (
        f'Resource unit "{tenant.unit}": engine "unknown-',
        f'the version of Spark in image "{UNKNOWN}" is unknown',
        "Add it to spark.versions",
    ):
        assert part in refusal.message, refusal
    history = f"SHOW ENGINE HISTORY {tenant.name} UNIT {tenant.pool} {tenant.unit}"
    (ended,) = wait_until(lambda: control.execute(history), WITHIN_S, "the request is given up, because no session asks for it")
    assert (ended["word"], ended["origin"], ended["created"]) == ("unneeded", "demand", None), ended


def test_executors_are_pods_that_come_and_go_with_their_driver(control, pods, spark_tenant):
    tenant = spark_tenant("driving", ", EXECUTOR_CPU 1, EXECUTOR_MEMORY '512M', MIN_EXECUTORS 1, MAX_EXECUTORS 1")

    def used():
        rows_of_pool = control.execute(f"DESCRIBE RESOURCE POOL {tenant.pool}")
        return next(it["value"] for it in rows_of_pool if it["property"] == "used by engines")

    name = tenant.start()
    with tenant.session() as session:
        assert rows(session, "SELECT count(DISTINCT id % 7) AS n FROM range(0, 1000, 1, 4)") == [{"n": 7}]
    running = pods.of(tenant.namespace)
    driver = running.pop(name)
    (executor,) = running.values()
    labels = executor["metadata"]["labels"]
    assert (labels["enginehouse.io/role"], labels["spark-role"]) == ("executor", "executor"), labels
    assert labels["tenant_name"] == tenant.name and labels["spark-version"] == spark.version(), labels
    (owner,) = executor["metadata"]["ownerReferences"]
    assert owner["uid"] == driver["metadata"]["uid"]
    (container,) = executor["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == "896Mi", container["resources"]
    requests = [it["resources"]["requests"] for pod in (driver, executor) for it in pod["spec"]["containers"]]
    assert sorted(it["cpu"] for it in requests) == ["1", "1", "100m"], requests
    memory = sum(int(it["memory"].removesuffix("Mi")) for it in requests)
    (charge,) = (
        it["value"] for it in control.execute(f"DESCRIBE RESOURCE UNIT {tenant.unit}") if it["property"] == "charge per engine"
    )
    assert charge == f"2.1 CPU, {memory} MiB, 1 engine with 1 executor", requests
    assert [it["engine"] for it in control.engines(tenant.name)] == [name]
    wait_until(lambda: used() == f"2.1 CPU and {memory / 1024:g}G", WITHIN_S, "the node is used by driver and executor")
    control.stop(tenant.pool, name)
    wait_until(lambda: not tenant.uids(), WITHIN_S, "driver and executor are gone")
    wait_until(lambda: used().startswith("0 CPU "), WITHIN_S, "the node is used by nothing")
