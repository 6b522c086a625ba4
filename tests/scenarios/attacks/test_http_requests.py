"""A9 to A16: HTTP requests that two readers may understand differently, or that ask for what is not served, inside TLS."""

import contextlib
import gzip
import json
import socket
import ssl

import pytest

from harness.attacked import password_of, read_to_end
from harness.hidden_statement import STATEMENT, STATEMENTS, never_executed, posted
from harness.http_messages import JSON, LAST, THRIFT_TYPE, request, statuses
from harness.thrift_messages import call, execute, handle, open_session
from harness.transports import Http, session_over

# Failed logins count by address.
SOURCE = "127.0.12.1"
THRIFT = "/cliservice"
TENANTS = "/api/v1/tenants"
# The beginning of an HTTP/2 connection: preface, and empty settings.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


def answered(target, sent, part=None):
    """All that is answered to bytes that are sent in parts of this length, until the server closes."""
    with target.tls(SOURCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The server may have closed before it has received all.
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            for at in range(0, len(sent), part or len(sent)):
                connection.sendall(sent[at : at + (part or len(sent))])
        return read_to_end(connection)


@pytest.fixture(autouse=True)
def hidden(target):
    with never_executed(target):
        yield


def in_chunks(body, length=1000):
    chunks = [body[at : at + length] for at in range(0, len(body), length)]
    return b"".join(b"%X\r\n%b\r\n" % (len(it), it) for it in chunks) + b"0\r\n\r\n"


def assert_ambiguous(target, framings):
    """A request with such headers and body is refused, over Thrift and below /api/, and nothing behind it is read: whether it
    is the first one of its connection or not, and however its bytes arrive."""
    for path, body in ((THRIFT, open_session()), (STATEMENTS, json.dumps({"statement": STATEMENT}).encode())):
        for headers, encoded in framings(body):
            ambiguous = request(f"POST {path}", JSON, *headers, body=encoded) + posted()
            for before in (b"", request(f"GET {TENANTS}?limit=1")):
                for part in (None, 97):
                    answer = answered(target, before + ambiguous, part)
                    expected = [200, 400] if before else [400]
                    assert statuses(answer) == expected, (path, headers, part, answer)
                    assert b"\r\nConnection: close\r\n" in answer, (path, headers, answer)


def test_a9_a_length_and_chunks_are_refused(target):
    def framings(body):
        chunks, length = in_chunks(body), f"Content-Length: {len(body)}"
        chunked, all_of_it = "Transfer-Encoding: chunked", f"Content-Length: {len(chunks)}"
        return [
            ([all_of_it, chunked], chunks),
            ([chunked, all_of_it], chunks),
            ([chunked, "Content-Length: 0"], chunks),
            ([chunked, "Content-Length: 4"], chunks),
            ([length, "X: y", "transfer-ENCODING:chunked"], chunks),
            ([length, chunked], body),
            ([chunked, chunked], chunks),
            (["Transfer-Encoding: chunked, identity"], chunks),
            (["Transfer-Encoding: identity, chunked"], chunks),
            (["Transfer-Encoding: gzip, chunked"], chunks),
            (["Transfer-Encoding: xchunked", length], body),
            (["Transfer-Encoding: identity", length], body),
            (["Transfer-Encoding:\x0bchunked", length], body),
            (["Transfer-Encoding : chunked", length], body),
            ([length, "X: y\r\n Transfer-Encoding: chunked"], body),
        ]

    assert_ambiguous(target, framings)


def test_a10_two_lengths_are_refused(target):
    def framings(body):
        length, hidden = f"Content-Length: {len(body)}", len(body) + len(posted())
        return [
            (headers, body)
            for headers in (
                [length, length],
                [length, length.lower()],
                [length, "Content-Length: 0"],
                ["Content-Length: 0", "X: y", length],
                [length, f"Content-Length: {hidden}"],
                [f"{length}, {len(body)}"],
                [f"{length}, 0"],
                [f"Content-Length: +{len(body)}"],
                ["Content-Length: -1"],
                [f"Content-Length: 0x{len(body):x}"],
                [f"{length}.0"],
                [f"{length} 0"],
                ["Content-Length: 99999999999999999999"],
                ["Content-Length:"],
                [f"Content-Length : {len(body)}"],
                [f"{length}\r\n Content-Length: 0"],
            )
        ]

    assert_ambiguous(target, framings)


def test_a11_malformed_chunks_are_refused(target):
    def framings(body):
        size, length = b"%X" % len(body), len(body)
        return [
            (["Transfer-Encoding: chunked"], chunks)
            for chunks in (
                b"+%b\r\n%b\r\n0\r\n\r\n" % (size, body),
                b"0x%b\r\n%b\r\n0\r\n\r\n" % (size, body),
                b"-1\r\n%b\r\n0\r\n\r\n" % body,
                b" %b\r\n%b\r\n0\r\n\r\n" % (size, body),
                b"\r\n%b\r\n0\r\n\r\n" % body,
                b"%b,\r\n%b\r\n0\r\n\r\n" % (size, body),
                # 2⁶⁴ more than it has.
                b"1%016X\r\n%b\r\n0\r\n\r\n" % (length, body),
                b"%b\n%b\n0\n\n" % (size, body),
                b"%b\r%b\r0\r\r" % (size, body),
                b"%b\r\n%b0\r\n\r\n" % (size, body),
                b"%b\r\n%bxx\r\n0\r\n\r\n" % (size, body),
                b"%X\r\n%b\r\n0\r\n\r\n" % (length - 1, body),
                b"%b;a\nb\r\n%b\r\n0\r\n\r\n" % (size, body),
            )
        ]

    assert_ambiguous(target, framings)


def test_a12_a_head_of_17_kib_or_200_headers_is_refused(target):
    def of_bytes(line, length):
        return request(line, "X: " + "x" * (length - len(request(line, "X: "))))

    def of_headers(line, count):
        # Host and Authorization are two of them.
        return request(line, LAST, *["X: y"] * (count - 3))

    for line, served in ((f"GET {TENANTS}", 200), ("GET /livez", 200), (f"POST {THRIFT}", 411)):
        for name, sent, expected in (
            ("64 headers", of_headers(line, 64), served),
            ("65 headers", of_headers(line, 65), 431),
            ("200 headers", of_headers(line, 200), 431),
            ("16 KiB and a byte", of_bytes(line, 16 * 1024 + 1), 431),
            ("17 KiB", of_bytes(line, 17 * 1024), 431),
            ("17 KiB without an end", of_bytes(line, 17 * 1024)[:-4], 431),
            ("17 KiB in the name of a header", request(line, "x" * 17 * 1024 + ": y"), 431),
            ("17 KiB in the path", request(line + "/" + "x" * 17 * 1024), 431),
            ("1 MiB", of_bytes(line, 1 << 20), 431),
        ):
            for part in (None, 1000):
                answer = answered(target, sent, part)
                assert statuses(answer) == [expected], (line, name, part, answer)
        assert statuses(answered(target, of_bytes(line, 16 * 1024)[:-2] + f"{LAST}\r\n\r\n".encode())) == [431], line


def test_a13_a_compressed_body_is_refused(target):
    """And is not decompressed where no header announces it."""
    body = json.dumps({"statement": STATEMENT}).encode()
    compressed = gzip.compress(body)
    for encoding in ("gzip", "GZIP", "x-gzip", "deflate", "br", "zstd", "gzip, gzip", "identity", ""):
        for path in (STATEMENTS, THRIFT, "/", "//api/v1/statements", "/livez"):
            for sent in (compressed, body):
                head = [JSON, f"Content-Length: {len(sent)}", f"Content-Encoding: {encoding}"]
                answer = answered(target, request(f"POST {path}", *head, body=sent) + posted())
                assert statuses(answer) == [415], (path, encoding, answer)
    for expected, path in ((400, STATEMENTS), (200, THRIFT)):
        answer = answered(target, request(f"POST {path}", JSON, f"Content-Length: {len(compressed)}", LAST, body=compressed))
        assert statuses(answer) == [expected], (path, answer)
    assert b"malformed message" in answer


def test_a14_connect_trace_and_upgrades_are_not_served(target):
    """CONNECT and TRACE: 405. A request for an upgrade is answered as if it had not asked for one, and the bytes behind it are
    read as HTTP/1.1."""
    for method, path in (
        ("CONNECT", "localhost:22"),
        ("CONNECT", target.address),
        ("CONNECT", "/"),
        ("CONNECT", TENANTS),
        ("CONNECT", "/livez"),
        ("TRACE", "/"),
        ("TRACE", "*"),
        ("TRACE", THRIFT),
        ("TRACE", TENANTS),
        ("TRACE", "//api"),
        ("TRACE", "/livez"),
    ):
        for user in ("admin", None):
            answer = answered(target, request(f"{method} {path}", "X: canary", user=user) + posted())
            assert statuses(answer) == [405] and b"\r\nAllow: " in answer, (method, path, user, answer)
            assert b"canary" not in answer and b"Authorization" not in answer, (method, path, user, answer)

    answer = answered(target, PREFACE)
    assert statuses(answer) == [400], answer
    context = ssl.create_default_context(cafile=target.certificate.certificate)
    context.set_alpn_protocols(["h2"])
    with pytest.raises(ssl.SSLError, match="no application protocol"):
        target.tls(SOURCE, context)
    for line, user in ((f"GET {TENANTS}?limit=1", "admin"), ("GET /livez", None), (f"GET {TENANTS}", None)):
        [expected] = statuses(plain := answered(target, request(line, LAST, user=user)))
        for upgrade in (
            ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA=="],
            ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"],
            ["Connection: Upgrade", "Upgrade: TLS/1.2"],
            ["Connection: keep-alive, Upgrade", "Upgrade: HTTP/2.0, IRC/6.9"],
        ):
            answer = answered(target, request(line, *upgrade, user=user) + PREFACE)
            assert statuses(answer) == [expected, 400], (line, upgrade, answer)
            assert b"\r\nUpgrade:" not in answer and body_of(plain) in answer, (line, upgrade, answer)


def body_of(answer):
    return answer.partition(b"\r\n\r\n")[2]


def test_a15_a_request_in_the_body_of_another_is_not_executed(target):
    """It is a body, whatever is answered to the request that it belongs to. One behind the body is a request of its own, and
    needs credentials of its own."""
    hidden = posted(STATEMENTS, LAST)
    length = f"Content-Length: {len(hidden)}"
    chunks, chunked = in_chunks(hidden), "Transfer-Encoding: chunked"
    after = request("GET /livez", LAST, user=None)
    for name, expected, outer in (
        ("call", 200, request(f"POST {THRIFT}", length, body=hidden)),
        ("call in chunks", 200, request(f"POST {THRIFT}", chunked, body=chunks)),
        ("statement", 400, request(f"POST {STATEMENTS}", JSON, length, body=hidden)),
        ("statement in chunks", 400, request(f"POST {STATEMENTS}", JSON, chunked, body=chunks)),
        ("list", 200, request(f"GET {TENANTS}", length, body=hidden)),
        ("list in chunks", 200, request(f"GET {TENANTS}", chunked, body=chunks)),
        ("probe", 200, request("GET /livez", length, body=hidden, user=None)),
        ("probe in chunks", 200, request("GET /livez", chunked, body=chunks, user=None)),
        ("without credentials", 401, request(f"POST {STATEMENTS}", length, body=hidden, user=None)),
        ("call without credentials", 401, request(f"POST {THRIFT}", length, body=hidden, user=None)),
        ("in chunks without credentials", 401, request(f"POST {STATEMENTS}", chunked, body=chunks, user=None)),
        ("awaited", 401, request(f"POST {STATEMENTS}", "Expect: 100-continue", length, body=hidden, user=None)),
        ("another spelling", 404, request("POST //api/v1/statements", length, body=hidden)),
        ("unknown path", 404, request("POST /api/v1/no/such/path", length, body=hidden)),
        ("other method", 405, request(f"DELETE {TENANTS}", length, body=hidden)),
        ("GET of Thrift", 405, request(f"GET {THRIFT}", length, body=hidden)),
        ("TRACE", 405, request(f"TRACE {TENANTS}", length, body=hidden)),
        ("compressed", 415, request(f"POST {STATEMENTS}", "Content-Encoding: gzip", length, body=hidden)),
        ("other media type", 415, request(f"POST {STATEMENTS}", "Content-Type: text/plain", length, body=hidden)),
        ("web page", 403, request(f"POST {STATEMENTS}", "Origin: https://example.com", length, body=hidden)),
        ("other host", 421, request(f"POST {STATEMENTS}", length, body=hidden, host="example.com")),
        ("absolute form", 400, request(f"POST http://localhost{STATEMENTS}", length, body=hidden)),
    ):
        got = statuses(answered(target, outer + after))
        # The connection goes on behind the whole body, or ends.
        assert got in ([expected, 200], [expected]), (name, got)
    # Too long to be discarded.
    long = hidden * (64 * 1024 // len(hidden) + 1)
    got = statuses(
        answered(target, request(f"POST {STATEMENTS}", f"Content-Length: {len(long)}", body=long, user=None) + after)
    )
    assert got == [401], got

    for name, expected, behind in (
        ("no credentials", 401, posted(STATEMENTS, LAST, user=None)),
        ("another user", 403, posted(STATEMENTS, LAST, user="alice")),
        ("no length", 400, request(f"POST {STATEMENTS}", JSON, LAST)),
    ):
        for first in (request(f"GET {TENANTS}"), request(f"GET {TENANTS}", "Content-Length: 0")):
            got = statuses(answered(target, first + behind))
            assert got == [200, expected], (name, got)
    with session_over(Http, target, "admin") as opened:
        message = execute(opened.session, STATEMENT)
        call_of = [f"Content-Length: {len(message)}", f"Content-Type: {THRIFT_TYPE}", LAST]
        info = call("GetInfo", handle(opened.session))
        first = request(f"POST {THRIFT}", f"Content-Length: {len(info)}", body=info)
        got = statuses(answered(target, first + request(f"POST {THRIFT}", *call_of, body=message, user=None)))
        assert got == [200, 401], got
        answer = answered(target, first + request(f"POST {THRIFT}", *call_of, body=message, user="alice"))
        assert statuses(answer) == [200, 200] and b"session does not exist" in answer, answer


SPELLINGS = [
    "//api/v1/statements",
    "///api/v1/statements",
    "/api//v1/statements",
    "/api/v1//statements",
    "/./api/v1/statements",
    "/../api/v1/statements",
    "/x/../api/v1/statements",
    "/cliservice/../api/v1/statements",
    "/livez/../api/v1/statements",
    "/api/./v1/statements",
    "/api/../api/v1/statements",
    "/api/v1/../v1/statements",
    "/api/v1/tenants/../statements",
    "/%2e/api/v1/statements",
    "/x/%2e%2e/api/v1/statements",
    "/x/%2E%2E/api/v1/statements",
    "/x/.%2e/api/v1/statements",
    "/api/%2e%2e/api/v1/statements",
    "/%61pi/v1/statements",
    "/%61%70%69/v1/statements",
    "/api%2fv1/statements",
    "/%2fapi/v1/statements",
    "/x%2f..%2fapi/v1/statements",
    "/api/v1%2fstatements",
    "/api/v1/%73tatements",
    "/api/v1/statements/",
    "/api/v1/statements/.",
    "/api/v1/Statements",
    "/api/V1/statements",
    "/api/v1/statements%00",
    "/api/v1/statements;x=y",
    "/api/v1/statements%3fx=y",
    "/api/v1/statements\\..",
    "/api/v1/statements\u0117",
    "/api/v2/statements",
]


def test_a16_other_spellings_of_a_path_are_not_served(target):
    for spelling in SPELLINGS:
        answer = answered(target, posted(spelling, LAST))
        assert statuses(answer) == [404] and b"application/problem+json" in answer, (spelling, answer)
        got = statuses(answered(target, posted(spelling, LAST, user=None)))
        assert got == [401], (spelling, got)
    for spelling in (
        f"http://localhost{STATEMENTS}",
        f"https://{target.address}{STATEMENTS}",
        f"http://admin:{password_of('admin')}@localhost{STATEMENTS}",
        f"HTTP://example.com{STATEMENTS}",
        f"ftp://localhost{STATEMENTS}",
        f"{STATEMENTS} x",
        f"{STATEMENTS}\t",
        f"{STATEMENTS}\0",
        f"{STATEMENTS}\x7f",
        "api/v1/statements",
        "?/api/v1/statements",
        "\\api\\v1\\statements",
    ):
        for user in ("admin", None):
            got = statuses(answered(target, posted(spelling, LAST, user=user)))
            assert got == [400], (spelling, user, got)
    # Every other path is that of Thrift, where a statement in JSON is no message.
    for spelling in (
        "/API/v1/statements",
        "/api;x/v1/statements",
        "/%2561pi/v1/statements",
        "/apis/v1/statements",
        "/api%20/v1",
    ):
        answer = answered(target, posted(spelling, LAST))
        assert statuses(answer) == [200] and b"malformed message" in answer, (spelling, answer)
        assert statuses(answered(target, request(f"GET {spelling}", LAST))) == [405], spelling
    # A request has no fragment: a reader in front may take it for a part of the path.
    for spelling in (f"{STATEMENTS}#x", f"{STATEMENTS}#/../../../cliservice"):
        got = statuses(answered(target, posted(spelling, LAST)))
        assert got in ([400], [404]), (spelling, got)
