"""Ten minutes of unauthenticated connections: memory stays bounded, a user's queries are hardly slower, and others log in.

The flood comes from fewer addresses than could take all places before authentication together, and each of them keeps more
connections than it may have.
"""

import contextlib
import os
import pathlib
import socket
import statistics
import time

import pytest

from harness.attacked import Attacked
from harness.clients import split
from harness.fixtures import started
from harness.login_flood import PER_ADDRESS, Flood
from harness.memory import no_growth
from harness.tier import only_long
from harness.transports import Sasl
from harness.waiting import wait_until

pytestmark = pytest.mark.alone

# EH_FLOOD_SECONDS is for shorter runs.
SECONDS = int(os.environ.get("EH_FLOOD_SECONDS", "600"))
# The same client without a flood, before it and, to see whether the machine was equally fast, after it.
ALONE_S = max(SECONDS // 10, 10)
# A burst of one address is twice as many; each of these connections is a file of this process.
CONNECT_RATE = 200
ADDRESSES = [f"127.0.32.{number}" for number in range(1, 25)]
OTHER, FAST = "127.0.0.2", "127.0.33.1"
# 19 MiB for each password hash, of which one for each processor is computed at the same time, at most twice.
HASHES_MIB = 2 * os.cpu_count() * 19
GROWTH_MIB = 96 + HASHES_MIB
P99_FACTOR = 2
# A login of another address: the hash of a password, and what else is computed meanwhile.
LOGIN_WITHIN_S, LOGIN_EVERY_S = 5, 5
# What limits reject is logged once a minute.
LOGGED_WITHIN_S = 90
AUTOGROUP = pathlib.Path("/proc/sys/kernel/sched_autogroup_enabled")


@pytest.fixture
def one_scheduling_group():
    """Outside control groups, and so neither in a container nor in a service, Linux schedules each session of processes as a
    group: what a proxy computes in idle time would give way to its own threads, and not to those of engines and clients."""
    if not os.access(AUTOGROUP, os.W_OK):
        # A kernel without them, or a container, which has a control group.
        yield
        return
    before = AUTOGROUP.read_text()
    AUTOGROUP.write_text("0")
    try:
        yield
    finally:
        AUTOGROUP.write_text(before)


@pytest.fixture
def target(workspace, one_scheduling_group):
    yield from started(Attacked(workspace / "flooded", f"[proxy]\nconnect_rate = {CONNECT_RATE}\n"))


@pytest.fixture
def flood(target):
    flood = Flood(target.address, ADDRESSES)
    yield flood
    flood.kill()


def query_for(client, session, seconds, between=lambda: None):
    """How long each of a client's queries takes, in ms."""
    took, ends = [], time.monotonic() + seconds
    while (began := time.monotonic()) < ends:
        assert client.rows(session, "SELECT 40 + 2 AS answer") == [(42,)]
        took.append((time.monotonic() - began) * 1_000)
        between()
    return took


class Logins:
    """Another user logs in from time to time, from an address of its own."""

    def __init__(self, target):
        self.target, self.took, self.next = target, [], 0

    def __call__(self):
        now = time.monotonic()
        if now < self.next:
            return
        with Sasl(self.target, "carol", source=OTHER) as other:
            other.open()
        self.took.append(time.monotonic() - now)
        self.next = time.monotonic() + LOGIN_EVERY_S


def p99(took):
    return statistics.quantiles(took, n=100)[98]


def exceed_connect_rate(target):
    """More connections at once than the burst of one address."""
    with contextlib.ExitStack() as stack:
        for _ in range(3 * CONNECT_RATE):
            connection = stack.enter_context(socket.socket())
            connection.setblocking(False)
            connection.bind((FAST, 0))
            connection.connect_ex(split(target.address))


@only_long
def test_a_flood_of_logins_takes_bounded_memory_and_delays_no_user(target, request):
    logins = Logins(target)
    with Sasl(target, "alice") as client:
        session = client.open()
        query_for(client, session, 3, logins)
        before = query_for(client, session, ALONE_S)
        pid = target.standalone.program.pid
        with no_growth(pid, GROWTH_MIB) as growth:
            flood = request.getfixturevalue("flood")
            during = query_for(client, session, SECONDS, logins)
        counts = flood.end()
        after = query_for(client, session, ALONE_S)
    print(
        f"a flood of {SECONDS} s from {len(ADDRESSES)} addresses, with {sum(PER_ADDRESS.values())} connections of each at once"
    )
    print(f"{'kind':16}{'opened':>8}{'answered':>10}{'closed':>8}{'failed':>8}")
    for kind, count in counts.items():
        print(f"{kind:16}" + "".join(f"{count.get(end, 0):>{width}}" for end, width in ENDS))
    print(f"{'one client':16}{'queries':>8}{'median ms':>10}{'p99 ms':>8}")
    for name, took in (("before", before), ("during", during), ("after", after)):
        print(f"{name:16}{len(took):>8}{statistics.median(took):>10.1f}{p99(took):>8.1f}")
    print(f"logins from another address: {len(logins.took)}, at most {max(logins.took):.2f} s")
    print(f"memory: grown by {growth.needed_mib:.1f} MiB at most; the limit is {GROWTH_MIB} MiB")
    exceed_connect_rate(target)
    wait_until(lambda: 'limit="connect_rate"' in target.logs.text(), LOGGED_WITHIN_S, "the limit is logged")
    for kind, count in counts.items():
        assert count.get("opened", 0) > len(ADDRESSES), f"void: {kind}: {count}"
    assert max(logins.took) < LOGIN_WITHIN_S
    assert p99(during) <= P99_FACTOR * p99(before), (p99(before), p99(during), p99(after))
    target.check_health()
    target.logs.check()


ENDS = (("opened", 8), ("answered", 10), ("closed", 8), ("failed", 8))
