"""A master that is stopped between its last look at the clock and a call, for longer than its session lives.

Its successor has done everything when it goes on, and it makes that one call believing in its lock. Whoever is called
refuses it, or what it made is gone with the successor's next tick; and it makes no second one.
"""

import datetime
import os
import signal

import pytest

from harness.decisions import applied_in
from harness.duel import CANDIDATES, RAISED, SESSION_TIMEOUT_S, TICK_S, Duel
from harness.failpoints import Failpoints
from harness.rest import at_rest
from harness.waiting import wait_until

# What a busy machine may need to carry a tick out.
BUSY_S = 4
# An engine that could not be made is tried again after a back-off that doubles, and it was in vain for some time.
MADE_AFTER_ALL_S = 90


def moments(text, part):
    """When the lines of a log that contain `part` were written."""
    return [datetime.datetime.fromisoformat(line.split(" ", 1)[0]) for line in text.splitlines() if part in line]


@pytest.fixture
def duel(own_cluster, folder):
    points = Failpoints(folder / "points")
    duel = Duel(own_cluster(
        candidates=CANDIDATES, session_timeout_s=SESSION_TIMEOUT_S, env=points.env, master={"tick_interval": f"{TICK_S}s"},
    ), points)
    yield duel
    duel.end()


def late(decision, engine, following):
    """The two outcomes (applied, rejected) of a master that was stopped before a call: the call was given up, because the lock
    may be lost, or it took effect as the last one, and the call after it was refused."""
    return ([], [(decision, engine)]), ([(decision, engine)], [(following, engine)])


def test_a_create_that_comes_late_makes_no_second_process(duel):
    name = duel.start_stopping_at("master.before.create_engine")
    duel.wait_followed("master.before.create_engine")
    assert list(at_rest(duel.cluster)) == [name], "the successor makes the engine under the same name"
    done, rejected, _ = duel.go_on_in_vain()
    assert (done, rejected) == ([], [("create engine", name)])


def test_an_engine_that_is_made_late_never_registers_and_is_removed_by_the_next_tick(duel):
    name = duel.start_stopping_at("master.before.create_engine")
    # Nobody wants it any more, so the successor has no reason to call the orchestrator, which knows no newer epoch.
    duel.wait_followed(
        "master.before.create_engine", lambda: duel.control.say(f"STOP ENGINE {duel.link[1]} '{name}' FORCE"),
    )
    assert at_rest(duel.cluster) == {}
    done, rejected, said = duel.go_on()
    # The call was given up, or it took effect and nothing more was sent.
    assert (done, rejected) in late("create engine", name, "record uid")
    at_rest(duel.cluster)
    assert duel.processes() == {}
    assert "registered engine=" not in duel.cluster.logs.text(f"/{name}/")
    healing = duel.cluster.logs.text(f"/{duel.other}.log")
    assert "create engine" not in {it[0] for it in applied_in(healing) if it[1] == name}
    for made, drained in zip(moments(said, "engine started"), moments(healing, 'decision="drain engine"'), strict=True):
        print(f"the engine that was made late was drained after {(drained - made).total_seconds() * 1000:.0f} ms")
        assert (drained - made).total_seconds() <= TICK_S + BUSY_S, "the next tick"


def test_a_delete_that_comes_late_hits_nothing(duel):
    old = duel.control.start(*duel.link)
    at_rest(duel.cluster)
    duel.points.arm("master.before.delete_engine", "stop")
    (answer,) = duel.control.say(f"RESTART ENGINE {duel.link[1]} '{old}' FORCE")
    duel.wait_followed("master.before.delete_engine")
    (new,) = at_rest(duel.cluster)
    assert new == answer["engine"] != old
    done, rejected, _ = duel.go_on_in_vain()
    # The orchestrator refuses a lower epoch; had the successor not called it yet, the uid would be gone.
    assert done in ([], [("delete engine", old)]) and len(done) + len(rejected) == 1, (done, rejected)


def test_a_delete_that_goes_out_late_ends_only_what_was_to_end_and_the_next_tick_tidies_up(duel):
    """Who is to be deleted was told to drain, and that is irrevocable: no successor wants it back. So a late delete can
    only come before the successor's own. Here it does: the epoch is raised, and nobody has told the orchestrator."""
    old = duel.control.start(*duel.link)
    at_rest(duel.cluster)
    condemned = duel.cluster.engines.one(old)
    duel.hold_successor_at(RAISED)
    duel.points.arm("master.before.delete_engine", "stop", duel.cluster.programs[duel.master].pid)
    # It stands still, so it does not follow its order to drain, and is deleted when its time is over.
    os.kill(condemned.pid, signal.SIGSTOP)
    (answer,) = duel.control.say(f"RESTART ENGINE {duel.link[1]} '{old}' FORCE")
    new = answer["engine"]
    duel.wait_stopped_at("master.before.delete_engine")
    duel.points.wait_claimed(RAISED)
    assert duel.masters.term().epoch == duel.term.epoch + 1 and condemned.is_alive()
    serving = duel.cluster.engines.one(new).process
    # The late call, the only one: it is given up or takes effect, and hits no other engine.
    before = len(duel.stopped.said())
    duel.stopped.resume()
    wait_until(lambda: "term ended" in duel.stopped.said()[before:], 20, "the stopped master ends its term")
    said = duel.stopped.said()[before:]
    assert [it[:2] for it in applied_in(said)] in ([], [("delete engine", old)]), said
    duel.let_successor_go()
    wait_until(lambda: not condemned.is_alive(), 20, f"{old} is deleted")
    assert list(at_rest(duel.cluster)) == [new]
    assert duel.processes() == {new: serving}
    ((ended,),) = duel.cluster.database.rows(f"SELECT COUNT(*) FROM engine WHERE name = '{old}' AND ended_at_ms > 0")
    assert int(ended) == 1
    # What is left to the successor is to write down what it finds: it makes and drains nobody.
    healing = applied_in(duel.cluster.logs.text(f"/{duel.other}.log"))
    assert {it[0] for it in healing} <= {"record end", "delete engine", "delete permit", "remove drain fact"}, healing


def test_a_write_of_the_database_that_comes_late_changes_nothing(duel):
    old = duel.control.start(*duel.link)
    at_rest(duel.cluster)
    duel.points.arm("master.before.write", "stop")
    duel.cluster.engines.one(old).kill()
    duel.wait_followed("master.before.write")
    (new,) = at_rest(duel.cluster)
    assert new != old
    done, rejected, said = duel.go_on_in_vain()
    # It is refused by the epoch, or given up because the lock may be lost. The contract of the database has the former.
    assert done == [] and [it[1] for it in rejected] == [old], (done, rejected)
    assert "term ended" in said


def test_a_master_that_is_stopped_inside_the_directory_lock_holds_creates_up_until_it_is_killed_and_show_says_so(duel):
    name = duel.start_stopping_at("orchestrator.ensure.admitted")
    duel.wait_followed("orchestrator.ensure.admitted")

    def told():
        reason = duel.control.engine(duel.link[0], name)["reason"]
        return reason and "another process holds the lock" in reason and reason

    print("SHOW ENGINES says:", wait_until(told, 30, "SHOW ENGINES says that the directory lock is held"))
    assert duel.processes() == {}
    # The lock goes with its process, whatever state that is in.
    duel.stopped.kill()
    duel.cluster.logs.allow("decision failed.*another process holds the lock")
    assert list(at_rest(duel.cluster, MADE_AFTER_ALL_S)) == [name]
