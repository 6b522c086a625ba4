"""Rows B31 and B32: logins that are refused whatever their credentials: delegation tokens, mechanisms that are not offered, and
passwords outside TLS."""

import contextlib

from TCLIService import TCLIService, ttypes

from harness.attacked import password_of
from harness.login_attempts import (
    DOORS,
    HTTP,
    PLAIN_THRIFT,
    PROTOCOL,
    REST,
    SASL,
    SASL_BAD,
    THRIFT,
    call,
    log_in,
    open_session,
    reply,
    sasl,
    sasl_message,
)

NEEDS_TLS = "this login requires TLS: add ssl=true"
TOKEN_CALLS = {
    "GetDelegationToken": lambda session: ttypes.TGetDelegationTokenReq(session, "alice", "alice"),
    "CancelDelegationToken": lambda session: ttypes.TCancelDelegationTokenReq(session, "token"),
    "RenewDelegationToken": lambda session: ttypes.TRenewDelegationTokenReq(session, "token"),
}


@contextlib.contextmanager
def over_sasl(target):
    with target.session("alice") as connection:
        yield connection._client, connection._sessionHandle


@contextlib.contextmanager
def over_plain_thrift(target):
    with target.thrift() as client:
        request = ttypes.TOpenSessionReq(PROTOCOL, "alice", password_of("alice"))
        yield client, client.OpenSession(request).sessionHandle


class HttpClient:
    """The calls of the generated client, each a POST of alice's."""

    def __init__(self, target):
        self.target = target

    def __getattr__(self, method):
        def execute(argument):
            headers = {"Content-Type": THRIFT}
            status, _, body = self.target.http("POST", "/cliservice", call(method, argument), "alice", headers)
            assert status == 200, body
            return reply(getattr(TCLIService, f"{method}_result"), body)

        return execute


@contextlib.contextmanager
def over_http(target):
    client = HttpClient(target)
    session = client.OpenSession(ttypes.TOpenSessionReq(PROTOCOL)).sessionHandle
    yield client, session
    client.CloseSession(ttypes.TCloseSessionReq(session))


def test_b31_delegation_tokens_and_other_mechanisms_are_refused_by_name(target):
    """The session of a token's call continues; a SASL negotiation that is refused ends its connection."""
    for transport in (over_sasl, over_plain_thrift, over_http):
        with transport(target) as (client, session):
            for method, request in TOKEN_CALLS.items():
                answer = getattr(client, method)(request(session))
                status = answer.status
                assert status.statusCode == ttypes.TStatusCode.ERROR_STATUS, (transport, method, answer)
                assert status.sqlState == "0A000", (transport, method, answer)
                assert f"{method} is not supported" in status.errorMessage, (transport, method, answer)
                assert getattr(answer, "delegationToken", None) is None, (transport, answer)
            executed = client.ExecuteStatement(ttypes.TExecuteStatementReq(session, "SHOW TENANTS", runAsync=False))
            assert executed.status.statusCode == ttypes.TStatusCode.SUCCESS_STATUS, (transport, executed)

    mechanisms = {name: name for name in ("DIGEST-MD5", "GSSAPI", "SCRAM-SHA-256", "EXTERNAL", "plain", "PLAIN ", "")}
    # What an error repeats of a name cannot change the terminal of its reader, and is short.
    mechanisms |= {"GSS\x1b[31m\n": "GSS[31m", "X" * 10_000: "X" * 64}
    right = f"\0alice\0{password_of('alice')}".encode()
    for mechanism, shown in mechanisms.items():
        with target.tls("127.0.131.1") as connection:
            answer = sasl(connection, mechanism, right)
        text = f'SASL mechanism "{shown}" is not supported\nHint: Use PLAIN: a user name and a password.'
        assert answer.received == sasl_message(SASL_BAD, text.encode()), (mechanism, answer)

    headers = {"Content-Type": THRIFT, "X-Hive-Delegation-Token": "token"}
    for path in ("/cliservice", "/"):
        status, received, body = target.http("POST", path, open_session(), headers=headers)
        assert (status, received["WWW-Authenticate"]) == (401, 'Basic realm="enginehouse"'), (path, body)
        assert b"delegation tokens are not supported" in body, (path, body)
        assert "Set-Cookie" not in received, (path, body)
    for scheme in ("Negotiate token", "Negotiate : token", "Bearer token", "Digest username=alice", "Hive token", "Basic"):
        headers = {"Content-Type": THRIFT, "Authorization": scheme}
        status, received, body = target.http("POST", "/cliservice", open_session(), headers=headers)
        assert (status, received["WWW-Authenticate"]) == (401, 'Basic realm="enginehouse"'), (scheme, body)
        assert b"credentials" in body and "Set-Cookie" not in received, (scheme, body)


# What a login outside TLS receives, through each door.
REFUSED_OUTSIDE_TLS = {
    SASL: sasl_message(SASL_BAD, NEEDS_TLS.encode()),
    HTTP: (
        "HTTP/1.1 426 Upgrade Required\r\nContent-Type: text/plain; charset=utf-8\r\nUpgrade: TLS/1.2\r\nConnection: close\r\n"
        f"Content-Length: {len(NEEDS_TLS) + 1}\r\n\r\n{NEEDS_TLS}\n"
    ).encode(),
    REST: (
        "HTTP/1.1 426 Upgrade Required\r\nContent-Type: application/problem+json\r\nUpgrade: TLS/1.2\r\nConnection: close\r\n"
        f'Content-Length: 81\r\n\r\n{{"title":"{NEEDS_TLS}","status":426,"sqlstate":"28000"}}'
    ).encode(),
}


def test_b32_a_password_outside_tls_is_refused_before_it_is_checked(target):
    """The right one and a wrong one get the same answer, and none is a failed login."""
    number = 0
    for door in DOORS:
        answers = []
        for user, password in (("alice", password_of("alice")), ("alice", "wrong"), ("eve", "wrong"), ("alice", "")):
            number += 1
            with target.tcp(f"127.0.132.{number}") as connection:
                answers.append(log_in(door, connection, user, password))
        for answer in answers:
            assert not answer.accepted and answer.received == answers[0].received, (door, answer)
        if door == PLAIN_THRIFT:
            assert (answers[0].sqlstate, answers[0].text) == ("28000", NEEDS_TLS), answers[0]
        else:
            assert answers[0].received == REFUSED_OUTSIDE_TLS[door], answers[0]
    log = target.logs.text("enginehouse.log")
    for at in range(1, number + 1):
        assert f"refused a client without TLS: its login requires TLS address=127.0.132.{at} " in log, at
    lines = [line for line in log.splitlines() if "login_failed" in line and "address=127.0.132." in line]
    assert lines == [], "a password was checked"
    assert not any(it in target.logs.text() for it in target.secrets), "a secret is in a log"
