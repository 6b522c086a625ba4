"""The check of the ledger: what each scope holds is recomputed from the reservations, and each running engine is charged once.

It reads the tables and computes by itself, never through SHOW QUOTAS or the doctor, so that a wrong sum and a wrong report of
it cannot agree. A look between two writes fails once; `harness.rest` repeats it.
"""

import collections

PARTS = ("cpu", "memory", "engines")
USER, CREATOR, TENANT, POOL = 1, 2, 3, 4
KINDS = {USER: "user", CREATOR: "creator", TENANT: "tenant", POOL: "pool"}
CHARGED = ("locked", "used")
# A component of a guarantee that there is none of.
NO_GUARANTEE = -1
COUNTERS = ("held", "guarantee", "exclusive", "shared_held", "unguaranteed_held")

SCOPES = "SELECT kind, name, queued, {} FROM quota_scope".format(", ".join(f"{of}_{it}" for of in COUNTERS for it in PARTS))
RESERVATIONS = (
    "SELECT id, holder, lineage, tenant, pool, usr, creator, state, uid, cpu, memory, engines, request_cpu, request_memory, "
    "locked_at_ms, used_at_ms FROM reservation"
)


class Scope:
    """A row of `quota_scope`; counters are (CPU in millicores, bytes of memory, engines)."""

    def __init__(self, kind, name, queued, *counters):
        self.kind, self.name, self.queued = int(kind), name, int(queued)
        amounts = [tuple(map(int, counters[at : at + len(PARTS)])) for at in range(0, len(counters), len(PARTS))]
        self.held, self.guarantee, self.exclusive, self.shared_held, self.unguaranteed_held = amounts

    def __str__(self):
        return f"{KINDS[self.kind]} {self.name}"


class Reservation:
    def __init__(self, name, holder, lineage, tenant, pool, user, creator, state, uid, *numbers):
        self.id, self.holder, self.lineage, self.state, self.uid = name, holder, lineage, state, uid
        self.tenant, self.pool, self.user, self.creator = tenant, pool, user, creator
        cpu, memory, engines, request_cpu, request_memory = map(int, numbers[:5])
        self.nominal, self.requests = (cpu, memory, engines), (request_cpu, request_memory, engines)
        self.locked_at_ms, self.used_at_ms = (it and int(it) for it in numbers[5:])

    is_charged = property(lambda self: self.state in CHARGED)
    is_external = property(lambda self: self.holder == "external")

    def policy_scopes(self):
        """Those that its lineage is charged to: the tenant on the pool; user and creator unless they are empty."""
        named = [(USER, self.user), (CREATOR, self.creator), (TENANT, f"{self.tenant}/{self.pool}")]
        return [it for it in named if it[1]]


class Ledger:
    def __init__(self, database):
        scopes = [Scope(*it) for it in database.rows(SCOPES)]
        self.scopes = {(it.kind, it.name): it for it in scopes}
        self.reservations = [Reservation(*it) for it in database.rows(RESERVATIONS)]

    def charged(self):
        return [it for it in self.reservations if it.is_charged]

    def of_engine(self, name):
        return next((it for it in self.reservations if it.id == name), None)

    def held(self, kind, name):
        return self.scopes[kind, name].held

    def queued(self, engines):
        """Of engines without an instance ({name: pool}) those that are in the queue of their pool: they hold nothing, and the
        last round of admission left as many requests."""
        reserved = {it.id for it in self.charged()}
        without = {name: pool for name, pool in engines.items() if name not in reserved}
        requests = self.requests(without)
        return {name: pool for name, pool in without.items() if self.in_queue(pool) == requests[pool]}

    def requests(self, engines):
        """How many of these engines ({name: pool}) and of other programs wait for each pool."""
        waiting = [it.pool for it in self.reservations if it.state == "waiting"]
        return collections.Counter([*engines.values(), *waiting])

    def in_queue(self, pool):
        scope = self.scopes.get((POOL, pool))
        return scope.queued if scope else 0

    def drifts(self):
        """Scopes that hold another amount than their reservations, or whose parts do not follow from their tenants."""
        held, lineages = collections.defaultdict(lambda: (0, 0, 0)), {}
        for it in self.charged():
            held[POOL, it.pool] = plus(held[POOL, it.pool], it.requests)
            _, most = lineages.get(it.lineage, (None, (0, 0, 0)))
            lineages[it.lineage] = (it.policy_scopes(), tuple(map(max, most, it.nominal)))
        for scopes, most in lineages.values():
            for key in scopes:
                held[key] = plus(held[key], most)
        different = [f"{KINDS[kind]} {name} has no row and is charged" for kind, name in held.keys() - self.scopes.keys()]
        for key, scope in sorted(self.scopes.items()):
            if scope.held != held[key]:
                different.append(f"{scope} holds {scope.held}, its reservations are {held[key]}")
            if scope.kind == POOL:
                different += self.drifts_of_parts(scope)
        return different

    def drifts_of_parts(self, pool):
        shared = unguaranteed = (0, 0, 0)
        for it in self.scopes.values():
            if it.kind == TENANT and it.name.endswith(f"/{pool.name}"):
                shared = plus(shared, [max(0, h - e) for h, e in zip(it.held, it.exclusive, strict=True)])
                without = [h if g == NO_GUARANTEE else 0 for h, g in zip(it.held, it.guarantee, strict=True)]
                unguaranteed = plus(unguaranteed, without)
        different = []
        if pool.shared_held != shared:
            different.append(f"{pool} holds {pool.shared_held} of its shared part, its tenants {shared}")
        if pool.unguaranteed_held != unguaranteed:
            different.append(f"{pool} holds {pool.unguaranteed_held} of its unguaranteed part, its tenants {unguaranteed}")
        return different

    def differences(self, engines, queued):
        """Everything in which the ledger differs from the running engines ({name: uid}) and the queued ones ({name: pool})."""
        of_engines = {it.id: it for it in self.charged() if not it.is_external}
        different = []
        for name in sorted(engines.keys() - of_engines.keys()):
            different.append(f"engine {name} is not charged to any scope")
        for name in sorted(of_engines.keys() - engines.keys()):
            different.append(f"engine {name} is charged and not wanted")
        for name in sorted(of_engines.keys() & engines.keys()):
            it = of_engines[name]
            if (it.state, it.uid) != ("used", engines[name]):
                different.append(f"the reservation of {name} is {it.state} by uid {it.uid}, wanted is uid {engines[name]}")
        requests = self.requests(queued)
        for kind, pool in sorted(self.scopes):
            if kind == POOL and self.in_queue(pool) != requests[pool]:
                different.append(f"the queue of pool {pool} has {self.in_queue(pool)} requests, there are {requests[pool]}")
        return different + self.drifts()


def plus(one, other):
    return tuple(a + b for a, b in zip(one, other, strict=True))
