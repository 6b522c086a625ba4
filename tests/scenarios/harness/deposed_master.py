"""A master that is stopped for longer than its session lives, and the one that follows it meanwhile."""

import re

from harness.control import Control
from harness.decisions import applied_in
from harness.masters import Masters
from harness.rest import at_rest
from harness.waiting import wait_until

CANDIDATES = ("proxy-a", "proxy-b")
SESSION_TIMEOUT_S = 3
TICK_S = 1
# What a successor passes before it does anything, and after it has raised the epoch and done nothing else.
FIRST, RAISED = "master.lock.won", "master.epoch.raised"
REJECTED = re.compile(r'decision rejected.*? decision="([^"]*)" engine="([^"]*)"')
# Where a call of a deposed master is refused, it is logged: its caller may have given it up before.
REFUSED_EFFECT, REFUSED_WRITE = "effect of a deposed master refused", "write of a deposed master refused"
ROWS = (
    "SELECT tenant, pool, unit, ordinal, incarnation FROM slot ORDER BY 1, 2, 3, 4",
    "SELECT name, uid, incarnation, end_reason, ended_at_ms FROM engine ORDER BY 1",
    "SELECT id, outcome, progress, finished_at_ms FROM alteration ORDER BY 1",
)


class DeposedMaster:
    """A cluster with `CANDIDATES`, whose programs look into the folder of `points`: the master that will be stopped, its
    successor, and a tenant of that name without engines. Statements go through the other proxy, since a stopped master would
    never pass a response on."""

    def __init__(self, cluster, points, name="duel", places=""):
        self.cluster, self.points = cluster, points
        self.masters = Masters(self.cluster)
        self.masters.wait_queued(len(CANDIDATES))
        self.term = self.masters.wait_acting()
        self.master = self.masters.program_of(self.term)
        (self.other,) = set(CANDIDATES) - {self.master}
        self.control = Control(self.cluster.addresses[self.other])
        self.link = self.control.make(name, places=places)
        at_rest(self.cluster)
        self.stopped = None
        self.held_at = None
        self.hold_successor_at(FIRST)

    def end(self):
        self.points.clear()
        if self.stopped and self.stopped.is_running():
            self.stopped.resume()

    def hold_successor_at(self, point):
        if self.held_at:
            self.points.disarm(self.held_at)
        self.points.arm(point, "hold", self.cluster.programs[self.other].pid)
        self.held_at = point

    def let_successor_go(self):
        assert self.points.wait_claimed(self.held_at) == self.cluster.programs[self.other].pid
        self.points.let_go(self.held_at)

    def start_stopping_at(self, point):
        """START ENGINE, on whose way the master stops at a point; answers the engine's name."""
        self.points.arm(point, "stop")
        (started,) = self.control.execute(f"START ENGINE {' '.join(self.link)}")
        return started["engine"]

    def wait_stopped_at(self, point):
        pid = self.points.wait_stopped(point)
        assert pid == self.cluster.programs[self.master].pid, "it was the master that passed the point"
        self.stopped = self.cluster.programs[self.master]

    def stop_while_held(self, fault):
        """Stops the master while a request of its is on the way: a relay holds it back until the fault is lifted."""
        wait_until(lambda: fault.injected, 30, "a request is held back")
        self.stopped = self.cluster.programs[self.master]
        self.stopped.pause()

    def wait_followed(self, point, meanwhile=lambda: None):
        """The master stops at the point, and its successor ticks, which finds the state after `meanwhile`: it does not begin
        before."""
        self.wait_stopped_at(point)
        self.follow(meanwhile)

    def follow(self, meanwhile=lambda: None):
        meanwhile()
        assert self.masters.term().epoch == self.term.epoch, "the successor was not there yet"
        self.let_successor_go()
        successor = self.masters.wait_acting(self.term.epoch)
        assert self.masters.program_of(successor) == self.other

    def go_on(self):
        """Lets the stopped one go on, until it stands for election again; answers what it has done since."""
        before = len(self.stopped.logged())
        self.stopped.resume()
        self.masters.wait_queued(2)
        wait_until(lambda: "term ended" in self.stopped.logged()[before:], 20, "the stopped master ends its term")
        log = self.stopped.logged()[before:]
        return [it[:2] for it in applied_in(log)], REJECTED.findall(log), log

    @staticmethod
    def gives_up(done, rejected, decision, engine):
        """Fails unless a master that went on has given up its call, or was just in time to learn its outcome, because the call
        and the lease both end when the process is resumed; and has done nothing more."""
        if done:
            assert done == [(decision, engine)] and {it[1] for it in rejected} <= {engine}, (done, rejected)
        else:
            assert rejected == [(decision, engine)], rejected

    def go_on_in_vain(self):
        """The same, where nothing of what it does may have changed anything."""
        before = self.processes(), self.rows()
        answer = self.go_on()
        at_rest(self.cluster)
        assert (self.processes(), self.rows()) == before
        return answer

    def rows(self):
        return [self.cluster.database.rows(it) for it in ROWS]

    def processes(self):
        return {name: it.process for name, it in self.cluster.engines.all().items()}
