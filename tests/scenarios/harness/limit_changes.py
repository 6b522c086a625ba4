"""Alters the limits of pools, tenants, users and creators at random, while reservations come and go.

Statements are sent over REST, each under a key, and repeated until they are decided; a refused one is skipped.
"""

import collections
import http.client
import itertools
import json
import random
import threading

from harness.reservations import Holder

STATEMENTS = "/api/v1/statements"
PAUSE_S = (0.05, 0.4)
AGAIN_S = 0.05
UNDECIDED = {429, 503, 504}

TENANTS, POOLS = ["t_0", "t_1", "t_2"], [f"p_{n}" for n in range(5)]
LINKS = list(itertools.product(TENANTS, POOLS))
USERS, CREATORS = [f"user-{n}" for n in range(6)], ["IDE", "nightly", "default"]


def names(listed):
    return ", ".join(f"'{it}'" for it in listed)


def set_up():
    """The objects that the storm reserves of. Engines are none of them."""
    yield "CREATE RESOURCE UNIT u_0 DRIVER_CPU 1, DRIVER_MEMORY '256M'"
    for pool in POOLS:
        yield f"CREATE RESOURCE POOL {pool} UNIT_LIST ('u_0'), CAPACITY (CPU 6, MEMORY '4G'), PROTECTED (CPU 1)"
    for tenant in TENANTS:
        yield f"CREATE TENANT {tenant} RESOURCE_POOL_LIST ({names(POOLS)}), USER_LIST ({names(USERS)})"
    yield from (GUARANTEES[it].format(verb="CREATE") for it in GUARANTEES)
    yield "CREATE RESOURCE QUOTA q_each USER DEFAULT, LIMIT (CPU 4, ENGINES 6)"
    yield "CREATE RESOURCE QUOTA q_user USER 'user-0', LIMIT (CPU 2, MEMORY '1G', ENGINES 3)"
    yield "CREATE RESOURCE QUOTA q_creator CREATOR 'IDE', LIMIT (CPU 5)"


GUARANTEES = {
    "q_0": "{verb} RESOURCE QUOTA q_0 TENANT t_0, POOL p_0, GUARANTEE (CPU 3), BORROW_LIMIT (CPU 2)",
    "q_1": "{verb} RESOURCE QUOTA q_1 TENANT t_1, POOL p_0, GUARANTEE (CPU 2, MEMORY '1G'), BORROW_LIMIT UNLIMITED, "
    "LEND_LIMIT (CPU 1)",
    "q_2": "{verb} RESOURCE QUOTA q_2 TENANT t_0, POOL p_1, GUARANTEE (CPU 2)",
}


class LimitChanges(threading.Thread):
    """`addresses()` lists the proxies. `counted` has the answers by status."""

    def __init__(self, addresses, seed):
        super().__init__(name="limit changes", daemon=True)
        self.addresses = addresses
        self.seed, self.rng = seed, random.Random(f"{seed}/limits")
        self.counted = collections.Counter()
        self.dropped = set()
        self.failure = None
        self.ended = threading.Event()

    def set_up(self):
        for number, statement in enumerate(set_up()):
            status, found = self.execute(statement, f"set-up-{number}")
            assert status == 200, (statement, found)

    def run(self):
        try:
            for number in itertools.count():
                if self.ended.wait(self.rng.uniform(*PAUSE_S)):
                    return
                status, found = self.execute(self.statement(), f"limits-{number}")
                self.counted[status if status == 200 else found.get("sqlstate")] += 1
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"

    def end(self):
        self.ended.set()
        self.join(timeout=60)
        assert not self.is_alive(), "the changes of limits hang"
        assert self.failure is None, f"the changes of limits failed: {self.failure}"

    def statement(self):
        pick, cpu = self.rng.choice, self.rng.randrange
        quotas = sorted(GUARANTEES)
        kind = self.rng.choices(
            ["capacity", "protected", "guarantee", "borrow", "lend", "each", "user", "creator", "quota", "link"],
            [5, 3, 5, 4, 4, 4, 3, 4, 3, 2],
        )[0]
        match kind:
            case "capacity":
                return f"ALTER RESOURCE POOL {pick(POOLS)} CAPACITY (CPU {cpu(3, 9)}, MEMORY '{cpu(1, 5)}G')"
            case "protected":
                return f"ALTER RESOURCE POOL {pick(POOLS)} PROTECTED (CPU {cpu(3)}, MEMORY '{cpu(2)}G')"
            case "guarantee":
                amount = pick([f"CPU {cpu(1, 5)}", "MEMORY '1G'"])
                return f"ALTER RESOURCE QUOTA {pick(quotas)} GUARANTEE ({amount})"
            case "borrow":
                return f"ALTER RESOURCE QUOTA {pick(quotas)} BORROW_LIMIT {pick(['NONE', 'UNLIMITED', f'(CPU {cpu(1, 5)})'])}"
            case "lend":
                return f"ALTER RESOURCE QUOTA {pick(quotas)} LEND_LIMIT {pick(['NONE', 'UNLIMITED', '(CPU 1)'])}"
            case "each":
                return f"ALTER RESOURCE QUOTA q_each LIMIT (CPU {cpu(2, 6)}, ENGINES {cpu(2, 8)})"
            case "user":
                return f"ALTER RESOURCE QUOTA q_user LIMIT (CPU {cpu(1, 4)}, MEMORY '1G')"
            case "creator":
                return f"ALTER RESOURCE QUOTA q_creator LIMIT (CPU {cpu(3, 9)}, ENGINES {cpu(3, 9)})"
            case "quota":
                return self.quota(pick(quotas))
        return f"ALTER TENANT t_2 RESOURCE_POOL_LIST ({names(pick([POOLS, POOLS[:-1]]))})"

    def quota(self, name):
        """Drops it, or creates it again."""
        if name in self.dropped:
            self.dropped.remove(name)
            return GUARANTEES[name].format(verb="CREATE")
        self.dropped.add(name)
        return f"DROP RESOURCE QUOTA {name}"

    def execute(self, statement, key):
        while True:
            holder = Holder(self.rng.choice(self.addresses()), "admin")
            try:
                status, found = holder.call("POST", STATEMENTS, {"statement": statement}, f"{self.seed}-{key}")
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                status, found = 503, {}
            if status not in UNDECIDED:
                return status, found
            self.ended.wait(AGAIN_S)
