"""A worker of the failpoint matrix: it keeps one installation through many points, one after the other.

For each point: at rest → the point is armed → it is triggered → the process that was hit was ended by SIGKILL, and no other
one was → it is started again → at rest → the statement took effect as a whole or not at all. Other actions stop the process for
a while or cut it off (failpoint_matrix/actions.py). After a failure the worker makes a new installation, so that one defect is
one failure.
"""

import concurrent.futures
import contextlib
import functools
import json

from failpoint_matrix import triggers
from failpoint_matrix.actions import ACTIONS
from failpoint_matrix.statements import NOT_NOW, Call, Statement, execute
from harness.clients import impyla_session, pyhive_session
from harness.evidence import keep
from harness.ledger import TENANT, Ledger
from harness.logs import PANIC
from harness.processes import is_alive
from harness.reservations import Holder
from harness.waiting import wait_until

HIT_WITHIN_S = 50
LOOK_EVERY_S = 0.02
CLIENTS = 8
LEAST_MEMORY_M = 512
# Of a request for a reservation that is in the queue.
WAITING = 202


class Worker:
    def __init__(self, name, make_installation, action="kill"):
        self.name = name
        self.armed_with, self.act = ACTIONS[action]
        self.make_installation = make_installation
        self.installation = None
        self.count_of_names = 0
        self.user = "alice"
        self.clients = concurrent.futures.ThreadPoolExecutor(CLIENTS)

    def run(self, row):
        if self.installation is None:
            self.open()
        try:
            return self._run(row)
        except BaseException:
            # Whatever state it is in, the next point begins with another one.
            keep(self.installation.folder, f"{self.name} {row.name}")
            with contextlib.suppress(Exception):
                self.close_installation()
            raise

    def _run(self, row):
        self.row, self.hit_pid, self.same_engines, self.last_statement = row, None, None, None
        self.installation.logs.begin()
        if row.role == "engine" or row.trigger.__name__ == "crash":
            self.forget_failures()
        self.target = row.target(self.installation) if row.target else None
        trigger = row.trigger(self, row.via) if row.via else row.trigger(self)
        next(trigger)
        if row.trigger not in triggers.ARM_LATE:
            self.arm()
        next(trigger, None)
        pid = self.wait_hit()
        role = self.installation.role_of(pid)
        assert role in row.roles, f"{role} was hit, not {' or '.join(row.roles)}"
        self.act(self, pid)
        self.installation.all_run()
        self.installation.at_rest()
        next(trigger, None)
        self.installation.at_rest()
        if self.same_engines is not None and self.same_engines != self.engine_pids():
            raise AssertionError(f"engines were replaced for it: {self.same_engines} → {self.engine_pids()}")
        self.serves()
        panics = [it for it in self.installation.logs.since_begin() if PANIC.search(it[1])]
        assert not panics, panics[:10]
        self.installation.points.clear()
        return f"{role} {pid}"

    def arm(self):
        self.installation.points.arm(self.row.point, self.armed_with, self.target)

    def wait_hit(self):
        if self.hit_pid is None:
            self.hit_pid = self.wait_claimed(self.row.point)
        return self.hit_pid

    def wait_claimed(self, point):
        return self.wait(lambda: self.installation.points.claimed_by(point), f"a process passes {point}")

    def wait(self, condition, what):
        def looked():
            found = condition()
            if not found and self.last_statement:
                self.last_statement.nudge()
            return found

        try:
            return wait_until(looked, HIT_WITHIN_S, what, LOOK_EVERY_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; the last statement: {self.last_statement}") from None

    # The installation.

    def open(self):
        self.installation = self.make_installation()
        self.tenant = self.installation.tenant
        self.pool, self.unit = f"{self.tenant}_p", f"{self.tenant}_u"
        try:
            self.installation.start()
            for statement in (
                f"CREATE RESOURCE UNIT {self.unit} DRIVER_CPU 1, DRIVER_MEMORY '512M', MIN_ENGINES 1",
                f"CREATE RESOURCE POOL {self.pool} UNIT_LIST ('{self.unit}'){self.installation.places(self.tenant)}",
                f"CREATE TENANT {self.tenant} RESOURCE_POOL_LIST ('{self.pool}'), USER_LIST ('{self.user}')",
            ):
                self.done(statement)
            self.installation.at_rest()
        except BaseException:
            with contextlib.suppress(Exception):
                self.close_installation()
            raise

    def close_installation(self):
        installation, self.installation = self.installation, None
        if installation is not None:
            installation.close()

    def close(self):
        try:
            self.close_installation()
        finally:
            self.clients.shutdown(wait=True, cancel_futures=True)

    def execute(self, statement, via="any", user="admin", **settings):
        self.last_statement = Statement(self.clients, self.installation, statement, via, user, settings)
        return self.last_statement

    def execute_alter(self, via):
        """ALTER of the unit to a memory that it never had; answers the statement, and whether its effect is there."""
        memory = f"{self.next_memory()}M"
        statement = self.execute(f"ALTER RESOURCE UNIT {self.unit} DRIVER_MEMORY '{memory}'", via)
        return statement, lambda: self.spec_of_unit()["driver_memory"] == memory

    def done(self, statement, user="admin"):
        statement = self.execute(statement, user=user)
        outcome = statement.outcome()
        if outcome.kind == "lost" or outcome.sqlstate in NOT_NOW:
            outcome = statement.again(gone=("42710", "42704"))
        assert outcome.kind == "acknowledged" or outcome.sqlstate in ("42710", "42704"), (statement, outcome)
        return outcome.rows

    def make_elastic(self, idle_timeout):
        """Another tenant, with a pool and a unit that starts engines on demand; no engine."""
        tenant = f"{self.tenant}_{self.next_name('elastic')}"
        on_demand = f"START_ON_DEMAND TRUE, IDLE_TIMEOUT {idle_timeout}"
        self.done(f"CREATE RESOURCE UNIT {tenant}_u DRIVER_CPU 1, DRIVER_MEMORY '512M', {on_demand}")
        places = self.installation.places(f"{tenant}_p")
        self.done(f"CREATE RESOURCE POOL {tenant}_p UNIT_LIST ('{tenant}_u'){places}")
        self.done(f"CREATE TENANT {tenant} RESOURCE_POOL_LIST ('{tenant}_p'), USER_LIST ('{tenant}_user')")
        return tenant

    def drop_elastic(self, tenant):
        for statement in (f"TENANT {tenant}", f"RESOURCE POOL {tenant}_p", f"RESOURCE UNIT {tenant}_u"):
            self.done(f"DROP {statement}")

    def ever(self, tenant):
        """The names of all engines that the tenant ever had."""
        return {it for (it,) in self.installation.database.rows(f"SELECT name FROM engine WHERE tenant = '{tenant}'")}

    def call(self, make):
        self.last_statement = Call(self.clients, make)
        return self.last_statement

    def reserve(self, key, via="any"):
        """A program that is no engine reserves 1 CPU."""

        def make():
            holder = Holder(self.installation.address(via), self.user)
            return functools.partial(holder.request, self.tenant, self.pool, {"type": "Cpu", "cpu": 1}, key, wait="30s")

        return self.call(make)

    def reserved(self, key):
        """The reservation of a key, which is repeated until it is granted."""
        found = []

        def is_granted():
            call = self.reserve(key)
            found[:] = call.result()
            return not call.is_undecided() and found[0] != WAITING

        wait_until(is_granted, HIT_WITHIN_S, f"the reservation of {key} is granted", LOOK_EVERY_S)
        status, reservation = found
        assert status == 201, found
        return reservation

    def register(self, pool, key, via="any"):
        """A program registers 1 CPU as the capacity of a pool."""

        def make():
            provider = Holder(self.installation.address(via), "admin")
            return functools.partial(provider.register, pool, {"type": "Cpu", "cpu": 1}, key)

        return self.call(make)

    def registered(self, pool, key):
        """The registration of a key, which is repeated until there is an answer."""
        found = []

        def is_answered():
            call = self.register(pool, key)
            found[:] = call.result()
            return not call.is_undecided()

        wait_until(is_answered, HIT_WITHIN_S, f"the capacity of {pool} is registered", LOOK_EVERY_S)
        status, registration = found
        assert status == 200, found
        return registration

    def release(self, reservation):
        status, found = Holder(self.installation.address("any"), self.user).act(reservation["id"], "release", self.pool)
        assert (status, found["state"]) == (200, "released"), (status, found)

    def ledger(self):
        return Ledger(self.installation.database)

    def holds(self, tenant, pool):
        """Whether the tenant is charged for an engine of the pool that has registered."""
        return any(it.state == "used" for it in self.ledger().charged() if (it.tenant, it.pool) == (tenant, pool))

    def query(self, statement):
        return execute(self.installation.address("any"), statement, self.user)

    def judge(self, statement, there, gone=()):
        """The effect of an acknowledged statement is there, that of a refused one is not; a lost one can be repeated."""
        outcome = statement.outcome()
        if outcome.kind == "acknowledged":
            assert there(), f"acknowledged and not there: {statement.statement}: {outcome}"
        elif outcome.kind == "refused":
            assert not there(), f"refused and there: {statement.statement}: {outcome}"
        else:
            again = statement.again(gone)
            assert there(), f"repeated and without effect: {statement.statement}: {outcome}, then {again}"
            self.installation.at_rest()

    def execute_bare(self, statement, via):
        address = self.installation.address(via)

        def run():
            try:
                with impyla_session(address, self.user) as cursor:
                    cursor.execute(statement)
                    return cursor.fetchall()
            except Exception:
                return "lost"

        return self.clients.submit(run)

    def session(self):
        return pyhive_session(self.installation.address("any"), self.user)

    def next_name(self, word):
        self.count_of_names += 1
        return f"{word}_{self.count_of_names}"

    def next_memory(self):
        self.count_of_names += 1
        return LEAST_MEMORY_M + self.count_of_names

    def count(self, query):
        return len(self.installation.database.rows(query))

    def spec_of_unit(self):
        ((spec,),) = self.installation.database.rows(f"SELECT spec FROM resource_unit WHERE name = '{self.unit}'")
        return json.loads(spec)

    def has_unit(self, name):
        return self.count(f"SELECT 1 FROM resource_unit WHERE name = '{name}'") == 1

    def is_limited(self, quota, engines):
        """Whether there is this quota of the tenant. Only then it is what limits the tenant."""
        scope = f"kind = {TENANT} AND name = '{self.tenant}/{self.pool}'"
        has_limit = self.count(f"SELECT 1 FROM quota_scope WHERE {scope} AND limit_engines = {engines}") == 1
        has_quota = self.count(f"SELECT 1 FROM resource_quota WHERE name = '{quota}'") == 1
        assert has_limit == has_quota, (quota, has_limit, has_quota)
        return has_quota

    def slots(self, condition="1 = 1"):
        found = self.installation.database.rows(
            "SELECT s.ordinal, s.incarnation, e.name FROM slot s JOIN engine e ON e.tenant = s.tenant AND e.pool = s.pool "
            f"AND e.unit = s.unit AND e.ordinal = s.ordinal AND e.incarnation = s.incarnation WHERE {condition}"
        )
        return {tuple(it) for it in found}

    def wants(self, name):
        return name in {it[-1] for it in self.slots()}

    def requests(self):
        return {it for (it,) in self.installation.database.rows("SELECT id FROM request WHERE statement LIKE 'START%'")}

    def start_another(self):
        """An engine beside the tenant's own, ready; answers its name."""
        (started,) = self.done(f"START ENGINE {self.tenant} {self.pool} {self.unit} WAIT '1m'")
        self.installation.at_rest()
        return started["engine"]

    def started(self):
        """The slots that START made, each with the name of its engine, which an alteration changes."""
        return self.slots("s.origin = 'start'")

    def shown_started(self):
        names = {it[-1] for it in self.started()}
        shown = execute(self.installation.address("any"), f"SHOW ENGINES {self.tenant}").rows or []
        return [it for it in shown if it["engine"] in names]

    def stop_started(self):
        for *_, name in self.started():
            self.done(f"STOP ENGINE {self.pool} '{name}' FORCE")
        self.installation.at_rest()
        assert len(self.slots()) == 1, self.slots()

    def forget_failures(self):
        """The back-off of a slot with failed engines is long; an alteration resets it."""
        if any(int(it) for (it,) in self.installation.database.rows("SELECT failures FROM slot")):
            self.done(f"ALTER RESOURCE UNIT {self.unit} DRIVER_MEMORY '{self.next_memory()}M'")
            self.installation.at_rest()

    def engine_pids(self):
        return {name: it.process for name, it in self.installation.engines.all().items()}

    def expect_same_engines(self, unless=None):
        if unless != self.installation.master():
            self.same_engines = self.engine_pids()

    def serves(self):
        for address in self.installation.proxies():
            outcome = execute(address, "SELECT 1 AS one", self.user)
            assert outcome.rows == [{"one": 1}], f"through {address}: {outcome}"

    # Other deaths than the one at the point.

    def arm_agents_at(self, point):
        """Every metadata agent is to die at a point: the proxy goes from one to the next."""
        self.agents = [self.installation.pid_of(it) for it in self.installation.agents]
        for pid in self.agents:
            self.installation.points.arm(point, "kill", pid)

    def let_agents_die(self, proxy):
        """Waits until they are dead; then the proxy is killed, which would carry the statement to the agents that are
        then started, and all are started again."""
        for pid in self.agents:
            self.wait(lambda pid=pid: not is_alive(pid), f"metadata agent {pid} dies")
        self.arm()
        self.installation.programs[proxy].kill()
        for pid in [*self.agents, self.installation.programs[proxy].pid]:
            self.installation.revive(pid)

    def arm_transaction(self):
        """Holds the agent of the next alteration in its transaction; before the statement is sent, which would pass the
        point."""
        held = "metadata.commit.validated" if self.installation.kind != "sqlite" else "agent.alter.node_made"
        self.installation.points.arm(held, "hold")
        return held

    def break_transaction(self, held):
        """Breaks the transaction of the alteration held at a point, and lets its agent go on when it knows."""
        points, abort = self.installation.points, "agent.alter.before_abort"
        self.wait_claimed(held)
        self.arm()
        if self.row.point != abort:
            points.arm(abort, "hold")
        mend = self.installation.database.disturb()
        try:
            points.let_go(held)
            self.wait_claimed(abort)
        finally:
            if mend:
                mend()
        if self.row.point != abort:
            points.let_go(abort)

    def fresh_installation(self):
        return self.installation.fresh(self.row.point)
