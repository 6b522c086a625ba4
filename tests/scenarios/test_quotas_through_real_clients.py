"""Quotas through real clients: three tenants share a pool of local engines. What does not fit is refused or queued, with the
amounts that are short, and starts when an engine ends or a limit is raised."""

import re

import pytest

from harness.clients import pyhive_session, refused, rows
from harness.control import Control
from harness.databases import SqliteDatabase
from harness.java import beeline
from harness.ledger import CREATOR, TENANT, USER, Ledger
from harness.tier import only_long
from harness.waiting import stays, wait_until

UNIT, POOL = "core", "quoted"
GUARANTEES = {"q_left": 2, "q_right": 2, "q_small": 1}
CAPACITY = sum(GUARANTEES.values())
# Of one engine: that of the unit, and the memory of its agent.
CHARGE = "1 CPU, 768 MiB, 1 engine"
SHORT = 'enant "q_left" on resource pool "quoted": asked 1, left 0 of 2 (TENANT_CPU, retryable'
TENANT_CPU, CREATOR_CPU, USER_ENGINES = 46021, 46031, 46043
WITHIN_S = 60


class Shared:
    """A pool whose 5 CPU are guaranteed to three tenants. `q_left` holds its 2, and has a third engine in the queue."""

    def __init__(self, installation):
        self.control = Control(installation.address)
        self.execute, self.refused = self.control.execute, self.control.refused
        self.database = SqliteDatabase(installation.data / "metadata.sqlite")
        self.execute(f"CREATE RESOURCE UNIT {UNIT} DRIVER_CPU 1, DRIVER_MEMORY '512M'")
        self.execute(f"CREATE RESOURCE POOL {POOL} UNIT_LIST ('{UNIT}'), CAPACITY (CPU {CAPACITY})")
        for tenant, cpu in GUARANTEES.items():
            self.execute(f"CREATE TENANT {tenant} RESOURCE_POOL_LIST ('{POOL}')")
            self.execute(f"CREATE RESOURCE QUOTA {tenant} TENANT {tenant}, POOL {POOL}, GUARANTEE (CPU {cpu})")
        for how in ("WAIT '1m'", "NOWAIT WAIT '1m'"):
            assert self.start("q_left", how)["state"] == "ready"
        self.queue()

    def start(self, tenant, how=""):
        (row,) = self.execute(f"START ENGINE {tenant} {POOL} {UNIT} {how}")
        return row

    def stop(self, engine):
        """STOP ENGINE, until its charge is returned: a tick after its instance is gone."""
        self.control.stop(POOL, engine)
        wait_until(lambda: engine not in {it.id for it in self.charged()}, WITHIN_S, f"{engine} is no longer charged")

    def queue(self):
        """Adds an engine of `q_left` to the queue; returns it when the master has published its position."""
        row = self.start("q_left")
        assert row["state"] == "queued", row
        return self.queued()

    def queued(self):
        (name,) = [it["engine"] for it in self.control.engines("q_left") if it["state"] != "ready"]
        self.control.wait_engine("q_left", name, "pending", "^queued at position")
        return name

    def ready(self, count):
        """The ready engines of `q_left`, once there are as many."""

        def found():
            names = [it["engine"] for it in self.control.engines("q_left") if it["state"] == "ready"]
            return names if len(names) == count else None

        return wait_until(found, WITHIN_S, f"{count} engines are ready", 0.2)

    def quota(self, scope, resource):
        shown = self.execute(f"SHOW QUOTAS POOL {POOL}")
        (row,) = [it for it in shown if (it["scope"], it["resource"]) == (scope, resource)]
        return row

    def held_cpu(self, tenant):
        return Ledger(self.database).held(TENANT, f"{tenant}/{POOL}")[0] / 1000

    def close(self):
        for tenant in GUARANTEES:
            self.execute(f"DROP RESOURCE QUOTA {tenant}")
            self.execute(f"DROP TENANT {tenant} WAIT '1m'")
        self.execute(f"DROP RESOURCE POOL {POOL}")
        self.execute(f"DROP RESOURCE UNIT {UNIT}")
        wait_until(lambda: not self.charged(), WITHIN_S, "nothing is charged for engines that have ended")

    def charged(self):
        return [it for it in Ledger(self.database).charged() if it.pool == POOL]


@pytest.fixture(scope="module")
def shared_pool(shared_standalone):
    shared = Shared(shared_standalone)
    yield shared
    shared.close()


@pytest.fixture
def shared(shared_pool, standalone):
    return shared_pool


def test_an_engine_above_the_guarantee_is_queued_although_cpu_is_free(shared):
    name = shared.queued()
    row = shared.control.engine("q_left", name)
    assert row["reason"] == f"queued at position 1: t{SHORT})"
    reservations = {it["id"]: it for it in shared.execute(f"SHOW RESERVATIONS POOL {POOL}")}
    states = {it: (row["state"], row["position"], row["charge"]) for it, row in reservations.items()}
    ready = shared.ready(2)
    assert states == {name: ("queued", 1, CHARGE)} | dict.fromkeys(ready, ("used", None, CHARGE))
    assert reservations[name]["reason"] == row["reason"]
    described = shared.control.described(POOL, name)
    assert (described["reservation"], described["position"], described["charge"]) == ("queued", "1", CHARGE)
    tenant = shared.quota(f"tenant q_left on pool {POOL}", "CPU")
    assert [tenant[it] for it in ("quota", "guarantee", "limit", "locked", "used", "left")] == [
        "q_left",
        "2",
        "2",
        "0",
        "2",
        "0",
    ]
    pool = shared.quota(f"pool {POOL}", "CPU")
    assert [pool[it] for it in ("limit", "used", "left", "queued")] == ["5", "2", "3", 1]
    assert shared.held_cpu("q_left") == 2


def test_nowait_is_refused_with_scope_amounts_code_and_remedy(shared):
    refusal = shared.refused(f"START ENGINE q_left {POOL} {UNIT} NOWAIT")
    assert (refusal.sqlstate, refusal.code) == ("53000", TENANT_CPU), refusal
    assert f'not enough CPU for an engine of resource unit "{UNIT}"' in refusal.message, refusal
    assert f"Detail: T{SHORT}). 1 request is queued" in refusal.message, refusal
    assert "ALTER RESOURCE QUOTA q_left GUARANTEE (CPU 3)." in refusal.message, refusal
    assert len(shared.control.engines("q_left")) == 3


def test_the_queue_of_one_tenant_delays_no_other(shared):
    started = shared.start("q_right", "WAIT '1m'")
    assert started["state"] == "ready"
    assert shared.queued()
    shared.stop(started["engine"])


def test_explain_start_prints_each_limit_and_what_is_short_of_it(shared):
    explained = shared.execute(f"EXPLAIN START ENGINE q_left {POOL} {UNIT}")
    limits = [[it[of] for of in ("scope", "resource", "asked", "left", "limit", "verdict")] for it in explained if it["scope"]]
    assert [f'resource pool "{POOL}"', "CPU", "1", "3", "5", "fits"] in limits, limits
    assert [f'tenant "q_left" on resource pool "{POOL}"', "CPU", "1", "0", "2", "queued"] in limits, limits
    decisions = [it for it in explained if it["decision"]]
    assert "create engine" not in {it["decision"] for it in decisions}, decisions
    assert "queued" in decisions[-1]["because"], decisions
    explained = shared.execute(f"EXPLAIN START ENGINE q_right {POOL} {UNIT}")
    assert {it["verdict"] for it in explained if it["scope"]} == {"fits"}, explained
    decisions = [it["decision"] for it in explained if it["decision"]]
    assert decisions[:3] == ["reserve", "create permit", "create engine"], decisions


def test_only_stop_ends_the_reservation_of_an_engine(shared):
    engine = shared.ready(2)[0]
    refusal = shared.refused(f"CANCEL RESERVATION '{engine}'")
    assert refusal.sqlstate == "55000" and f"STOP ENGINE {POOL} '{engine}'" in refusal.message, refusal
    shown = {it["property"]: it["value"] for it in shared.execute(f"DESCRIBE RESERVATION '{engine}'")}
    assert (shown["state"], shown["charge"], shown["tenant"], shown["user"]) == ("used", CHARGE, "q_left", "admin")


def test_a_raised_guarantee_starts_the_queued_engine_and_a_lower_one_ends_none(shared):
    name = shared.queued()
    shared.execute("ALTER RESOURCE QUOTA q_left GUARANTEE (CPU 3) WAIT '1m'")
    shared.control.wait_engine("q_left", name, "ready")
    shared.execute("ALTER RESOURCE QUOTA q_left GUARANTEE (CPU 2) WAIT '1m'")
    assert shared.quota(f"tenant q_left on pool {POOL}", "CPU")["left"] == "-1"
    waiting = shared.queue()
    assert "left -1 of 2" in shared.control.engine("q_left", waiting)["reason"]
    assert len(shared.ready(3)) == 3
    shared.stop(name)
    stays(lambda: shared.control.engine("q_left", waiting)["state"] == "pending", 1, "nothing is left for it yet", 0.2)
    assert shared.held_cpu("q_left") == 2


def test_the_end_of_an_engine_starts_the_queued_one(shared):
    ended, _ = shared.ready(2)
    waiting = shared.queued()
    shared.stop(ended)
    shared.control.wait_engine("q_left", waiting, "ready")
    assert shared.held_cpu("q_left") == 2
    shared.queue()


def test_a_start_that_can_never_fit_is_refused_with_the_statement_that_admits_it(shared):
    shared.execute("ALTER RESOURCE QUOTA q_small GUARANTEE (CPU 0.5) WAIT '1m'")
    refusal = shared.refused(f"START ENGINE q_small {POOL} {UNIT}")
    assert (refusal.sqlstate, refusal.code) == ("53400", TENANT_CPU), refusal
    assert "asked 1, left 0.5 of 0.5 (TENANT_CPU, not retryable)" in refusal.message, refusal
    assert shared.control.engines("q_small") == []
    (remedy,) = re.findall(r"Hint: (ALTER RESOURCE QUOTA .*)\.$", refusal.message)
    assert remedy == "ALTER RESOURCE QUOTA q_small GUARANTEE (CPU 1)"
    shared.execute(f"{remedy} WAIT '1m'")
    started = shared.start("q_small", "WAIT '1m'")
    assert started["state"] == "ready"
    shared.stop(started["engine"])


@only_long
def test_beeline_prints_what_is_short(shared):
    done = beeline(shared.control.address, f"START ENGINE q_left {POOL} {UNIT} NOWAIT")
    assert done.status != 0
    assert f"(state=53000,code={TENANT_CPU})" in done.err and f"T{SHORT})" in done.err, done.err
    done = beeline(shared.control.address, f"SHOW RESERVATIONS POOL {POOL}")
    assert f"t{SHORT})" in done.out, done.out


@pytest.fixture
def principals(standalone):
    """A tenant with two users, of whom one has a limit, and a client application with another."""
    control = Control(standalone.address)
    made = control.make("q_people", users="'quita', 'quiro'")
    control.execute("CREATE RESOURCE QUOTA q_quita USER 'quita', LIMIT (ENGINES 1)")
    control.execute("CREATE RESOURCE QUOTA q_ide CREATOR 'quoted IDE', LIMIT (CPU 0.5)")
    yield (control, *made)
    control.drop(*made)


def test_users_and_creators_have_limits_of_their_own(principals, standalone):
    control, tenant, pool, unit = principals
    statement = f"START ENGINE {tenant} {pool} {unit}"
    with pyhive_session(control.address, "quita") as quita, pyhive_session(control.address, "quiro") as quiro:
        for _ in range(2):
            (second,) = rows(quita, statement)
        reason = control.wait_engine(tenant, second["engine"], "pending", "^queued at position 1")["reason"]
        assert 'user "quita": asked 1, left 0 of 1 (USER_ENGINES, retryable)' in reason, reason
        refusal = refused(quita, f"{statement} NOWAIT")
        assert (refusal.sqlstate, refusal.code) == ("53000", USER_ENGINES), refusal
        (shown,) = [it for it in rows(quita, "SHOW QUOTAS USER 'quita'") if it["resource"] == "ENGINES"]
        assert (shown["scope"], shown["quota"], shown["limit"], shown["left"]) == ("user quita", "q_quita", "1", "0")
        (other,) = rows(quiro, statement)
        assert other["state"] == "starting", "each user has the limit alone"
        assert refused(quiro, "SHOW QUOTAS USER 'quita'").sqlstate == "42501"
    with pyhive_session(control.address, "quiro", creator="quoted IDE") as ide:
        refusal = refused(ide, statement)
        assert (refusal.sqlstate, refusal.code) == ("53400", CREATOR_CPU), refusal
        assert 'Creator "quoted IDE": asked 1' in refusal.message, refusal
        control.execute("DROP RESOURCE QUOTA q_ide")
        (named,) = rows(ide, statement)
        assert named["state"] == "starting"
    control.execute("DROP RESOURCE QUOTA q_quita")
    control.wait_ready(tenant, 4)
    ledger = Ledger(SqliteDatabase(standalone.data / "metadata.sqlite"))
    held = [ledger.held(kind, name)[2] for kind, name in ((USER, "quita"), (USER, "quiro"), (CREATOR, "quoted IDE"))]
    assert held == [2, 2, 1]
