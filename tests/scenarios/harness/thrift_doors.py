"""Thrift calls as bytes, well formed or not, over the three transports of the port for clients, inside TLS: framed after
SASL, plain, and in the body of a POST.

A message is bytes; `call` writes one of fields that no generated client sends, `encoded` one of a generated request.
"""

import contextlib
import dataclasses
import http.client
import ssl
import struct

from TCLIService import TCLIService, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TMessageType, TType
from thrift.transport.TTransport import TFileObjectTransport, TMemoryBuffer

from harness.attacked import basic, password_of

# The status of a message of the SASL negotiation.
START, OK, BAD, ERROR, COMPLETE = 1, 2, 3, 4, 5
VERSION = ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V8
SEQID = 7


def sasl(status, payload=b"", length=None):
    """A message of the negotiation, which may announce another length than it has."""
    return struct.pack(">BI", status, len(payload) if length is None else length) + payload


def login(user, password):
    """Both messages of a client's negotiation."""
    return sasl(START, b"PLAIN") + sasl(COMPLETE, f"\0{user}\0{password}".encode())


def framed(message, length=None):
    return struct.pack(">I", len(message) if length is None else length) + message


def field(kind, number, value):
    return struct.pack(">Bh", kind, number) + value


def text(value):
    return struct.pack(">i", len(value)) + value


def message(name, fields, kind=TMessageType.CALL, version=0x8001):
    return struct.pack(">HBB", version, 0, kind) + text(name.encode()) + struct.pack(">i", SEQID) + fields + b"\0"


def call(name, *fields):
    """A call whose one argument has these fields."""
    return message(name, field(TType.STRUCT, 1, b"".join(fields) + b"\0"))


def written(value):
    """The bytes of a generated struct."""
    buffer = TMemoryBuffer()
    value.write(TBinaryProtocol(buffer))
    return buffer.getvalue()


def encoded(name, request):
    return call(name, written(request)[:-1])


def handle(opened):
    """The first field of a call of this session."""
    return field(TType.STRUCT, 1, written(opened.session))


def open_session(user=None, password=None):
    return encoded("OpenSession", ttypes.TOpenSessionReq(client_protocol=VERSION, username=user, password=password))


def execute(session, statement):
    return encoded("ExecuteStatement", ttypes.TExecuteStatementReq(sessionHandle=session, statement=statement))


@dataclasses.dataclass
class Answer:
    """The reply to a call: the response of the method, or the exception of Thrift."""

    response: object = None
    exception: str | None = None

    @property
    def sqlstate(self):
        return None if self.response is None else self.response.status.sqlState

    @property
    def message(self):
        return self.exception if self.response is None else self.response.status.errorMessage

    @property
    def succeeded(self):
        return self.response is not None and self.response.status.statusCode in (
            ttypes.TStatusCode.SUCCESS_STATUS,
            ttypes.TStatusCode.SUCCESS_WITH_INFO_STATUS,
        )


def read_answer(transport):
    protocol = TBinaryProtocol(transport)
    name, kind, seqid = protocol.readMessageBegin()
    if kind == TMessageType.EXCEPTION:
        exception = TApplicationException()
        exception.read(protocol)
        return Answer(exception=exception.message)
    assert (kind, seqid) == (TMessageType.REPLY, SEQID), (name, kind, seqid)
    result = getattr(TCLIService, f"{name}_result")()
    result.read(protocol)
    return Answer(response=result.success)


class Door:
    """A connection of a user who has logged in. `session` is the handle of a session, once there is one."""

    def __init__(self, target, user, source="127.0.0.1"):
        self.target, self.user = target, user
        self.connection = target.tls(source)
        self.file = self.connection.makefile("rb")
        self.session = None
        self.log_in()

    def log_in(self):
        """Sends the credentials, where the transport does so before the first call."""

    def open_session(self):
        answer = self.ask(open_session(self.user, password_of(self.user)))
        assert answer.succeeded, answer
        self.session = answer.response.sessionHandle
        return self

    def send(self, message):
        self.connection.sendall(self.packed(message))

    def answer(self):
        """The next reply; `None` if the connection has ended."""
        try:
            return self.read_answer()
        except (EOFError, ConnectionError, ssl.SSLEOFError, http.client.RemoteDisconnected):
            return None

    def ask(self, message):
        self.send(message)
        return self.answer()

    def is_closed(self):
        """Waits for more; `True` if the connection ends instead."""
        try:
            return self.file.read(1) == b""
        except (ConnectionError, ssl.SSLEOFError):
            return True

    def ends_without_an_answer(self):
        """Closes the client's half; `True` if the server closes the other one and has sent nothing."""
        try:
            self.connection.unwrap()
        except ssl.SSLError:
            return False
        return True

    def execute(self, statement):
        return self.ask(execute(self.session, statement))

    def serves(self):
        answer = self.execute("SHOW TENANTS")
        return answer is not None and answer.succeeded

    def close(self):
        self.file.close()
        self.connection.close()


class Framed(Door):
    """SASL PLAIN, then messages after their lengths."""

    def log_in(self):
        self.connection.sendall(login(self.user, password_of(self.user)))
        assert self.file.read(5) == sasl(COMPLETE), "the login has failed"

    packed = staticmethod(framed)

    def read_answer(self):
        head = self.file.read(4)
        if len(head) < 4:
            raise EOFError
        return read_answer(TMemoryBuffer(self.file.read(struct.unpack(">I", head)[0])))


class Plain(Door):
    """Messages without anything between them. The credentials are those of OpenSession."""

    def packed(self, message):
        return message

    def read_answer(self):
        return read_answer(TFileObjectTransport(self.file))


class Posted(Door):
    """A message in each POST, with the credentials. `is_last`: the last response has announced the end of the connection."""

    is_last = False

    def head(self, *headers):
        lines = ["POST /cliservice HTTP/1.1", "Host: localhost", "Content-Type: application/x-thrift"]
        lines += [f"Authorization: {basic(self.user, password_of(self.user))}", *headers]
        return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()

    def packed(self, message):
        return self.head(f"Content-Length: {len(message)}") + message

    def read_answer(self):
        response = http.client.HTTPResponse(self.connection)
        response.begin()
        self.is_last = response.will_close
        body = response.read()
        assert response.status == 200, (response.status, body)
        return read_answer(TMemoryBuffer(body))

    def close(self):
        """The session would outlive the connection, which may have ended."""
        super().close()
        if self.session is not None:
            with contextlib.closing(Posted(self.target, self.user)) as other:
                other.ask(call("CloseSession", handle(self)))


DOORS = (Framed, Plain, Posted)


@contextlib.contextmanager
def door(kind, target, user, source="127.0.0.1"):
    """A connection with a session."""
    opened = kind(target, user, source)
    try:
        yield opened.open_session()
    finally:
        opened.close()
