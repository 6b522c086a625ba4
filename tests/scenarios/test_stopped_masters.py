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
from harness.deposed_master import CANDIDATES, RAISED, REFUSED_EFFECT, REFUSED_WRITE, SESSION_TIMEOUT_S, TICK_S, DeposedMaster
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
def deposed(own_cluster, folder):
    points = Failpoints(folder / "points")
    deposed = DeposedMaster(
        own_cluster(
            candidates=CANDIDATES, session_timeout_s=SESSION_TIMEOUT_S, env=points.env, master={"tick_interval": f"{TICK_S}s"}
        ),
        points,
    )
    yield deposed
    deposed.end()


def assert_refused(deposed, point, log):
    if point in (CREATE_BEGUN, DELETE_BEGUN):
        wait_until(lambda: REFUSED_EFFECT in deposed.stopped.logged(), 20, "the late call is refused")
    else:
        assert REFUSED_EFFECT not in log


@pytest.mark.parametrize("point", some([BEFORE_CREATE, CREATE_BEGUN], CREATE_BEGUN))
def test_a_create_that_comes_late_makes_no_second_process(deposed, point):
    name = deposed.start_stopping_at(point)
    deposed.wait_followed(point)
    assert list(at_rest(deposed.cluster)) == [name], "the successor makes the engine under the same name"
    done, rejected, log = deposed.go_on_in_vain()
    assert (done, rejected) == ([], [("create engine", name)])
    assert_refused(deposed, point, log)


def test_a_late_engine_never_registers_and_the_next_tick_removes_it(deposed):
    name = deposed.start_stopping_at(CREATE_BEGUN)
    # It is not desired any more, so the successor has no reason to call the orchestrator, which knows no newer epoch.
    deposed.wait_followed(CREATE_BEGUN, lambda: deposed.control.execute(f"STOP ENGINE {deposed.link[1]} '{name}' FORCE"))
    assert at_rest(deposed.cluster) == {}
    done, rejected, _ = deposed.go_on()
    deposed.gives_up(done, rejected, "create engine", name)
    made = wait_until(lambda: moments(deposed.stopped.logged(), "engine started"), 20, "the engine is made late")
    drains = 'decision="drain engine"'
    drained = wait_until(
        lambda: moments(deposed.cluster.logs.text(f"/{deposed.other}.log"), drains), TICK_S + BUSY_S, "the next tick drains it"
    )
    at_rest(deposed.cluster)
    assert deposed.processes() == {}
    assert "registered engine=" not in deposed.cluster.logs.text(f"/{name}/")
    healing = deposed.cluster.logs.text(f"/{deposed.other}.log")
    assert "create engine" not in {it[0] for it in applied_in(healing) if it[1] == name}
    (made,), (drained,) = made, drained
    print(f"the engine that was made late was drained after {(drained - made).total_seconds() * 1000:.0f} ms")
    assert (drained - made).total_seconds() <= TICK_S + BUSY_S, "the next tick"


@pytest.mark.parametrize("point", some([BEFORE_DELETE, DELETE_BEGUN], DELETE_BEGUN))
def test_a_delete_that_comes_late_hits_nothing(deposed, point):
    old = deposed.control.start(*deposed.link)
    at_rest(deposed.cluster)
    deposed.points.arm(point, "stop")
    (answer,) = deposed.control.execute(f"RESTART ENGINE {deposed.link[1]} '{old}' FORCE")
    deposed.wait_followed(point)
    (new,) = at_rest(deposed.cluster)
    assert new == answer["engine"] != old
    done, rejected, log = deposed.go_on_in_vain()
    assert (done, rejected) == ([], [("delete engine", old)])
    assert_refused(deposed, point, log)


def test_a_late_delete_ends_only_its_own_engine(deposed):
    """A draining engine never returns, so a late delete can only come before the successor's own. Here it does: the epoch is
    raised, and the successor has done nothing else."""
    old = deposed.control.start(*deposed.link)
    at_rest(deposed.cluster)
    condemned = deposed.cluster.engines.one(old)
    deposed.hold_successor_at(RAISED)
    deposed.points.arm(DELETE_BEGUN, "stop", deposed.cluster.programs[deposed.master].pid)
    # It stands still, so it does not follow its order to drain, and is deleted when its time is over.
    os.kill(condemned.pid, signal.SIGSTOP)
    (answer,) = deposed.control.execute(f"RESTART ENGINE {deposed.link[1]} '{old}' FORCE")
    new = answer["engine"]
    deposed.wait_stopped_at(DELETE_BEGUN)
    deposed.points.wait_claimed(RAISED)
    assert deposed.masters.term().epoch == deposed.term.epoch + 1 and condemned.is_alive()
    serving = deposed.cluster.engines.one(new).process
    # The late call is the only one, takes effect, and hits no other engine. Its master gives it up, or is just in time to learn
    # its outcome: the call and its deadline both end when the process is resumed.
    before = len(deposed.stopped.logged())
    deposed.stopped.resume()
    wait_until(lambda: "term ended" in deposed.stopped.logged()[before:], 20, "the stopped master ends its term")
    assert {it[:2] for it in applied_in(deposed.stopped.logged()[before:])} <= {("delete engine", old)}
    wait_until(lambda: not condemned.is_alive(), 20, f"{old} is deleted")
    deposed.let_successor_go()
    assert list(at_rest(deposed.cluster)) == [new]
    assert deposed.processes() == {new: serving}
    ((ended,),) = deposed.cluster.database.rows(f"SELECT COUNT(*) FROM engine WHERE name = '{old}' AND ended_at_ms > 0")
    assert int(ended) == 1
    healing = applied_in(deposed.cluster.logs.text(f"/{deposed.other}.log"))
    ends = {"record end", "end reservation", "delete engine", "delete permit", "remove drain order"}
    assert {it[0] for it in healing} <= ends, healing


@pytest.mark.parametrize("point", some([BEFORE_WRITE, WRITE_SENDING], WRITE_SENDING))
def test_a_late_database_write_is_refused_by_the_epoch(deposed, point):
    old = deposed.control.start(*deposed.link)
    at_rest(deposed.cluster)
    deposed.points.arm(point, "stop")
    deposed.cluster.engines.one(old).kill()
    deposed.wait_followed(point)
    (new,) = at_rest(deposed.cluster)
    assert new != old

    def refused():
        return deposed.cluster.logs.text("/agent-").count(REFUSED_WRITE)

    before = refused()
    done, rejected, log = deposed.go_on_in_vain()
    # The first write after the end of an engine returns its charge; the others have not begun.
    assert (done, rejected) == ([], []), (done, rejected)
    assert log.count('decision rejected decision="change reservations" changes=1 ') == 1, log
    if point == WRITE_SENDING:
        wait_until(lambda: refused() == before + 1, 20, "the late write is refused")
    else:
        assert refused() == before, "it was not sent"


def test_a_master_stopped_inside_the_directory_lock_delays_creates(deposed):
    name = deposed.start_stopping_at("orchestrator.ensure.admitted")
    deposed.wait_followed("orchestrator.ensure.admitted")
    row = deposed.control.wait_engine(deposed.link[0], name, reason="another process holds the lock")
    print("SHOW ENGINES says:", row["reason"])
    assert deposed.processes() == {}
    deposed.stopped.kill()
    deposed.cluster.logs.allow("decision failed.*another process holds the lock")
    assert list(at_rest(deposed.cluster, MADE_AFTER_ALL_S)) == [name]
