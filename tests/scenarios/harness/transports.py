"""Connections inside TLS over the three transports of the port for clients: SASL, plain Thrift and HTTP.

A connection sends and receives messages as bytes (`harness.thrift_messages`), well formed or not. Its typed calls use the same
bytes: they may name any handle.
"""

import contextlib
import http.client
import ssl
import struct

from impala_thrift_gen.TCLIService import ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TType

from harness.attacked import basic, password_of
from harness.http_messages import THRIFT_TYPE, request
from harness.thrift_messages import COMPLETE, decode, encode, execute, framed, login, open_session


class Refused(Exception):
    """A login that was refused: the text of SASL, or the status of HTTP and the body."""


def read_exactly(connection, length):
    received = b""
    while len(received) < length:
        piece = connection.recv(length - len(received))
        if not piece:
            raise ConnectionError(f"closed after {received!r}, before {length} bytes")
        received += piece
    return received


def read_sasl(connection):
    """Status and payload of the next message of a negotiation."""
    status, length = struct.unpack(">BI", read_exactly(connection, 5))
    return status, read_exactly(connection, length)


def read_message(connection):
    """The bytes of the next message of plain Thrift, which has no length: it is read value by value."""
    recorder = Recorder(connection)
    protocol = Bytes(recorder)
    protocol.readMessageBegin()
    protocol.skip(TType.STRUCT)
    return recorder.received


class Recorder:
    """A transport of thrift's that keeps what was read."""

    def __init__(self, connection):
        self.connection = connection
        self.received = b""

    def readAll(self, length):  # noqa: N802 -- the name in thrift's transports
        piece = read_exactly(self.connection, length)
        self.received += piece
        return piece


class Bytes(TBinaryProtocol):
    """Reads a message whose handles are not UTF-8."""

    readString = TBinaryProtocol.readBinary  # noqa: N815 -- the name in thrift's protocols


class Connection:
    """The connection of a user who has logged in, where the transport does so before the first call. A transport has `packed`,
    the bytes that carry a message, and `receive`, which returns the bytes of the next reply."""

    # Whether a session belongs to its connection.
    is_binary = True

    def __init__(self, target, user, *, source="127.0.0.1", password=None):
        self.target, self.user, self.password = target, user, password or password_of(user)
        self.sessions = []
        self.connection = target.tls(source)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.connection.close()

    # ---- Messages as bytes. ----

    def send(self, message):
        self.connection.sendall(self.packed(message))

    def exchange(self, message):
        """The bytes of the reply."""
        self.send(message)
        return self.receive()

    def reply(self):
        """The next reply; `None` if the connection has ended."""
        try:
            return decode(self.receive())
        except (ConnectionError, ssl.SSLEOFError):
            return None

    def ask(self, message):
        self.send(message)
        return self.reply()

    def is_closed(self):
        """Waits for more; `True` if the connection ends instead."""
        try:
            return self.connection.recv(1) == b""
        except (ConnectionError, ssl.SSLEOFError):
            return True

    def ends_without_a_reply(self):
        """Closes the client's half; `True` if the server closes the other one and has sent nothing."""
        try:
            self.connection.unwrap()
        except ssl.SSLError:
            return False
        return True

    # ---- Typed calls. ----

    @property
    def session(self):
        """The handle of the last session that was opened."""
        return self.sessions[-1]

    def response(self, method, message):
        reply = decode(self.exchange(message))
        assert reply.method == method and reply.response is not None, reply
        return reply.response

    def call(self, method, request):
        return self.response(method, encode(method, request))

    def try_open(self, **configuration):
        """The response of OpenSession, refused or not."""
        return self.response("OpenSession", open_session(self.user, self.password, configuration or None))

    def open(self, **configuration):
        """The handle of a new session."""
        opened = self.try_open(**configuration)
        assert opened.sessionHandle, opened.status
        self.sessions.append(opened.sessionHandle)
        return opened.sessionHandle

    def execute(self, session, statement, overlay=None):
        """The response of ExecuteStatement, refused or not."""
        return self.response("ExecuteStatement", execute(session, statement, overlay))

    def rows(self, session, statement):
        """The rows of a statement that must succeed."""
        executed = self.execute(session, statement)
        assert executed.status.statusCode == ttypes.TStatusCode.SUCCESS_STATUS, f"{statement}: {executed.status}"
        operation = executed.operationHandle
        fetched = self.call("FetchResults", ttypes.TFetchResultsReq(operation, ttypes.TFetchOrientation.FETCH_NEXT, 10_000))
        self.call("CloseOperation", ttypes.TCloseOperationReq(operation))
        kinds = [next(it for it in vars(column).values() if it is not None) for column in fetched.results.columns]
        return list(zip(*(kind.values for kind in kinds), strict=True))

    def serves(self):
        reply = self.ask(execute(self.session, "SHOW TENANTS"))
        return reply is not None and reply.succeeded

    def close_session(self, session):
        return self.call("CloseSession", ttypes.TCloseSessionReq(session))


class Sasl(Connection):
    """SASL PLAIN, then messages after their lengths. `authzid` names a user to impersonate."""

    def __init__(self, target, user, authzid="", **options):
        super().__init__(target, user, **options)
        try:
            self.connection.sendall(login(user, self.password, authzid))
            status, text = read_sasl(self.connection)
            if (status, text) != (COMPLETE, b""):
                raise Refused(text.decode())
        except BaseException:
            self.connection.close()
            raise

    packed = staticmethod(framed)

    def receive(self):
        (length,) = struct.unpack(">I", read_exactly(self.connection, 4))
        return read_exactly(self.connection, length)


class Plain(Connection):
    """Messages without anything between them. The credentials are those of the first OpenSession."""

    def packed(self, message):
        return message

    def receive(self):
        return read_message(self.connection)


class Http(Connection):
    """A message in each POST, with the credentials, on a kept connection. `query` is of the URL, such as `doAs=alice`."""

    is_binary = False

    def __init__(self, target, user, query="", **options):
        super().__init__(target, user, **options)
        self.query = query
        self.credentials = f"Authorization: {basic(user, self.password)}"
        self.last_response = None

    def head(self, *headers):
        path = "/cliservice" + (self.query and f"?{self.query}")
        return request(f"POST {path}", f"Content-Type: {THRIFT_TYPE}", self.credentials, *headers, user=None)

    def packed(self, message):
        return self.head(f"Content-Length: {len(message)}") + message

    def receive(self):
        self.last_response = http.client.HTTPResponse(self.connection)
        self.last_response.begin()
        body = self.last_response.read()
        if self.last_response.status != http.client.OK:
            raise Refused(self.last_response.status, body.decode())
        return body

    def close(self):
        """The sessions would outlive the connection, which may have ended."""
        super().close()
        if self.sessions:
            with Http(self.target, self.user, self.query) as other:
                for session in self.sessions:
                    other.close_session(session)


TRANSPORTS = {"SASL": Sasl, "plain Thrift": Plain, "HTTP": Http}


@contextlib.contextmanager
def session_over(transport, target, user):
    """A connection with a session."""
    with transport(target, user) as connection:
        connection.open()
        yield connection
