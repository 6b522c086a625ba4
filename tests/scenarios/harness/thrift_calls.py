"""Calls of TCLIService over each transport of the port, message by message: an attempt may name any handle, and what it
receives is compared byte for byte."""

import http.client
import ssl
import struct

from impala_thrift_gen.TCLIService import TCLIService, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer

from harness.attacked import ANSWER_WITHIN_S, basic, password_of
from harness.clients import split

SASL_START, SASL_OK, SASL_COMPLETE = 1, 2, 5
THRIFT = {"Content-Type": "application/x-thrift"}


class Refused(Exception):
    """A login that was refused: the text of SASL, or the status of HTTP and the body."""


def message(method, request):
    buffer = TMemoryBuffer()
    protocol = TBinaryProtocol(buffer)
    protocol.writeMessageBegin(method, TMessageType.CALL, 0)
    getattr(TCLIService, f"{method}_args")(req=request).write(protocol)
    return buffer.getvalue()


def response(method, reply):
    protocol = TBinaryProtocol(TMemoryBuffer(reply))
    name, kind, _ = protocol.readMessageBegin()
    assert (name, kind) == (method, TMessageType.REPLY), (name, kind, reply[:200])
    result = getattr(TCLIService, f"{method}_result")()
    result.read(protocol)
    return result.success


class Connection:
    """What the transports share. `exchange` sends a message and returns the bytes of its reply."""

    # Whether a session belongs to its connection.
    is_binary = True

    def __init__(self, user, password):
        self.user, self.password = user, password or password_of(user)
        self.sessions = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Those of a binary connection end with it.
        for session in [] if self.is_binary else self.sessions:
            self.close_session(session)
        self.connection.close()

    def call(self, method, request):
        return response(method, self.exchange(message(method, request)))

    def opening(self, configuration=None):
        login = {"username": self.user, "password": self.password}
        return ttypes.TOpenSessionReq(client_protocol=9, configuration=configuration, **login)

    def try_open(self, **configuration):
        """The response of OpenSession, refused or not."""
        return self.call("OpenSession", self.opening(configuration or None))

    def open(self, **configuration):
        """The handle of a new session."""
        opened = self.try_open(**configuration)
        assert opened.sessionHandle, opened.status
        self.sessions.append(opened.sessionHandle)
        return opened.sessionHandle

    def execute(self, session, statement, overlay=None):
        """The response of ExecuteStatement, refused or not."""
        request = ttypes.TExecuteStatementReq(session, statement, overlay, False)
        return self.call("ExecuteStatement", request)

    def rows(self, session, statement):
        """The rows of a statement that must succeed."""
        executed = self.execute(session, statement)
        assert executed.status.statusCode == ttypes.TStatusCode.SUCCESS_STATUS, f"{statement}: {executed.status}"
        operation = executed.operationHandle
        fetched = self.call("FetchResults", ttypes.TFetchResultsReq(operation, ttypes.TFetchOrientation.FETCH_NEXT, 10_000))
        self.call("CloseOperation", ttypes.TCloseOperationReq(operation))
        kinds = [next(it for it in vars(column).values() if it is not None) for column in fetched.results.columns]
        return list(zip(*(kind.values for kind in kinds), strict=True))

    def close_session(self, session):
        return self.call("CloseSession", ttypes.TCloseSessionReq(session))


class Sasl(Connection):
    """SASL PLAIN inside TLS. `authzid` names a user to impersonate."""

    def __init__(self, target, user, authzid="", source="127.0.0.1", password=None):
        super().__init__(user, password)
        self.connection = target.tls(source)
        credentials = f"{authzid}\0{user}\0{self.password}".encode()
        for status, payload in (SASL_START, b"PLAIN"), (SASL_OK, credentials):
            self.connection.sendall(struct.pack(">BI", status, len(payload)) + payload)
        status, length = struct.unpack(">BI", self.read(5))
        payload = self.read(length)
        if status != SASL_COMPLETE:
            self.connection.close()
            raise Refused(payload.decode())

    def read(self, count):
        received = b""
        while len(received) < count:
            piece = self.connection.recv(count - len(received))
            assert piece, "the connection was closed"
            received += piece
        return received

    def exchange(self, request):
        self.connection.sendall(struct.pack(">I", len(request)) + request)
        (length,) = struct.unpack(">I", self.read(4))
        return self.read(length)


class Bytes(TBinaryProtocol):
    """Reads a message whose handles are not UTF-8."""

    readString = TBinaryProtocol.readBinary  # noqa: N815 -- the name in thrift's protocols


class Plain(Connection):
    """Plain Thrift inside TLS: the credentials are those of the first OpenSession. A message has no length, so a reply is read
    value by value."""

    def __init__(self, target, user, source="127.0.0.1", password=None):
        super().__init__(user, password)
        self.connection = target.tls(source)
        self.received = b""

    def readAll(self, count):  # noqa: N802 -- the name in thrift's transports
        piece = b""
        while len(piece) < count:
            more = self.connection.recv(count - len(piece))
            assert more, "the connection was closed"
            piece += more
        self.received += piece
        return piece

    def exchange(self, request):
        self.connection.sendall(request)
        self.received = b""
        protocol = Bytes(self)
        protocol.readMessageBegin()
        protocol.skip(TType.STRUCT)
        return self.received


class Http(Connection):
    """HTTPS with Basic on each call, on a kept connection. `query` is of the URL, such as `doAs=alice`."""

    is_binary = False

    def __init__(self, target, user, query="", source="127.0.0.1", password=None):
        super().__init__(user, password)
        host, port = split(target.address)
        context = ssl.create_default_context(cafile=target.certificate.certificate)
        place = {"timeout": ANSWER_WITHIN_S, "source_address": (source, 0)}
        self.connection = http.client.HTTPSConnection(host, port, context=context, **place)
        self.path = "/cliservice" + (query and f"?{query}")
        self.headers = {"Authorization": basic(user, self.password)} | THRIFT

    def exchange(self, request):
        self.connection.request("POST", self.path, body=request, headers=self.headers)
        answer = self.connection.getresponse()
        body = answer.read()
        if answer.status != http.client.OK:
            raise Refused(answer.status, body.decode())
        return body


TRANSPORTS = {"SASL": Sasl, "plain Thrift": Plain, "HTTP": Http}
