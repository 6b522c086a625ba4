"""The relay that other scenarios cut the network with, against a plain server: a cut that cuts nothing proves nothing."""

import contextlib
import socket
import threading

import pytest

from harness.tcp_relay import TcpRelay
from harness.waiting import stays, wait_until

WITHIN_S = 5
SILENT_S = 0.5


@pytest.fixture
def echo():
    """A server that sends back what it hears; it knows which connections were reset and which have ended."""
    listener = socket.create_server(("127.0.0.1", 0))
    ends = []

    def serve(connection):
        with connection:
            try:
                while data := connection.recv(4096):
                    connection.sendall(data)
                ends.append("ended")
            except ConnectionResetError:
                ends.append("reset")

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield "127.0.0.1:%d" % listener.getsockname()[1], ends
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.fixture
def relay(echo):
    with TcpRelay(echo[0]) as relay:
        yield relay


def connect(relay):
    host, port = relay.address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), WITHIN_S)


def echoed(connection, text):
    connection.sendall(text)
    return connection.recv(4096)


def test_a_silent_cut_delivers_everything_after_it_is_healed(relay, echo):
    with connect(relay) as connection:
        assert echoed(connection, b"one") == b"one"
        relay.cut("silence")
        before = relay.passed
        connection.sendall(b"two")
        with connect(relay) as another:
            another.sendall(b"three")
            stays(lambda: relay.passed == before and not echo[1], SILENT_S, "nothing passes and nobody is told")
            relay.heal()
            assert connection.recv(4096) == b"two"
            assert another.recv(4096) == b"three"
    wait_until(lambda: echo[1] == ["ended", "ended"], WITHIN_S, "both ends were passed on")
    assert (relay.connections, relay.bytes_to_server, relay.bytes_to_client) == (2, 11, 11)


def test_a_reset_reaches_both_sides_and_refuses_new_connections(relay, echo):
    with connect(relay) as connection:
        assert echoed(connection, b"one") == b"one"
        relay.cut("reset")
        with pytest.raises(ConnectionResetError):
            connection.recv(4096)
    wait_until(lambda: echo[1] == ["reset"], WITHIN_S, "the server was told too")
    with pytest.raises(ConnectionRefusedError):
        connect(relay)
    relay.heal()
    with connect(relay) as connection:
        assert echoed(connection, b"two") == b"two"
