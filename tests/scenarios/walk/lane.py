"""One lane of the walk: an installation that is kept through many points, one after the other.

For each point: at rest → the point is armed → it is driven → the process that was hit is dead, by SIGKILL, and no
other one is → it is started again → at rest → what was said is wholly there or wholly not there. Or it is stopped for
a while, or cut off (walk/actions.py). A lane that can't be brought back to rest gets a new installation, so that one
defect is one failure.
"""

import concurrent.futures
import contextlib
import json

from harness.clients import impyla_session, open_pyhive, rows
from harness.logs import PANIC
from harness.rest import runs
from harness.waiting import wait_until

from walk import drives
from walk.actions import ACTIONS
from walk.said import NOT_NOW, Said, say

HIT_WITHIN_S = 50
LOOK_EVERY_S = 0.02
CLIENTS = 8
LEAST_MEMORY_M = 512


class Lane:
    """An installation with one tenant, and the walk over it."""

    def __init__(self, name, make_ground, action="kill"):
        self.name = name
        self.armed_with, self.act = ACTIONS[action]
        self.make_ground = make_ground
        self.ground = None
        self.count_of_names = 0
        self.user = "alice"
        self.clients = concurrent.futures.ThreadPoolExecutor(CLIENTS)

    # The walk itself.

    def walk(self, row):
        """Walks one row; answers what was hit, in words."""
        if self.ground is None:
            self.open()
        try:
            return self._walk(row)
        except BaseException:
            # Whatever state it is in, the next point begins with another one.
            with contextlib.suppress(Exception):
                self.close_ground()
            raise

    def _walk(self, row):
        self.row, self.hit_pid, self.same_engines, self.last_said = row, None, None, None
        self.ground.logs.begin()
        if row.role == "engine" or row.drive.__name__ == "crash":
            self.forget_failures()
        self.target = row.target(self.ground) if row.target else None
        drive = row.drive(self, row.via) if row.via else row.drive(self)
        next(drive)
        if row.drive not in drives.ARM_LATE:
            self.arm()
        next(drive, None)
        pid = self.wait_hit()
        role = self.ground.role_of(pid)
        assert role in row.roles, f"{role} was hit, not {' or '.join(row.roles)}"
        self.act(self, pid)
        self.ground.all_run()
        self.ground.at_rest()
        next(drive, None)
        self.ground.at_rest()
        if self.same_engines is not None and self.same_engines != self.engine_pids():
            raise AssertionError(f"engines were replaced for it: {self.same_engines} → {self.engine_pids()}")
        self.serves()
        panics = [it for it in self.ground.logs.since_begin() if PANIC.search(it[1])]
        assert not panics, panics[:10]
        self.ground.points.clear()
        return f"{role} {pid}"

    def arm(self):
        self.ground.points.arm(self.row.point, self.armed_with, self.target)

    def wait_hit(self):
        if self.hit_pid is None:
            self.hit_pid = self.wait_claimed(self.row.point)
        return self.hit_pid

    def wait_claimed(self, point):
        """Waits until somebody passes a point, and sees to it that what is to drive it there goes on being said."""
        return self.wait(lambda: self.ground.points.claimed_by(point), f"somebody passes {point}")

    def wait(self, condition, what):
        def looked():
            found = condition()
            if not found and self.last_said:
                self.last_said.nudge()
            return found

        try:
            return wait_until(looked, HIT_WITHIN_S, what, LOOK_EVERY_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; the last statement: {self.last_said}") from None

    # The installation.

    def open(self):
        self.ground = self.make_ground()
        self.tenant = self.ground.tenant
        self.pool, self.unit = f"{self.tenant}_p", f"{self.tenant}_u"
        try:
            self.ground.start()
            for statement in (
                f"CREATE RESOURCE UNIT {self.unit} DRIVER_CPU 1, DRIVER_MEMORY '512M', MIN_ENGINES 1",
                f"CREATE RESOURCE POOL {self.pool} UNIT_LIST ('{self.unit}'){self.ground.places(self.tenant)}",
                f"CREATE TENANT {self.tenant} RESOURCE_POOL_LIST ('{self.pool}'), USER_LIST ('{self.user}')",
            ):
                self.done(statement)
            self.ground.at_rest()
        except BaseException:
            with contextlib.suppress(Exception):
                self.close_ground()
            raise

    def close_ground(self):
        ground, self.ground = self.ground, None
        if ground is not None:
            ground.close()

    def close(self):
        """Ends everything; fails if a program does not end when it is told to."""
        try:
            self.close_ground()
        finally:
            self.clients.shutdown(wait=True, cancel_futures=True)

    # What drives say.

    def say(self, statement, via="any", user="admin"):
        self.last_said = Said(self.clients, self.ground, statement, via, user)
        return self.last_said

    def say_alter(self, via):
        """ALTER of the unit to a memory that it never had; answers the statement, and whether its effect is there."""
        memory = f"{self.next_memory()}M"
        said = self.say(f"ALTER RESOURCE UNIT {self.unit} DRIVER_MEMORY '{memory}'", via)
        return said, lambda: self.spec_of_unit()["driver_memory"] == memory

    def done(self, statement):
        """Says a statement that must succeed, in preparation; again if its outcome was lost on a busy machine."""
        said = self.say(statement)
        outcome = said.outcome()
        if outcome.kind == "lost" or outcome.sqlstate in NOT_NOW:
            outcome = said.again(gone=("42710", "42704"))
        assert outcome.kind == "acknowledged" or outcome.sqlstate in ("42710", "42704"), (statement, outcome)
        return outcome.rows

    def query(self, statement):
        return say(self.ground.address("any"), statement, self.user)

    def judge(self, said, there, gone=()):
        """An acknowledged statement's effect is there, a refused one's is not, a lost one can be said again."""
        outcome = said.outcome()
        if outcome.kind == "acknowledged":
            assert there(), f"acknowledged and not there: {said.statement}"
        elif outcome.kind == "refused":
            assert not there(), f"refused and there: {said.statement}: {outcome}"
        else:
            said.again(gone)
            assert there(), f"said again and not there: {said.statement}"
            self.ground.at_rest()

    def say_bare(self, statement, via):
        """Says a statement as the first of a session (PyHive says USE before); answers a future of rows or `lost`."""
        address = self.ground.address(via)

        def run():
            try:
                with impyla_session(address, self.user) as cursor:
                    cursor.execute(statement)
                    return cursor.fetchall()
            except Exception:  # noqa: BLE001: a broken connection has as many names as libraries are involved
                return "lost"

        return self.clients.submit(run)

    @contextlib.contextmanager
    def session(self):
        session = open_pyhive(self.ground.address("any"), self.user)
        try:
            yield session
        finally:
            # Its proxy may be dead.
            with contextlib.suppress(Exception):
                session.close()

    def on(self, session, statement):
        return rows(session, statement)

    # What the catalog says.

    def next_name(self, word):
        self.count_of_names += 1
        return f"{word}_{self.count_of_names}"

    def next_memory(self):
        self.count_of_names += 1
        return LEAST_MEMORY_M + self.count_of_names

    def count(self, query):
        return len(self.ground.database.rows(query))

    def spec_of_unit(self):
        ((spec,),) = self.ground.database.rows(f"SELECT spec FROM resource_unit WHERE name = '{self.unit}'")
        return json.loads(spec)

    def has_unit(self, name):
        return self.count(f"SELECT 1 FROM resource_unit WHERE name = '{name}'") == 1

    def slots(self, condition="1 = 1"):
        """The tenant's slots, each with the name of its engine."""
        found = self.ground.database.rows(
            "SELECT s.ordinal, s.incarnation, e.name FROM slot s JOIN engine e ON e.tenant = s.tenant AND e.pool = s.pool "
            f"AND e.unit = s.unit AND e.ordinal = s.ordinal AND e.incarnation = s.incarnation WHERE {condition}"
        )
        return {tuple(it) for it in found}

    def wants(self, name):
        """Whether a slot wants the engine of that name."""
        return name in {it[-1] for it in self.slots()}

    def requests(self):
        return {it for (it,) in self.ground.database.rows("SELECT id FROM request WHERE statement LIKE 'START%'")}

    def start_another(self):
        """An engine beside the tenant's own, ready; answers its name."""
        (started,) = self.done(f"START ENGINE {self.tenant} {self.pool} {self.unit} WAIT '1m'")
        self.ground.at_rest()
        return started["engine"]

    def started(self):
        """The slots that START made, each with the name of its engine, which an alteration changes."""
        return self.slots("s.origin = 'start'")

    def shown_started(self):
        """What SHOW ENGINES says of their engines; nothing if it can't be said now."""
        names = {it[-1] for it in self.started()}
        return [it for it in say(self.ground.address("any"), f"SHOW ENGINES {self.tenant}").rows or [] if it["engine"] in names]

    def stop_started(self):
        """Stops every engine that START started."""
        for *_, name in self.started():
            self.done(f"STOP ENGINE {self.pool} '{name}' FORCE")
        self.ground.at_rest()
        assert len(self.slots()) == 1, self.slots()

    def forget_failures(self):
        """A slot whose engines died one after the other waits longer each time; an alteration begins anew."""
        if any(int(it) for (it,) in self.ground.database.rows("SELECT failures FROM slot")):
            self.done(f"ALTER RESOURCE UNIT {self.unit} DRIVER_MEMORY '{self.next_memory()}M'")
            self.ground.at_rest()

    def engine_pids(self):
        return {name: it.process for name, it in self.ground.engines.all().items()}

    def expect_same_engines(self, unless=None):
        """What happens now is no reason to replace an engine; in a standalone it may be, if `unless` says so."""
        if unless != self.ground.master():
            self.same_engines = self.engine_pids()

    def serves(self):
        """A query is answered through every proxy."""
        for address in self.ground.proxies():
            outcome = say(address, "SELECT 1 AS one", self.user)
            assert outcome.rows == [{"one": 1}], f"through {address}: {outcome}"

    # Other deaths than the one at the point.

    def arm_agents_at(self, point):
        """Every metadata agent is to die at a point: the proxy goes from one to the next."""
        self.agents = [self.ground.pid_of(it) for it in self.ground.agents]
        for pid in self.agents:
            self.ground.points.arm(point, "kill", pid)

    def let_agents_die(self, proxy):
        """Waits until they are dead; then the proxy is killed, which would carry the statement to the agents that are
        then started, and all are started again."""
        for pid in self.agents:
            self.wait(lambda pid=pid: not runs(pid), f"metadata agent {pid} dies")
        self.arm()
        self.ground.programs[proxy].kill()
        for pid in [*self.agents, self.ground.programs[proxy].pid]:
            self.ground.revive(pid)

    def arm_transaction(self):
        """The agent of the next alteration is held in its transaction; answers the point. Before the statement is said,
        which would pass the point unseen."""
        held = "metadata.commit.validated" if self.ground.kind != "sqlite" else "agent.alter.node_made"
        self.ground.points.arm(held, "hold")
        return held

    def break_transaction(self, held):
        """Breaks the transaction of the alteration held at a point, and lets its agent go on when it knows."""
        points, abort = self.ground.points, "agent.alter.before_abort"
        self.wait_claimed(held)
        self.arm()
        if self.row.point != abort:
            points.arm(abort, "hold")
        mend = self.ground.database.disturb()
        try:
            points.let_go(held)
            self.wait_claimed(abort)
        finally:
            if mend:
                mend()
        if self.row.point != abort:
            points.let_go(abort)

    def fresh_installation(self):
        return self.ground.fresh(self.row.point)
