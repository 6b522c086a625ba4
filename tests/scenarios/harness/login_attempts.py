"""Logins, byte for byte: what a client sends over each transport and to the REST API, and all that it receives."""

import dataclasses

from harness.attacked import basic, read_to_end
from harness.http_messages import LAST, THRIFT_TYPE, request
from harness.thrift_messages import COMPLETE, decode, login, open_session, sasl
from harness.transports import TRANSPORTS, read_message, read_sasl

SASL, PLAIN_THRIFT, HTTP, REST = TRANSPORTS_AND_REST = (*TRANSPORTS, "REST")


@dataclasses.dataclass
class Answer:
    """Everything that was received, and its meaning. A refusal of SASL, HTTP and REST ends the connection."""

    received: bytes
    accepted: bool
    # What the client shows: the reason, the body.
    text: str
    sqlstate: str | None = None


def log_in(transport, connection, user, password):
    """Logs in on a connection on which nothing has been sent. User and password may have any characters."""
    if transport == SASL:
        return over_sasl(connection, login(user, password))
    if transport == PLAIN_THRIFT:
        return over_plain_thrift(connection, open_session(user, password))
    authorization = f"Authorization: {basic(user, password)}"
    if transport == REST:
        return over_http(connection, "GET /api/v1/tenants", authorization)
    return over_http(connection, "POST /cliservice", authorization, f"Content-Type: {THRIFT_TYPE}", body=open_session())


def over_sasl(connection, negotiation):
    connection.sendall(negotiation)
    status, text = read_sasl(connection)
    accepted = status == COMPLETE
    after = b"" if accepted else read_to_end(connection)
    return Answer(sasl(status, text) + after, accepted, text.decode())


def over_plain_thrift(connection, opening):
    connection.sendall(opening)
    received = read_message(connection)
    reply = decode(received)
    return Answer(received, reply.succeeded, reply.message or "", reply.sqlstate)


def over_http(connection, line, *headers, body=b""):
    """One request, after which the connection ends."""
    connection.sendall(request(line, *headers, f"Content-Length: {len(body)}", LAST, body=body, user=None))
    received = read_to_end(connection)
    head, _, text = received.partition(b"\r\n\r\n")
    return Answer(received, head.startswith(b"HTTP/1.1 200 "), text.decode(errors="replace"))
