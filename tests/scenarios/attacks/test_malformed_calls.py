"""A5 to A8: calls of an authenticated user that are no calls of the protocol, over each transport inside TLS.

A message that is wrong as a whole is answered with an exception, and ends its connection; so is one whose end plain Thrift
cannot find. A call with wrong arguments is answered with the method's own error, and its connection serves the next call.
"""

import contextlib
import functools
import struct

import pytest
from thrift.Thrift import TMessageType, TType

from harness.attacked import password_of
from harness.clients import rows
from harness.memory import no_growth
from harness.thrift_messages import call, execute, field, handle, message, text
from harness.transports import TRANSPORTS, Http, Plain, Sasl, session_over

# What the process may grow by, whatever a message claims to have.
GROWTH_MIB = 8
# The user that logs in meanwhile, and in no other test.
MEASURED = "leo"
REQUEST_BYTES = 16 << 20
LONGEST = 2**31 - 1
DEPTH = 10_000
NUMBER = struct.pack(">i", 17)
STRING = text(b"SHOW TENANTS")
VERSION = field(TType.I32, 1, NUMBER)
# The second fields of GetInfo and of ExecuteStatement.
INFO_TYPE = field(TType.I32, 2, NUMBER)
STATEMENT = field(TType.STRING, 2, STRING)


@pytest.fixture(autouse=True)
def bystanders(target):
    """Sessions of another user over each transport, one more of them bound to an engine: they serve before and after."""
    with contextlib.ExitStack() as stack:
        bound = stack.enter_context(target.session("bob"))
        sessions = [stack.enter_context(session_over(it, target, "bob")) for it in TRANSPORTS.values()]

        def serve():
            assert rows(bound, "SELECT 40 + 2 AS answer") == [{"answer": 42}]
            for each in sessions:
                assert each.serves(), type(each).__name__

        serve()
        yield
        serve()


@contextlib.contextmanager
def attempts(target, user="alice"):
    """Yields what makes one attempt of the user; fails with all that were not refused as expected."""
    failures = []

    def attempt(transport, name, make, expected, goes_on):
        """A call of a session is answered with an error that begins so: SQLSTATE and text, or `None` and the text of an
        exception. Then the connection serves the next call, or has ended."""
        with session_over(transport, target, user) as opened:
            reply = opened.ask(make(opened))
            sqlstate, beginning = expected
            if reply is None or (reply.succeeded or reply.sqlstate != sqlstate or not reply.message.startswith(beginning)):
                failures.append(f"{transport.__name__}, {name}: expected {expected}, got {reply}")
            elif not (opened.serves() if goes_on else opened.is_closed()):
                failures.append(f"{transport.__name__}, {name}: the connection {'has ended' if goes_on else 'goes on'}")

    yield attempt
    assert not failures, "\n".join(failures)


def malformed(method, reason):
    """What is wrong in the arguments of a call."""
    return "42601", f"malformed {method} request\nDetail: {reason}"


def invalid(what, reason):
    """What is wrong with a message as a whole."""
    return None, f"invalid {what}\nDetail: malformed message: {reason}"


def calls(method, *fields):
    """Makes a call of a session."""
    return lambda opened: call(method, handle(opened.session), *fields)


def calls_open_session(*fields, version=VERSION):
    """Makes an OpenSession that logs in."""
    login = (field(TType.STRING, at, text(it.encode())) for at, it in ((2, "alice"), (3, password_of("alice"))))
    return lambda opened: call("OpenSession", version, *login, *fields)


def claims(head, length):
    """A container that begins with its types, and with this length in place of its elements."""
    return struct.pack(f">{len(head)}BI", *head, length)


def test_a5_a_list_of_2_31_elements_is_refused(target):
    """Nothing is allocated for elements that a message does not have."""

    def list_of(element, length=LONGEST):
        return calls("GetTables", field(TType.LIST, 5, claims([element], length)))

    # Elements of a known size: the end of the message is known, and beyond the limit.
    counted = {f"list of type {it}": ("GetTables", list_of(it)) for it in (TType.BOOL, TType.I32, TType.I64)}
    counted["set"] = "GetTables", calls("GetTables", field(TType.SET, 5, claims([TType.I32], LONGEST)))
    numbers = claims([TType.I64, TType.I64], LONGEST)
    counted["unknown field"] = "ExecuteStatement", calls("ExecuteStatement", STATEMENT, field(TType.MAP, 9, numbers))
    counted["text"] = "ExecuteStatement", calls("ExecuteStatement", field(TType.STRING, 2, claims([], LONGEST)))
    endless = {f"list of type {it}": ("GetTables", list_of(it)) for it in (TType.STRING, TType.STRUCT, TType.LIST)}
    endless["overlay"] = (
        "ExecuteStatement",
        calls("ExecuteStatement", STATEMENT, field(TType.MAP, 3, claims([TType.STRING, TType.STRING], LONGEST))),
    )
    negative = {
        f"list of type {element}, {length:x}": list_of(element, length)
        for element in (TType.I32, TType.STRING, TType.STRUCT)
        for length in (2**31, 2**32 - 1)
    }
    settings = calls_open_session(field(TType.MAP, 4, claims([TType.STRING, TType.STRING], LONGEST)))
    # A login needs memory for its hash, and is cached for a minute: an earlier one might expire meanwhile.
    with session_over(Sasl, target, MEASURED):
        pass
    with no_growth(target.standalone.program.pid, GROWTH_MIB), attempts(target, MEASURED) as attempt:
        for transport in (Sasl, Http):
            for name, (method, make) in (counted | endless).items():
                attempt(transport, name, make, malformed(method, "the message is truncated"), goes_on=True)
            for name, make in negative.items():
                attempt(transport, name, make, malformed("GetTables", "negative length"), goes_on=True)
            attempt(transport, "settings", settings, malformed("OpenSession", "the message is truncated"), goes_on=True)
        for name, (method, make) in counted.items():
            beginning = f"request {method} too long\nDetail: It has at least "
            attempt(Plain, name, make, ("54000", beginning), goes_on=False)
        for name, make in negative.items():
            attempt(Plain, name, make, invalid("request GetTables", "negative length"), goes_on=False)
        for name, make in (*((name, make) for name, (_, make) in endless.items()), ("settings", settings)):
            # The rest of the message is awaited until the client closes.
            with session_over(Plain, target, MEASURED) as opened:
                opened.send(make(opened))
                assert opened.ends_without_a_reply(), name


def nested(kind):
    """A field with containers in containers."""
    if kind == TType.STRUCT:
        return field(kind, 9, field(kind, 9, b"") * (DEPTH - 1) + b"\0" * DEPTH)
    if kind == TType.MAP:
        inner = struct.pack(">BBi", TType.BYTE, kind, 1) + b"\1"
        return field(kind, 9, inner * (DEPTH - 1) + struct.pack(">BBi", TType.BYTE, TType.BYTE, 0))
    return field(kind, 9, struct.pack(">Bi", kind, 1) * (DEPTH - 1) + struct.pack(">Bi", TType.BYTE, 0))


def test_a6_10_000_nested_containers_are_refused(target):
    reason = "nested deeper than 32 levels"
    with attempts(target) as attempt:
        for container in (TType.STRUCT, TType.LIST, TType.SET, TType.MAP):
            deep = nested(container)
            for method, make in {
                "GetInfo": calls("GetInfo", INFO_TYPE, deep),
                "ExecuteStatement": calls("ExecuteStatement", STATEMENT, deep),
                "OpenSession": calls_open_session(deep),
                "NoSuchMethod": calls("NoSuchMethod", deep),
            }.items():
                name = f"{method} with type {container}"
                attempt(Plain, name, make, invalid(f"request {method}", reason), goes_on=False)
                # Of a method that does not exist nothing is read.
                expected = malformed(method, reason) if method != "NoSuchMethod" else (None, "unknown method NoSuchMethod")
                for transport in (Sasl, Http):
                    attempt(transport, name, make, expected, goes_on=True)


def half_handles(kind, half):
    """A handle of two such halves."""
    halves = field(kind, 1, half) + field(kind, 2, half) + b"\0"
    return field(TType.STRUCT, 1, field(TType.STRUCT, 1, halves) + b"\0")


def wrong_fields():
    """Calls with arguments of other types than the protocol's: what it is → method, maker, reason."""

    def without_handle(*fields):
        return lambda opened: call("GetInfo", *fields)

    get_info = functools.partial(calls, "GetInfo")
    run = functools.partial(calls, "ExecuteStatement")
    no_strings = struct.pack(">Bi", TType.STRING, 0)
    wrong_type = {
        "handle as i32": (1, "GetInfo", without_handle(field(TType.I32, 1, NUMBER), INFO_TYPE)),
        "handle as list": (1, "GetInfo", without_handle(field(TType.LIST, 1, no_strings), INFO_TYPE)),
        "half of a handle as i32": (1, "GetInfo", without_handle(half_handles(TType.I32, NUMBER), INFO_TYPE)),
        "arguments as i32": (1, "GetInfo", lambda opened: message("GetInfo", field(TType.I32, 1, NUMBER))),
        "statement as i64": (2, "ExecuteStatement", run(field(TType.I64, 2, bytes(8)))),
        "statement as list": (2, "ExecuteStatement", run(field(TType.LIST, 2, no_strings))),
        "overlay as string": (3, "ExecuteStatement", run(STATEMENT, field(TType.STRING, 3, STRING))),
        "overlay as list": (3, "ExecuteStatement", run(STATEMENT, field(TType.LIST, 3, no_strings))),
        "run_async as string": (4, "ExecuteStatement", run(STATEMENT, field(TType.STRING, 4, STRING))),
        "timeout as i32": (5, "ExecuteStatement", run(STATEMENT, field(TType.I32, 5, NUMBER))),
        "rows as string": (3, "FetchResults", calls("FetchResults", INFO_TYPE, field(TType.STRING, 3, STRING))),
    }
    of_half_length = half_handles(TType.STRING, text(bytes(8)))
    return {name: (method, make, f"field {at} has the wrong type") for name, (at, method, make) in wrong_type.items()} | {
        "no arguments": ("GetInfo", lambda opened: message("GetInfo", b""), "field 1 is missing"),
        "no handle": ("GetInfo", without_handle(INFO_TYPE), "field 1 is missing"),
        "no statement": ("ExecuteStatement", run(), "field 2 is missing"),
        "short handle": ("GetInfo", without_handle(of_half_length, INFO_TYPE), "a handle must be 16 and 16 bytes"),
        "two handles": ("GetInfo", lambda opened: get_info(handle(opened.session), INFO_TYPE)(opened), "duplicate field 1"),
    }


def overlay(kind):
    """A statement with settings of its own, one entry, that are on the wire as this type: a number has as many bytes as the
    text `olga`, so all but the type is the same."""
    entry = text(b"hive.server2.proxy.user") + text(b"olga")
    return calls(
        "ExecuteStatement",
        field(TType.STRING, 2, text(b"SELECT 1")),
        field(TType.MAP, 3, struct.pack(">BBi", TType.STRING, kind, 1) + entry),
    )


def test_a7_wrong_types_are_refused(target):
    """Also types that the protocol does not have, and messages that are no calls."""
    with attempts(target) as attempt:
        for name, (method, make, reason) in wrong_fields().items():
            for transport in TRANSPORTS.values():
                attempt(transport, name, make, malformed(method, reason), goes_on=True)

        numbers = field(TType.MAP, 4, struct.pack(">BBi", TType.I32, TType.I32, 1) + b"\x7f" * 8)
        for transport in TRANSPORTS.values():
            text_as_version = calls_open_session(version=field(TType.STRING, 1, STRING))
            refusal = "42601", "malformed OpenSession request\n"
            attempt(transport, "version as string", text_as_version, refusal, goes_on=True)
            attempt(transport, "settings as numbers", calls_open_session(numbers), refusal, goes_on=True)
            as_text = calls("GetInfo", field(TType.STRING, 2, STRING))
            attempt(transport, "info type as string", as_text, ("42601", "malformed GetInfo request\n"), goes_on=True)
            # An engine reads texts whatever the type says, so the proxy must not overlook what they name.
            attempt(transport, "overlay", overlay(TType.STRING), ("28000", 'user "alice" is not allowed to'), goes_on=True)
            reason = "field 3 has the wrong type"
            attempt(transport, "overlay as numbers", overlay(TType.I64), malformed("ExecuteStatement", reason), goes_on=True)

        for unknown in (1, 5, 17, 99, 255):
            make, reason = calls("GetInfo", field(unknown, 2, bytes(4))), f"unknown wire type {unknown}"
            for transport in (Sasl, Http):
                attempt(transport, reason, make, malformed("GetInfo", reason), goes_on=True)
            attempt(Plain, reason, make, invalid("request GetInfo", reason), goes_on=False)

        strict, bad_name = "not a message of the strict binary protocol", "the name of the method is malformed"
        for name, bytes_of_it, reason in (
            ("unknown kind", message("GetInfo", b"", kind=9), "unknown message type 9"),
            ("another version", message("GetInfo", b"", version=0x8002), strict),
            ("no name", message("", b""), bad_name),
            ("long name", message("x" * 129, b""), bad_name),
            ("name of two lines", message("Get\nInfo", b""), bad_name),
            ("name of a negative length", b"\x80\x01\x00\x01\xff\xff\xff\xff", "negative length"),
        ):
            for transport in TRANSPORTS.values():
                attempt(transport, name, lambda opened: bytes_of_it, invalid("request", reason), goes_on=False)
        for transport in TRANSPORTS.values():
            reply = message("GetInfo", b"", kind=TMessageType.REPLY)
            attempt(transport, "a reply", lambda opened: reply, malformed("GetInfo", "unknown message type 2"), goes_on=True)
    for transport in TRANSPORTS.values():
        with session_over(transport, target, "alice") as opened:
            # No answer may follow a one-way call.
            assert opened.ask(message("GetInfo", b"", kind=TMessageType.ONEWAY)) is None, transport.__name__


def test_a8_a_request_of_16_mib_and_a_byte_is_refused(target):
    def of_bytes(length):
        """A statement that makes its request so long."""

        def make(opened):
            empty = len(execute(opened.session, ""))
            return execute(opened.session, "SHOW TENANTS".ljust(length - empty))

        return make

    above = f"request ExecuteStatement too long\nDetail: It has at least {REQUEST_BYTES + 1} bytes"
    with attempts(target) as attempt:
        for transport in TRANSPORTS.values():
            # The longest request is received; its statement is too long.
            attempt(transport, "16 MiB", of_bytes(REQUEST_BYTES), ("54000", "statement too long\n"), goes_on=True)
            attempt(transport, "16 MiB + 1", of_bytes(REQUEST_BYTES + 1), ("54000", above), goes_on=transport is Sasl)
    with session_over(Http, target, "alice") as opened:
        bytes_of_it = of_bytes(REQUEST_BYTES + 1)(opened)
        chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(bytes_of_it), bytes_of_it)
        opened.connection.sendall(opened.head("Transfer-Encoding: chunked") + chunks)
        with opened.connection.makefile("rb") as file:
            answer = file.read()
        assert answer.startswith(b"HTTP/1.1 413 ") and answer.count(b"HTTP/1.1") == 1, answer
