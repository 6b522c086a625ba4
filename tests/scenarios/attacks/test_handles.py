"""C5 to C7: handles that are not the caller's own, guessed or closed. Each call with one is answered as if the session or the
operation did not exist, with the bytes that a guessed handle gets."""

import contextlib
import functools
import os

from impala_thrift_gen.TCLIService import ttypes

from harness.thrift_messages import decode, encode
from harness.transports import TRANSPORTS, Http, Sasl

MIB = 1024 * 1024
ORIENTATION = ttypes.TFetchOrientation.FETCH_NEXT
# Every call of TCLIService whose first field is a handle, with what else it needs.
OF_SESSION = {
    "GetInfo": lambda it: ttypes.TGetInfoReq(it, ttypes.TGetInfoType.CLI_DBMS_NAME),
    "ExecuteStatement": lambda it: ttypes.TExecuteStatementReq(it, "SELECT 1", None, False),
    "GetTypeInfo": ttypes.TGetTypeInfoReq,
    "GetCatalogs": ttypes.TGetCatalogsReq,
    "GetSchemas": ttypes.TGetSchemasReq,
    "GetTables": ttypes.TGetTablesReq,
    "GetTableTypes": ttypes.TGetTableTypesReq,
    "GetColumns": ttypes.TGetColumnsReq,
    "GetFunctions": lambda it: ttypes.TGetFunctionsReq(it, functionName="%"),
    "GetPrimaryKeys": ttypes.TGetPrimaryKeysReq,
    "GetCrossReference": ttypes.TGetCrossReferenceReq,
    "GetDelegationToken": lambda it: ttypes.TGetDelegationTokenReq(it, "alice", "alice"),
    "CancelDelegationToken": lambda it: ttypes.TCancelDelegationTokenReq(it, "token"),
    "RenewDelegationToken": lambda it: ttypes.TRenewDelegationTokenReq(it, "token"),
    "SetClientInfo": lambda it: ttypes.TSetClientInfoReq(it, {"ApplicationName": "x"}),
    "CloseSession": ttypes.TCloseSessionReq,
}
OF_OPERATION = {
    "GetOperationStatus": ttypes.TGetOperationStatusReq,
    "GetResultSetMetadata": ttypes.TGetResultSetMetadataReq,
    "FetchResults": lambda it: ttypes.TFetchResultsReq(it, ORIENTATION, 10),
    "GetQueryId": ttypes.TGetQueryIdReq,
    "CancelOperation": ttypes.TCancelOperationReq,
    "CloseOperation": ttypes.TCloseOperationReq,
}
CALLS = [(method, request, "session") for method, request in OF_SESSION.items()]
CALLS += [(method, request, "operation") for method, request in OF_OPERATION.items()]


def session_handle(guid=None, secret=None):
    return ttypes.TSessionHandle(identifier(guid, secret))


def operation_handle(guid=None, secret=None):
    return ttypes.TOperationHandle(identifier(guid, secret), ttypes.TOperationType.EXECUTE_STATEMENT, True)


def identifier(guid=None, secret=None):
    return ttypes.THandleIdentifier(os.urandom(16) if guid is None else guid, os.urandom(16) if secret is None else secret)


def guessed(kind):
    return session_handle() if kind == "session" else operation_handle()


class Victim:
    """A session with an open result and, if it `runs`, a statement that does not end by itself."""

    def __init__(self, connection, runs=False):
        self.connection = connection
        self.session = connection.open()
        self.operation = connection.execute(self.session, "SELECT 7 AS seven").operationHandle
        self.running = None
        if runs:
            endless = "SELECT count(*) FROM generate_series(1, 100000000000)"
            request = ttypes.TExecuteStatementReq(self.session, endless, None, True)
            self.running = connection.call("ExecuteStatement", request).operationHandle
            assert self.running

    def handles(self):
        own = {"session": ("session", self.session), "operation": ("operation", self.operation)}
        return own | ({"running operation": ("operation", self.running)} if self.running else {})

    def check(self, variant):
        """Nothing happened to it."""
        if self.running:
            status = self.connection.call("GetOperationStatus", ttypes.TGetOperationStatusReq(self.running))
            assert status.operationState == ttypes.TOperationState.RUNNING_STATE, (variant, status)
            self.connection.call("CancelOperation", ttypes.TCancelOperationReq(self.running))
        fetched = self.connection.call("FetchResults", ttypes.TFetchResultsReq(self.operation, ORIENTATION, 10))
        assert fetched.status.statusCode == ttypes.TStatusCode.SUCCESS_STATUS, (variant, fetched)
        assert fetched.results.columns[0].i64Val.values == [7], (variant, fetched)
        assert self.connection.rows(self.session, "SELECT current_user") == [("alice",)], variant
        self.connection.close_session(self.session)


UNKNOWN = "{kind} does not exist\nDetail: It was closed, or it belongs to another user.\nHint: Open a new session."
MALFORMED = "malformed {method} request\nDetail: a handle must be 16 and 16 bytes."


def replies_to_guesses(connection):
    """By method, the bytes with which a guessed handle is refused."""
    return {
        method: refusal(connection, method, request(guessed(kind)), "55000", UNKNOWN.format(kind=kind))
        for method, request, kind in CALLS
    }


def assert_unknown(connection, guesses, handles, variant):
    """Every call with these handles is answered like a guess."""
    for method, request, kind in CALLS:
        for name, (of_kind, handle) in handles.items():
            if of_kind == kind:
                received = connection.exchange(encode(method, request(handle)))
                assert received == guesses[method], (variant, name, method, received[:300], guesses[method][:300])


def refusal(connection, method, request, sqlstate, expected):
    """The bytes of a refusal, whose state and text are checked. GetQueryId has no status: its refusal is an exception."""
    received = connection.exchange(encode(method, request))
    if method == "GetQueryId":
        assert expected.encode() in received, (method, received)
    else:
        reply = decode(received)
        assert (reply.method, reply.sqlstate, reply.message) == (method, sqlstate, expected), (method, reply)
    return received


def test_c5_handles_of_another_user_do_not_exist(target):
    """Handles of each transport, named over each: by users of another tenant and of the same, by an admin, by the user's other
    connections, if the session belongs to one, and by a user who acts for the user, or whom the session does not belong to."""
    owners = {
        f"alice over {transport}": functools.partial(connect, target, "alice") for transport, connect in TRANSPORTS.items()
    }
    impersonated = {
        "superset for alice over SASL": functools.partial(Sasl, target, "superset", "alice"),
        "superset for alice over HTTP": functools.partial(Http, target, "superset", "doAs=alice"),
    }
    others = {
        f"{user} over {transport}": functools.partial(connect, target, user)
        for user in ("bob", "admin")
        for transport, connect in TRANSPORTS.items()
    }
    others["carol over HTTP"] = functools.partial(Http, target, "carol")
    others["superset for carol over HTTP"] = functools.partial(Http, target, "superset", "doAs=carol")
    with contextlib.ExitStack() as stack:
        attackers = {name: stack.enter_context(connect()) for name, connect in (owners | impersonated | others).items()}
        for attacker in attackers.values():
            attacker.open()
        guesses = {name: replies_to_guesses(attacker) for name, attacker in attackers.items()}
        for owned, connect in (owners | impersonated).items():
            with connect() as connection:
                victim = Victim(connection, runs=owned in owners)
                for name, attacker in attackers.items():
                    # A session that was opened over HTTP serves every connection of its login and user.
                    if connection.is_binary or name.split(" over ")[0] != owned.split(" over ")[0]:
                        assert_unknown(attacker, guesses[name], victim.handles(), f"{name} with handles of {owned}")
                victim.check(owned)


def test_c6_guessed_handles_do_not_exist(target):
    """Of one's own session and operation: the id with another secret, the other way round, and a handle of one kind for the
    other. Handles of another length are malformed, whatever they begin with."""
    for transport, connect in TRANSPORTS.items():
        with connect(target, "alice") as connection:
            victim = Victim(connection)
            session, operation = victim.session.sessionId, victim.operation.operationId
            guesses = {
                "operation as session": ("session", session_handle(operation.guid, operation.secret)),
                "session as operation": ("operation", operation_handle(session.guid, session.secret)),
            }
            malformed = []
            for kind, own, make in ("session", session, session_handle), ("operation", operation, operation_handle):
                guesses |= {
                    f"{kind} with another secret": (kind, make(guid=own.guid)),
                    f"{kind} with another id": (kind, make(secret=own.secret)),
                    f"{kind} with one bit changed": (kind, make(own.guid, own.secret[:-1] + bytes([own.secret[-1] ^ 1]))),
                    f"{kind} with id and secret exchanged": (kind, make(own.secret, own.guid)),
                }
                for length in (0, 15, 17, MIB):
                    guid, secret = ((half * (length // 16 + 1))[:length] for half in (own.guid, own.secret))
                    malformed += [(kind, length, make(own.guid, secret)), (kind, length, make(guid, own.secret))]
            assert_unknown(connection, replies_to_guesses(connection), guesses, f"guessed over {transport}")
            for method, request, kind in CALLS:
                for of_kind, length, handle in malformed:
                    if of_kind == kind and (length < MIB or method in ("GetInfo", "FetchResults")):
                        refusal(connection, method, request(handle), "42601", MALFORMED.format(method=method))
            victim.check(transport)


def test_c7_closed_handles_do_not_exist(target):
    """After CloseOperation, after CloseSession, and after the end of a binary connection."""
    for transport, connect in TRANSPORTS.items():
        with connect(target, "alice") as connection:
            session = connection.open()
            closed = connection.execute(session, "SELECT 1").operationHandle
            connection.call("CloseOperation", ttypes.TCloseOperationReq(closed))
            ended = Victim(connection)
            connection.close_session(ended.session)
            handles = ended.handles() | {"closed operation": ("operation", closed)}
            assert_unknown(connection, replies_to_guesses(connection), handles, f"closed over {transport}")
            assert connection.rows(session, "SELECT 1") == [(1,)], transport
            left = Victim(connection)
            if not connection.is_binary:
                left.check(transport)
                continue
        with Sasl(target, "alice") as later:
            assert later.rows(later.open(), "SELECT 1") == [(1,)]
            guesses = replies_to_guesses(later)
            assert_unknown(later, guesses, left.handles(), f"session of an ended connection over {transport}")
