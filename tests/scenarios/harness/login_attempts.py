"""Logins as bytes: what a client sends through each door of the port for clients, and what it receives, byte for byte."""

import contextlib
import dataclasses

from TCLIService import TCLIService, ttypes
from thrift.protocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport import TTransport

from harness.attacked import basic, read_to_end

SASL, PLAIN_THRIFT, HTTP, REST = DOORS = ("SASL", "plain Thrift", "HTTP", "REST")
SASL_START, SASL_BAD, SASL_COMPLETE = 1, 3, 5
THRIFT = "application/x-thrift"
PROTOCOL = ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V10


@dataclasses.dataclass
class Answer:
    """Everything that was received, and its meaning. A refusal of SASL, HTTP and REST ends the connection."""

    received: bytes
    accepted: bool
    # What the client shows: the reason, the body.
    text: str
    sqlstate: str | None = None


def log_in(door, connection, user, password):
    """Logs in on a connection on which nothing has been sent. User and password may have any characters."""
    if door == SASL:
        return sasl(connection, "PLAIN", f"\0{user}\0{password}".encode())
    if door == PLAIN_THRIFT:
        return plain_thrift(connection, user, password)
    headers = {"Authorization": basic(user, password)}
    if door == REST:
        return over_http(connection, "GET", "/api/v1/tenants", headers)
    return over_http(connection, "POST", "/cliservice", headers | {"Content-Type": THRIFT}, open_session())


def sasl(connection, mechanism, response):
    """START with this mechanism and, without waiting, the client's response."""
    connection.sendall(sasl_message(SASL_START, mechanism.encode()) + sasl_message(SASL_COMPLETE, response))
    head = read_exactly(connection, 5)
    text = read_exactly(connection, int.from_bytes(head[1:], "big"))
    accepted = head[0] == SASL_COMPLETE
    after = b"" if accepted else read_to_end(connection)
    return Answer(head + text + after, accepted, text.decode())


def sasl_message(status, payload):
    return bytes([status]) + len(payload).to_bytes(4, "big") + payload


def plain_thrift(connection, user, password):
    connection.sendall(open_session(user, password))
    received = b""
    while True:
        received += read_exactly(connection, 1)
        with contextlib.suppress(EOFError):
            status = reply(TCLIService.OpenSession_result, received).status
            accepted = status.statusCode == ttypes.TStatusCode.SUCCESS_STATUS
            return Answer(received, accepted, status.errorMessage or "", status.sqlState)


def over_http(connection, method, path, headers, body=b""):
    """One request, after which the connection ends."""
    headers = {"Host": "localhost", "Content-Length": len(body), "Connection": "close"} | headers
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    connection.sendall(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
    received = read_to_end(connection)
    head, _, text = received.partition(b"\r\n\r\n")
    return Answer(received, head.startswith(b"HTTP/1.1 200 "), text.decode(errors="replace"))


def open_session(user=None, password=None):
    """The call that opens a session; over plain Thrift it has the credentials."""
    return call("OpenSession", ttypes.TOpenSessionReq(client_protocol=PROTOCOL, username=user, password=password))


def call(method, argument):
    """The bytes of a call of TCLIService."""
    sent = TTransport.TMemoryBuffer()
    getattr(TCLIService.Client(TBinaryProtocol.TBinaryProtocol(sent)), f"send_{method}")(argument)
    return sent.getvalue()


def reply(kind, received):
    """What a call returns in these bytes; EOFError if they are only the beginning of its reply."""
    protocol = TBinaryProtocol.TBinaryProtocol(TTransport.TMemoryBuffer(received))
    _, message, _ = protocol.readMessageBegin()
    result = TApplicationException() if message == TMessageType.EXCEPTION else kind()
    result.read(protocol)
    protocol.readMessageEnd()
    assert message == TMessageType.REPLY, result
    return result.success


def read_exactly(connection, length):
    received = b""
    while len(received) < length:
        piece = connection.recv(length - len(received))
        assert piece, f"closed after {received!r}, before {length} bytes"
        received += piece
    return received
