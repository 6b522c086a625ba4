"""Rows C14 and C15: a user who opens, starts, sets and sends as much as a proxy accepts. What is above a limit is refused with
54000 or waits, and other users are served meanwhile."""

import contextlib
import ssl
import time

import pytest
from impala_thrift_gen.TCLIService import ttypes

from harness.memory import no_growth
from harness.thrift_messages import framed
from harness.tier import only_long, parameter
from harness.transports import Http, Sasl

MIB = 1 << 20
SESSIONS_OF_USER, STATEMENTS_OF_USER = 500, 100
OPERATIONS_OF_SESSION, OPERATIONS_AT_ENGINE, STATEMENTS_IN_LOG = 1_000, 100, 1_000
ENDLESS_SELECT = "SELECT count(*) FROM generate_series(1, 100000000000)"
REQUEST_BYTES, REQUEST_MEMORY, OF_USER = 16 * MIB, 256 * MIB, 64 * MIB
# What the installation may grow by in addition to what requests may have.
GROWTH_MIB = 48
SERVED_WITHIN_S = 5
REQUESTS_OF_USER, PIECE_BYTES, QUIET_S, PAUSE_S = 8, 256 * 1024, 1, 0.001


def first_refused(count, attempt):
    """The first line of the refusal with 54000 of an attempt after `count` that were accepted."""
    for number in range(count):
        status = attempt().status
        assert status.statusCode == ttypes.TStatusCode.SUCCESS_STATUS, (number, status)
    status = attempt().status
    assert status.sqlState == "54000", status
    return status.errorMessage.split("\n")[0]


@contextlib.contextmanager
def bystander(target):
    """A session of another tenant, which serves at the beginning and at the end."""
    with Sasl(target, "bob") as other:
        session = other.open()

        def serve():
            began = time.monotonic()
            assert other.rows(session, "SELECT 40 + 2") == [(42,)] and other.serves()
            assert time.monotonic() - began < SERVED_WITHIN_S

        serve()
        yield other
        serve()


def test_c14_the_sessions_operations_and_settings_of_a_user_are_limited(target):
    with no_growth(target.standalone.program.pid, GROWTH_MIB):
        with Http(target, "superset") as sessions, bystander(target):

            def opened():
                response = sessions.try_open()
                if response.sessionHandle:
                    sessions.sessions.append(response.sessionHandle)
                return response

            assert first_refused(SESSIONS_OF_USER, opened) == 'user "superset" has too many sessions'
        for statement, count, expected in (
            ("SELECT 1", OPERATIONS_AT_ENGINE, "too many open operations in the session"),
            ("SHOW TENANTS", OPERATIONS_OF_SESSION, "the session has too many open operations"),
        ):
            with Sasl(target, "alice") as alice, bystander(target):
                session = alice.open()
                assert first_refused(count, lambda it=alice, s=session, q=statement: it.execute(s, q)) == expected
        with Sasl(target, "superset") as setting, bystander(target):
            session, numbers = setting.open(), iter(range(STATEMENTS_IN_LOG + 1))

            def set_another():
                response = setting.execute(session, f"SET c14.key{next(numbers)} = 1")
                if response.operationHandle:
                    setting.call("CloseOperation", ttypes.TCloseOperationReq(response.operationHandle))
                return response

            assert first_refused(STATEMENTS_IN_LOG, set_another) == "the session has too many settings"
        with Sasl(target, "alice") as alice, bystander(target):
            halves = [alice.open(), alice.open()] * (STATEMENTS_OF_USER // 2 + 1)
            running = iter([ttypes.TExecuteStatementReq(it, ENDLESS_SELECT, None, True) for it in halves])
            refusal = first_refused(STATEMENTS_OF_USER, lambda: alice.call("ExecuteStatement", next(running)))
            assert refusal == 'user "alice" has too many running statements'


def send_all_but_the_end(connections, message):
    """Sends as much of the message on each connection as the proxy receives, without its last byte; ends when nothing has been
    received for a second. Returns on how many connections all of it was sent."""
    left = {it: memoryview(message)[:-1] for it in connections}
    for connection in connections:
        connection.setblocking(False)
    last = time.monotonic()
    while time.monotonic() - last < QUIET_S:
        for connection, rest in left.items():
            with contextlib.suppress(ssl.SSLWantWriteError, ssl.SSLWantReadError):
                if rest and (sent := connection.send(rest[:PIECE_BYTES])):
                    left[connection], last = rest[sent:], time.monotonic()
        time.sleep(PAUSE_S)
    return sum(not it for it in left.values())


# The users who send, and the memory that all of their requests may have.
MANY = ["carol", "alice", "superset", "etl", "olga"]
FLOODS = [parameter((["carol"], OF_USER), ()), parameter((MANY, REQUEST_MEMORY), only_long)]


@pytest.mark.parametrize(("users", "memory"), FLOODS, ids=["one user", "five users"])
def test_c15_many_requests_of_16_mib_take_the_memory_for_requests_only(target, users, memory):
    """None of them ends. Those that do not fit into the memory are not read."""
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(bystander(target))
        connections = [stack.enter_context(Sasl(target, user)).connection for user in users for _ in range(REQUESTS_OF_USER)]
        message = framed(b"\x80\x01\x00\x01" + bytes(REQUEST_BYTES - 4))
        with no_growth(target.standalone.program.pid, memory // MIB + GROWTH_MIB):
            fit = send_all_but_the_end(connections, message)
            assert fit == memory // REQUEST_BYTES, fit
            if memory < REQUEST_MEMORY:
                # What another user sends needs memory for requests, too.
                assert other.rows(other.session, "SELECT 1" + " " * MIB) == [(1,)]
            assert other.rows(other.session, "SELECT 1") == [(1,)]
