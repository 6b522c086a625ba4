"""Row A23: an address that a client claims to be another one's, before its connection or in a request. No peer is trusted to
forward connections, so a header of the PROXY protocol is no beginning of any transport, and the headers of HTTP count for
nothing: neither the audit nor a limit uses what they name."""

import concurrent.futures
import ipaddress
import socket
import ssl
import struct
import time

import pytest

from harness.attacked import basic, password_of, read_to_end
from harness.http_messages import LAST, THRIFT_TYPE, request
from harness.login_attempts import TRANSPORTS_AND_REST, log_in
from harness.thrift_messages import login, open_session

# The attacker, the address of another user, which it claims to have, and one that no client has.
SOURCE, VICTIM, NOWHERE = "127.0.123.1", "127.0.123.2", "198.51.100.7"
UNKNOWN = b"this port speaks HiveServer2: SASL PLAIN, plain Thrift, or HTTP\n"
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def version_2(command, family, addresses=b""):
    return SIGNATURE + struct.pack(">BBH", 0x20 | command, family, len(addresses)) + addresses


def addresses_and_ports(of):
    return of(VICTIM).packed + of(NOWHERE).packed + struct.pack(">HH", 4711, 10009)


HEADERS = {
    "version 1": f"PROXY TCP4 {VICTIM} {NOWHERE} 4711 10009\r\n".encode(),
    "version 1, unknown": b"PROXY UNKNOWN\r\n",
    "version 2": version_2(1, 0x11, addresses_and_ports(ipaddress.IPv4Address)),
    "version 2, local": version_2(0, 0),
}
# Each of them with the address that it claims.
CLAIMS = {
    "X-Forwarded-For": "{}",
    "Forwarded": "for={};proto=https",
    "X-Real-IP": "{}",
    "X-Client-IP": "{}",
    "True-Client-IP": "{}",
}
GUESSES = 12
# The lines that the audit has about an address in a minute; the delays of the first six failures are shorter.
AUDIT_LINES, SHORTER_DELAYS, LONGEST_DELAY_S = 10, 6, 5 * 0.8


def claiming(address):
    return {name: value.format(address) for name, value in CLAIMS.items()}


def test_a23_an_address_that_a_client_claims_counts_for_nothing(target):
    begun = len(target.logs.text("enginehouse.log"))
    for name, header in HEADERS.items():
        before_tls(target, name, header)
        inside_tls(target, name, header)
    guesses_are_counted_by_their_own_address(target)
    for transport in TRANSPORTS_AND_REST:
        began = time.monotonic()
        with target.tls(VICTIM) as connection:
            assert log_in(transport, connection, "alice", password_of("alice")).accepted, transport
        assert time.monotonic() - began < LONGEST_DELAY_S, f"{transport}: the failures are the victim's"
    text = target.logs.text("enginehouse.log")[begun:]
    assert NOWHERE not in text and f"address={VICTIM} " not in text


def before_tls(target, name, header):
    """As a load balancer sends it: no handshake follows."""
    context = ssl.create_default_context(cafile=target.certificate.certificate)
    with target.tcp(SOURCE) as connection:
        connection.sendall(header)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(connection, server_hostname="localhost")
    with target.tcp(SOURCE) as connection:
        connection.sendall(header)
        connection.shutdown(socket.SHUT_WR)
        assert is_refused(read_to_end(connection)), name


def inside_tls(target, name, header):
    """With a login behind it that would be right."""
    of_http = (f"Content-Type: {THRIFT_TYPE}", LAST)
    for behind in (
        login("alice", password_of("alice")),
        open_session("alice", password_of("alice")),
        request("GET /api/v1/tenants", LAST, user="alice"),
        request("POST /cliservice", f"Content-Length: {len(open_session())}", *of_http, body=open_session(), user="alice"),
    ):
        assert is_refused(target.raw(header + behind, SOURCE)), (name, behind)


def is_refused(received):
    """Version 1 begins like a request of HTTP, version 2 like nothing that is served. A reset may discard the response."""
    of_http = received.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 426 ")) and b" 200 " not in received
    return of_http or received in (b"", UNKNOWN)


def guesses_are_counted_by_their_own_address(target):
    """Each guess is of another user and claims another address, so only the address it comes from slows them."""
    claimed = [VICTIM if number % 2 else f"203.0.113.{number}" for number in range(GUESSES)]

    def guess(number):
        headers = {"Authorization": basic(f"a23-{number}", "wrong"), **claiming(claimed[number])}
        began = time.monotonic()
        if number % 3:
            answer = target.http("POST", "/cliservice", open_session(), None, {"Content-Type": THRIFT_TYPE} | headers, SOURCE)
        else:
            answer = target.http("GET", "/api/v1/tenants", headers=headers, source=SOURCE)
        assert answer[0] == 401, answer
        return time.monotonic() - began

    with concurrent.futures.ThreadPoolExecutor(GUESSES) as pool:
        took = list(pool.map(guess, range(GUESSES)))
    assert sum(it >= LONGEST_DELAY_S for it in took) >= GUESSES - SHORTER_DELAYS, sorted(took)
    log = target.logs.text("enginehouse.log")
    lines = [it for it in log.splitlines() if 'event="login_failed" user="a23-' in it]
    assert len(lines) == AUDIT_LINES and all(f" address={SOURCE} " in it for it in lines), lines
    assert "203.0.113." not in log
    # A right login that claims an address is a login from its own.
    headers = {"Content-Type": THRIFT_TYPE} | claiming(NOWHERE)
    assert target.http("POST", "/cliservice", open_session(), "carol", headers, "127.0.123.3")[0] == 200
