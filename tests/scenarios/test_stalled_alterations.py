"""Alterations whose engines cannot be created: released as stalled with the reason, while all other work continues."""

import ctypes
import os
import re
import time

import pytest

from harness import spark
from harness.clients import pyhive_session, rows
from harness.control import Control
from harness.failpoints import Failpoints
from harness.tier import some
from harness.waiting import stays, wait_until

# Longer than a busy machine takes for a statement that waits for nothing.
DEADLINE_S = 5
# The deadline counts in the database from the decision; then a tick must come, and SHOW be asked.
STALLED_WITHIN_S = DEADLINE_S + 28
AFTER_ALL_WITHIN_S = 120
# An engine passes it when it has answered its warm-up and has a permit.
NOT_REGISTERED = "engine_agent.register.before"
NEVER_S = DEADLINE_S + 2


class PlaceIsAFile:
    """The directory of all engines is a file: they can't even be listed."""

    settings = {}
    reason = r"the orchestrator: .*/engines: Not a directory"
    allowed = ["still waiting", "keeper cannot read the state directory"]

    def __init__(self, cluster, name):
        self.place = cluster.state_dir / "engines"
        self.aside = cluster.state_dir / "engines-aside"

    def put(self):
        self.aside.write_text("this is no directory\n")
        exchange(self.place, self.aside)

    def take_away(self):
        exchange(self.place, self.aside)


def exchange(one, other):
    here, exchange_names = -100, 2
    library = ctypes.CDLL(None, use_errno=True)
    failed = library.renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange_names)
    assert not failed, os.strerror(ctypes.get_errno())


class NameIsAFile:
    settings = {}
    reason = r"could not be created, failure \d+: .*could not read"
    allowed = ['decision failed decision="create engine"', "could not read an engine of the orchestrator"]

    def __init__(self, cluster, name):
        self.place = cluster.state_dir / "engines" / name

    def put(self):
        self.place.write_text("this is no engine\n")

    def take_away(self):
        self.place.unlink()


class LimitIsReached:
    """There are as many engines as `orchestrator.max_engines` permits."""

    settings = {"orchestrator": {"max_engines": 1}}
    reason = r"could not be created, failure \d+: .*limit of 1 engines reached.*orchestrator\.max_engines"
    allowed = ['decision failed decision="create engine"']

    def __init__(self, cluster, name):
        self.control = Control(cluster.addresses["proxy-b"])

    def put(self):
        """Nothing: the engine that serves is the one that is permitted."""

    def take_away(self):
        (engine,) = self.control.engines("serving")
        self.control.stop("serving_p", engine["engine"])


def progress_of(control, alteration):
    (row,) = [it for it in control.alterations() if it["id"] == alteration]
    return row


def wait_progress(control, alteration, progress, within_s):
    return wait_until(
        lambda: (row := progress_of(control, alteration))["progress"] == progress and row,
        within_s,
        f"alteration {alteration} is {progress}",
        0.2,
    )


@pytest.mark.parametrize("obstacle", some([PlaceIsAFile, NameIsAFile, LimitIsReached], PlaceIsAFile, LimitIsReached))
def test_an_alteration_without_its_engine_stalls_and_others_continue(own_cluster, obstacle):
    cluster = own_cluster(metadata_agent={"alter_deadline": f"{DEADLINE_S}s"}, **obstacle.settings)
    cluster.logs.allow(*obstacle.allowed)
    control = Control(cluster.addresses["proxy-b"])
    serving = control.make("serving", users="'alice'")
    served = control.start(*serving)
    tenant, _, unit = control.make("kept", users="'bob'")
    change = f"ALTER RESOURCE UNIT {unit} MIN_ENGINES 1"
    (name,) = {it["engine"] for it in control.execute(f"EXPLAIN {change}") if it["engine"]}
    process = cluster.engines.one(served).process
    in_the_way = obstacle(cluster, name)
    with pyhive_session(cluster.addresses["proxy-a"], "alice") as session:
        rows(session, "SELECT 1")
        in_the_way.put()
        (first,) = control.execute(change)
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
        assert control.execute("SELECT 1 AS one", "alice") == [{"one": 1}]
        began = time.monotonic()
        control.execute("CREATE RESOURCE UNIT meanwhile DRIVER_MEMORY '256M'")
        assert time.monotonic() - began < DEADLINE_S
        stalled = wait_progress(control, first["alteration"], "stalled", STALLED_WITHIN_S)
        assert re.search(obstacle.reason, stalled["reason"]), stalled
        assert "kept/kept_p/kept_u/0" in stalled["reason"], stalled
        shown = control.engine(tenant, name)
        assert shown["state"] == "pending" and re.search(obstacle.reason, shown["reason"]), shown
        wait_until(lambda: not cluster.nodes.exists("lock/alter"), 20, "the alter node is gone")
        (other,) = control.execute("CREATE RESOURCE UNIT another DRIVER_MEMORY '256M'")
        wait_progress(control, other["alteration"], "converged", STALLED_WITHIN_S)
        (second,) = control.execute(f"ALTER RESOURCE UNIT {unit} COMMENT 'again'")
        assert progress_of(control, first["alteration"])["progress"] == "superseded"
        again = wait_progress(control, second["alteration"], "stalled", STALLED_WITHIN_S)
        assert re.search(obstacle.reason, again["reason"]), again
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
        assert process[0] in cluster.engines.strays()
        assert cluster.logs.count("keeper cannot read the state directory") <= 1
        in_the_way.take_away()
    reached = wait_progress(control, second["alteration"], "converged", AFTER_ALL_WITHIN_S)
    assert reached["outcome"] == "committed", reached
    assert progress_of(control, first["alteration"])["progress"] == "superseded"
    (ready,) = control.wait_ready(tenant)
    assert ready["engine"] == name, "it is the engine that was promised, made once"
    if obstacle is not LimitIsReached:
        assert cluster.engines.one(served).process == process, "the engine that served was not touched"
    assert Control(cluster.addresses["proxy-a"]).execute("SELECT 1 AS one", "bob") == [{"one": 1}]
    cluster.settled(control)


def test_engines_that_never_start_stall_nothing(own_cluster, folder):
    points = Failpoints(folder / "points")
    cluster = own_cluster(
        metadata_agent={"alter_deadline": f"{DEADLINE_S}s", "drain_grace": "1s"}, spark=spark.ABSENT, env=points.env
    )
    cluster.logs.allow("the engine failed reason=")
    control = Control(cluster.addresses["proxy-b"])
    made = {}
    for tenant, options in (
        ("refuses", ", PROPERTIES ('datafusion.execution.batch_size'='many')"),
        ("no_such_type", ", ENGINE_TYPE 'spark'"),
        ("hangs", ""),
    ):
        made[tenant] = control.make(tenant, options=options)
    hanging = None
    for tenant, (_, _, unit) in made.items():
        if tenant == "hangs":
            points.arm(NOT_REGISTERED, "stop")
        (answer,) = control.execute(f"ALTER RESOURCE UNIT {unit} MIN_ENGINES 1")
        if tenant == "hangs":
            stopped = points.wait_stopped(NOT_REGISTERED)
            (hanging,) = cluster.engines.of("hangs")
            assert hanging.pid == stopped
        made[tenant] = answer["alteration"]
        wait_progress(control, answer["alteration"], "converged", STALLED_WITHIN_S)

    def as_it_should_be():
        states = {it["id"]: it["progress"] for it in control.alterations()}
        shown = [control.engines(tenant) for tenant in made]
        ready = [it for engines in shown for it in engines if it["state"] == "ready"]
        return set(states.values()) == {"converged"} and not ready

    stays(as_it_should_be, NEVER_S, "every alteration is converged, none of the three engines is ready", 0.3)
    for tenant, words in (
        ("refuses", "datafusion.execution.batch_size"),
        ("no_such_type", "spark"),
        ("hangs", "its process is in state T"),
    ):
        # One that is just being tried again has no reason yet.
        wait_until(
            lambda tenant=tenant, words=words: any(words in str(it["reason"]) for it in control.engines(tenant)),
            STALLED_WITHIN_S,
            f"SHOW ENGINES says why no engine of {tenant} is ready",
            0.2,
        )
    assert hanging.is_alive()
    other = tenant, pool, unit = control.make("other", users="'alice'", options=", MIN_ENGINES 1")
    control.wait_ready(tenant)
    control.execute(f"ALTER RESOURCE UNIT {unit} DRIVER_MEMORY '256M' WAIT '1m'")
    assert Control(cluster.addresses["proxy-a"]).execute("SELECT 1 AS one", "alice") == [{"one": 1}]
    control.drop(*other)
    control.execute("ALTER RESOURCE UNIT hangs_u MIN_ENGINES 0")
    control.execute("DROP TENANT hangs WAIT '1m'")
    wait_until(lambda: not hanging.is_alive(), 30, "the engine that hung is gone")
