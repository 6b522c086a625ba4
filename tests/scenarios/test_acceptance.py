"""The stories that the alter protocol was made for, with processes that really die; engines are processes or pods."""

import concurrent.futures
import contextlib
import json
import signal
import uuid

import pyhive.exc
import pytest
from thrift.transport.TTransport import TTransportException

from harness.api_relay import api_calls
from harness.clients import impyla_session
from harness.control import Control
from harness.databases import MariadbDatabase
from harness.decisions import applied
from harness.pods import HOME
from harness.processes import is_alive
from harness.rest import at_rest
from harness.tier import only_long, some
from harness.waiting import stays, wait_until

EITHER = ["processes", "pods"]
STARTS = {"processes": "1m", "pods": "2m"}


class StoryInstallation:
    """The cluster of a story; it knows how to interrupt the creation of engines of its kind."""

    def __init__(self, kind, fixture):
        self.kind, self.fixture = kind, fixture

    def make(self, **settings):
        if self.kind == "processes":
            self.cluster = self.fixture("own_cluster")(**settings)
        else:
            self.pods, self.relay = self.fixture("pods"), self.fixture("relay")
            kubeconfig = self.relay.kubeconfig_of(self.pods.token, "master", HOME)
            name = f"founding-{uuid.uuid4().hex[:6]}"
            self.cluster = self.fixture("own_pod_cluster")(kubeconfig=kubeconfig, cluster={"name": name}, **settings)
        return self.cluster

    def places(self, name):
        return self.pods.nodes_of(name) if self.kind == "pods" else ""

    @contextlib.contextmanager
    def one_create(self, tenant, pool):
        """Until it ends, a master creates one engine and dies of it: no other create is begun."""
        if self.kind == "processes":
            # The state directory's lock is held there, so no other create has been admitted.
            yield "orchestrator.ensure.recorded"
            return
        creates = api_calls("create", resource="pods", namespace=self.cluster.namespace(tenant, pool))
        fault = self.relay.fault("silence", creates, skip=1, times=None)
        try:
            yield "master.after.create_engine"
        finally:
            fault.lift()


@pytest.fixture
def installation(request):
    return StoryInstallation(request.param, request.getfixturevalue)


def on(kinds):
    return pytest.mark.parametrize("installation", kinds, indirect=True)


def restart_armed(cluster, name, failpoint):
    """Starts a process again that kills itself at a failpoint."""
    cluster.programs[name].stop()
    cluster.start_program(name, wait=False, failpoints=f"{failpoint}=kill")


def wait_killed(cluster, name, within_s=40):
    program = cluster.programs[name]
    wait_until(lambda: not program.is_running(), within_s, f"{name} kills itself")
    assert program.process.returncode == -signal.SIGKILL


def engines_of(cluster, tenant):
    return {it.name: it.process for it in cluster.engines.of(tenant)}


def created_since(cluster, before):
    return [it for it in applied(cluster.logs)[before:] if it[0] == "create engine"]


@on(some(EITHER, "processes"))
def test_the_next_master_creates_only_what_is_missing(installation):
    cluster = installation.make()
    control = Control(cluster.addresses["proxy-b"])
    tenant, pool, unit = control.make("three", places=installation.places("three"))
    # A namespace is there, and an engine that has come and gone.
    control.stop(pool, control.start(tenant, pool, unit, wait=STARTS[installation.kind]))
    cluster.settled(control)
    assert engines_of(cluster, tenant) == {}
    with installation.one_create(tenant, pool) as point:
        restart_armed(cluster, "proxy-a", point)
        (answer,) = control.execute(f"ALTER RESOURCE UNIT {unit} MIN_ENGINES 3")
        wait_killed(cluster, "proxy-a")
    first = engines_of(cluster, tenant)
    assert len(first) == 1, first
    # The second one makes the two that are missing and dies when only the alter node is left to delete.
    before = len(applied(cluster.logs))
    restart_armed(cluster, "proxy-a", "master.node.before")
    wait_killed(cluster, "proxy-a")
    made = engines_of(cluster, tenant)
    assert len(made) == 3 and first.items() <= made.items(), (first, made)
    assert {it[1] for it in created_since(cluster, before)} == made.keys() - first.keys()
    assert cluster.nodes.read("lock/alter")["id"] == answer["alteration"]
    before = len(applied(cluster.logs))
    cluster.restart("proxy-a")
    assert len(control.wait_ready(tenant, 3)) == 3
    cluster.settled(control)
    assert created_since(cluster, before) == []
    assert engines_of(cluster, tenant) == made


@on(some(EITHER, "processes"))
def test_an_agent_that_dies_before_the_commit_changes_nothing(installation):
    cluster = installation.make()
    control = Control(cluster.addresses["proxy-b"])
    tenant, pool, unit = control.make("between", places=installation.places("between"))
    name = control.start(tenant, pool, unit, wait=STARTS[installation.kind])
    engine = cluster.engines.one(name).process
    cluster.settled(control)
    cluster.logs.allow("no metadata agent responds; using the last catalog", "still waiting")
    for agent in ("agent-1", "agent-2"):
        restart_armed(cluster, agent, "agent.alter.node_made")
    wait_until(lambda: len(cluster.nodes.children("agents")) == 2, 20, "both agents are registered")
    before = cluster.database.rows("SELECT * FROM resource_unit")
    with pytest.raises(pyhive.exc.Error) as error:
        control.execute(f"ALTER RESOURCE UNIT {unit} DRIVER_MEMORY '1G'")
    for agent in ("agent-1", "agent-2"):
        wait_killed(cluster, agent)
    node = cluster.nodes.read("lock/alter")
    assert node and unit in json.dumps(node), (node, error)
    assert cluster.database.rows("SELECT * FROM resource_unit") == before
    cluster.restart("agent-1")
    wait_until(lambda: not cluster.nodes.exists("lock/alter"), 40, "the node goes")
    (row,) = [it for it in control.alterations() if it["id"] == node["id"]]
    assert row["outcome"] == "aborted", row
    assert cluster.database.rows("SELECT * FROM resource_unit") == before
    assert cluster.engines.one(name).process == engine
    control.execute(f"ALTER RESOURCE UNIT {unit} DRIVER_MEMORY '1G' WAIT '1m'")
    (ready,) = control.wait_ready(tenant)
    assert ready["config"].startswith("1_1G")


@on(some(EITHER, "processes"))
def test_concurrent_alterations_are_serialized_and_both_take_effect(installation):
    cluster = installation.make(metadata_agent={"alter_wait": "40s"})
    control = Control(cluster.addresses["proxy-b"])
    tenant, pool, unit = control.make("twice", places=installation.places("twice"))
    control.start(tenant, pool, unit, wait=STARTS[installation.kind])
    cluster.settled(control)
    master = cluster.programs["proxy-a"]
    master.pause()
    try:
        (first,) = control.execute(f"ALTER RESOURCE UNIT {unit} DRIVER_MEMORY '1G'")
        with concurrent.futures.ThreadPoolExecutor(1) as other:
            pending = other.submit(control.execute, f"ALTER RESOURCE UNIT {unit} DRIVER_CPU 2")
            stays(
                lambda: not pending.done() and cluster.nodes.children("lock/alter") == [first["alteration"]],
                1,
                "the second change waits, and the node is the first one's",
            )
            master.resume()
            (second,) = pending.result(timeout=60)
    finally:
        master.resume()
    (engine,) = control.wait_ready(tenant)
    assert engine["config"].startswith("2_1G"), engine
    at_rest(cluster)
    states = {it["id"]: (it["outcome"], it["progress"]) for it in control.alterations()}
    assert states[second["alteration"]] == ("committed", "converged"), states
    outcome, progress = states[first["alteration"]]
    assert outcome == "committed", states
    ended, decided, last = (
        int(cluster.database.rows(f"SELECT {column} FROM alteration WHERE id = '{it['alteration']}'")[0][0])
        for column, it in (("finished_at_ms", first), ("decided_at_ms", second), ("finished_at_ms", second))
    )
    # A master may end the first one while the transaction of the second is open, which has read its time before.
    assert (progress, ended == decided) == ("superseded", True) or (progress == "converged" and ended <= last), states


@on(some(EITHER, "processes"))
def test_the_only_proxy_dies_and_comes_back_as_master(installation):
    cluster = installation.make()
    cluster.programs["proxy-b"].stop()
    control = Control(cluster.addresses["proxy-a"])
    tenant, _, unit = control.make("alone", places=installation.places("alone"))
    control.execute(f"ALTER RESOURCE UNIT {unit} MIN_ENGINES 1 WAIT '2m'")
    (kept,) = cluster.engines.of(tenant)
    kept = (kept.name, kept.process)
    cluster.settled(control)
    restart_armed(cluster, "proxy-a", "master.after.create_engine")
    cluster.wait_ready("proxy-a")
    with contextlib.suppress(pyhive.exc.Error, TTransportException, OSError):
        Control(cluster.addresses["proxy-a"]).execute(f"ALTER RESOURCE UNIT {unit} MIN_ENGINES 3")
    wait_killed(cluster, "proxy-a")
    assert cluster.nodes.exists("lock/alter"), "the change stands without a master"
    left = {it.name: it.process for it in cluster.engines.of(tenant)}
    assert left[kept[0]] == kept[1], "engines need no proxy to live"
    cluster.restart("proxy-a")
    Control(cluster.addresses["proxy-a"]).wait_ready(tenant, 3)
    at_rest(cluster)
    assert left.items() <= {it.name: it.process for it in cluster.engines.of(tenant)}.items()


def test_changing_pools_keeps_engines_of_the_remaining_pool(cluster):
    a_tenant_changes_its_pools(cluster)


@on(["pods"])
def test_changing_pools_keeps_pods_of_the_remaining_pool(installation):
    cluster = installation.make()
    a_tenant_changes_its_pools(cluster, {it: installation.places(it) for it in ("rp_1", "rp_2", "rp_3")})


@only_long
def test_changing_pools_keeps_engines_on_mariadb(own_cluster):
    cluster = own_cluster(database=MariadbDatabase())
    a_tenant_changes_its_pools(cluster)
    control = Control(cluster.addresses["proxy-a"])
    made = control.make("asked", users="'alice'")
    control.start(*made)
    for address in (cluster.addresses["proxy-a"], cluster.addresses["proxy-b"]):
        summed = Control(address).execute("SELECT sum(value) AS s FROM generate_series(1, 100)", "alice")
        assert summed == [{"s": 5050}]
        with impyla_session(address, "alice") as cursor:
            cursor.execute("SELECT 'ünïcödé' AS text")
            assert cursor.fetchall() == [("ünïcödé",)]
    control.drop(*made)
    at_rest(cluster)


def a_tenant_changes_its_pools(cluster, places=None):
    control = Control(cluster.addresses["proxy-b"])
    for unit in ("uc_1", "uc_2", "uc_3", "uc_4"):
        control.execute(f"CREATE RESOURCE UNIT {unit} DRIVER_CPU 1, DRIVER_MEMORY '256M', MIN_ENGINES 1")
    for pool, units in (("rp_1", "'uc_1', 'uc_2'"), ("rp_2", "'uc_3'"), ("rp_3", "'uc_4'")):
        nodes = (places or {}).get(pool)
        control.execute(f"CREATE RESOURCE POOL {pool} UNIT_LIST ({units}){(nodes and f', {nodes}') or ''}")
    control.execute("CREATE TENANT t_1 RESOURCE_POOL_LIST ('rp_1', 'rp_2') WAIT '2m'")
    control.wait_ready("t_1", 3)
    before = by_unit(cluster)
    assert sorted(before) == ["uc_1", "uc_2", "uc_3"]
    started = {it["unit"]: it["started_at"] for it in control.engines("t_1")}
    (answer,) = control.execute("ALTER TENANT t_1 RESOURCE_POOL_LIST ('rp_1', 'rp_3') WAIT '2m'")
    after_rows = control.wait_ready("t_1", 3)
    after = by_unit(cluster)
    assert sorted(after) == ["uc_1", "uc_2", "uc_4"]
    assert (after["uc_1"], after["uc_2"]) == (before["uc_1"], before["uc_2"]), "pids and start times, or uids, stay"
    now = {it["unit"]: it["started_at"] for it in after_rows}
    assert (now["uc_1"], now["uc_2"]) == (started["uc_1"], started["uc_2"])
    if not places:
        assert not is_alive(*before["uc_3"][1])
    (row,) = [it for it in control.alterations() if it["id"] == answer["alteration"]]
    assert row["progress"] == "converged", json.dumps(row)
    control.execute("DROP TENANT t_1 WAIT '1m'")
    for pool in ("rp_1", "rp_2", "rp_3"):
        control.execute(f"DROP RESOURCE POOL {pool}")
    for unit in ("uc_1", "uc_2", "uc_3", "uc_4"):
        control.execute(f"DROP RESOURCE UNIT {unit}")


def by_unit(cluster):
    return {it.labels["unit_name"]: (it.name, it.process) for it in cluster.engines.of("t_1")}
