"""A17 to A20: what comes before a TLS handshake, in it, or in place of it."""

import base64
import contextlib
import ssl
import subprocess
import time

import pytest

from harness.attacked import password_of, read_to_end
from harness.client_hello import (
    ALERT,
    ECDHE_ECDSA_AES_128_GCM,
    HANDSHAKE,
    OF_TLS,
    SERVER_HELLO,
    TLS_1_0,
    TLS_1_1,
    TLS_1_2,
    client_hello,
    of_python,
    records,
)
from harness.hidden_statement import STATEMENTS, never_executed, posted
from harness.http_messages import LAST, request, statuses
from harness.thrift_messages import BAD, framed, login, open_session, sasl
from harness.tier import some
from harness.transports import Sasl, session_over
from harness.waiting import wait_until

SOURCE, OTHER = "127.0.13.1", "127.0.13.2"
NOT_OURS = b"this port speaks HiveServer2: SASL PLAIN, plain Thrift, or HTTP\n"
NEEDS_TLS = b"this login requires TLS: add ssl=true"
FATAL, HANDSHAKE_FAILURE, PROTOCOL_VERSION = 2, 40, 70
WITHIN_S = 30
# Promised for a handshake; at most so many of one address run at once.
HANDSHAKE_S, AT_ONCE = 5, 64
# A client that waited for the slow handshakes would be served later: they begin immediately before.
SERVED_WITHIN_S = HANDSHAKE_S - 1
SSL_3_0 = 0x0300
# Suites of TLS 1.2 that are not accepted, and one that TLS 1.2 does not have.
SUITES = {
    "3DES": (0x000A, 0xC008, 0xC012, 0x0016),
    "RC4": (0x0005, 0xC007),
    "NULL": (0x0001, 0x0002, 0xC006),
    "export": (0x0003, 0x0008),
    "anonymous": (0x0018, 0x0034, 0xC018),
    "no ECDHE": (0x002F, 0x009C, 0x009D, 0x009E),
    "no AEAD": (0xC009, 0xC00A, 0xC023, 0xC024),
    "of TLS 1.3": (0x1301,),
}


def hello(target):
    return of_python(ssl.create_default_context(cafile=target.certificate.certificate))


def in_clear(target, sent):
    with target.tcp(SOURCE) as connection:
        connection.sendall(sent)
        return read_to_end(connection)


def test_a17_bytes_before_a_client_hello_are_refused(target):
    """The first byte decides: the connection is one without TLS, and a ClientHello behind it is not answered. Nor do bytes in
    the clear behind a ClientHello count inside."""
    probe = request("GET /livez", user=None)
    login_of_alice = login("alice", password_of("alice"))
    with never_executed(target):
        for name, before, expected in (
            ("line end", b"\r\n", NOT_OURS),
            ("blank", b" ", NOT_OURS),
            ("NUL", b"\0", NOT_OURS),
            ("alert", b"\x15\x03\x01\0\2\1\0", NOT_OURS),
            ("encrypted record", b"\x17\x03\x03\0\1x", NOT_OURS),
            ("SASL", login_of_alice, sasl(BAD, NEEDS_TLS)),
        ):
            assert in_clear(target, before + hello(target)) == expected, name
        for name, before, expected in (
            ("STARTTLS", b"STARTTLS\r\n", [400]),
            ("probe", probe, [200, 400]),
            ("statement", posted(), [426]),
            ("call", request("POST /cliservice", "Content-Length: 0"), [426]),
            ("upgrade", request("OPTIONS *", "Connection: Upgrade", "Upgrade: TLS/1.2", user=None), [426]),
        ):
            answer = in_clear(target, before + hello(target))
            # Nothing of a handshake follows the last response.
            assert statuses(answer) == expected and records_in(answer) == 0, (name, answer)
        answer = in_clear(target, open_session("alice", password_of("alice")) + hello(target))
        assert NEEDS_TLS in answer and b"not a message of the strict binary protocol" in answer, answer
        assert records_in(answer) == 0, answer
        # A record before it: the handshake fails.
        [(kind, content), *rest] = records(in_clear(target, b"\x16" + hello(target)))
        assert (kind, content[0], rest) == (ALERT, FATAL, []), (kind, content, rest)
        for behind in (probe, posted(), login_of_alice + framed(open_session())):
            answer = in_clear(target, hello(target) + behind)
            # All of it is of TLS. Bytes to look for in the clear may be in what is encrypted, by chance.
            kinds = [kind for kind, _ in records(answer)]
            assert kinds[0] == HANDSHAKE and set(kinds) <= OF_TLS, (kinds, answer)


def records_in(answer):
    """How many records of a handshake may begin in these bytes."""
    return answer.count(b"\x16\x03\x03") + answer.count(b"\x16\x03\x01")


def test_a18_tls_inside_tls_is_refused(target):
    inner = hello(target)
    for name, first in (
        ("ClientHello", inner),
        ("its first byte", inner[:1]),
        ("its first record", inner[:5]),
        ("of TLS 1.2", client_hello(TLS_1_2, [ECDHE_ECDSA_AES_128_GCM])),
        ("alert", b"\x15\x03\x01\0\2\1\0"),
        ("encrypted record", b"\x17\x03\x03\0\1x"),
    ):
        assert target.raw(first, SOURCE) == NOT_OURS, name
    answer = target.raw(request("GET /livez", user=None) + inner, SOURCE)
    assert statuses(answer) == [200, 400] and records_in(answer) == 0, answer
    with session_over(Sasl, target, "alice") as opened:
        # The first bytes of a record are the length of a frame that is too long.
        opened.connection.sendall(inner)
        reply = opened.reply()
        assert reply and reply.exception.startswith("request too long\n"), reply


def openssl(target, *options, sent=b"", stays=False):
    """What `openssl s_client` prints; it ends with its input, or with the connection if it `stays`."""
    command = ["openssl", "s_client", "-connect", target.address, "-CAfile", target.certificate.certificate, *options]
    process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with process:
        try:
            process.stdin.write(sent)
            process.stdin.flush()
            if stays:
                process.wait(WITHIN_S)
            return process.communicate(timeout=WITHIN_S)[0]
        finally:
            process.kill()


def accepts_early_data(session):
    """The saved session of a client, changed so that the client believes that the server accepts early data."""
    lines = session.read_text().splitlines()
    sequence = base64.b64decode("".join(line for line in lines if not line.startswith("-----")))
    fields = list(elements(content_of(sequence)))
    # [15] EXPLICIT INTEGER, in the order of the tags.
    at = next((at for at, it in enumerate(fields) if it[0] > 0xAF), len(fields))
    content = b"".join([*fields[:at], bytes.fromhex("af 04 02 02 40 00"), *fields[at:]])
    encoded = base64.encodebytes(b"\x30\x82" + len(content).to_bytes(2, "big") + content).decode()
    changed = session.with_suffix(".changed")
    changed.write_text(f"{lines[0]}\n{encoded}{lines[-1]}\n")
    return changed


def head_of(element):
    """The length of the head of a DER element, and of its content."""
    if element[1] < 0x80:
        return 2, element[1]
    count = element[1] & 0x7F
    return 2 + count, int.from_bytes(element[2 : 2 + count], "big")


def content_of(element):
    head, length = head_of(element)
    return element[head : head + length]


def elements(content):
    while content:
        end = sum(head_of(content))
        yield content[:end]
        content = content[end:]


def test_a19_old_versions_weak_suites_renegotiation_and_early_data_are_refused(target, folder):
    for version, suites, expected in (
        *((it, [ECDHE_ECDSA_AES_128_GCM], PROTOCOL_VERSION) for it in (SSL_3_0, TLS_1_0, TLS_1_1)),
        *((it, SUITES["3DES"], PROTOCOL_VERSION) for it in (SSL_3_0, TLS_1_0, TLS_1_1)),
        *((TLS_1_2, it, HANDSHAKE_FAILURE) for it in SUITES.values()),
    ):
        answer = records(in_clear(target, client_hello(version, suites)))
        assert answer == [(ALERT, bytes([FATAL, expected]))], (hex(version), suites, answer)
    # But for version and suites it is a ClientHello that is answered.
    with target.tcp(SOURCE) as connection:
        connection.sendall(client_hello(TLS_1_2, [*SUITES["3DES"], ECDHE_ECDSA_AES_128_GCM]))
        assert connection.recv(6)[::5] == bytes([HANDSHAKE, SERVER_HELLO])

    printed = openssl(target, "-tls1_2", sent=b"R\n", stays=True)
    assert b"\nRENEGOTIATING\n" in printed and b":no renegotiation:" in printed, printed

    probe = request("GET /livez", LAST, user=None)
    session, early = folder / "session", folder / "early"
    printed = openssl(target, "-tls1_3", "-ign_eof", "-sess_out", session, sent=probe, stays=True)
    assert b"\n    Max Early Data: 0\n" in printed and statuses(printed) == [200], printed
    with never_executed(target):
        early.write_bytes(posted(STATEMENTS, LAST))
        resumed = "-tls1_3", "-ign_eof", "-sess_in", accepts_early_data(session), "-early_data", early
        printed = openssl(target, *resumed, sent=probe, stays=True)
        # Resumed, without the early data; the only response is that to what came after the handshake.
        assert b"\nReused, TLSv1.3" in printed and b"\nEarly data was rejected\n" in printed, printed
        assert statuses(printed) == [200] and b"\nok\n" in printed, printed


@pytest.mark.parametrize("pace_s", some([0, 0.1], 0), ids=["fast", "slow"])
def test_a20_a_client_hello_byte_by_byte_delays_no_other(target, pace_s):
    """Also if the handshakes that one address may run are all like that. They end in time."""
    sent = hello(target)
    with contextlib.ExitStack() as stack:
        began = time.monotonic()
        slow = [stack.enter_context(target.tcp(SOURCE)) for _ in range(AT_ONCE)]
        for at in range(len(sent) // 2):
            for connection in slow:
                connection.sendall(sent[at : at + 1])
        assert_serves_others(target)
        rest = iter(sent[len(sent) // 2 :])
        if not pace_s:
            for byte in rest:
                slow[0].sendall(bytes([byte]))
            # The slow handshakes had not ended when the other client was served.
            assert slow[0].recv(6)[::5] == bytes([HANDSHAKE, SERVER_HELLO])
            return
        open_ones = set(slow)

        def all_ended():
            byte = bytes([next(rest)])
            open_ones.difference_update([it for it in open_ones if has_ended(it, byte)])
            assert_serves_others(target)
            return not open_ones

        wait_until(all_ended, HANDSHAKE_S + 5, "the handshakes end", pace_s)
        assert time.monotonic() - began > HANDSHAKE_S - 1, "they have ended for another reason"


def assert_serves_others(target):
    began = time.monotonic()
    assert target.http("GET", "/api/v1/tenants", user="alice", source=OTHER)[0] == 200
    assert time.monotonic() - began < SERVED_WITHIN_S


def has_ended(connection, byte):
    """Sends one more byte. `True` if the server has closed; it answers nothing else."""
    connection.setblocking(False)
    try:
        connection.send(byte)
        assert connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True
