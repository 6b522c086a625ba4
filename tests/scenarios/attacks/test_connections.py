"""A21 and A22: more connections than a proxy serves, at the same time and per second."""

import contextlib
import http.client
import os
import resource
import socket
import threading
import time

import pytest

from harness.attacked import Attacked
from harness.clients import split
from harness.fixtures import searched
from harness.memory import no_growth
from harness.transports import TRANSPORTS, Refused, Sasl, session_over
from harness.waiting import wait_until

SLOW, FAST, OTHER = ("127.0.14.1", "127.0.14.3", "127.0.14.4"), "127.0.14.2", "127.0.0.2"
SLOW_CONNECTIONS, FAST_CONNECTIONS = 10_000, 1_000
# What one address may have: unauthenticated connections, and those that wait for a place among these. What all may have:
# waiting connections, and those that are just being rejected.
UNAUTHENTICATED, WAITING, ALL_WAITING, REJECTED = 32, 500, 1_000, 32
# A flood that took fewer places than this would not have been one.
LEAST_TAKEN = 400
# A22: new connections per second from one address, and in a burst. The default is 1,000, which a test cannot exceed everywhere.
CONNECT_RATE, BURST = 200, 400
# File descriptors that the installation itself may open meanwhile, and those that this process needs.
OWN_FILES, FILES_LEFT = 32, 512
# The connections that are opened before the next wait. One that finds the listener's queue full would be repeated after 1 s.
AT_ONCE = 64
GROWTH_MIB = 64
SERVED_WITHIN_S, FLOOD_S = 2, 1
TOO_FAST = "too many new connections from one address\nDetail: The limit for "
CLIENT_HELLO = b"\x16"


@pytest.fixture
def limited(workspace, request):
    """An installation with that rate."""
    installation = Attacked(workspace / "limited", f"[proxy]\nconnect_rate = {CONNECT_RATE}\n", tenants={})
    with contextlib.closing(installation):
        yield from searched(installation.start(), request)
        installation.check_health()


@contextlib.contextmanager
def open_files(wanted):
    """Inside, this process may open as many files as the system allows; the number that it may use, `wanted` at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield wanted if hard == resource.RLIM_INFINITY else min(wanted, hard - FILES_LEFT)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(target, source):
    """A connection on its way, without waiting for the server."""
    connection = socket.socket()
    connection.setblocking(False)
    connection.bind((source, 0))
    connection.connect_ex(split(target.address))
    return connection


def connect_many(stack, target, source, count, first=b""):
    """So many connections, on each of which `first` is sent, until the stack ends. Another address is served meanwhile."""
    connections = []
    while len(connections) < count:
        batch = [stack.enter_context(connect(target, source)) for _ in range(min(AT_ONCE, count - len(connections)))]
        # Connections are accepted in their order: when this one is served, all before it have been.
        assert target.http("GET", "/livez", source=OTHER)[0] == http.client.OK
        for connection in batch:
            # The server may have closed it.
            with contextlib.suppress(ConnectionError):
                connection.send(first)
        connections += batch
    return connections


def is_open(connection):
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def files_of(target):
    return len(os.listdir(f"/proc/{target.standalone.program.pid}/fd"))


def assert_serves_others(target):
    """Logins from another address, and their calls."""
    for transport in TRANSPORTS.values():
        began = time.monotonic()
        with transport(target, "alice", source=OTHER) as other:
            other.open()
            assert other.serves(), transport
        assert time.monotonic() - began < SERVED_WITHIN_S, transport


def test_a21_10_000_slow_connections_take_bounded_resources(target):
    """Each begins a TLS handshake and continues no further. Sessions stay, and users log in from other addresses."""
    with contextlib.ExitStack() as stack:
        count = stack.enter_context(open_files(SLOW_CONNECTIONS))
        session = stack.enter_context(session_over(Sasl, target, "carol"))
        assert_serves_others(target)
        before = files_of(target)
        with no_growth(target.standalone.program.pid, GROWTH_MIB):
            for address in SLOW:
                connect_many(stack, target, address, count // len(SLOW), CLIENT_HELLO)
                assert_serves_others(target)
            taken = files_of(target) - before
            most = len(SLOW) * UNAUTHENTICATED + ALL_WAITING + REJECTED + OWN_FILES
            assert LEAST_TAKEN <= taken <= most, (count, taken, most)
            assert session.serves()


def test_a22_1_000_connections_a_second_leave_others_their_service(limited):
    """Those above the rate are closed, or rejected with the reason; the address is served again when the flood has ended."""
    target = limited
    with contextlib.ExitStack() as stack:
        began = time.monotonic()
        flood = connect_many(stack, target, FAST, FAST_CONNECTIONS)
        assert_serves_others(target)
        admitted = min(UNAUTHENTICATED + WAITING, BURST + CONNECT_RATE * (time.monotonic() - began))
        still_open = sum(map(is_open, flood))
        assert still_open <= admitted + REJECTED, (still_open, admitted)

    ended = threading.Event()

    def connect_and_close():
        while not ended.wait(1 / FAST_CONNECTIONS):
            connect(target, FAST).close()

    thread = threading.Thread(target=connect_and_close)
    thread.start()
    try:
        began = time.monotonic()
        while time.monotonic() - began < FLOOD_S:
            assert_serves_others(target)
        wait_until(lambda: attempt(target, FAST).startswith(TOO_FAST + FAST), 2, "a login is rejected with the reason", 0)
    finally:
        ended.set()
        thread.join()
    wait_until(lambda: attempt(target, FAST) == "", 3, "the address is served again", 0)


def attempt(target, source):
    """The reason why a login is rejected; that of a closed connection has no text for users. Empty: it is admitted."""
    try:
        with Sasl(target, "alice", source=source):
            return ""
    except Refused as refused:
        return str(refused)
    except OSError as closed:
        return repr(closed)
