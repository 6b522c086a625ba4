"""Cancel, drain, hand-over and limits while the clients of the benchmark load two proxies and compare every byte that they get.

Two cores are busy all the time, so this asserts what happens, and prints how long it took.
"""

import contextlib
import signal
import time

import pytest
from TCLIService import ttypes

from harness.benchmark_load import BACKEND, BenchmarkLoad
from harness.clients import pyhive_session, refusal_of, rows
from harness.control import Control
from harness.masters import Masters, summary, wall_ms
from harness.memory import no_growth
from harness.plain_client import open_session
from harness.tier import only_long
from harness.waiting import wait_until

pytestmark = [pytest.mark.alone, only_long]

CLIENTS = 8
ENGINES = 2
CANCELS = 20
DRAINS = 4
HAND_OVERS = 4
SESSIONS = 20
SLOW_READERS = 8
# Of one frame; what all slow readers do not read is more than a process may hold.
FRAME_BYTES = 16_000_000
# A slow reader costs the heads of two frames. The rest is what the load needs from one moment to the next.
GROWTH_MIB = 24
UNREAD_S = 10
STATE = ttypes.TOperationState


@pytest.fixture
def loaded(own_cluster, folder):
    """(cluster, control, tenant, pool, load): proxies a and b are under load, and proxy c is the master."""
    cluster = own_cluster(
        candidates=("proxy-c", "proxy-d"), start=False, hiveserver2=BACKEND, proxy={"max_sessions_per_user": SESSIONS}
    )
    cluster.start(("agent-1", "agent-2", "proxy-c"))
    cluster.wait_for_master()
    for name in ("proxy-a", "proxy-b"):
        cluster.start_program(name)
    control = Control(cluster.addresses["proxy-a"])
    options = f", ENGINE_TYPE 'hiveserver2', MIN_ENGINES {ENGINES}, MAX_ENGINES {ENGINES + 1}"
    tenant, pool, _ = control.make("loaded", users="'driver', 'analyst'", options=options)
    control.wait_ready(tenant, ENGINES)
    addresses = [cluster.addresses[it] for it in ("proxy-a", "proxy-b")]
    with BenchmarkLoad(folder, addresses, "driver", CLIENTS) as load:
        yield cluster, control, tenant, pool, load
        print(load.end())


def test_statements_are_cancelled_under_load(loaded):
    cluster, _, _, _, load = loaded
    took = []
    with pyhive_session(cluster.addresses["proxy-b"], "analyst") as session:
        for _ in range(CANCELS):
            cursor = session.cursor()
            cursor.execute("SELECT hot_path_wait()", async_=True)
            assert cursor.poll().operationState == STATE.RUNNING_STATE
            began = time.monotonic()
            cursor.cancel()
            wait_until(lambda cursor=cursor: cursor.poll().operationState == STATE.CANCELED_STATE, 20, "it is cancelled", 0.005)
            took.append((time.monotonic() - began) * 1000)
            cursor.close()
            # In the middle of a result, too: the connection is between two calls then.
            cursor = session.cursor()
            cursor.execute("SELECT hot_path_frames(64000, 1000)")
            assert cursor.fetchone()[0] == 0
            cursor.cancel()
            cursor.close()
            assert rows(session, "SELECT 1")[0]["region"] == "north"
    load.goes_on()
    summary("from CancelOperation to the state CANCELED", took)


def test_engines_are_drained_under_load(loaded):
    cluster, control, tenant, pool, load = loaded
    for _ in range(DRAINS):
        name = next(it["engine"] for it in control.engines(tenant) if it["current"] and it["state"] == "ready")
        began = time.monotonic()
        control.execute(f"RESTART ENGINE {pool} '{name}'")
        assert cluster.wait_ended(name).startswith("replaced by ")
        print(f"an engine was drained within {time.monotonic() - began:.1f} s")
        control.wait_ready(tenant, ENGINES)
        load.goes_on()


def test_the_mastership_is_handed_over_under_load(loaded):
    cluster, control, tenant, pool, load = loaded
    cluster.start_program("proxy-d")
    masters = Masters(cluster)
    took = []
    for number in (signal.SIGTERM, signal.SIGKILL) * (HAND_OVERS // 2):
        masters.wait_queued(2)
        term = masters.wait_acting()
        name, at = masters.program_of(term), wall_ms()
        cluster.programs[name].send(number)
        took.append(masters.wait_term_after(term.epoch).since_ms - at)
        masters.wait_acting(term.epoch)
        load.goes_on()
        cluster.restart(name)
    # The new master works.
    name = control.engines(tenant)[0]["engine"]
    control.execute(f"RESTART ENGINE {pool} '{name}'")
    assert cluster.wait_ended(name).startswith("replaced by ")
    load.goes_on()
    summary("from the signal to the successor's epoch", took)


def test_limits_hold_under_load(loaded):
    cluster, _, _, _, load = loaded
    address = cluster.addresses["proxy-a"]
    with contextlib.ExitStack() as sessions:
        for _ in range(SESSIONS):
            sessions.enter_context(contextlib.closing(open_session(address, "analyst")))
        with pytest.raises(Exception) as refused:
            open_session(address, "analyst")
        refusal = refusal_of(refused.value)
        assert refusal.sqlstate == "54000" and "max_sessions_per_user" in refusal.message, refusal
    load.goes_on()

    readers = [SlowReader(address) for _ in range(SLOW_READERS)]
    processes = [cluster.programs["proxy-a"].pid, *(it.pid for it in cluster.engines.all().values())]
    with contextlib.ExitStack() as watched:
        growths = [watched.enter_context(no_growth(pid, GROWTH_MIB)) for pid in processes]
        for reader in readers:
            reader.ask()
        ends = time.monotonic() + UNREAD_S
        while time.monotonic() < ends:
            load.goes_on()
    for reader in readers:
        assert reader.read() > FRAME_BYTES / 100
        reader.close()
    load.goes_on()
    print(f"{SLOW_READERS} readers of {FRAME_BYTES} bytes: {', '.join(f'{it.needed_mib:.1f} MiB' for it in growths)}")


class SlowReader:
    """A client that has asked for a frame and does not read it."""

    def __init__(self, address):
        self.session = open_session(address, "analyst")
        self.cursor = self.session.cursor()
        self.cursor.execute(f"SELECT hot_path_frames({FRAME_BYTES}, 1)")

    def ask(self):
        request = ttypes.TFetchResultsReq(self.cursor._operationHandle, ttypes.TFetchOrientation.FETCH_NEXT, 1 << 20)
        self.session.client.send_FetchResults(request)

    def read(self):
        """Reads the frame, checks its rows, and answers how many they are."""
        columns = self.session.client.recv_FetchResults().results.columns
        numbers, regions = columns[0].i64Val.values, columns[3].stringVal.values
        assert numbers == list(range(len(numbers))) and set(regions) == {"north"} and len(regions) == len(numbers)
        return len(numbers)

    def close(self):
        self.cursor.close()
        self.session.close()
