"""Row D11: an engine that answers a proxy what no HiveServer2 answers. The session that is bound to it receives 08S01, or its
connection is closed when part of the reply has been sent on; the proxy needs no memory for what is only announced."""

import contextlib
import functools
import struct

import pytest
from impala_thrift_gen.TCLIService import ttypes
from thrift.Thrift import TMessageType

from harness.captured_engine import captured_engine
from harness.clients import rows
from harness.hostile_engine import VALUE, HostileEngine
from harness.memory import no_growth
from harness.stolen_keys import Stolen
from harness.thrift_messages import encode, execute, framed
from harness.tier import some
from harness.transports import Sasl

GROWTH_MIB = 16
MIB = 1 << 20
ENDLESS = 10**9
# The longest reply of any kind that a proxy accepts, and one that it forwards in part.
REPLY_BYTES, FORWARDED_BYTES = 256 * MIB, 4 * MIB
TENANT = {"enginehouse.tenant": "d11"}
LOST = r"engine lost while a statement was (sent|open) .*engine \\\"d11-"
# Twelve status calls without a reply, 5 s each, after the first 5 s.
SILENT_FOR_S = 120


class Attempt:
    """A session with an open result, at the engine that lies."""

    def __init__(self, target, stack):
        self.connection = stack.enter_context(Sasl(target, "carol"))
        self.session = self.connection.open(**TENANT)
        self.operation = self.connection.execute(self.session, "SELECT 1").operationHandle
        assert self.operation

    def call(self, method):
        """A call that the proxy sends on."""
        requests = {
            "GetResultSetMetadata": ttypes.TGetResultSetMetadataReq(self.operation),
            "FetchResults": ttypes.TFetchResultsReq(self.operation, ttypes.TFetchOrientation.FETCH_NEXT, 10),
        }
        return encode(method, requests[method]) if method in requests else execute(self.session, "SELECT 1")


def announced(length, reply):
    return [struct.pack(">I", length), reply]


def head(reply):
    """The bytes of version, kind, name and sequence number."""
    (name,) = struct.unpack(">i", reply[4:8])
    return 8 + name + 4


def changed_head(reply, kind=TMessageType.REPLY, name=None, ahead=0):
    """The reply under another kind or name, or with a sequence number that is `ahead`."""
    at = head(reply)
    (seqid,) = struct.unpack(">i", reply[at - 4 : at])
    name = name or reply[8 : at - 4]
    return [framed(struct.pack(">HBBi", 0x8001, 0, kind, len(name)) + name + struct.pack(">i", seqid + ahead) + reply[at:])]


def counted(before, count):
    """Replaces the number of elements in the list that begins so."""

    def lie(reply):
        assert before + struct.pack(">i", 1) in reply, reply
        return [framed(reply.replace(before + struct.pack(">i", 1), before + struct.pack(">i", count)))]

    return lie


def endless_error(reply):
    """The text of an error that does not end."""
    yield struct.pack(">I", REPLY_BYTES)
    error = struct.pack(">BhBhi", 12, 0, 12, 1, 0x08000100) + struct.pack(">Bi", 0, 3)
    yield reply[: head(reply)] + error + struct.pack(">Bhi", 11, 5, REPLY_BYTES - MIB)
    for _ in range(REPLY_BYTES // MIB):
        yield b"a" * MIB


COLUMNS = b"\x0f\x00\x03\x0c"
LIES = {
    "a length of 2³¹ - 1": functools.partial(announced, 2**31 - 1),
    "a length of 2³² - 1": functools.partial(announced, 2**32 - 1),
    "a length above the limit": functools.partial(announced, REPLY_BYTES + 1),
    "a length of 0": functools.partial(announced, 0),
    "a length that ends too soon": lambda reply: announced(len(reply) - 3, reply),
    "bytes behind the reply": lambda reply: [framed(reply + b"abc")],
    "a reply that is cut": lambda reply: [framed(reply[:-3])],
    "no bytes of Thrift": lambda reply: [framed(b"\xff" * 1000)],
    "another sequence number": lambda reply: changed_head(reply, ahead=1),
    "the reply to another call": lambda reply: changed_head(reply, name=b"CloseOperation"),
    "a call": lambda reply: changed_head(reply, kind=TMessageType.CALL),
    "a one-way call": lambda reply: changed_head(reply, kind=TMessageType.ONEWAY),
}
ATTEMPTS = [(method, what, lie) for method in ("ExecuteStatement", "FetchResults") for what, lie in LIES.items()]
ATTEMPTS += [
    ("ExecuteStatement", "an error text without an end", endless_error),
    ("GetResultSetMetadata", "10⁹ columns", counted(b"\x0f\x00\x01\x0c", ENDLESS)),
    ("FetchResults", "10⁹ columns", counted(COLUMNS, ENDLESS)),
    ("FetchResults", "10⁹ values", counted(b"\x0f\x00\x01\x0a", ENDLESS)),
]


@contextlib.contextmanager
def hostile_engine(target):
    """The only engine that the tenant `d11` can have, registered with its own password at an address where the test answers. It
    gives no status, so a session that waited for a moment would be given another one."""
    target.logs.allow(LOST)
    stolen = Stolen(target)
    target.execute("CREATE RESOURCE UNIT d11 DRIVER_CPU 1, DRIVER_MEMORY '512M', MAX_ENGINES 1")
    target.execute("CREATE RESOURCE POOL d11 UNIT_LIST ('d11')")
    try:
        captured = captured_engine(target, stolen, "d11", "carol", "d11", "d11")
        with HostileEngine() as hostile, captured as engine, engine.login() as thief:
            engine.register(thief, engine.registration(hostile.address))
            yield hostile
    finally:
        target.execute("DROP RESOURCE POOL d11")
        target.execute("DROP RESOURCE UNIT d11")


def lies(target):
    """Each reply that is none ends the session that receives it, and no other."""
    with contextlib.ExitStack() as stack:
        hostile = stack.enter_context(hostile_engine(target))
        bystander = stack.enter_context(target.session("bob"))
        assert rows(bystander, "SELECT 40 + 2 AS answer") == [{"answer": 42}]
        # All are bound before the first lie, after which the proxy avoids the engine for a while.
        attempts = [(Attempt(target, stack), *it) for it in ATTEMPTS]
        forwarded, exchanged = Attempt(target, stack), Attempt(target, stack)
        with no_growth(target.standalone.program.pid, GROWTH_MIB):
            for attempt, method, what, lie in attempts:
                hostile.lies[method] = lie
                reply = attempt.connection.ask(attempt.call(method))
                assert (reply.method, reply.sqlstate) == (method, "08S01"), (method, what, reply)
                assert reply.message.startswith('engine "d11-'), (method, what, reply)
                assert not hostile.lies, (method, what)
            closed_after_a_part(hostile, forwarded)
            another_sessions_handle(target, hostile, exchanged)
        assert rows(bystander, "SELECT 40 + 2 AS answer") == [{"answer": 42}]


def closed_after_a_part(hostile, attempt):
    """A result with 10⁹ columns, which are sent until the frame ends: the client receives the frame's beginning."""

    def columns(reply):
        before = reply[: reply.index(COLUMNS)] + COLUMNS + struct.pack(">i", ENDLESS)
        yield struct.pack(">I", FORWARDED_BYTES) + before
        left = FORWARDED_BYTES - len(before)
        while left:
            # Each byte is an empty column.
            yield bytes(min(left, MIB))
            left -= min(left, MIB)

    hostile.lies["FetchResults"] = columns
    attempt.connection.send(attempt.call("FetchResults"))
    received = 0
    with contextlib.suppress(ConnectionError):
        while piece := attempt.connection.connection.recv(MIB):
            received += len(piece)
    assert 0 < received <= 4 + FORWARDED_BYTES, received


def another_sessions_handle(target, hostile, attempt):
    """The handle that the proxy gave to another user's result: what names it in the reply stays a handle of this engine."""
    with Sasl(target, "bob") as victim:
        operation = victim.execute(victim.open(), "SELECT 7 AS seven").operationHandle
        hostile.server.operation = operation
        stolen = attempt.connection.execute(attempt.session, "SELECT 1").operationHandle
        hostile.server.operation = None
        assert stolen.operationId != operation.operationId
        for handle, expected in ((stolen, [VALUE]), (operation, None)):
            request = ttypes.TFetchResultsReq(handle, ttypes.TFetchOrientation.FETCH_NEXT, 10)
            fetched = attempt.connection.call("FetchResults", request)
            values = fetched.results and fetched.results.columns[0].i64Val.values
            assert (values, fetched.status.sqlState) == (expected, None if expected else "55000"), fetched
        request = ttypes.TFetchResultsReq(operation, ttypes.TFetchOrientation.FETCH_NEXT, 10)
        assert victim.call("FetchResults", request).results.columns[0].i64Val.values == [7]


def silence(target):
    """It stays registered, accepts connections and answers nothing."""
    with contextlib.ExitStack() as stack:
        hostile = stack.enter_context(hostile_engine(target))
        silent, bystander = Attempt(target, stack), stack.enter_context(target.session("bob"))

        def no_reply(_):
            hostile.ended.wait(2 * SILENT_FOR_S)
            return []

        hostile.lies |= {"FetchResults": no_reply}
        silent.connection.connection.settimeout(SILENT_FOR_S)
        reply = silent.connection.ask(silent.call("FetchResults"))
        assert (reply.method, reply.sqlstate) == ("FetchResults", "08S01"), reply
        assert rows(bystander, "SELECT 40 + 2 AS answer") == [{"answer": 42}]


@pytest.mark.parametrize("replies", some([lies, silence], lies))
def test_d11_a_hostile_engine_ends_its_own_sessions_only(target, replies):
    replies(target)
