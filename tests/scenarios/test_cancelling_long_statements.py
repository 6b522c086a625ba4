"""A long statement is cancelled within two seconds: its client is notified, and the engine stops computing."""

import signal
import time

import pytest
from TCLIService.ttypes import TOperationState

from harness.clients import impyla_session, pyhive_session
from harness.java import Jdbc, JdbcError, start_beeline
from harness.processes import cpu_seconds
from harness.waiting import PAUSE_S, wait_until

pytestmark = pytest.mark.alone

LONG = "SELECT count(*) FROM generate_series(1, 100000000000)"
CANCEL_WITHIN_S = 2.0
# The CPU time within a second that shows that an engine computes, also on a machine that is busy otherwise.
COMPUTES_S, COMPUTES_WITHIN_S = 0.25, 1.0
# The most CPU time of an engine that rests, and for how long it has to rest.
RESTS_S, RESTS_FOR_S = 0.05, 0.6


def computes(pid):
    """Whether the process uses that much CPU time within a second; returns as soon as it has."""
    before, until = cpu_seconds(pid), time.monotonic() + COMPUTES_WITHIN_S
    while time.monotonic() < until:
        if cpu_seconds(pid) - before > COMPUTES_S:
            return True
        time.sleep(PAUSE_S)
    return False


def wait_resting(pid):
    """Waits until the process has rested for long enough; returns until when it has computed for certain. It may have ended
    at any time between two looks, which are far apart if this process waits for a processor."""
    looked = computed = since = time.monotonic()
    used = cpu_seconds(pid)

    def rests():
        nonlocal looked, computed, since, used
        now, by_now = time.monotonic(), cpu_seconds(pid)
        if by_now - used > RESTS_S:
            computed, since, used = looked, now, by_now
        looked = now
        return now - since >= RESTS_FOR_S

    wait_until(rests, CANCEL_WITHIN_S * 5, "the engine's CPU time stops rising")
    return computed


@pytest.fixture
def busy(tenant):
    """Checks around a cancelled statement: `began()` before the cancel, `ended(since)` after it."""

    class Busy:
        pid = tenant.process.pid

        def began(self):
            wait_until(lambda: computes(self.pid), 30, "the engine computes", 0)
            return time.monotonic()

        def ended(self, since):
            took = wait_resting(self.pid) - since
            assert took < CANCEL_WITHIN_S, f"the engine computed for {took:.1f} s more"

    return Busy()


def test_pyhive_cancels_a_long_statement(standalone, busy):
    with pyhive_session(standalone.address, "alice") as session:
        cursor = session.cursor()
        cursor.execute(LONG, async_=True)
        since = busy.began()
        cursor.cancel()
        wait_until(lambda: cursor.poll().operationState == TOperationState.CANCELED_STATE, 10, "it is cancelled")
        busy.ended(since)
        cursor.close()
        cursor = session.cursor()
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]


def test_impyla_cancels_a_long_statement(standalone, busy):
    with impyla_session(standalone.address, "alice") as cursor:
        cursor.execute_async(LONG)
        since = busy.began()
        cursor.cancel_operation()
        busy.ended(since)
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]


def test_jdbc_cancels_a_long_statement_from_another_thread(standalone, busy):
    with Jdbc(standalone.address, "alice") as jdbc:
        jdbc.start(LONG)
        since = busy.began()
        jdbc.cancel()
        with pytest.raises(JdbcError) as error:
            jdbc.end(within_s=10)
        busy.ended(since)
        assert error.value.sqlstate in ("01000", "57014"), error.value
        assert jdbc.rows("SELECT 1 AS one") == [{"one": "1"}]


def test_jdbcs_query_timeout_raises_sql_timeout_exception(standalone, busy):
    with Jdbc(standalone.address, "alice") as jdbc:
        jdbc.start(LONG, timeout_s=1)
        with pytest.raises(JdbcError) as error:
            jdbc.end(within_s=10)
        busy.ended(time.monotonic())
        assert error.value.kind == "SQLTimeoutException", error.value
        assert jdbc.rows("SELECT 1 AS one") == [{"one": "1"}]


def test_beelines_ctrl_c_cancels_a_long_statement(standalone, busy):
    process = start_beeline(standalone.address, LONG, user="alice")
    try:
        since = busy.began()
        process.send_signal(signal.SIGINT)
        busy.ended(since)
    finally:
        process.kill()
        process.communicate(timeout=10)


def test_a_client_that_is_killed_takes_its_statement_along(standalone, busy):
    process = start_beeline(standalone.address, LONG, user="alice")
    try:
        since = busy.began()
    finally:
        process.kill()
        process.communicate(timeout=10)
    busy.ended(since)
