"""An installation whose units start engines on demand, statements that run in the background, and what is there of both: the
rows of the database and the processes, read without SHOW."""

import contextlib

import psutil
from TCLIService.ttypes import TOperationState

from harness.clients import impyla_session, open_pyhive, rows
from harness.control import Control
from harness.java import beeline_ok
from harness.rest import at_rest
from harness.waiting import wait_until

WITHIN_S = 60
# The start of any engine included.
FIRST_QUERY_WITHIN_S = 180
# The log filter for `Elastic.declined`.
LOG = {"ENGINEHOUSE_LOG": "info,master::execute=debug,sqlx=error,zookeeper_client=error"}
FINISHED = TOperationState.FINISHED_STATE
ENDED = {FINISHED, TOperationState.ERROR_STATE, TOperationState.CANCELED_STATE}


class Statement:
    """A statement that runs in the background, with what its operation log has said so far."""

    def __init__(self, session, statement):
        self.cursor, self.log, self.state = session.cursor(), [], None
        self.cursor.execute(statement, async_=True)

    def look(self):
        """Its state; a statement that waits is tried again by the poll of its client."""
        self.state = self.cursor.poll().operationState
        self.log += self.cursor.fetch_logs()
        return self.state

    def wait_logged(self, *texts):
        """Waits until the operation log has a line with all of the texts."""

        def logged():
            state = self.look()
            found = any(all(text in it for text in texts) for it in self.log)
            assert found or state not in ENDED, (state, self.log)
            return found

        try:
            wait_until(logged, WITHIN_S, f"the operation log says: {' … '.join(texts)}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.log}") from None

    def result(self, within_s=WITHIN_S):
        wait_until(lambda: self.look() in ENDED, within_s, "the statement has ended")
        assert self.state == FINISHED, (self.state, self.log)
        return self.cursor.fetchall()

    def close(self):
        self.cursor.close()


def of_beeline(address, user, expression):
    done = beeline_ok(address, f"SELECT {expression} AS answer", user=user)
    # BeeLine prints the operation log to its standard error as it fetches it.
    return int(done.lines()[-1]), done.err


def of_pyhive(address, user, expression):
    with contextlib.closing(open_pyhive(address, user)) as session:
        statement = Statement(session, f"SELECT {expression} AS answer")
        ((answer,),) = statement.result(FIRST_QUERY_WITHIN_S)
        return answer, "\n".join(statement.log)


def of_impyla(address, user, expression):
    with impyla_session(address, user) as cursor:
        cursor.execute_async(f"SELECT {expression} AS answer")
        log = []

        def ended():
            log.append(cursor.get_log())
            return not cursor.is_executing()

        wait_until(ended, FIRST_QUERY_WITHIN_S, "the statement has ended")
        ((answer,),) = cursor.fetchall()
        return answer, "\n".join(log)


# By client: what it answers to a query of one number in a session of its own, and what it read in the operation log.
CLIENTS = {"beeline": of_beeline, "pyhive": of_pyhive, "impyla": of_impyla}


class Elastic:
    """An installation whose units start engines on demand; `places` has the folder in which failpoints are armed."""

    def __init__(self, installation, points, address, database, nodes=None):
        self.installation, self.points, self.address, self.database = installation, points, address, database
        self.engines, self.nodes = installation.engines, nodes
        self.control = Control(address)
        self.execute = self.control.execute
        self.made = []

    def make(self, tenant, options="", pool=""):
        """A tenant with a pool and a unit of its own, and `<tenant>_user`; no engine."""
        self.execute(f"CREATE RESOURCE UNIT {tenant}_u {unit_options(options)}")
        self.execute(f"CREATE RESOURCE POOL {tenant}_p UNIT_LIST ('{tenant}_u'){pool and f', {pool}'}")
        self.execute(f"CREATE TENANT {tenant} RESOURCE_POOL_LIST ('{tenant}_p'), USER_LIST ('{tenant}_user')")
        self.made.append((tenant, f"{tenant}_p", f"{tenant}_u"))
        assert self.control.engines(tenant) == []
        return tenant

    @staticmethod
    def first_log(tenant, owner=""):
        """The first line of a statement that waits for an engine of the tenant's only unit."""
        whose = owner and f" of {owner}"
        return f'waiting for an engine{whose} to be started in resource pool "{tenant}_p" from resource unit "{tenant}_u"'

    def open(self, tenant, address=None, **settings):
        return open_pyhive(address or self.address, f"{tenant}_user", **settings)

    def session(self, tenant, **settings):
        return contextlib.closing(self.open(tenant, **settings))

    def waiting(self, tenant):
        """The sessions that wait, as proxies have recorded them."""
        query = f"SELECT waiting FROM demand WHERE tenant = '{tenant}' AND digest <> ''"
        return sum(int(it) for (it,) in self.database.rows(query))

    def wait_none_waits(self, tenant):
        """Waits until no demand is recorded: a session is served before that, if agents are slow."""
        wait_until(lambda: self.waiting(tenant) == 0, WITHIN_S, f"no session of {tenant} is recorded as waiting")

    def wanted(self, tenant):
        """The slots: {unit: [origin, …]}."""
        found = {}
        for unit, origin in self.database.rows(f"SELECT unit, origin FROM slot WHERE tenant = '{tenant}' ORDER BY origin"):
            found.setdefault(unit, []).append(origin)
        return found

    def ever(self, tenant):
        """The names of all engines that the tenant ever had."""
        return {it for (it,) in self.database.rows(f"SELECT name FROM engine WHERE tenant = '{tenant}'")}

    def running(self, tenant, unit=None):
        running = {}
        for it in self.engines.of(tenant, unit):
            # One that ends meanwhile runs no longer.
            with contextlib.suppress(psutil.NoSuchProcess):
                running[it.name] = it.process
        return running

    def assert_failed_for_good(self, tenant, why):
        """The tenant's engines have failed before they served, for a reason that a repetition does not remove."""
        failed = self.execute(f"SHOW ENGINE HISTORY {tenant} UNIT {tenant}_p {tenant}_u")
        assert failed, "the failed start is listed"
        for it in failed:
            assert (it["word"], it["retryable"], it["registered"]) == ("failed", False, None), it
            assert why in it["reason"], it

    def wait_released(self, tenant):
        """Waits until the tenant has no engine, and the process is gone too; its ends are recorded as those of idle engines."""
        wait_until(lambda: not self.control.engines(tenant) and not self.running(tenant), WITHIN_S, f"{tenant} has no engine")
        query = f"SELECT end_reason FROM engine WHERE tenant = '{tenant}'"
        reasons = wait_until(
            lambda: (found := [it for (it,) in self.database.rows(query)]) and None not in found and found,
            WITHIN_S,
            f"the ends of the engines of {tenant} are recorded",
        )
        assert all("idle for" in it for it in reasons), reasons

    def declined(self, tenant):
        """How often a master has logged that no engine of the tenant agreed to be released; needs `LOG`."""
        return self.installation.logs.count(rf'decision declined .*slot="{tenant}/')

    def another_is_released(self):
        """One more engine is started, idle and released: what was due earlier has happened meanwhile."""
        if not any("clock" in it for it in self.made):
            self.make("clock")
        with self.session("clock") as session:
            rows(session, "SELECT 1 AS one")
        self.wait_released("clock")

    def at_rest(self):
        return at_rest(self, registry=self.nodes is not None)

    def drop_all(self):
        while self.made:
            self.control.drop(*self.made.pop())


def unit_options(options=""):
    """Of a small unit that starts engines on demand, unless the options say otherwise."""
    on_demand = "" if "START_ON_DEMAND" in options else ", START_ON_DEMAND TRUE"
    idle = "" if "IDLE_TIMEOUT" in options else ", IDLE_TIMEOUT '1s'"
    return f"DRIVER_CPU 1, DRIVER_MEMORY '512M'{idle}{on_demand}{options and f', {options}'}"
