"""Engines that are pods, while the API server refuses, is silent, loses answers or is away, and while masters die: nothing is
made twice, nothing that runs ends, and what was said is done in the end."""

import pytest

from harness.api_relay import ApiRelay, asking, telling
from harness.clients import pyhive_session, rows
from harness.control import Control
from harness.masters import Masters
from harness.pods import HOME, PodCluster, Pods
from harness.waiting import wait_until

WITHIN_S = 60
CALL_DEADLINE_S = 2
# The first create in a namespace is told that there is none yet.
THE_FIRST = 1
# What a master says of it.
TROUBLE = ["the watch is broken", "decision failed", "the master waits for long", "rights are missing"]


@pytest.fixture(scope="module")
def pods(workspace):
    it = Pods(workspace / "troubled-pods")
    try:
        yield it.start()
    finally:
        it.close()


@pytest.fixture(scope="module")
def relay(pods):
    with ApiRelay(pods.kubernetes) as it:
        yield it


@pytest.fixture(scope="module")
def installation(pods, relay, workspace):
    it = PodCluster(
        workspace / "troubled-cluster", pods, relay.kubeconfig_of(pods.token, "master", HOME),
        {"call_deadline": f"{CALL_DEADLINE_S}s"}, candidates=("proxy-a", "proxy-b"),
    )
    try:
        yield it.start()
    finally:
        it.close()


@pytest.fixture
def cluster(installation):
    installation.logs.begin()
    installation.logs.allow(*TROUBLE)
    yield installation
    installation.logs.check()


@pytest.fixture
def control(cluster):
    return Control(cluster.addresses["proxy-b"])


class Tenant:
    """A tenant with a pool and a unit of its own, and its pods."""

    def __init__(self, cluster, control, pods, name):
        self.control, self.pods = control, pods
        self.made = self.name, self.pool, self.unit = control.make(name, users=f"'{name}_user'")
        self.namespace = cluster.namespace(self.name, self.pool)
        self.user, self.address = f"{name}_user", control.address

    def start(self):
        return self.control.start(*self.made, wait="2m")

    def there(self):
        """name → uid of its pods."""
        return {name: it["metadata"]["uid"] for name, it in self.pods.of(self.namespace).items()}

    def answers(self):
        with pyhive_session(self.address, self.user) as session:
            assert rows(session, "SELECT 40 + 2 AS answer") == [{"answer": 42}]

    def end(self):
        self.control.drop(*self.made)
        wait_until(lambda: not self.there(), WITHIN_S, f"the pods of {self.name} are gone")


@pytest.fixture
def tenant(cluster, control, pods, request):
    made = []

    def make(name):
        made.append(Tenant(cluster, control, pods, name))
        return made[-1]

    yield make
    for it in made:
        it.end()


WRONGS = {
    "refused": ("error", {"code": 500}),
    "throttled": ("throttle", {"retry_after_s": 1}),
    "cut": ("hang_up", {}),
    "unanswered": ("silence", {}),
    "done_and_refused": ("error", {"code": 504, "after": True}),
    "done_and_cut": ("hang_up", {"after": True}),
    "done_and_unanswered": ("silence", {"after": True}),
}


@pytest.mark.parametrize("wrong", WRONGS)
def test_an_engine_whose_create_goes_wrong_is_made_once(tenant, relay, wrong):
    kind, told = WRONGS[wrong]
    it = tenant(f"made_{wrong}")
    with relay.fault(kind, asking("create", resource="pods", namespace=it.namespace), skip=THE_FIRST, **told):
        engine = it.start()
    assert list(it.there()) == [engine]
    it.answers()


@pytest.mark.parametrize("wrong", WRONGS)
def test_an_engine_whose_delete_goes_wrong_ends_all_the_same(tenant, control, pods, relay, wrong):
    kind, told = WRONGS[wrong]
    it = tenant(f"ended_{wrong}")
    engine = it.start()
    with relay.fault(kind, asking("delete", resource="pods", namespace=it.namespace), **told):
        control.stop(it.pool, engine, wait="2m")
        pods.gone(it.namespace, engine)
        wait_until(lambda: control.engines(it.name) == [], WITHIN_S, "SHOW ENGINES tells of no engine", 0.2)


@pytest.mark.parametrize("kind", ["expire", "tear", "end", "repeat"])
def test_a_watch_that_goes_wrong_hides_no_engine(tenant, relay, kind):
    it = tenant(f"watched_{kind}")
    told = {"late": True} if kind == "repeat" else {}
    of_pods = telling("ADDED", "MODIFIED", namespace=it.namespace)
    with relay.fault(kind, asking("watch", resource="pods"), event=of_pods, times=2, **told):
        engine = it.start()
    before = it.there()
    assert list(before) == [engine]
    it.answers()
    assert it.there() == before


def test_a_list_that_is_older_than_what_runs_ends_nothing(tenant, control, pods, relay):
    it = tenant("outlived")
    # The server keeps what was then for some minutes.
    version = relay.version()
    engine = it.start()
    before = it.there()
    with relay.fault("stale", asking("list", resource="pods", namespace=None), times=None, version=version) as stale:
        # Something happens to the pod, and instead of it the watch is told to begin anew.
        with relay.fault("expire", asking("watch", resource="pods"), event=telling("MODIFIED", name=engine)) as expired:
            pods.admin.patch("pods", engine, {"metadata": {"annotations": {"seen": "yes"}}}, it.namespace)
            wait_until(lambda: expired.injected and stale.injected, WITHIN_S, "the master has read an old list", 0.2)
        masters_tick(control)
        assert it.there() == before
        it.answers()
    assert it.there() == before
    (row,) = control.wait_ready(it.name)
    assert row["engine"] == engine


def masters_tick(control):
    """Waits until the master has looked at everything twice."""

    def last():
        (row,) = control.say("SHOW MASTER")
        return row["last_tick"]

    for _ in range(2):
        before = last()
        wait_until(lambda before=before: last() != before, WITHIN_S, "the master ticks", 0.2)


@pytest.mark.parametrize("done", [False, True], ids=["unheard", "done"])
def test_an_engine_that_a_dead_master_was_making_is_made_once_by_the_next(cluster, tenant, relay, done):
    masters = Masters(cluster)
    term = masters.wait_acting()
    masters.wait_queued(2)
    it = tenant(f"orphaned_{int(done)}")
    program = masters.program_of(term)
    other = next(name for name in ("proxy-a", "proxy-b") if name != program)
    control = Control(cluster.addresses[other])
    it.control, it.address = control, cluster.addresses[other]
    creates = asking("create", resource="pods", namespace=it.namespace)
    with relay.fault("hold", creates, skip=THE_FIRST, after=done) as held:
        (answer,) = control.say(f"START ENGINE {it.name} {it.pool} {it.unit}")
        wait_until(lambda: held.injected, WITHIN_S, "the master is making the engine")
        cluster.programs[program].kill()
        made = it.there()
        assert bool(made) == done, "the pod is there if the server has made it"
        masters.wait_acting(term.epoch)
    (row,) = control.wait_ready(it.name)
    assert row["engine"] == answer["engine"] and list(it.there()) == [row["engine"]]
    assert it.there().items() >= made.items(), "the next master takes the pod that is there"
    it.answers()
    cluster.start_program(program)


def test_engines_answer_while_the_api_server_is_away_and_what_was_said_is_done_then(cluster, tenant, control, pods):
    it, later = tenant("unshaken"), tenant("patient")
    it.start()
    before = it.there()
    server = pods.kubernetes.apiserver
    server.kill()
    try:
        it.answers()
        (answer,) = control.say(f"START ENGINE {later.name} {later.pool} {later.unit}")

        def told():
            row = control.engine(later.name, answer["engine"])
            return row if row and row["state"] == "pending" and row["reason"] else None

        wait_until(told, WITHIN_S, "SHOW ENGINES says why it waits", 0.2)
        it.answers()
    finally:
        server.start()
    (row,) = control.wait_ready(later.name, within_s=2 * WITHIN_S)
    assert row["engine"] == answer["engine"]
    assert it.there() == before
    later.answers()
