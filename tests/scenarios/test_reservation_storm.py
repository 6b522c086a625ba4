"""A storm of reservations: programs reserve, confirm, renew, release and wait through several proxies, while agents, masters
and the programs themselves are killed and limits are altered.

At every moment each scope holds what its charged reservations sum up to, no grant exceeds a limit, and every answer that a
program received is true; in the end nothing is charged.
"""

import collections
import copy
import time

import pytest
import tomli_w

from harness.databases import MariadbDatabase, PostgresDatabase, SqliteDatabase
from harness.failpoints import Failpoints
from harness.killer import Killer
from harness.ledger_sampler import Sample, Sampler
from harness.limit_changes import CREATORS, LINKS, USERS, LimitChanges
from harness.over_grants import no_over_grant, record_over_grants
from harness.storm_processes import StormProcesses
from harness.tier import LONG, only_long, some
from harness.waiting import wait_until

pytestmark = pytest.mark.alone

CLIENTS, THREADS = 4, 8
# Calls over REST that were decided.
REQUESTS = 15_000 if LONG else 1_000
KILLS, PAUSE_S = (200, (0.2, 1.5)) if LONG else (25, (0.1, 0.8))
WITHIN_S = 1_500
# The longest lease and time to confirm, and what the master needs for the end of a deadline after a kill.
ENDS_WITHIN_S = 60
DATABASES = {"postgres": PostgresDatabase, "mariadb": MariadbDatabase}
AUDIT = {"audit": "1s"}
AUDITED_WITHIN_S = 30
DRIFT = r"ledger drift corrected|the ledger held a wrong amount"
# Below these a run is void.
LEAST = {"reserved": REQUESTS // 10, "refused": REQUESTS // 200, "kills": 25 if LONG else 4, "limits": 40 if LONG else 5}

# Expected log lines of a process whose peers are killed.
EXPECTED = [
    "no metadata agent responds; using the last catalog",
    "decision failed .*failure=(the outcome is unknown|a metadata agent: |zookeeper is not available)",
    "could not stand for election",
]


class Storm:
    """The storm on one installation, whose proxies are at `addresses()`."""

    def __init__(self, database, addresses, folder, seed):
        self.database, self.seed = database, seed
        names = [f"c{n}" for n in range(CLIENTS)]
        plan = {"threads": THREADS, "links": LINKS, "users": USERS, "creators": CREATORS}
        self.clients = StormProcesses(folder / "clients", seed, names, REQUESTS // CLIENTS, **plan)
        self.clients.announce(addresses())
        self.addresses = addresses
        self.limits = LimitChanges(addresses, seed)
        self.sampler = Sampler(database)

    def killer(self, kinds, program, start, engines, failpoints):
        def start_one(name):
            if name in self.clients.names:
                self.clients.start(name)
            else:
                start(name)
                self.clients.announce(self.addresses())

        return Killer(
            kinds | {"client": self.clients.names},
            program=lambda name: self.clients.running[name] if name in self.clients.names else program(name),
            start=start_one,
            flying=lambda _: self.clients.flying(),
            engines=engines,
            failpoints=failpoints,
            seed=self.seed,
            kills=KILLS,
            pause_s=PAUSE_S,
        )

    def rage(self, killer):
        record_over_grants(self.database)
        self.limits.set_up()
        self.sampler.start()
        began = time.monotonic()
        try:
            for name in self.clients.names:
                self.clients.start(name)
            killer.start()
            self.limits.start()
            self.clients.wait(WITHIN_S, lambda: self.enough(killer))
            killer.end()
            # A client that was killed last has been started again.
            self.clients.wait(WITHIN_S, lambda: True)
            self.limits.end()
            self.took_s = time.monotonic() - began
        finally:
            self.clients.end()
            # If the storm has failed, nothing is to be started again.
            for thread in (killer, self.limits):
                thread.ended.set()
                if thread.is_alive():
                    thread.join(timeout=60)

    def reached(self, killer):
        return {"kills": sum(killer.done.values()), "limits": self.limits.counted[200]}

    def enough(self, killer):
        """On a fast machine the requests alone would be over before much has happened to them."""
        threads = (killer, self.limits)
        failed = any(it.failure for it in threads)
        return failed or all(found >= LEAST[what] for what, found in self.reached(killer).items())

    def judge(self, killer):
        wait_until(lambda: Sample.of(self.database).charges_nothing(), ENDS_WITHIN_S, "nothing is charged any more")
        wait_until(lambda: not self.open(), ENDS_WITHIN_S, "no reservation is open")
        self.sampler.end()
        counted = self.answers_are_true()
        self.report(counted, killer)
        no_over_grant(self.database)
        the_sampler_can_fail(self.sampler.fullest)
        reached = {"reserved": counted["reserved"], "refused": counted["refused"], **self.reached(killer)}
        low = {what: found for what, found in reached.items() if found < LEAST[what]}
        assert not low, f"void: {low}, at least {LEAST} are needed"

    def report(self, counted, killer):
        sampler = self.sampler
        print(
            f"seed {self.seed}, {self.database.kind}: {self.clients.sent()} requests in {self.took_s:.0f} s: "
            f"{dict(sorted(counted.items()))}\nlimits altered: {dict(self.limits.counted)}; {sampler.taken} samples, "
            f"{sampler.busy} with a charge, at most {len(sampler.fullest.charged)} at once\nkilled: {killer}"
        )

    def open(self):
        return self.database.rows("SELECT id FROM reservation WHERE state IN ('waiting', 'locked', 'used') LIMIT 1")

    def answers_are_true(self):
        """Compares what the clients learned with the rows, of which each request has at most one."""
        found = self.database.rows("SELECT instance, id, state FROM reservation WHERE holder = 'external'")
        rows = {instance: (id_, state) for instance, id_, state in found}
        assert len(rows) == len(found), "a request has two reservations"
        counted, wrong = collections.Counter(), []
        for entry in self.clients.entries():
            counted[entry["event"]] += 1
            id_, state = rows.get(entry["key"], (None, None))
            match entry["event"]:
                # What was sent several times may take effect after one of its refusals.
                case "refused" if entry["attempts"] == 1 and id_:
                    wrong.append((entry, id_, state))
                case "reserved" | "left" if entry["id"] != id_:
                    wrong.append((entry, id_, state))
                case "ended" if (entry["id"], entry["state"]) != (id_, state):
                    wrong.append((entry, id_, state))
        assert not wrong, f"answers that are not true (journal, id, state): {wrong[:10]}"
        for _, state in rows.values():
            counted[f"in the end {state}"] += 1
        return counted


def the_sampler_can_fail(sample):
    """Each of these would be a defect: a sampler that lets one pass is worth nothing."""
    assert sample is not None and not sample.differences()
    for kind, amount in ((1, "held"), (2, "held"), (3, "held"), (4, "held"), (4, "shared_held"), (4, "unguaranteed_held")):
        other = copy.deepcopy(sample)
        scope = next(scope for (of, _), scope in other.scopes.items() if of == kind)
        scope[amount] = (scope[amount][0], scope[amount][1] + 1, scope[amount][2])
        assert other.differences(), f"{amount} of kind {kind} may be wrong"
    for tamper in (list.pop, lambda charged: charged.append(charged[0])):
        other = copy.deepcopy(sample)
        tamper(other.charged)
        assert other.differences(), "a reservation may be missing"


def the_audit_saw_nothing(installation, database):
    """A drift that is made here is found within seconds, so one of the storm would have been."""
    assert not installation.logs.count(DRIFT)
    installation.logs.allow(DRIFT)
    database.rows("UPDATE quota_scope SET held_engines = held_engines + 1 WHERE kind = 4 AND name = 'p_0'")
    wait_until(lambda: installation.logs.count(DRIFT), AUDITED_WITHIN_S, "the audit finds a drift")
    wait_until(lambda: Sample.of(database).charges_nothing(), AUDITED_WITHIN_S, "the audit corrects a drift")


@pytest.mark.parametrize("kind", some(DATABASES, "postgres"))
def test_no_kill_lets_the_ledger_exceed_a_limit_or_drift(kind, own_cluster, folder, seed):
    failpoints = Failpoints(folder / "points")
    cluster = own_cluster(
        database=DATABASES[kind](),
        candidates=("proxy-a", "proxy-b"),
        session_timeout_s=1,
        master={"tick_interval": "500ms"},
        reservations=AUDIT,
        env=failpoints.env,
    )
    cluster.logs.allow(*EXPECTED)
    proxies = ["proxy-a", "proxy-b"]
    storm = Storm(cluster.database, lambda: [cluster.addresses[it] for it in proxies], folder, seed)
    killer = storm.killer(
        {"proxy": proxies, "metadata agent": ["agent-1", "agent-2"]},
        program=lambda name: cluster.programs[name],
        start=cluster.start_program,
        engines=cluster.engines,
        failpoints=failpoints,
    )
    storm.rage(killer)
    storm.judge(killer)
    the_audit_saw_nothing(cluster, cluster.database)


@only_long
def test_standalone_keeps_its_ledger_when_it_is_killed(own_standalone, folder, seed):
    failpoints = Failpoints(folder / "points")
    own_standalone.env = failpoints.env
    configuration = own_standalone.folder / "enginehouse.toml"
    configuration.write_text(tomli_w.dumps({"reservations": AUDIT, "master": {"tick_interval": "500ms"}}))
    installation = own_standalone.start("--config", configuration)
    installation.logs.allow(*EXPECTED)
    database = SqliteDatabase(installation.data / "metadata.sqlite")
    storm = Storm(database, lambda: [installation.address], folder, seed)
    killer = storm.killer(
        {"standalone": ["standalone"]},
        program=lambda _: installation.program,
        start=lambda _: installation.start("--config", configuration),
        engines=installation.engines,
        failpoints=failpoints,
    )
    storm.rage(killer)
    storm.judge(killer)
    the_audit_saw_nothing(installation, database)
