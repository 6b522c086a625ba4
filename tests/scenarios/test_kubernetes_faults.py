"""Pods while the API server refuses, is silent, loses or delays responses and events or is away, and while masters die: nothing
is created twice, no running engine ends, and the statements take effect."""

import contextlib

import pytest

from harness.api_relay import api_calls, watch_events
from harness.control import Control
from harness.fixtures import started
from harness.masters import Masters
from harness.pod_recorder import PodRecorder
from harness.pods import HOME, PodCluster
from harness.tier import only_long, some
from harness.waiting import wait_until

WITHIN_S = 60
CALL_DEADLINE_S = 2
THE_FIRST = 1
TROUBLE = ["watch failed", "decision failed", "still waiting", "permissions are missing"]
WATCH = api_calls("watch", resource="pods")
WATCHERS = 2
# Not those that ask for one name: the server answers these from what is true now.
LISTS = api_calls("list", resource="pods", namespace=None, name=None)


@pytest.fixture(scope="module")
def shared_cluster(pods, relay, workspace):
    it = PodCluster(
        workspace / "troubled-cluster",
        pods,
        relay.kubeconfig_of(pods.token, "master", HOME),
        {"call_deadline": f"{CALL_DEADLINE_S}s"},
        candidates=("proxy-a", "proxy-b"),
    )
    yield from started(it)


@pytest.fixture
def cluster(cluster):
    cluster.logs.allow(*TROUBLE)
    return cluster


WRONGS = {
    "refused": ("error", {"code": 500}),
    "throttled": ("throttle", {"retry_after_s": 1}),
    "cut": ("hang_up", {}),
    "unanswered": ("silence", {}),
    "done_and_refused": ("error", {"code": 504, "after": True}),
    "done_and_cut": ("hang_up", {"after": True}),
    "done_and_unanswered": ("silence", {"after": True}),
}


@pytest.mark.parametrize("wrong", some(WRONGS, "throttled", "done_and_cut"))
def test_an_engine_is_created_once_despite_failing_creates(pod_tenant, relay, wrong):
    kind, options = WRONGS[wrong]
    it = pod_tenant(f"made_{wrong}")
    with relay.fault(kind, api_calls("create", resource="pods", namespace=it.namespace), skip=THE_FIRST, **options):
        engine = it.start()
    assert list(it.uids()) == [engine]
    it.answers()


@pytest.mark.parametrize("wrong", some(WRONGS, "refused", "done_and_unanswered"))
def test_an_engine_ends_despite_failing_deletes(pod_tenant, control, relay, wrong):
    kind, options = WRONGS[wrong]
    it = pod_tenant(f"ended_{wrong}")
    engine = it.start()
    with relay.fault(kind, api_calls("delete", resource="pods", namespace=it.namespace), **options):
        control.stop(it.pool, engine, wait="2m")
        it.gone(engine)
        wait_until(lambda: control.engines(it.name) == [], WITHIN_S, "SHOW ENGINES tells of no engine", 0.2)


LIES = {
    "expire": ("expire", {"times": 2 * WATCHERS}),
    "tear": ("tear", {"times": 2 * WATCHERS}),
    "end": ("end", {"times": 2 * WATCHERS}),
    "repeat": ("repeat", {"times": None}),
    "repeat_late": ("repeat", {"times": None, "late": True}),
    "drop": ("drop", {"times": WATCHERS, "event": watch_events("ADDED")}),
}


@pytest.mark.parametrize("lie", some(LIES, "expire", "repeat_late"))
def test_wrong_watch_events_cause_no_wrong_decision(pod_tenant, control, relay, lie):
    kind, options = LIES[lie]
    it = pod_tenant(f"watched_{lie}")
    with relay.fault(kind, WATCH, **options):
        old = it.start()
        control.execute(f"ALTER RESOURCE UNIT {it.unit} DRIVER_MEMORY '600M' WAIT '2m'")
        (row,) = control.wait_ready(it.name)
        assert row["engine"] != old
        it.gone(old)
        it.answers()
        control.stop(it.pool, row["engine"], wait="2m")
        it.gone(row["engine"])
    wait_until(lambda: control.engines(it.name) == [], WITHIN_S, "SHOW ENGINES tells of no engine", 0.2)


def test_an_engine_whose_end_is_not_reported_is_replaced(pod_tenant, control, pods, relay):
    it = pod_tenant("ghost")
    first = it.start()
    with relay.fault("drop", WATCH, event=watch_events(name=first), times=None) as lost:
        pods.admin.delete("pods", first, it.namespace, grace_s=0)
        wait_until(lambda: lost.injected >= 2 * WATCHERS, WITHIN_S, "the news is lost")
        second = control.wait_another(it.name, first, within_s=2 * WITHIN_S)["engine"]
    (row,) = control.wait_ready(it.name)
    assert row["engine"] == second and list(it.uids()) == [second]
    it.answers()


def test_a_stale_list_ends_no_engine(pod_tenant, control, pods, relay):
    it = pod_tenant("outlived")
    version = relay.version()
    engine = it.start()
    before = it.uids()
    with relay.fault("stale", LISTS, times=None, version=version) as stale:
        with relay.fault("expire", WATCH, event=watch_events("MODIFIED", name=engine), times=WATCHERS) as expired:
            pods.admin.patch("pods", engine, {"metadata": {"annotations": {"seen": "yes"}}}, it.namespace)
            wait_until(
                lambda: min(expired.injected, stale.injected) >= WATCHERS, WITHIN_S, "every candidate has read an old list", 0.2
            )
        masters_tick(control)
        assert it.uids() == before
        it.answers()
    assert it.uids() == before
    (row,) = control.wait_ready(it.name)
    assert row["engine"] == engine


def masters_tick(control):
    def last():
        (row,) = control.execute("SHOW MASTER")
        return row["last_tick"]

    for _ in range(2):
        before = last()
        wait_until(lambda before=before: last() != before, WITHIN_S, "the master ticks", 0.2)


def everybody_restarts(cluster, masters, what):
    for name in ("proxy-a", "proxy-b"):
        term = masters.wait_acting()
        masters.wait_queued(2)
        was_master = masters.program_of(term) == name
        cluster.restart(name)
        if was_master:
            masters.wait_acting(term.epoch)
        masters.wait_queued(2)
        what()


def test_a_new_master_with_a_stale_list_creates_and_deletes_nothing(cluster, pod_tenant, pods, relay):
    it = pod_tenant("stale")
    version = relay.version()
    engine = it.start()
    before = it.uids()

    def stays():
        control = Control(cluster.addresses["proxy-a"])
        masters_tick(control)
        (row,) = control.wait_ready(it.name)
        assert row["engine"] == engine and it.uids() == before

    with PodRecorder(pods.admin, it.namespace) as monitor:
        with relay.fault("stale", LISTS, version=version, times=None), relay.fault("gone", WATCH, times=2):
            everybody_restarts(cluster, Masters(cluster), stays)
        assert set(monitor.names.values()) == {engine}, "no other pod was ever made"
    it.control = Control(cluster.addresses["proxy-b"])
    it.answers()


@pytest.mark.parametrize("when", some(("unheard", "done"), "done"))
def test_an_engine_of_a_dead_master_is_created_once_by_the_next(cluster, pod_tenant, relay, when):
    done = when == "done"
    masters = Masters(cluster)
    term = masters.wait_acting()
    masters.wait_queued(2)
    it = pod_tenant(f"orphaned_{when}")
    program = masters.program_of(term)
    other = next(name for name in ("proxy-a", "proxy-b") if name != program)
    control = Control(cluster.addresses[other])
    it.control = control
    creates = api_calls("create", resource="pods", namespace=it.namespace)
    try:
        with relay.fault("hold", creates, skip=THE_FIRST, after=done) as held:
            (answer,) = control.execute(f"START ENGINE {it.name} {it.pool} {it.unit}")
            wait_until(lambda: held.injected, WITHIN_S, "the master is making the engine")
            cluster.programs[program].kill()
            made = it.uids()
            assert bool(made) == done, "the pod is there if the server has made it"
            masters.wait_acting(term.epoch)
        (row,) = control.wait_ready(it.name)
        assert row["engine"] == answer["engine"] and list(it.uids()) == [row["engine"]]
        assert it.uids().items() >= made.items(), "the next master takes the pod that is there"
        it.answers()
    finally:
        cluster.start_program(program)


def test_engines_survive_an_api_server_outage_and_changes_apply_afterwards(cluster, pod_tenant, control, pods):
    it, later = pod_tenant("unshaken"), pod_tenant("patient")
    it.start()
    before = it.uids()
    server = pods.kubernetes.apiserver
    server.kill()
    try:
        it.answers()
        (answer,) = control.execute(f"START ENGINE {later.name} {later.pool} {later.unit}")
        control.wait_engine(later.name, answer["engine"], "pending", ".")
        it.answers()
    finally:
        server.start()
    (row,) = control.wait_ready(later.name, within_s=2 * WITHIN_S)
    assert row["engine"] == answer["engine"]
    assert it.uids() == before
    later.answers()


# So often at most, so that the longest back-off that they can cause is shorter than the waits below.
OFTEN = 3
ROUNDS = 12


@only_long
def test_engines_reconcile_under_random_api_errors(pod_tenant, control, relay, seed):
    """Some requests are refused, of some the answer is lost, and some events tear their watch, until each has happened."""
    it = pod_tenant("weather")
    old = it.start()
    calls = ("get", "list", "create", "patch", "delete")
    some_of = {"times": OFTEN, "share": 0.2, "seed": seed}
    with contextlib.ExitStack() as weather:
        faults = [
            weather.enter_context(fault)
            for fault in (
                relay.fault("error", api_calls(*calls, "watch"), **some_of),
                relay.fault("hang_up", api_calls(*calls), after=True, **some_of),
                relay.fault("tear", WATCH, **some_of),
            )
        ]
        for number in range(ROUNDS):
            control.execute(f"ALTER RESOURCE UNIT {it.unit} DRIVER_MEMORY '{600 + number}M' WAIT '5m'")
            (row,) = control.wait_ready(it.name, within_s=5 * WITHIN_S)
            assert row["engine"] != old
            it.gone(old)
            it.answers()
            old = row["engine"]
            if all(fault.injected == OFTEN for fault in faults):
                break
        print(f"weather over {number + 1} alterations: {', '.join(map(str, faults))}")
    control.stop(it.pool, old, wait="5m")
    it.gone(old)
