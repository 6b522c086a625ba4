"""kill -9 of engines and of standalone, Ctrl-C, and starts that are refused."""

import contextlib
import re
import signal
import socket

import pytest

from harness.clients import pyhive_session, rows
from harness.control import Control
from harness.processes import run
from harness.waiting import wait_until

pytestmark = pytest.mark.quick

ENDS_WITHIN_S = 12
# The drain of standalone, and what a killed engine has to vanish.
ENGINES_END_WITHIN_S = 10 + 5
SESSIONS = 10


@pytest.fixture
def two_engines(own_standalone):
    own_standalone.env = {
        "ENGINEHOUSE_LOG": "warn,enginehouse=info,master=info,engine_agent=info,proxy=debug,sqlx=error,zookeeper_client=error"
    }
    own_standalone.start()
    control = Control(own_standalone.address)
    tenant, pool, unit = control.make("t_1", options=", MIN_ENGINES 2", users="'alice'")
    engines = [it["engine"] for it in control.wait_ready(tenant, 2)]
    return own_standalone, control, tenant, pool, unit, engines


def engine_of(session, installation):
    rows(session, "SELECT 1")
    bound = re.findall(r"session bound.*?engine=(\S+)", installation.logs.text("enginehouse.log"))
    return bound[-1].strip('"')


def session_on_each(stack, installation, engines):
    """A session on each of two engines (name → session). New ones go to the less loaded engine; one that reports late comes
    last."""
    found = {}
    for _ in range(SESSIONS):
        session = stack.enter_context(pyhive_session(installation.address, "alice"))
        found.setdefault(engine_of(session, installation), session)
        if sorted(found) == sorted(engines):
            return found
    raise AssertionError(f"{SESSIONS} sessions are all on {list(found)}, of {engines}")


def test_the_death_of_an_engine_process_reaches_only_its_sessions(two_engines):
    installation, control, tenant, pool, unit, engines = two_engines
    installation.logs.allow("engine lost while a statement was open")
    running = installation.engines.all()
    assert sorted(running) == sorted(engines)
    assert len({it.pid for it in running.values()} | {installation.program.pid}) == 3
    with contextlib.ExitStack() as stack:
        bound = session_on_each(stack, installation, engines)
        victim, spared = engines
        cursor = bound[victim].cursor()
        cursor.execute("SELECT count(*) FROM generate_series(1, 100000000000)", async_=True)
        killed = running[victim]
        killed.kill()

        def lost():
            try:
                state = cursor.poll()
            except Exception as error:
                return error.args[0].status.sqlState, error.args[0].status.errorMessage
            return (state.sqlState, state.errorMessage) if state.sqlState else None

        sqlstate, message = wait_until(lost, 10, "the session reports that its engine is lost")
        assert sqlstate == "08S01" and victim in message, (sqlstate, message)
        assert rows(bound[spared], "SELECT 1 AS one") == [{"one": 1}]
        assert rows(bound[victim], "SELECT 1 AS one") == [{"one": 1}]
        assert running[spared].is_alive()
    filled = control.wait_another(tenant, *engines)["engine"]
    assert {it["engine"] for it in control.wait_ready(tenant, 2)} == {spared, filled}
    assert running[spared].is_alive()


def test_standalone_adopts_its_engines_after_kill_9(two_engines):
    installation, control, tenant, pool, unit, engines = two_engines
    gone = control.start(tenant, pool, unit)
    control.stop(pool, gone, "WITHIN '10s'", wait="30s")
    before = {name: it.process for name, it in installation.engines.all().items()}
    assert sorted(before) == sorted(engines)
    shown = {it["engine"]: it["started_at"] for it in control.engines(tenant)}
    installation.program.kill()
    installation.start()
    control = Control(installation.address)
    control.wait_ready(tenant, 2)
    after = {name: it.process for name, it in installation.engines.all().items()}
    assert after == before
    assert {it["engine"]: it["started_at"] for it in control.engines(tenant)} == shown
    assert control.execute("SELECT 1 AS one", "alice") == [{"one": 1}]


def test_the_next_standalone_ends_engines_without_a_slot(two_engines):
    installation, control, tenant, pool, unit, _ = two_engines
    unwanted = control.start(tenant, pool, unit)
    process = installation.engines.one(unwanted)
    installation.program.kill()
    installation.env = {"ENGINEHOUSE_FAILPOINTS": "agent.request.committed=kill"}
    installation.start()
    with pytest.raises(Exception):
        Control(installation.address).execute(f"STOP ENGINE {pool} '{unwanted}'")
    assert installation.program.wait(within_s=10) == -signal.SIGKILL
    assert process.is_alive()
    installation.env = None
    installation.start()
    wait_until(lambda: not process.is_alive(), 30, "the engine without a slot has ended")
    Control(installation.address).wait_ready(tenant, 2)


def test_ctrl_c_drains_and_leaves_nothing_running(two_engines):
    installation, *_ = two_engines
    with pyhive_session(installation.address, "alice") as session:
        cursor = session.cursor()
        cursor.execute("SELECT count(*) FROM generate_series(1, 100000000000)", async_=True)
        code, took = installation.stop(signal.SIGINT)
    shutdown = re.findall(r'part="?([^"]+?)"? after_ms=(\d+)', installation.logs.text("enginehouse.log"))
    assert code == 0
    assert float(dict(shutdown)["engines"]) < 1000 * ENGINES_END_WITHIN_S, (took, shutdown)
    assert installation.engines.strays() == {}


def test_an_idle_standalone_ends_at_once_and_restarts_with_its_state(two_engines):
    installation, control, tenant, *_ = two_engines
    code, took = installation.stop(signal.SIGTERM)
    assert code == 0
    assert took < ENDS_WITHIN_S, took
    assert installation.engines.strays() == {}
    installation.start()
    assert len(Control(installation.address).wait_ready(tenant, 2)) == 2


def test_a_second_standalone_on_the_same_data_is_refused(standalone, folder):
    done = run(["standalone", "--data-dir", standalone.data, "--listen", "127.0.0.1:0"], within_s=30, cwd=folder)
    assert done.returncode != 0
    assert "another enginehouse standalone has the data directory" in done.stderr, done.stderr
    assert "Hint:" in done.stderr and "ready:" not in done.stdout


def test_a_port_that_is_in_use_is_named_in_a_clear_error(own_standalone):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        own_standalone.start(listen=f"127.0.0.1:{port}", wait=False)
        assert own_standalone.program.wait(within_s=30) != 0
        log = own_standalone.program.logged()
        assert f"127.0.0.1:{port}" in log and "in use" in log, log
        assert "panicked" not in log and "backtrace" not in log.lower(), log
    assert own_standalone.engines.strays() == {}


def test_an_address_that_is_not_loopback_is_refused_with_a_hint(folder):
    done = run(["standalone", "--data-dir", folder / "data", "--listen", "0.0.0.0:0"], within_s=30, cwd=folder)
    assert done.returncode != 0 and "loopback" in done.stderr and "Hint:" in done.stderr, done.stderr
