"""A master that is stopped between its last look at the clock and a call, or within the call, for longer than its session
lives.

Its successor has done everything when it goes on. A call that was not sent yet it gives up. One that is on its way takes place:
its target refuses it by the epoch, or what it changed is gone with the successor's next tick; and it makes no second one.
"""

import datetime
import os
import signal

import pytest

from harness.decisions import applied_in
from harness.duel import CANDIDATES, RAISED, REFUSED_EFFECT, REFUSED_WRITE, SESSION_TIMEOUT_S, TICK_S, Duel
from harness.failpoints import Failpoints
from harness.rest import at_rest
from harness.tier import some
from harness.waiting import wait_until

# What a busy machine may need to carry a tick out.
BUSY_S = 4
# An engine that could not be made is tried again after a back-off that doubles, and it was in vain for some time.
MADE_AFTER_ALL_S = 90
# A call is not sent yet; or it is on a thread that nothing cuts off, and its epoch was not compared yet.
BEFORE_CREATE, CREATE_BEGUN = "master.before.create_engine", "orchestrator.ensure.begun"
BEFORE_DELETE, DELETE_BEGUN = "master.before.delete_engine", "orchestrator.delete.begun"
BEFORE_WRITE, WRITE_SENDING = "master.before.write", "master.write.sending"


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


def assert_refused(duel, point, said):
    """Whether the directory has refused the call by its epoch: a call that was not sent yet never comes there."""
    if point in (CREATE_BEGUN, DELETE_BEGUN):
        wait_until(lambda: REFUSED_EFFECT in duel.stopped.said(), 20, "the late call is refused")
    else:
        assert REFUSED_EFFECT not in said


@pytest.mark.parametrize("point", some([BEFORE_CREATE, CREATE_BEGUN], CREATE_BEGUN))
def test_a_create_that_comes_late_makes_no_second_process(duel, point):
    name = duel.start_stopping_at(point)
    duel.wait_followed(point)
    assert list(at_rest(duel.cluster)) == [name], "the successor makes the engine under the same name"
    done, rejected, said = duel.go_on_in_vain()
    assert (done, rejected) == ([], [("create engine", name)])
    assert_refused(duel, point, said)


def test_an_engine_that_is_made_late_never_registers_and_is_removed_by_the_next_tick(duel):
    name = duel.start_stopping_at(CREATE_BEGUN)
    # It is not desired any more, so the successor has no reason to call the orchestrator, which knows no newer epoch.
    duel.wait_followed(CREATE_BEGUN, lambda: duel.control.say(f"STOP ENGINE {duel.link[1]} '{name}' FORCE"))
    assert at_rest(duel.cluster) == {}
    done, rejected, _ = duel.go_on()
    # The call takes effect, its master has given it up, and nothing more is sent.
    assert (done, rejected) == ([], [("create engine", name)])
    made = wait_until(lambda: moments(duel.stopped.said(), "engine started"), 20, "the engine is made late")
    drains = 'decision="drain engine"'
    drained = wait_until(
        lambda: moments(duel.cluster.logs.text(f"/{duel.other}.log"), drains), TICK_S + BUSY_S, "the next tick drains it",
    )
    at_rest(duel.cluster)
    assert duel.processes() == {}
    assert "registered engine=" not in duel.cluster.logs.text(f"/{name}/")
    healing = duel.cluster.logs.text(f"/{duel.other}.log")
    assert "create engine" not in {it[0] for it in applied_in(healing) if it[1] == name}
    (made,), (drained,) = made, drained
    print(f"the engine that was made late was drained after {(drained - made).total_seconds() * 1000:.0f} ms")
    assert (drained - made).total_seconds() <= TICK_S + BUSY_S, "the next tick"


@pytest.mark.parametrize("point", some([BEFORE_DELETE, DELETE_BEGUN], DELETE_BEGUN))
def test_a_delete_that_comes_late_hits_nothing(duel, point):
    old = duel.control.start(*duel.link)
    at_rest(duel.cluster)
    duel.points.arm(point, "stop")
    (answer,) = duel.control.say(f"RESTART ENGINE {duel.link[1]} '{old}' FORCE")
    duel.wait_followed(point)
    # The successor has deleted what was left of it, so the directory knows the new epoch.
    (new,) = at_rest(duel.cluster)
    assert new == answer["engine"] != old
    done, rejected, said = duel.go_on_in_vain()
    assert (done, rejected) == ([], [("delete engine", old)])
    assert_refused(duel, point, said)


def test_a_delete_that_goes_out_late_ends_only_what_was_to_end_and_the_next_tick_tidies_up(duel):
    """Who is to be deleted was told to drain, and that is irrevocable: no successor wants it back. So a late delete can
    only come before the successor's own. Here it does: the epoch is raised, and nobody has told the orchestrator."""
    old = duel.control.start(*duel.link)
    at_rest(duel.cluster)
    condemned = duel.cluster.engines.one(old)
    duel.hold_successor_at(RAISED)
    duel.points.arm(DELETE_BEGUN, "stop", duel.cluster.programs[duel.master].pid)
    # It stands still, so it does not follow its order to drain, and is deleted when its time is over.
    os.kill(condemned.pid, signal.SIGSTOP)
    (answer,) = duel.control.say(f"RESTART ENGINE {duel.link[1]} '{old}' FORCE")
    new = answer["engine"]
    duel.wait_stopped_at(DELETE_BEGUN)
    duel.points.wait_claimed(RAISED)
    assert duel.masters.term().epoch == duel.term.epoch + 1 and condemned.is_alive()
    serving = duel.cluster.engines.one(new).process
    # The late call, the only one: its master has given it up, and it takes effect and hits no other engine.
    before = len(duel.stopped.said())
    duel.stopped.resume()
    wait_until(lambda: "term ended" in duel.stopped.said()[before:], 20, "the stopped master ends its term")
    assert applied_in(duel.stopped.said()[before:]) == []
    wait_until(lambda: not condemned.is_alive(), 20, f"{old} is deleted")
    duel.let_successor_go()
    assert list(at_rest(duel.cluster)) == [new]
    assert duel.processes() == {new: serving}
    ((ended,),) = duel.cluster.database.rows(f"SELECT COUNT(*) FROM engine WHERE name = '{old}' AND ended_at_ms > 0")
    assert int(ended) == 1
    # What is left to the successor is to write down what it finds: it makes and drains nobody.
    healing = applied_in(duel.cluster.logs.text(f"/{duel.other}.log"))
    assert {it[0] for it in healing} <= {"record end", "delete engine", "delete permit", "remove drain fact"}, healing


@pytest.mark.parametrize("point", some([BEFORE_WRITE, WRITE_SENDING], WRITE_SENDING))
def test_a_write_of_the_database_that_comes_late_is_refused_by_the_epoch(duel, point):
    old = duel.control.start(*duel.link)
    at_rest(duel.cluster)
    duel.points.arm(point, "stop")
    duel.cluster.engines.one(old).kill()
    duel.wait_followed(point)
    (new,) = at_rest(duel.cluster)
    assert new != old

    def refused():
        return duel.cluster.logs.text("/agent-").count(REFUSED_WRITE)

    before = refused()
    done, rejected, _ = duel.go_on_in_vain()
    assert done == [] and [it[1] for it in rejected] == [old], (done, rejected)
    if point == WRITE_SENDING:
        # Its master gave it up while it was on its way; the transaction found the new epoch.
        wait_until(lambda: refused() == before + 1, 20, "the late write is refused")
    else:
        assert refused() == before, "it was not sent"


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
