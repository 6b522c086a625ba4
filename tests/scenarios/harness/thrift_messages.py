"""Messages as bytes, well formed or not: those of the SASL negotiation, and the calls of TCLIService with their replies."""

import dataclasses
import struct

from impala_thrift_gen.TCLIService import TCLIService, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer

# The status of a message of the SASL negotiation.
START, OK, BAD, ERROR, COMPLETE = 1, 2, 3, 4, 5
PROTOCOL = ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V10
SEQID = 7


def sasl(status, payload=b"", length=None):
    """A message of the negotiation, which may announce another length than it has."""
    return struct.pack(">BI", status, len(payload) if length is None else length) + payload


def login(user, password, authzid="", mechanism="PLAIN"):
    """Both messages of a client's negotiation."""
    return sasl(START, mechanism.encode()) + sasl(COMPLETE, f"{authzid}\0{user}\0{password}".encode())


def framed(message, length=None):
    return struct.pack(">I", len(message) if length is None else length) + message


def field(kind, number, value):
    return struct.pack(">Bh", kind, number) + value


def text(value):
    return struct.pack(">i", len(value)) + value


def message(method, fields, kind=TMessageType.CALL, version=0x8001):
    return struct.pack(">HBB", version, 0, kind) + text(method.encode()) + struct.pack(">i", SEQID) + fields + b"\0"


def call(method, *fields):
    """A call whose one argument has these fields."""
    return message(method, field(TType.STRUCT, 1, b"".join(fields) + b"\0"))


def written(value):
    """The bytes of a generated struct."""
    buffer = TMemoryBuffer()
    value.write(TBinaryProtocol(buffer))
    return buffer.getvalue()


def encode(method, request):
    """A call whose one argument is this generated struct."""
    return message(method, field(TType.STRUCT, 1, written(request)))


def handle(session):
    """The first field of a call of this session."""
    return field(TType.STRUCT, 1, written(session))


def open_session(user=None, password=None, configuration=None):
    """The call that opens a session; over plain Thrift it has the credentials."""
    return encode("OpenSession", ttypes.TOpenSessionReq(PROTOCOL, user, password, configuration))


def execute(session, statement, overlay=None):
    return encode("ExecuteStatement", ttypes.TExecuteStatementReq(session, statement, overlay, False))


@dataclasses.dataclass
class Reply:
    """The reply to a call: the response of the method, or the exception of Thrift."""

    method: str
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
        return self.response is not None and self.response.status.statusCode == ttypes.TStatusCode.SUCCESS_STATUS


def decode(received):
    """The reply that has these bytes."""
    protocol = TBinaryProtocol(TMemoryBuffer(received))
    method, kind, seqid = protocol.readMessageBegin()
    if kind == TMessageType.EXCEPTION:
        exception = TApplicationException()
        exception.read(protocol)
        return Reply(method, exception=exception.message)
    assert (kind, seqid) == (TMessageType.REPLY, SEQID), (method, kind, seqid)
    result = getattr(TCLIService, f"{method}_result")()
    result.read(protocol)
    return Reply(method, result.success)
