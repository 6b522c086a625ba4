"""A1 to A4: hostile bytes of the SASL negotiation, and lengths that are only announced, over each transport inside TLS."""

import contextlib

from thrift.Thrift import TType

from harness.attacked import basic, password_of
from harness.hidden_statement import STATEMENT, never_executed
from harness.http_messages import LAST, request
from harness.memory import no_growth
from harness.thrift_messages import (
    BAD,
    COMPLETE,
    ERROR,
    OK,
    START,
    call,
    execute,
    field,
    framed,
    handle,
    login,
    open_session,
    sasl,
)
from harness.transports import Http, Plain, Sasl, session_over

# What the process may grow by, whatever lengths are announced to it.
GROWTH_MIB = 8
# The user that logs in meanwhile, and in no other test: a login needs memory for its hash, and is cached for a minute, so that
# an earlier one might expire meanwhile.
MEASURED = "lisa"
REQUEST_BYTES = 16 << 20
GIB4 = 2**32 - 1
NOT_OURS = b"this port speaks HiveServer2: SASL PLAIN, plain Thrift, or HTTP\n"
FAILED = sasl(BAD, b"authentication failed")
UNKNOWN_STATUS = sasl(BAD, b"the SASL response has an unknown status")


def test_a1_a_length_of_4_gib_allocates_nothing(target):
    """Nothing is allocated for a length before its bytes arrive: neither for one above the limit nor for one below it."""
    pid = target.standalone.program.pid
    for length in (GIB4, 2**31, 2**31 - 1, 64 * 1024 + 1):
        refusal = sasl(BAD, f"a message of {length} bytes is longer than the limit of 65536".encode())
        with no_growth(pid, GROWTH_MIB):
            assert target.raw(sasl(START, b"PLAIN", length)) == refusal, length
            assert target.raw(sasl(START, b"PLAIN") + sasl(COMPLETE, b"\0alice\0", length)) == refusal, length
    with contextlib.ExitStack() as stack:
        unsigned, signed, *waiting = (stack.enter_context(session_over(Sasl, target, MEASURED)) for _ in range(8))
        plain, http = (stack.enter_context(session_over(transport, target, MEASURED)) for transport in (Plain, Http))
        with no_growth(pid, GROWTH_MIB):
            statement = execute(signed.session, "SELECT 1")
            unsigned.connection.sendall(framed(statement, GIB4))
            assert unsigned.is_closed()
            signed.connection.sendall(framed(statement, 2**31 - 1))
            reply = signed.reply()
            assert (reply.sqlstate, signed.is_closed()) == ("54000", True), reply
            # The length of the statement is the last one in the message.
            plain.send(call("ExecuteStatement", handle(plain.session), field(TType.STRING, 2, b"\x7f" + b"\xff" * 3)))
            reply = plain.reply()
            assert (reply.sqlstate, plain.is_closed()) == ("54000", True), reply
            http.connection.sendall(http.head(f"Content-Length: {GIB4}") + execute(http.session, "SELECT 1"))
            reply = http.reply()
            assert (reply.sqlstate, http.last_response.will_close) == ("54000", True), reply
            # As long as a request may be, and nothing of it comes.
            for each in waiting:
                each.connection.sendall(framed(b"", REQUEST_BYTES))
            with session_over(Sasl, target, MEASURED) as other:
                assert other.serves()


def test_a2_a_second_start_is_refused(target):
    """In place of the response, in a frame after the login, and as the frame that its first bytes are after the login."""
    start = sasl(START, b"PLAIN")
    for second in (start, sasl(START, b"GSSAPI"), sasl(START)):
        assert target.raw(start + second + login("alice", password_of("alice"))) == UNKNOWN_STATUS, second
    again = login("admin", password_of("admin"))
    # START and the length of its mechanism are the length of a frame, the longest that is accepted.
    as_frame = again.ljust(4 + REQUEST_BYTES, b"\0")
    for what, second in (("in a frame", framed(again)), ("as a frame", as_frame)):
        with session_over(Sasl, target, "alice") as opened:
            opened.connection.sendall(second)
            reply = opened.reply()
            assert reply and (reply.exception or "").startswith("invalid request\n"), (what, reply)
            assert opened.is_closed(), what


def test_a3_an_unknown_status_is_refused(target):
    """With a password that is right: no user is logged in, and the call behind it is not answered."""
    response = f"\0alice\0{password_of('alice')}".encode()
    behind = framed(open_session())
    for status in (0, 6, 7, 99, 127, 128, 255):
        answer = target.raw(sasl(START, b"PLAIN") + sasl(status, response) + behind)
        assert answer == UNKNOWN_STATUS, (status, answer)
    # The client gives the negotiation up itself.
    for status in (BAD, ERROR):
        answer = target.raw(sasl(START, b"PLAIN") + sasl(status, response) + behind)
        assert answer == b"", (status, answer)
    for status in (0, OK, BAD, ERROR, COMPLETE, 6, 99, 127, 255):
        answer = target.raw(sasl(status, b"PLAIN") + sasl(COMPLETE, response) + behind)
        assert answer == NOT_OURS, (status, answer)


def test_a4_calls_behind_bad_credentials_are_never_executed(target):
    """They name a session that exists, of an admin over HTTP, which is found by its handle and the user of the call."""
    with never_executed(target), session_over(Http, target, "admin") as victim:
        calls = [execute(victim.session, STATEMENT), call("CloseSession", handle(victim.session))]
        logins = {
            "wrong password": ("127.0.11.1", login("admin", "wrong"), FAILED),
            "unknown user": ("127.0.11.2", login("a4-sasl", password_of("admin")), FAILED),
            "no password": ("127.0.11.3", login("olga", ""), FAILED),
            "no user": (
                "127.0.11.4",
                sasl(START, b"PLAIN") + sasl(COMPLETE, b"\0\0" + password_of("admin").encode()),
                sasl(BAD, b"the SASL PLAIN response is malformed"),
            ),
        }
        for what, (source, negotiation, refusal) in logins.items():
            bytes_behind = b"".join(framed(it) for it in (open_session("admin", password_of("admin")), *calls))
            assert target.raw(negotiation + bytes_behind, source) == refusal, what

        for what, source, opening in (
            ("wrong password", "127.0.11.5", [open_session("admin", "wrong")]),
            ("unknown user", "127.0.11.6", [open_session("a4-plain", password_of("admin"))]),
            ("no user", "127.0.11.7", [open_session(None, None)]),
            ("no OpenSession", "127.0.11.8", []),
        ):
            with Plain(target, "admin", source=source) as plain:
                for message in (*opening, *calls):
                    plain.send(message)
                if opening:
                    reply = plain.reply()
                    assert (reply.sqlstate, reply.message) == ("28000", "authentication failed"), (what, reply)
                for _ in calls:
                    reply = plain.reply()
                    assert reply.sqlstate == "55000" and reply.message.startswith("session does not exist"), (what, reply)

        for what, source, authorization in (
            ("wrong password", "127.0.11.9", basic("admin", "wrong")),
            ("unknown user", "127.0.11.10", basic("a4-http", password_of("admin"))),
            ("no credentials", "127.0.11.11", None),
            ("another scheme", "127.0.11.12", "Bearer " + password_of("admin")),
        ):
            posts = b"".join(post(it, authorization) for it in calls)
            answer = target.raw(posts, source)
            assert answer.count(b"HTTP/1.1 401 Unauthorized\r\n") == answer.count(b"HTTP/1.1") == len(calls), (what, answer)
        assert victim.serves()


def post(message, authorization):
    """The last call of a client that has these credentials, if any, and a session to close with it."""
    headers = [f"Content-Length: {len(message)}"]
    headers += [f"Authorization: {authorization}"] if authorization else []
    headers += [LAST] if b"CloseSession" in message else []
    return request("POST /cliservice", *headers, body=message, user=None)
