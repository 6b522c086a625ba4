"""The loop with engines that are pods, while the way between the master and the API server is bad: answers that are lost,
refusals, lists that are stale, watches that lose, repeat, tear or expire. Nothing of it may make a second pod, end an engine
that is wanted, or leave one that isn't; and each fault must have happened."""

import json
import threading

import pytest
from pyhive.exc import OperationalError
from thrift.transport.TTransport import TTransportException

from harness.api_relay import ApiRelay, asking, telling
from harness.clients import pyhive_session, rows
from harness.control import Control
from harness.pods import HOME, PodCluster, Pods
from harness.waiting import wait_until

WITHIN_S = 60
# What the master tells of it: each trouble once, and its end.
TOLD = (
    "the watch is broken", "decision failed", "injected by the tests",
)


@pytest.fixture(scope="module")
def pods(workspace):
    it = Pods(workspace / "pods-behind-relay")
    try:
        yield it.start()
    finally:
        it.close()


@pytest.fixture(scope="module")
def relay(pods):
    with ApiRelay(pods.kubernetes) as it:
        token = json.loads(pods.master.read_text())["users"][0]["user"]["token"]
        pods.master = it.kubeconfig_of(token, "master", HOME)
        yield it


@pytest.fixture(scope="module")
def installation(pods, relay, workspace):
    it = PodCluster(workspace / "pod-cluster-behind-relay", pods)
    try:
        it.start()
        yield it
    finally:
        it.close()


@pytest.fixture
def cluster(installation):
    installation.logs.begin()
    installation.logs.allow(*TOLD)
    yield installation
    installation.logs.check()


@pytest.fixture
def control(cluster):
    return Control(cluster.addresses["proxy-b"])


class Witness:
    """Writes down every pod of a namespace that ever was, from the API server itself."""

    def __init__(self, pods, namespace):
        self.names = {}
        self.watch = pods.kubernetes.client().watch("pods", namespace)
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def follow(self):
        for kind, pod in self.watch:
            if kind == "ADDED":
                self.names[pod["metadata"]["uid"]] = pod["metadata"]["name"]

    def close(self):
        self.watch.close()
        self.thread.join(WITHIN_S)


def tolerant(call):
    """The answer, or `None` while nobody listens or knows it."""
    try:
        return call()
    except (OperationalError, TTransportException):
        return None


def answers(cluster, user):
    with pyhive_session(cluster.addresses["proxy-b"], user) as session:
        return rows(session, "SELECT 40 + 2 AS answer") == [{"answer": 42}]


ON_CREATE = asking("create", resource="pods")
ON_DELETE = asking("delete", resource="pods")
REFUSALS = [
    ("error", {"times": 2}), ("error", {"times": 2, "after": True}), ("throttle", {"times": 2}),
    ("hang_up", {"times": 2}), ("hang_up", {"times": 2, "after": True}), ("silence", {"after": True}), ("silence", {}),
]


@pytest.mark.parametrize(("kind", "told"), REFUSALS)
def test_one_pod_is_made_and_ended_however_often_the_answers_are_lost(cluster, control, pods, relay, kind, told):
    name = f"lost_{kind}_{'after' if 'after' in told else 'before'}"
    tenant, pool, unit = control.make(name, users=f"'{name}_user'")
    namespace = cluster.namespace(tenant, pool)
    witness = None
    try:
        with relay.fault(kind, ON_CREATE, **told):
            engine = control.start(tenant, pool, unit, wait="2m")
        witness = Witness(pods, namespace)
        assert answers(cluster, f"{name}_user")
        assert list(pods.of(namespace)) == [engine]
        with relay.fault(kind, ON_DELETE, **told):
            control.stop(pool, engine, wait="2m")
            pods.gone(namespace, engine)
        assert control.engines(tenant) == []
        assert set(witness.names.values()) == {engine}, "no other pod was ever made"
    finally:
        if witness:
            witness.close()
    control.drop(tenant, pool, unit)


WATCH = asking("watch", resource="pods")
TROUBLES = [
    ("drop", {"event": telling("ADDED"), "times": 1}), ("repeat", {"times": None}), ("repeat", {"times": None, "late": True}),
    ("tear", {"times": 3}), ("expire", {"times": 3}), ("end", {"times": 3}),
]


@pytest.mark.parametrize(("kind", "told"), TROUBLES)
def test_a_watch_that_lies_misleads_nobody(cluster, control, pods, relay, kind, told):
    name = f"watch_{kind}_{'late' if 'late' in told else 'now'}"
    tenant, pool, unit = control.make(name, users=f"'{name}_user'")
    namespace = cluster.namespace(tenant, pool)
    with relay.fault(kind, WATCH, **told) as fault:
        old = control.start(tenant, pool, unit, wait="2m")
        control.say(f"ALTER RESOURCE UNIT {unit} DRIVER_MEMORY '600M' WAIT '2m'")
        (row,) = control.wait_ready(tenant)
        assert row["engine"] != old and answers(cluster, f"{name}_user")
        pods.gone(namespace, old)
        control.stop(pool, row["engine"], wait="2m")
        pods.gone(namespace, row["engine"])
        assert fault.injected
    assert control.engines(tenant) == []
    control.drop(tenant, pool, unit)


def test_the_news_that_a_pod_is_gone_is_lost(cluster, control, pods, relay):
    tenant, pool, unit = control.make("ghost", users="'ghost_user'")
    namespace = cluster.namespace(tenant, pool)
    first = control.start(tenant, pool, unit, wait="2m")
    with relay.fault("drop", WATCH, event=telling("DELETED", name=first)) as fault:
        pods.admin.delete("pods", first, namespace, grace_s=0)
        pods.gone(namespace, first)
        wait_until(lambda: fault.injected, WITHIN_S, "the news is lost")

    def another():
        found = [it for it in control.engines(tenant) if it["engine"] != first and it["state"] == "ready"]
        return found[0] if found else None

    row = wait_until(another, 2 * WITHIN_S, "the slot has another engine, though nobody told that the first one is gone", 0.2)
    (row,) = control.wait_ready(tenant)
    assert row["engine"] != first and answers(cluster, "ghost_user")
    control.stop(pool, row["engine"], wait="2m")
    control.drop(tenant, pool, unit)


def test_a_new_master_that_reads_a_stale_list_neither_makes_nor_ends_anything(cluster, control, pods, relay):
    tenant, pool, unit = control.make("stale", users="'stale_user'")
    namespace = cluster.namespace(tenant, pool)
    before = relay.version()
    engine = control.start(tenant, pool, unit, wait="2m")
    uid = pods.admin.get("pods", engine, namespace)["metadata"]["uid"]
    witness = Witness(pods, namespace)
    try:
        with relay.fault("stale", asking("list", resource="pods", name=None), version=before, times=None), \
                relay.fault("gone", WATCH, times=2):
            for name in ("proxy-a", "proxy-b"):
                cluster.restart(name)
                control.address = cluster.addresses[name]
                wait_until(lambda: tolerant(lambda: control.wait_ready(tenant)), WITHIN_S, "it is seen as ready")
            assert answers(cluster, "stale_user")
        assert pods.admin.get("pods", engine, namespace)["metadata"]["uid"] == uid
        assert set(witness.names.values()) == {engine}
    finally:
        witness.close()
    control.stop(pool, engine, wait="2m")
    control.drop(tenant, pool, unit)


def test_everything_fails_now_and_then(cluster, control, pods, relay, seed):
    """A tenth of the requests is refused, of a tenth the answer is lost, and a fifth of the events tears its watch."""
    tenant, pool, unit = control.make("chaos", users="'chaos_user'")
    namespace = cluster.namespace(tenant, pool)
    calls = ("get", "list", "create", "patch", "delete")
    some = {"times": None, "seed": seed}
    with relay.fault("error", asking(*calls, "watch"), share=0.1, **some) as refused, \
            relay.fault("hang_up", asking(*calls), share=0.1, after=True, **some) as lost, \
            relay.fault("tear", WATCH, share=0.2, **some) as torn:
        engine = control.start(tenant, pool, unit, wait="2m")
        control.say(f"ALTER RESOURCE UNIT {unit} DRIVER_MEMORY '600M' WAIT '2m'")
        (row,) = control.wait_ready(tenant, within_s=2 * WITHIN_S)
        assert answers(cluster, "chaos_user")
        pods.gone(namespace, engine)
        control.stop(pool, row["engine"], wait="2m")
        pods.gone(namespace, row["engine"])
        print(f"chaos: {refused}, {lost}, {torn}")
    control.drop(tenant, pool, unit)
