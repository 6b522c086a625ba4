"""An agent of an engine that the test plays: it accepts every caller, answers like HiveServer2, and lies where a test says so.

`lies` maps a method to a function of the reply: it returns the pieces that are sent in place of the frame with it. What is
sent is counted, and a caller that closes its connection ends the reply.
"""

import collections
import contextlib
import os
import socket
import struct
import threading

from impala_thrift_gen.TCLIService import TCLIService, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TTransport import TMemoryBuffer

from harness.thrift_messages import COMPLETE, OK, framed, sasl
from harness.transports import read_exactly, read_sasl

VALUE = 42
CHALLENGE_BYTES = 32
COLUMN = "answer"
SUCCESS = ttypes.TStatus(ttypes.TStatusCode.SUCCESS_STATUS)


class HiveServer2:
    """Every statement has one row with one number."""

    def __init__(self):
        self.sessions = []
        # What the next statement has in place of a handle of its own.
        self.operation = None

    def OpenSession(self, _):  # noqa: N802 -- the methods have the names of TCLIService
        self.sessions.append(ttypes.TSessionHandle(identifier()))
        version = ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V10
        return ttypes.TOpenSessionResp(SUCCESS, version, self.sessions[-1], {})

    def CloseSession(self, _):  # noqa: N802
        return ttypes.TCloseSessionResp(SUCCESS)

    def ExecuteStatement(self, _):  # noqa: N802
        operation = self.operation or ttypes.TOperationHandle(identifier(), ttypes.TOperationType.EXECUTE_STATEMENT, True)
        return ttypes.TExecuteStatementResp(SUCCESS, operation)

    def GetOperationStatus(self, _):  # noqa: N802
        return ttypes.TGetOperationStatusResp(SUCCESS, ttypes.TOperationState.FINISHED_STATE, hasResultSet=True)

    def GetResultSetMetadata(self, _):  # noqa: N802
        entry = ttypes.TTypeEntry(primitiveEntry=ttypes.TPrimitiveTypeEntry(ttypes.TTypeId.BIGINT_TYPE))
        column = ttypes.TColumnDesc(COLUMN, ttypes.TTypeDesc([entry]), 1)
        return ttypes.TGetResultSetMetadataResp(SUCCESS, ttypes.TTableSchema([column]))

    def FetchResults(self, _):  # noqa: N802
        column = ttypes.TColumn(i64Val=ttypes.TI64Column([VALUE], b"\0"))
        return ttypes.TFetchResultsResp(SUCCESS, False, ttypes.TRowSet(0, [], [column]))

    def CloseOperation(self, _):  # noqa: N802
        return ttypes.TCloseOperationResp(SUCCESS)

    def CancelOperation(self, _):  # noqa: N802
        return ttypes.TCancelOperationResp(SUCCESS)


def identifier():
    return ttypes.THandleIdentifier(os.urandom(16), os.urandom(16))


class HostileEngine:
    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.server = HiveServer2()
        self.processor = TCLIService.Processor(self.server)
        self.lies = {}
        self.calls = collections.Counter()
        self.sent_bytes = 0
        self.ended = threading.Event()
        self.connections = []
        threading.Thread(target=self._accept, name="hostile engine", daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended.set()
        for one in (self.listener, *self.connections):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self):
        while not self.ended.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        # A caller may close the connection, and so does the end of the test.
        with contextlib.suppress(OSError), connection:
            read_sasl(connection)
            connection.sendall(sasl(OK, os.urandom(CHALLENGE_BYTES)))
            read_sasl(connection)
            connection.sendall(sasl(COMPLETE))
            while True:
                (length,) = struct.unpack(">I", read_exactly(connection, 4))
                method, reply = self._reply(read_exactly(connection, length))
                self.calls[method] += 1
                lie = self.lies.pop(method, None)
                for piece in lie(reply) if lie else [framed(reply)]:
                    connection.sendall(piece)
                    self.sent_bytes += len(piece)

    def _reply(self, call):
        """The method, and the reply of an honest server: an exception, where it does not have the method."""
        method = TBinaryProtocol(TMemoryBuffer(call)).readMessageBegin()[0]
        answer = TMemoryBuffer()
        self.processor.process(TBinaryProtocol(TMemoryBuffer(call)), TBinaryProtocol(answer))
        return method, answer.getvalue()
