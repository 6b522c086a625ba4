"""Rows B31 and B32: logins that are refused whatever their credentials: delegation tokens, mechanisms that are not offered, and
passwords outside TLS."""

from impala_thrift_gen.TCLIService import ttypes

from harness.attacked import password_of
from harness.http_messages import THRIFT_TYPE
from harness.login_attempts import HTTP, PLAIN_THRIFT, REST, SASL, TRANSPORTS_AND_REST, log_in, over_sasl
from harness.thrift_messages import BAD, login, open_session, sasl
from harness.transports import TRANSPORTS

NEEDS_TLS = "this login requires TLS: add ssl=true"
TOKEN_CALLS = {
    "GetDelegationToken": lambda session: ttypes.TGetDelegationTokenReq(session, "alice", "alice"),
    "CancelDelegationToken": lambda session: ttypes.TCancelDelegationTokenReq(session, "token"),
    "RenewDelegationToken": lambda session: ttypes.TRenewDelegationTokenReq(session, "token"),
}


def test_b31_delegation_tokens_and_other_mechanisms_are_refused_by_name(target):
    """The session of a token's call continues; a SASL negotiation that is refused ends its connection."""
    for transport, connect in TRANSPORTS.items():
        with connect(target, "alice") as connection:
            session = connection.open()
            for method, request in TOKEN_CALLS.items():
                answer = connection.call(method, request(session))
                status = answer.status
                assert status.statusCode == ttypes.TStatusCode.ERROR_STATUS, (transport, method, answer)
                assert status.sqlState == "0A000", (transport, method, answer)
                assert f"{method} is not supported" in status.errorMessage, (transport, method, answer)
                assert getattr(answer, "delegationToken", None) is None, (transport, answer)
            executed = connection.execute(session, "SHOW TENANTS")
            assert executed.status.statusCode == ttypes.TStatusCode.SUCCESS_STATUS, (transport, executed)

    mechanisms = {name: name for name in ("DIGEST-MD5", "GSSAPI", "SCRAM-SHA-256", "EXTERNAL", "plain", "PLAIN ", "")}
    # What an error repeats of a name cannot change the terminal of its reader, and is short.
    mechanisms |= {"GSS\x1b[31m\n": "GSS[31m", "X" * 10_000: "X" * 64}
    for mechanism, shown in mechanisms.items():
        with target.tls("127.0.131.1") as connection:
            answer = over_sasl(connection, login("alice", password_of("alice"), mechanism=mechanism))
        text = f'SASL mechanism "{shown}" is not supported\nHint: Use PLAIN: a user name and a password.'
        assert answer.received == sasl(BAD, text.encode()), (mechanism, answer)

    headers = {"Content-Type": THRIFT_TYPE, "X-Hive-Delegation-Token": "token"}
    for path in ("/cliservice", "/"):
        status, received, body = target.http("POST", path, open_session(), headers=headers)
        assert (status, received["WWW-Authenticate"]) == (401, 'Basic realm="enginehouse"'), (path, body)
        assert b"delegation tokens are not supported" in body, (path, body)
        assert "Set-Cookie" not in received, (path, body)
    for scheme in ("Negotiate token", "Negotiate : token", "Bearer token", "Digest username=alice", "Hive token", "Basic"):
        headers = {"Content-Type": THRIFT_TYPE, "Authorization": scheme}
        status, received, body = target.http("POST", "/cliservice", open_session(), headers=headers)
        assert (status, received["WWW-Authenticate"]) == (401, 'Basic realm="enginehouse"'), (scheme, body)
        reason = b"bearer tokens are not accepted" if scheme == "Bearer token" else b"credentials"
        assert reason in body and "Set-Cookie" not in received, (scheme, body)


# What a login outside TLS receives, over each transport.
REFUSED_OUTSIDE_TLS = {
    SASL: sasl(BAD, NEEDS_TLS.encode()),
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
    for transport in TRANSPORTS_AND_REST:
        answers = []
        for user, password in (("alice", password_of("alice")), ("alice", "wrong"), ("eve", "wrong"), ("alice", "")):
            number += 1
            with target.tcp(f"127.0.132.{number}") as connection:
                answers.append(log_in(transport, connection, user, password))
        for answer in answers:
            assert not answer.accepted and answer.received == answers[0].received, (transport, answer)
        if transport == PLAIN_THRIFT:
            assert (answers[0].sqlstate, answers[0].text) == ("28000", NEEDS_TLS), answers[0]
        else:
            assert answers[0].received == REFUSED_OUTSIDE_TLS[transport], answers[0]
    log = target.logs.text("enginehouse.log")
    for at in range(1, number + 1):
        assert f"refused a client without TLS: its login requires TLS address=127.0.132.{at} " in log, at
    lines = [line for line in log.splitlines() if "login_failed" in line and "address=127.0.132." in line]
    assert lines == [], "a password was checked"
    assert not any(it in target.logs.text() for it in target.secrets), "a secret is in a log"
