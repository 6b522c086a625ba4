"""What drives a process to a point: statements, and deaths and pauses of other processes.

A drive is a generator with two stops. Up to the first it prepares, with nothing armed. Between the two it drives: the
point is hit at some moment after the first stop. It goes on after the second one when the installation is at rest
again, and says whether what was said is wholly there or wholly not there.
"""

import json
import os
import signal
import time

from harness.waiting import wait_until

from walk.said import ANSWER_WITHIN_S


def alter(lane, via="other"):
    """ALTER of the unit: a new configuration, so the engine is replaced by a newer one and drained."""
    yield
    said, there = lane.say_alter(via)
    yield
    lane.judge(said, there)


def create(lane, via="other"):
    """CREATE of a unit that nothing uses; no engine is concerned."""
    name = lane.next_name("extra")
    lane.expect_same_engines()
    yield
    said = lane.say(f"CREATE RESOURCE UNIT {name} DRIVER_CPU 1, DRIVER_MEMORY '512M'", via)
    yield
    lane.judge(said, lambda: lane.has_unit(name), gone=("42710",))


def drop(lane, via="other"):
    """DROP of a unit that nothing uses."""
    name = lane.next_name("extra")
    lane.done(f"CREATE RESOURCE UNIT {name} DRIVER_CPU 1, DRIVER_MEMORY '512M'")
    lane.expect_same_engines()
    yield
    said = lane.say(f"DROP RESOURCE UNIT {name}", via)
    yield
    lane.judge(said, lambda: not lane.has_unit(name), gone=("42704",))


def newcomer(lane, via="other"):
    """A tenant with a pool of its own comes; its first engine needs a place that is not there yet."""
    name = f"{lane.tenant}_{lane.next_name('new')}"
    pool = f"{name}_p"
    lane.done(f"CREATE RESOURCE POOL {pool} UNIT_LIST ('{lane.unit}'){lane.ground.places(name)}")
    yield
    said = lane.say(f"CREATE TENANT {name} RESOURCE_POOL_LIST ('{pool}')", via)
    yield
    lane.judge(said, lambda: lane.count(f"SELECT 1 FROM tenant WHERE name = '{name}'") == 1, gone=("42710",))
    for statement in (f"DROP TENANT {name}", f"DROP RESOURCE POOL {pool}"):
        lane.done(statement)


def start(lane, via="other"):
    """START ENGINE. Said again it starts another one: so what counts is a slot for each request that took effect."""
    before, requests = lane.slots(), lane.requests()
    yield
    said = lane.say(f"START ENGINE {lane.tenant} {lane.pool} {lane.unit}", via)
    yield
    outcome = said.outcome()
    started, new = lane.slots() - before, lane.requests() - requests
    assert len(started) == len(new) <= 1, (outcome, started, new)
    if outcome.kind == "acknowledged":
        assert {outcome.rows[0]["engine"]} == {it[-1] for it in started}, (outcome, started)
    elif outcome.kind == "refused":
        assert not started, (outcome, started)
    else:
        said.again()
        assert len(lane.slots() - before) == len(started) + 1
    lane.stop_started()


def stop(lane, via="other"):
    """STOP ENGINE of one that was started."""
    name = lane.start_another()
    yield
    said = lane.say(f"STOP ENGINE {lane.pool} '{name}'", via)
    yield
    lane.judge(said, lambda: not lane.wants(name))
    lane.stop_started()


def restart(lane, via="other"):
    """RESTART ENGINE: the slot stays and gets another engine."""
    (before,) = lane.slots()
    yield
    said = lane.say(f"RESTART ENGINE {lane.pool} '{before[-1]}'", via)
    yield
    lane.judge(said, lambda: not lane.wants(before[-1]))


def query(lane, via="any"):
    """A session of the tenant's user with one query."""
    yield
    said = lane.say("SELECT 1 AS one", via, user=lane.user)
    yield
    outcome = said.outcome()
    assert outcome.kind == "lost" or outcome.rows == [{"one": 1}], outcome


def view(lane, via="any"):
    """CREATE VIEW in the tenant's catalog: a definition in a file, which is there as a whole or not at all."""
    name = lane.next_name("view")
    yield
    said = lane.say(f"CREATE VIEW {name} AS SELECT 42 AS answer", via, user=lane.user)
    yield
    outcome = said.outcome()
    seen = lane.query(f"SELECT answer FROM {name}")
    if outcome.kind == "lost" and seen.kind == "refused":
        assert seen.sqlstate == "42P01", seen
        again = lane.query(f"CREATE VIEW {name} AS SELECT 42 AS answer")
        assert again.kind == "acknowledged", again
        seen = lane.query(f"SELECT answer FROM {name}")
    assert outcome.kind in ("lost", "acknowledged") and seen.rows == [{"answer": 42}], (outcome, seen)


def drop_schema(lane, via="any"):
    """DROP SCHEMA … CASCADE in the tenant's catalog."""
    name = lane.next_name("schema")
    for statement in (f"CREATE SCHEMA {name}", f"CREATE VIEW {name}.v AS SELECT 1 AS one"):
        made = lane.query(statement)
        assert made.kind == "acknowledged", made
    yield
    said = lane.say(f"DROP SCHEMA {name} CASCADE", via, user=lane.user)
    yield
    outcome = said.outcome()
    seen = lane.query(f"SELECT * FROM {name}.v")
    if outcome.kind == "lost" and seen.kind == "acknowledged":
        again = lane.query(f"DROP SCHEMA {name} CASCADE")
        assert again.kind == "acknowledged", again
        seen = lane.query(f"SELECT * FROM {name}.v")
    assert outcome.kind in ("lost", "acknowledged") and seen.kind == "refused", (outcome, seen)
    made = lane.query(f"CREATE SCHEMA {name}")
    assert made.kind == "acknowledged", made


def hand_over(lane, via="any"):
    """A session is opened at an engine that then begins to drain: its first statement is refused there, and sent to
    another engine. A second session with state of its own keeps the first engine alive meanwhile."""
    points, opened, seen = lane.ground.points, "proxy.bind.session_opened", "engine_agent.drain.begun"
    with lane.session() as stays:
        lane.on(stays, "CREATE TEMPORARY VIEW mine AS SELECT 1 AS one")
        (slot,) = lane.slots()
        points.arm(opened, "hold")
        yield
        said = lane.say_bare("SELECT 1 AS one", via)
        lane.wait_claimed(opened)
        points.arm(seen, "hold")
        lane.done(f"RESTART ENGINE {lane.pool} '{slot[-1]}' WITHIN '5s'")
        lane.wait_claimed(seen)
        for held in (seen, opened):
            points.let_go(held)
        lane.wait_hit()
        yield
        assert said.result(ANSWER_WITHIN_S) in ([(1,)], "lost")


def label(lane):
    """An operator changes an engine's label by hand: the slot gets a new incarnation."""
    (slot,) = lane.slots()
    engine = lane.ground.engines.one(slot[-1])
    yield
    engine.set_label("enginehouse.io/config", "0123456789abcdef")
    yield
    assert not lane.wants(slot[-1])


def crash(lane):
    """kill -9 of an engine: its end is recorded, what is left of it goes, and its slot is filled again."""
    (slot,) = lane.slots()
    engine = lane.ground.engines.one(slot[-1])
    yield
    engine.kill()
    yield
    assert not lane.wants(slot[-1])


def hang(lane, via="other"):
    """An engine that does not answer any more is stopped with FORCE: it has to be told by its process's id."""
    name = lane.start_another()
    engine = lane.ground.engines.one(name)
    os.kill(engine.pid, signal.SIGSTOP)
    yield
    said = lane.say(f"STOP ENGINE {lane.pool} '{name}' FORCE", via)
    yield
    lane.judge(said, lambda: not lane.wants(name))


def election(lane):
    """The master is told to end: another one is elected. A standalone is told to end and started again."""
    name = lane.ground.master()
    lane.expect_same_engines(unless="standalone")
    yield
    lane.ground.stop(name)
    lane.ground.start_again(name, wait=False)
    yield


def candidate(lane):
    """A proxy starts and stands for election."""
    return starts(lane, lane.ground.other())


def agent_starts(lane):
    """A metadata agent starts."""
    return starts(lane, lane.ground.program("agent"))


def starts(lane, name):
    lane.expect_same_engines(unless="standalone")
    lane.ground.stop(name)
    yield
    lane.ground.start_again(name, wait=False)
    yield


def housekeeping(lane):
    """A metadata agent starts, and there are rows that nobody asks for any more."""
    name = lane.ground.program("agent")
    lane.ground.stop(name)
    lane.ground.database.rows(
        "INSERT INTO request (id, statement, engine, requested_by, answer, done_at_ms) "
        f"VALUES ('{lane.next_name('old')}', '', '', '', '{json.dumps({'effect': 'none'})}', 1)"
    )
    yield
    lane.ground.start_again(name, wait=False)
    yield
    # It is done when an agent starts, and then every hour.
    lane.ground.stop(name)
    lane.ground.start_again(name)
    wait_until(lambda: lane.count("SELECT 1 FROM request WHERE done_at_ms = 1") == 0, 30, "the old rows are gone")


def migrate(lane):
    """The schema is made in a database of its own, by the program that does that."""
    installation = lane.fresh_installation()
    yield
    installation.begin()
    yield
    installation.finish()


def sleep(role):
    """A process is stopped for longer than its session lives, and goes on."""

    def drive(lane):
        pid = lane.target
        yield
        os.kill(pid, signal.SIGSTOP)
        # Not a wait for something: being away is what happens here.
        time.sleep(lane.ground.session_timeout_s * 2)
        os.kill(pid, signal.SIGCONT)
        yield

    drive.__doc__ = f"A {role} is stopped for longer than its session lives, and goes on."
    drive.__name__ = "sleep"
    return drive


def agents_die(lane, via="other"):
    """Every metadata agent dies between node and transaction, and so does the proxy, so that nobody says the
    statement again under its id: the master has to settle the alteration."""
    proxy = getattr(lane.ground, via)()
    lane.arm_agents_at("agent.alter.node_made")
    yield
    said, there = lane.say_alter(proxy)
    lane.let_agents_die(proxy)
    yield
    lane.judge(said, there)


def agent_hangs(lane, via="other"):
    """A metadata agent makes the node and then nothing for longer than `master.alter_grace`."""
    lane.ground.points.arm("agent.alter.node_made", "hold")
    yield
    said, there = lane.say_alter(via)
    lane.wait_hit()
    lane.ground.points.let_go("agent.alter.node_made")
    yield
    lane.judge(said, there)


def transaction_breaks(lane, via="other"):
    """The database drops its connections, or is locked, while an alteration's transaction is under way."""
    yield
    held = lane.arm_transaction()
    said, there = lane.say_alter(via)
    lane.break_transaction(held)
    yield
    lane.judge(said, there)


# These pass other points first, and arm the row's own when it is its turn: it might be passed for another reason before.
ARM_LATE = (agents_die, transaction_breaks)
