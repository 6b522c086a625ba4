"""`RUN_AS 'owner'` in pods: the tests' kubelet really runs the containers with the uid that the pod asks for, and the uid of
the process is read from the kernel."""

import psutil
import pytest

from harness import spark
from harness.clients import pyhive_session, refused, rows
from harness.control import Control
from harness.fixtures import started
from harness.pods import IMAGE, PodCluster, Pods
from harness.ports import free_port
from harness.processes import run
from harness.tier import only_long
from harness.waiting import wait_until

WITHIN_S = 120
UIDS = {"ann": 20001, "bob": 20002}
# In the users file, and without a uid.
UNKNOWN = "eve"
# The uid of engine agents beside a Spark.
AGENT = 10001


def login(user):
    return {"user": user, "password": f"pass of {user}"}


@pytest.fixture(scope="module")
def pods(workspace):
    images = {spark.IMAGE: spark.image(workspace / "image-of-owned-spark")}
    yield from started(Pods(workspace / "kubernetes-of-owners", images))


@pytest.fixture(scope="module")
def shared_cluster(pods, workspace):
    users_file = workspace / "users-of-pods"
    for user in ("admin", UNKNOWN, *UIDS):
        done = run(["passwd", "--file", users_file, user], text=f"{login(user)['password']}\n")
        assert done.returncode == 0, done.stderr
    kubernetes = {"user_ids": UIDS, "agent_image": IMAGE, "api_server": f"https://{pods.kubernetes.address}"}
    access = {"authentication": ["file"], "users_file": str(users_file)}
    folder = workspace / "cluster-of-owners"
    it = PodCluster(folder, pods, kubernetes=kubernetes, access=access, spark=spark.in_pods(free_port()))
    it.settings["proxy"] = {"bind_deadline": "50s"}
    yield from started(it)


@only_long
@pytest.mark.parametrize(
    ("tenant", "options", "place", "container"),
    [
        ("owned", "", "", "engine-agent"),
        ("owned_spark", ", ENGINE_TYPE 'spark', MAX_EXECUTORS 0", f", IMAGE '{spark.IMAGE}'", "spark"),
    ],
    ids=["datafusion", "spark"],
)
def test_the_process_of_an_owner_s_pod_has_the_uid_of_the_owner(cluster, pods, tenant, options, place, container):
    cluster.logs.allow(f'decision failed decision="create engine" .*{UNKNOWN}')
    address = cluster.addresses["proxy-b"]
    control = Control(address, password=login("admin")["password"])
    users = ", ".join(f"'{user}'" for user in (*UIDS, UNKNOWN))
    owned = f"{options}, START_ON_DEMAND TRUE, SHARED_BY 'user', RUN_AS 'owner'"
    _, pool, unit = control.make(tenant, options=owned, users=users, places=f"{pods.nodes_of(tenant)}{place}")
    namespace = cluster.namespace(tenant, pool)
    for user, uid in UIDS.items():
        with pyhive_session(address, **login(user)) as session:
            assert rows(session, "SELECT 40 + 2 AS answer") == [{"answer": 42}]
        (engine,) = [it["engine"] for it in control.engines(tenant) if it["owner"] == f'user "{user}"']
        process = psutil.Process(pods.kubelet.process(namespace, engine, container).pid)
        assert set(process.uids()) == {uid} == set(process.gids()), (user, process.uids(), process.gids())
        if container != "engine-agent":
            agent = psutil.Process(pods.kubelet.process(namespace, engine, "engine-agent").pid)
            assert set(agent.uids()) == {AGENT}, agent.uids()
    with pyhive_session(address, **login(UNKNOWN)) as session:
        refusal = refused(session, "SELECT 1 AS one")
    assert refusal.sqlstate == "55000" and UNKNOWN in refusal.message and "user_ids" in refusal.message, refusal
    control.drop(tenant, pool, unit)
    wait_until(lambda: not pods.of(namespace), WITHIN_S, "the pods are gone")
