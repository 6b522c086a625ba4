"""`RUN_AS 'owner'` in pods: the tests' kubelet really runs the container with the uid that the pod asks for, and the uid of the
process is read from the kernel. It has no `subPath`, which a Spark pod needs for the name of its user."""

import psutil
import pytest

from harness.clients import pyhive_session, refused, rows
from harness.control import Control
from harness.fixtures import started
from harness.pods import PodCluster
from harness.processes import run
from harness.tier import only_long
from harness.waiting import wait_until

WITHIN_S = 60
UIDS = {"ann": 20001, "bob": 20002}
# In the users file, and without a uid.
UNKNOWN = "eve"


def login(user):
    return {"user": user, "password": f"pass of {user}"}


@pytest.fixture(scope="module")
def shared_cluster(pods, workspace):
    users_file = workspace / "users-of-pods"
    for user in ("admin", UNKNOWN, *UIDS):
        done = run(["passwd", "--file", users_file, user], text=f"{login(user)['password']}\n")
        assert done.returncode == 0, done.stderr
    access = {"authentication": ["file"], "users_file": str(users_file)}
    yield from started(PodCluster(workspace / "cluster-of-owners", pods, kubernetes={"user_ids": UIDS}, access=access))


@only_long
def test_the_process_of_an_owner_s_pod_has_the_uid_of_the_owner(cluster, pods):
    cluster.logs.allow(f'decision failed decision="create engine" .*{UNKNOWN}')
    address = cluster.addresses["proxy-b"]
    control = Control(address, password=login("admin")["password"])
    tenant, pool, unit = control.make(
        "owned",
        options=", START_ON_DEMAND TRUE, SHARED_BY 'user', RUN_AS 'owner'",
        users=", ".join(f"'{user}'" for user in (*UIDS, UNKNOWN)),
        places=pods.nodes_of("owned"),
    )
    namespace = cluster.namespace(tenant, pool)
    for user, uid in UIDS.items():
        with pyhive_session(address, **login(user)) as session:
            assert rows(session, "SELECT 40 + 2 AS answer") == [{"answer": 42}]
        (engine,) = [it["engine"] for it in control.engines(tenant) if it["owner"] == f'user "{user}"']
        process = psutil.Process(pods.kubelet.process(namespace, engine, "engine-agent").pid)
        assert set(process.uids()) == {uid} == set(process.gids()), (user, process.uids(), process.gids())
    with pyhive_session(address, **login(UNKNOWN)) as session:
        refusal = refused(session, "SELECT 1 AS one")
    assert refusal.sqlstate == "55000" and UNKNOWN in refusal.message and "user_ids" in refusal.message, refusal
    control.drop(tenant, pool, unit)
    wait_until(lambda: not pods.of(namespace), WITHIN_S, "the pods are gone")
