"""Triggers that lead a process to a point: statements, and deaths and pauses of other processes.

A trigger is a generator with two stops. Up to the first it prepares, with nothing armed. The point is hit after the first stop.
After the second one, with the installation at rest, it checks that the statement took effect as a whole or not at all.
"""

import json
import os
import signal

from failpoint_matrix.statements import ANSWER_WITHIN_S
from harness.clients import rows
from harness.ledger import CREATOR
from harness.waiting import wait_until

# Engines that a tenant is guaranteed: more than it ever has.
GUARANTEED = 8


def alter(worker, via="other"):
    yield
    statement, there = worker.execute_alter(via)
    yield
    worker.judge(statement, there)


def create(worker, via="other"):
    name = worker.next_name("extra")
    worker.expect_same_engines()
    yield
    statement = worker.execute(f"CREATE RESOURCE UNIT {name} DRIVER_CPU 1, DRIVER_MEMORY '512M'", via)
    yield
    worker.judge(statement, lambda: worker.has_unit(name), gone=("42710",))


def drop(worker, via="other"):
    name = worker.next_name("extra")
    worker.done(f"CREATE RESOURCE UNIT {name} DRIVER_CPU 1, DRIVER_MEMORY '512M'")
    worker.expect_same_engines()
    yield
    statement = worker.execute(f"DROP RESOURCE UNIT {name}", via)
    yield
    worker.judge(statement, lambda: not worker.has_unit(name), gone=("42704",))


def newcomer(worker, via="other"):
    name = f"{worker.tenant}_{worker.next_name('new')}"
    pool = f"{name}_p"
    worker.done(f"CREATE RESOURCE POOL {pool} UNIT_LIST ('{worker.unit}'){worker.installation.places(name)}")
    yield
    statement = worker.execute(f"CREATE TENANT {name} RESOURCE_POOL_LIST ('{pool}')", via)
    yield
    worker.judge(statement, lambda: worker.count(f"SELECT 1 FROM tenant WHERE name = '{name}'") == 1, gone=("42710",))
    for statement in (f"DROP TENANT {name}", f"DROP RESOURCE POOL {pool}"):
        worker.done(statement)


def limit(worker, via="other"):
    """A quota: what the tenant may hold changes in its transaction."""
    name = worker.next_name("quota")
    worker.expect_same_engines()
    yield
    guarantee = f"TENANT {worker.tenant}, POOL {worker.pool}, GUARANTEE (ENGINES {GUARANTEED})"
    statement = worker.execute(f"CREATE RESOURCE QUOTA {name} {guarantee}", via)
    yield
    worker.judge(statement, lambda: worker.is_limited(name, GUARANTEED), gone=("42710",))
    worker.done(f"DROP RESOURCE QUOTA {name}")


def start(worker, via="other", **settings):
    """START ENGINE, which starts another engine each time: there must be one slot for each request that took effect."""
    before, requests = worker.slots(), worker.requests()
    yield
    statement = worker.execute(f"START ENGINE {worker.tenant} {worker.pool} {worker.unit}", via, **settings)
    yield
    outcome = statement.outcome()
    started, new = worker.slots() - before, worker.requests() - requests
    assert len(started) == len(new) <= 1, (outcome, started, new)
    if outcome.kind == "acknowledged":
        assert {outcome.rows[0]["engine"]} == {it[-1] for it in started}, (outcome, started)
    elif outcome.kind == "refused":
        assert not started, (outcome, started)
    else:
        statement.again()
        assert len(worker.slots() - before) == len(started) + 1
    worker.stop_started()


def start_by_another(worker, via="other"):
    """START ENGINE by a client application that was never charged: its scope is inserted first."""
    creator = worker.next_name("application")
    yield from start(worker, via, creator=creator)
    assert (CREATOR, creator) in worker.ledger().scopes


def reserve(worker, via="other"):
    """A program that is no engine reserves: repeated with its key, it has one reservation."""
    key = worker.next_name("key")
    worker.expect_same_engines()
    yield
    call = worker.reserve(key, via)
    yield
    status, answered = call.result()
    reservation = worker.reserved(key)
    assert status != 201 or answered["id"] == reservation["id"], (answered, reservation)
    assert [it.id for it in worker.ledger().charged() if it.is_external] == [reservation["id"]]
    worker.release(reservation)
    assert not [it for it in worker.ledger().charged() if it.is_external]


def register(worker, via="other"):
    """A program registers the capacity of a pool: repeated with its key, it is registered once."""
    pool, key = f"{worker.tenant}_{worker.next_name('registered')}", worker.next_name("key")
    worker.done(f"CREATE RESOURCE POOL {pool} CAPACITY REGISTERED")
    worker.expect_same_engines()
    yield
    call = worker.register(pool, key, via)
    yield
    status, answered = call.result()
    registered = worker.registered(pool, key)
    assert status != 200 or answered == registered, (answered, registered)
    assert registered["state"] == "registered" and registered["capacity"] == {"type": "Cpu", "cpu_m": 1000}, registered
    assert worker.registered(pool, key) == registered, "it was registered twice"
    assert worker.count(f"SELECT 1 FROM audit WHERE object = 'resource pool \"{pool}\"' AND statement LIKE 'REGISTER%'") == 1
    worker.done(f"DROP RESOURCE POOL {pool}")


def reclaim(worker, via="other"):
    """A tenant borrows the one CPU of a pool, and its idle engine is retired when the lender starts one. Then its slot waits in
    the queue."""
    pool, unit, borrower, lender = (f"{worker.tenant}_{worker.next_name(it)}" for it in ("p", "u", "borrower", "lender"))
    worker.done(f"CREATE RESOURCE UNIT {unit} DRIVER_CPU 1, DRIVER_MEMORY '512M'")
    places = worker.installation.places(pool)
    worker.done(f"CREATE RESOURCE POOL {pool} UNIT_LIST ('{unit}'), CAPACITY (CPU 1){places}")
    for tenant, cpu in ((borrower, 0), (lender, 1)):
        worker.done(f"CREATE TENANT {tenant} RESOURCE_POOL_LIST ('{pool}')")
        quota = f"TENANT {tenant}, POOL {pool}, GUARANTEE (CPU {cpu}), BORROW_LIMIT UNLIMITED"
        worker.done(f"CREATE RESOURCE QUOTA {tenant} {quota}")
    (idle,) = worker.done(f"START ENGINE {borrower} {pool} {unit} WAIT '1m'")
    worker.installation.at_rest()
    yield
    statement = worker.execute(f"START ENGINE {lender} {pool} {unit}", via)
    yield
    worker.judge(statement, lambda: worker.slots(f"s.tenant = '{lender}'"))
    worker.wait(lambda: worker.holds(lender, pool) and not worker.holds(borrower, pool), "the lender has the engine")
    ((*_, waiting),) = worker.slots(f"s.tenant = '{borrower}'")
    assert waiting != idle["engine"]
    worker.done(f"STOP ENGINE {pool} '{waiting}' FORCE")
    for tenant in (borrower, lender):
        worker.done(f"DROP RESOURCE QUOTA {tenant}")
        worker.done(f"DROP TENANT {tenant}")
    worker.done(f"DROP RESOURCE POOL {pool}")
    worker.done(f"DROP RESOURCE UNIT {unit}")


def stop(worker, via="other"):
    name = worker.start_another()
    yield
    statement = worker.execute(f"STOP ENGINE {worker.pool} '{name}'", via)
    yield
    worker.judge(statement, lambda: not worker.wants(name))
    worker.stop_started()


def restart(worker, via="other"):
    (before,) = worker.slots()
    yield
    statement = worker.execute(f"RESTART ENGINE {worker.pool} '{before[-1]}'", via)
    yield
    worker.judge(statement, lambda: not worker.wants(before[-1]))


def refusal(worker, via="other"):
    """A refused statement changes nothing, and the audit has it at most once."""
    tenant = worker.next_name("nowhere")
    worker.expect_same_engines()
    yield
    statement = worker.execute(f"START ENGINE {tenant} {worker.pool} {worker.unit}", via)
    yield
    outcome = statement.outcome()
    assert outcome.kind in ("refused", "lost"), outcome
    assert worker.count(f"SELECT 1 FROM audit WHERE tenant = '{tenant}' AND outcome = 'refused'") <= 1


def query(worker, via="any"):
    yield
    statement = worker.execute("SELECT 1 AS one", via, user=worker.user)
    yield
    outcome = statement.outcome()
    assert outcome.kind == "lost" or outcome.rows == [{"one": 1}], outcome


def view(worker, via="any"):
    name = worker.next_name("view")
    yield
    statement = worker.execute(f"CREATE VIEW {name} AS SELECT 42 AS answer", via, user=worker.user)
    yield
    outcome = statement.outcome()
    seen = worker.query(f"SELECT answer FROM {name}")
    if outcome.kind == "lost" and seen.kind == "refused":
        assert seen.sqlstate == "42P01", seen
        again = worker.query(f"CREATE VIEW {name} AS SELECT 42 AS answer")
        assert again.kind == "acknowledged", again
        seen = worker.query(f"SELECT answer FROM {name}")
    assert outcome.kind in ("lost", "acknowledged") and seen.rows == [{"answer": 42}], (outcome, seen)


def drop_schema(worker, via="any"):
    name = worker.next_name("schema")
    for statement in (f"CREATE SCHEMA {name}", f"CREATE VIEW {name}.v AS SELECT 1 AS one"):
        made = worker.query(statement)
        assert made.kind == "acknowledged", made
    yield
    statement = worker.execute(f"DROP SCHEMA {name} CASCADE", via, user=worker.user)
    yield
    outcome = statement.outcome()
    seen = worker.query(f"SELECT * FROM {name}.v")
    if outcome.kind == "lost" and seen.kind == "acknowledged":
        again = worker.query(f"DROP SCHEMA {name} CASCADE")
        assert again.kind == "acknowledged", again
        seen = worker.query(f"SELECT * FROM {name}.v")
    assert outcome.kind in ("lost", "acknowledged") and seen.kind == "refused", (outcome, seen)
    made = worker.query(f"CREATE SCHEMA {name}")
    assert made.kind == "acknowledged", made


def demand(worker, via="other"):
    """A session waits at a tenant without an engine: one is started for it, and no second one, whichever process dies."""
    tenant = worker.make_elastic("NEVER")
    yield
    statement = worker.execute("SELECT 1 AS one", via, user=f"{tenant}_user")
    yield
    outcome = statement.outcome()
    if outcome.kind == "lost":
        outcome = statement.again()
    assert outcome.rows == [{"one": 1}], outcome
    ((*_, name),) = worker.slots(f"s.tenant = '{tenant}' AND s.origin = 'demand'")
    assert worker.ever(tenant) == {name}
    worker.drop_elastic(tenant)


def release(worker, via="other"):
    """An engine that was started on demand is released when it is idle: its slot goes once, and none comes instead."""
    tenant = worker.make_elastic("NEVER")
    worker.done("SELECT 1 AS one", f"{tenant}_user")
    worker.installation.at_rest()
    ((*_, name),) = worker.slots(f"s.tenant = '{tenant}'")
    yield
    statement = worker.execute(f"ALTER RESOURCE UNIT {tenant}_u IDLE_TIMEOUT '1s'", via)
    yield
    outcome = statement.outcome()
    if outcome.kind == "lost":
        statement.again()
    worker.wait(lambda: not worker.slots(f"s.tenant = '{tenant}'"), "the idle engine is released")
    worker.installation.at_rest()
    assert worker.ever(tenant) == {name}
    worker.drop_elastic(tenant)


def seats(worker, via="other"):
    """ALTER of the sessions per engine reaches the permit of an engine, which goes on."""
    sessions = worker.next_memory()
    worker.expect_same_engines()
    yield
    statement = worker.execute(f"ALTER RESOURCE UNIT {worker.unit} SESSIONS_PER_ENGINE {sessions}", via)
    yield
    worker.judge(statement, lambda: worker.spec_of_unit()["sessions_per_engine"] == sessions)
    ((*_, name),) = worker.slots()
    worker.wait(lambda: worker.installation.nodes.read(f"engines/{name}")["sessions"] == sessions, "the permit has the seats")


def hand_over(worker, via="any"):
    """A session is opened at an engine that then begins to drain: its first statement is refused there, and sent to
    another engine. A second session with state of its own keeps the first engine alive meanwhile."""
    points, opened, seen = worker.installation.points, "proxy.bind.session_opened", "engine_agent.drain.begun"
    with worker.session() as stays:
        rows(stays, "CREATE TEMPORARY VIEW mine AS SELECT 1 AS one")
        (slot,) = worker.slots()
        points.arm(opened, "hold")
        yield
        statement = worker.execute_bare("SELECT 1 AS one", via)
        worker.wait_claimed(opened)
        points.arm(seen, "hold")
        worker.done(f"RESTART ENGINE {worker.pool} '{slot[-1]}' WITHIN '5s'")
        worker.wait_claimed(seen)
        for held in (seen, opened):
            points.let_go(held)
        worker.wait_hit()
        yield
        assert statement.result(ANSWER_WITHIN_S) in ([(1,)], "lost")


def label(worker):
    (slot,) = worker.slots()
    engine = worker.installation.engines.one(slot[-1])
    yield
    engine.set_label("enginehouse.io/config", "0123456789abcdef")
    yield
    assert not worker.wants(slot[-1])


def crash(worker):
    (slot,) = worker.slots()
    engine = worker.installation.engines.one(slot[-1])
    yield
    engine.kill()
    yield
    assert not worker.wants(slot[-1])


def hang(worker, via="other"):
    """An engine that hangs is stopped with FORCE, by its process id."""
    name = worker.start_another()
    engine = worker.installation.engines.one(name)
    os.kill(engine.pid, signal.SIGSTOP)
    yield
    statement = worker.execute(f"STOP ENGINE {worker.pool} '{name}' FORCE", via)
    yield
    worker.judge(statement, lambda: not worker.wants(name))


def election(worker):
    name = worker.installation.master()
    pid = worker.installation.pid_of(name)
    worker.expect_same_engines(unless="standalone")
    yield
    worker.installation.stop(name)
    # A master also passes some of these points as long as it is master: then it is the process that was hit.
    if worker.installation.points.claimed_by(worker.row.point) != pid:
        worker.installation.start_again(name, wait=False)
    yield


def candidate(worker):
    return starts(worker, worker.installation.other())


def agent_starts(worker):
    return starts(worker, worker.installation.program("agent"))


def starts(worker, name):
    worker.expect_same_engines(unless="standalone")
    worker.installation.stop(name)
    yield
    worker.installation.start_again(name, wait=False)
    yield


def housekeeping(worker):
    name = worker.installation.program("agent")
    worker.installation.stop(name)
    worker.installation.database.rows(
        "INSERT INTO request (id, statement, engine, requested_by, answer, done_at_ms) "
        f"VALUES ('{worker.next_name('old')}', '', '', '', '{json.dumps({'effect': 'none'})}', 1)"
    )
    yield
    worker.installation.start_again(name, wait=False)
    yield
    worker.installation.stop(name)
    worker.installation.start_again(name)
    wait_until(lambda: worker.count("SELECT 1 FROM request WHERE done_at_ms = 1") == 0, 30, "the old rows are gone")


def migrate(worker):
    installation = worker.fresh_installation()
    yield
    installation.begin()
    yield
    installation.finish()


def sleep(role):
    def trigger(worker):
        pid = worker.target
        nodes, registration = worker.installation.nodes, worker.installation.registration_of(pid)
        assert nodes.client.exists(registration), registration
        yield
        os.kill(pid, signal.SIGSTOP)
        # That is when its session has expired, which ZooKeeper may notice late on a busy machine.
        worker.wait(lambda: not nodes.client.exists(registration), f"ZooKeeper removes {registration}")
        os.kill(pid, signal.SIGCONT)
        yield

    trigger.__doc__ = f"A {role} is stopped for longer than its session lives, and goes on."
    trigger.__name__ = "sleep"
    return trigger


def agents_die(worker, via="other"):
    """Every metadata agent dies between node and transaction, and so does the proxy, so that the statement is not repeated
    under its id: the master has to settle the alteration."""
    proxy = getattr(worker.installation, via)()
    worker.arm_agents_at("agent.alter.node_made")
    yield
    statement, there = worker.execute_alter(proxy)
    worker.let_agents_die(proxy)
    yield
    worker.judge(statement, there)


def agent_hangs(worker, via="other"):
    worker.installation.points.arm("agent.alter.node_made", "hold")
    yield
    statement, there = worker.execute_alter(via)
    worker.wait_hit()
    worker.installation.points.let_go("agent.alter.node_made")
    yield
    worker.judge(statement, there)


def transaction_breaks(worker, via="other"):
    """The database drops its connections, or is locked, while an alteration's transaction is under way."""
    yield
    held = worker.arm_transaction()
    statement, there = worker.execute_alter(via)
    worker.break_transaction(held)
    yield
    worker.judge(statement, there)


# These pass other points first, and arm the row's own when it is its turn: it might be passed for another reason before.
ARM_LATE = (agents_die, transaction_breaks)
