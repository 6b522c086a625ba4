"""A master that is stopped between its last look at the clock and a call, for longer than its session lives.

Its successor has done everything when it goes on, and it makes that one call believing in its lock. Whoever is called
refuses it, or what it made is gone with the successor's next tick; and it makes no second one.
"""

import datetime
import re

import pytest

from harness.control import Control
from harness.decisions import applied
from harness.failpoints import Failpoints
from harness.masters import Masters
from harness.rest import at_rest
from harness.waiting import wait_until

SESSION_TIMEOUT_S = 3
TICK_S = 1
REJECTED = re.compile(r'decision rejected.*? decision="([^"]*)" engine="([^"]*)"')
ROWS = (
    "SELECT tenant, pool, unit, ordinal, incarnation FROM slot ORDER BY 1, 2, 3, 4",
    "SELECT name, uid, incarnation, end_reason, ended_at_ms FROM engine ORDER BY 1",
    "SELECT id, outcome, progress, finished_at_ms FROM alteration ORDER BY 1",
)


class Duel:
    """A cluster with two candidates: the master that will be stopped and its successor."""

    def __init__(self, own_cluster, folder):
        self.points = Failpoints(folder / "points")
        self.cluster = own_cluster(
            candidates=("proxy-a", "proxy-b"), session_timeout_s=SESSION_TIMEOUT_S, env=self.points.env,
            master={"tick_interval": f"{TICK_S}s"},
        )
        self.control = Control(self.cluster.addresses["proxy-b"])
        self.masters = Masters(self.cluster)
        self.tenant = self.control.make("duel")
        at_rest(self.cluster)
        self.masters.wait_queued(2)
        self.stopped = None

    def stop_master_at(self, point, meanwhile=lambda: None):
        """Waits until the master has stopped at an armed point, and until its successor ticks, who finds what was said
        `meanwhile`."""
        term = self.masters.wait_acting()
        name = self.masters.program_of(term)
        pid = self.points.wait_stopped(point)
        assert pid == self.cluster.programs[name].pid, "it was the master that passed the point"
        self.stopped = self.cluster.programs[name]
        meanwhile()
        assert self.masters.term().epoch == term.epoch, "the successor was not there yet"
        successor = self.masters.wait_acting(term.epoch)
        self.successor = self.cluster.programs[self.masters.program_of(successor)]
        assert self.successor is not self.stopped

    def control_of_other(self):
        """An admin at the proxy that is not stopped."""
        (name,) = {"proxy-a", "proxy-b"} - {self.stopped.name}
        return Control(self.cluster.addresses[name])

    def go_on(self):
        """Lets the stopped one go on, until it stands for election again; answers what it has done since."""
        before = len(self.stopped.said())
        self.stopped.resume()
        self.masters.wait_queued(2)
        wait_until(lambda: "term ended" in self.stopped.said()[before:], 20, "the stopped master ends its term")
        said = self.stopped.said()[before:]
        return [it[:2] for it in applied(Text(said))], REJECTED.findall(said), said

    def rows(self):
        return [self.cluster.database.rows(it) for it in ROWS]

    def processes(self):
        return {name: it.process for name, it in self.cluster.engines.all().items()}


class Text:
    """A piece of a log, for what reads logs."""

    def __init__(self, text):
        self.whole = text

    def text(self, _=""):
        return self.whole


def moments(text, part):
    """When the lines of a log that contain `part` were written."""
    return [datetime.datetime.fromisoformat(line.split(" ", 1)[0]) for line in text.splitlines() if part in line]


@pytest.fixture
def duel(own_cluster, folder):
    duel = Duel(own_cluster, folder)
    yield duel
    if duel.stopped and duel.stopped.is_running():
        duel.stopped.resume()


def test_a_create_that_comes_late_makes_no_second_process(duel):
    tenant, pool, unit = duel.tenant
    duel.points.arm("master.before.create_engine", "stop")
    (started,) = duel.control.say(f"START ENGINE {tenant} {pool} {unit}")
    duel.stop_master_at("master.before.create_engine")
    assert list(at_rest(duel.cluster)) == [started["engine"]], "the successor makes the engine under the same name"
    before = duel.processes(), duel.rows()
    done, rejected, _ = duel.go_on()
    assert (done, rejected) == ([], [("create engine", started["engine"])])
    at_rest(duel.cluster)
    assert (duel.processes(), duel.rows()) == before


def test_an_engine_that_is_made_late_never_registers_and_is_removed_by_the_next_tick(duel):
    tenant, pool, unit = duel.tenant
    duel.points.arm("master.before.create_engine", "stop")
    (started,) = duel.control.say(f"START ENGINE {tenant} {pool} {unit}")
    # Nobody wants it any more, so the successor has no reason to call the orchestrator, which knows no newer epoch.
    duel.stop_master_at(
        "master.before.create_engine",
        lambda: duel.control_of_other().say(f"STOP ENGINE {pool} '{started['engine']}' FORCE"),
    )
    assert at_rest(duel.cluster) == {}
    done, rejected, said = duel.go_on()
    # That one call took effect; before the next one it looked at the clock again and sent nothing more.
    assert (done, rejected) == ([("create engine", started["engine"])], [("record uid", started["engine"])])
    assert "too long without an answer of ZooKeeper" in said
    at_rest(duel.cluster)
    assert duel.processes() == {}
    assert "registered engine=" not in duel.cluster.logs.text(f"/{started['engine']}/")
    healing = duel.cluster.logs.text(f"/{duel.successor.name}.log")
    assert "create engine" not in {it[0] for it in applied(Text(healing)) if it[1] == started["engine"]}
    (made,) = moments(said, "engine started")
    (drained,) = moments(healing, 'decision="drain engine"')
    print(f"the engine that was made late was told to go after {(drained - made).total_seconds() * 1000:.0f} ms")
    assert (drained - made).total_seconds() <= TICK_S + 1, "the next tick"


def test_a_delete_that_comes_late_hits_nothing(duel):
    tenant, pool, unit = duel.tenant
    old = duel.control.start(tenant, pool, unit)
    at_rest(duel.cluster)
    duel.points.arm("master.before.delete_engine", "stop")
    (answer,) = duel.control.say(f"RESTART ENGINE {pool} '{old}' FORCE")
    duel.stop_master_at("master.before.delete_engine")
    (new,) = at_rest(duel.cluster)
    assert new == answer["engine"] != old
    before = duel.processes(), duel.rows()
    done, rejected, _ = duel.go_on()
    # The orchestrator refuses a lower epoch; had the successor not called it yet, the uid would be gone.
    assert done in ([], [("delete engine", old)]) and len(done) + len(rejected) == 1, (done, rejected)
    at_rest(duel.cluster)
    assert (duel.processes(), duel.rows()) == before


def test_a_write_of_the_database_that_comes_late_is_refused_by_the_epoch(duel):
    tenant, pool, unit = duel.tenant
    old = duel.control.start(tenant, pool, unit)
    at_rest(duel.cluster)
    duel.points.arm("master.before.write", "stop")
    duel.cluster.engines.one(old).kill()
    duel.stop_master_at("master.before.write")
    (new,) = at_rest(duel.cluster)
    assert new != old
    before = duel.processes(), duel.rows()
    done, rejected, said = duel.go_on()
    assert done == [] and [it[1] for it in rejected] == [old], (done, rejected)
    assert "deposed: epoch" in said
    at_rest(duel.cluster)
    assert (duel.processes(), duel.rows()) == before


def test_a_master_that_is_stopped_inside_the_directory_lock_holds_creates_up_until_it_is_killed_and_show_says_so(duel):
    tenant, pool, unit = duel.tenant
    duel.points.arm("orchestrator.ensure.admitted", "stop")
    (started,) = duel.control.say(f"START ENGINE {tenant} {pool} {unit}")
    duel.stop_master_at("orchestrator.ensure.admitted")
    control = duel.control_of_other()

    def told():
        reason = control.engine(tenant, started["engine"])["reason"]
        return reason and "another process holds the lock" in reason and reason

    print("SHOW ENGINES says:", wait_until(told, 30, "SHOW ENGINES says that the directory lock is held"))
    assert duel.processes() == {}
    # The lock goes with its process, whatever state that is in.
    duel.stopped.kill()
    duel.cluster.logs.allow("decision failed.*another process holds the lock")
    assert list(at_rest(duel.cluster)) == [started["engine"]]
