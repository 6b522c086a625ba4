"""Compares what the scopes hold with the charged reservations, both read at one moment, again and again.

It computes the amounts itself, from the rows alone: a pool holds the requests of its charged reservations, a tenant, a user
and a creator the component-wise maximum of each lineage, and the parts of a pool follow from the rows of its tenants.
"""

import collections
import threading

COMPONENTS = ("cpu", "memory", "engines")
USER, CREATOR, TENANT, POOL = 1, 2, 3, 4
AMOUNTS = ("held", "guarantee", "exclusive", "shared_held", "unguaranteed_held")
SCOPES = f"SELECT kind, name, {', '.join(f'{it}_{component}' for it in AMOUNTS for component in COMPONENTS)} FROM quota_scope"
CHARGED = (
    "SELECT lineage, tenant, pool, usr, creator, cpu, memory, engines, request_cpu, request_memory FROM reservation "
    "WHERE state IN ('locked', 'used')"
)
ZERO = (0, 0, 0)
PAUSE_S = 0.05


class Sample:
    """The ledger at one moment: `scopes` by (kind, name), each with its amounts, and the charged reservations."""

    def __init__(self, scopes, charged):
        self.scopes = {}
        for kind, name, *numbers in scopes:
            numbers = [int(it) for it in numbers]
            self.scopes[int(kind), name] = {it: tuple(numbers[3 * n : 3 * n + 3]) for n, it in enumerate(AMOUNTS)}
        self.charged = [(*row[:5], *map(int, row[5:])) for row in charged]

    @classmethod
    def of(cls, database):
        return cls(*database.at_one_moment(SCOPES, CHARGED))

    def computed(self):
        """What every scope has to hold that holds anything."""
        held, lineages = collections.defaultdict(lambda: ZERO), {}
        for lineage, tenant, pool, user, creator, cpu, memory, engines, request_cpu, request_memory in self.charged:
            held[POOL, pool] = add(held[POOL, pool], (request_cpu, request_memory, engines))
            policy = (USER, user), (CREATOR, creator), (TENANT, f"{tenant}/{pool}")
            most = lineages.get(lineage, (policy, ZERO))[1]
            lineages[lineage] = policy, tuple(map(max, most, (cpu, memory, engines)))
        for policy, most in lineages.values():
            for key in policy:
                if key[1]:
                    held[key] = add(held[key], most)
        return held

    def differences(self):
        held, found = self.computed(), []
        for key in held.keys() - self.scopes.keys():
            found.append(f"{key} is charged and has no row")
        parts = {name: [ZERO, ZERO] for kind, name in self.scopes if kind == POOL}
        for (kind, name), scope in sorted(self.scopes.items()):
            if scope["held"] != held[kind, name]:
                found.append(f"{(kind, name)} holds {scope['held']} instead of {held[kind, name]}")
            if kind == TENANT:
                of_pool = parts.setdefault(name.split("/")[1], [ZERO, ZERO])
                shared = tuple(max(0, it - own) for it, own in zip(scope["held"], scope["exclusive"], strict=True))
                unguaranteed = tuple(it if own < 0 else 0 for it, own in zip(scope["held"], scope["guarantee"], strict=True))
                of_pool[:] = add(of_pool[0], shared), add(of_pool[1], unguaranteed)
        for pool, expected in parts.items():
            if (POOL, pool) in self.scopes:
                for part, amount in zip(("shared_held", "unguaranteed_held"), expected, strict=True):
                    stored = self.scopes[POOL, pool][part]
                    if stored != amount:
                        found.append(f"{part} of pool {pool} is {stored} instead of {amount}")
        return found

    def charges_nothing(self):
        return not self.charged and all(scope["held"] == ZERO for scope in self.scopes.values())


def add(one, other):
    return tuple(a + b for a, b in zip(one, other, strict=True))


class Sampler(threading.Thread):
    """Takes samples until it is ended. `busy` counts those with a charge, `fullest` is the one with the most."""

    def __init__(self, database):
        super().__init__(name="ledger sampler", daemon=True)
        self.database = database
        self.taken, self.busy, self.fullest = 0, 0, None
        self.wrong = []
        self.ended = threading.Event()

    def run(self):
        try:
            while not self.ended.wait(PAUSE_S):
                self.take()
        except Exception as error:
            self.wrong.append(f"the sampler failed: {type(error).__name__}: {error}")

    def take(self):
        sample = Sample.of(self.database)
        self.wrong += [f"sample {self.taken}: {it}" for it in sample.differences()]
        self.taken += 1
        if sample.charged:
            self.busy += 1
            if self.fullest is None or len(sample.charged) > len(self.fullest.charged):
                self.fullest = sample

    def end(self):
        self.ended.set()
        self.join(timeout=30)
        assert not self.is_alive(), "the sampler hangs"
        assert not self.wrong, "the ledger and the reservations differ:\n" + "\n".join(self.wrong[:20])
