"""Control statements through PyHive on any proxy."""

import re

from harness.clients import pyhive_session, refused, rows, rows_and_log
from harness.waiting import wait_until

READY_WITHIN_S = 60


class Control:
    """An admin at one proxy; each statement in a session of its own unless one is kept open. `login` is for `open_pyhive`: a
    password, trusted certificates."""

    def __init__(self, address, **login):
        self.address, self.login = address, login

    def execute(self, statement, user="admin"):
        with pyhive_session(self.address, user, **self.login) as connection:
            return rows(connection, statement)

    def refused(self, statement, user="admin"):
        with pyhive_session(self.address, user, **self.login) as connection:
            return refused(connection, statement)

    def look(self, statement, user="admin"):
        with pyhive_session(self.address, user, **self.login) as connection:
            return rows_and_log(connection, statement)

    def engines(self, tenant):
        return self.execute(f"SHOW ENGINES {tenant}")

    def engine(self, tenant, name):
        return next((it for it in self.engines(tenant) if it["engine"] == name), None)

    def wait_engine(self, tenant, name, state=None, reason="", within_s=READY_WITHIN_S):
        """Waits until SHOW ENGINES shows an engine in a state, with a reason that the pattern matches; returns its row."""

        def shown():
            row = self.engine(tenant, name)
            return row and state in (None, row["state"]) and re.search(reason, row["reason"] or "") and row

        return wait_until(shown, within_s, f"SHOW ENGINES shows engine {name}, {state or 'any state'}: {reason}", 0.2)

    def wait_another(self, tenant, *names, within_s=READY_WITHIN_S):
        """Waits until a current engine with none of these names is ready; returns its row."""

        def other():
            engines = [it for it in self.engines(tenant) if it["current"] and it["state"] == "ready"]
            return next((it for it in engines if it["engine"] not in names), None)

        return wait_until(other, within_s, f"an engine of {tenant} other than {names} is ready", 0.2)

    def described(self, pool, engine):
        """DESCRIBE ENGINE: the values by property."""
        return {it["property"]: it["value"] for it in self.execute(f"DESCRIBE ENGINE {pool} '{engine}'")}

    def make(self, tenant, unit=None, pool=None, options="", users="", places=""):
        """A tenant with its own pool and unit; returns (tenant, pool, unit). `places`: the pool's clause for nodes."""
        unit, pool = unit or f"{tenant}_u", pool or f"{tenant}_p"
        self.execute(f"CREATE RESOURCE UNIT {unit} DRIVER_CPU 1, DRIVER_MEMORY '512M'{options}")
        self.execute(f"CREATE RESOURCE POOL {pool} UNIT_LIST ('{unit}'){places and f', {places}'}")
        listed = f", USER_LIST ({users})" if users else ""
        self.execute(f"CREATE TENANT {tenant} RESOURCE_POOL_LIST ('{pool}'){listed}")
        return tenant, pool, unit

    def start(self, tenant, pool, unit, wait="1m"):
        """START ENGINE … WAIT; answers the engine's name, which must be ready."""
        answer = self.execute(f"START ENGINE {tenant} {pool} {unit} WAIT '{wait}'")
        assert len(answer) == 1 and answer[0]["engine"], answer
        assert answer[0]["state"] == "ready", answer
        return answer[0]["engine"]

    def stop(self, pool, engine, how="FORCE", wait="1m"):
        return self.execute(f"STOP ENGINE {pool} '{engine}' {how} WAIT '{wait}'")

    def drop(self, tenant, pool, unit):
        """DROP of all three; the tenant's engines are drained with it."""
        self.execute(f"DROP TENANT {tenant} WAIT '1m'")
        self.execute(f"DROP RESOURCE POOL {pool}")
        self.execute(f"DROP RESOURCE UNIT {unit}")

    def alterations(self):
        return self.execute("SHOW ALTERATIONS LIMIT 50")

    def wait_ready(self, tenant, count=1, within_s=READY_WITHIN_S):
        """Waits until the tenant has `count` engines, all current and ready; answers them."""

        def ready():
            engines = self.engines(tenant)
            good = [it for it in engines if it["current"] and it["state"] == "ready"]
            return engines if len(good) == count == len(engines) else None

        return wait_until(ready, within_s, f"{count} ready engine(s) of {tenant}, and no other", 0.2)
