"""The Python clients PyHive and impyla, and their errors. PyHive has no deadline of its own, so it gets one here. Its errors
keep the server's whole response with the SQLSTATE; impyla's keep the message only."""

import contextlib
import dataclasses
import ssl

import pyhive.exc
import pytest
import thrift_sasl
from impala import dbapi as impyla
from pyhive import hive
from thrift.transport import TSocket, TSSLSocket
from thrift.transport.TTransport import TTransportException

# For one answer: longer than any statement of a scenario takes, those that WAIT on a busy machine included.
ANSWER_WITHIN_S = 300


def split(address):
    host, port = address.rsplit(":", 1)
    return host, int(port)


@contextlib.contextmanager
def pyhive_session(address, user="admin", **settings):
    """A session of PyHive. Settings are session keys: `tenant=`, `pool=`, `unit=`, `creator=` are ours."""
    connection = open_pyhive(address, user, **settings)
    try:
        yield connection
    finally:
        with contextlib.suppress(Exception):
            connection.close()


def open_pyhive(address, user="admin", database="default", password="x", ca=None, server_name=None, **settings):
    """With `ca`, a file of trusted certificates, over TLS: PyHive has no option for it, but takes a transport. The certificate
    is for the host of the address, or for `server_name`."""
    host, port = split(address)
    if ca is None:
        socket = TSocket.TSocket(host, port)
    else:
        context = ssl.create_default_context(cafile=ca)
        socket = TSSLSocket.TSSLSocket(host, port, ssl_context=context, server_hostname=server_name or host)
    socket.setTimeout(ANSWER_WITHIN_S * 1000)
    # The transport that PyHive makes by itself, but for the deadline.
    transport = thrift_sasl.TSaslClientTransport(
        lambda: hive.get_installed_sasl(host=host, sasl_auth="PLAIN", username=user, password=password), "PLAIN", socket
    )
    return hive.connect(thrift_transport=transport, username=user, database=database, configuration=session_keys(settings))


def session_keys(settings):
    ours = {"tenant", "pool", "unit", "creator"}
    return {f"enginehouse.{key}" if key in ours else key: value for key, value in settings.items()}


@contextlib.contextmanager
def impyla_session(address, user="admin", ca=None, http=False, password="x", token=None, auth_mechanism="PLAIN", **settings):
    """A session of impyla: a cursor, because a session is a cursor's there. With `ca` over TLS, with a token over HTTP."""
    host, port = split(address)
    http = http or token is not None
    tls = {"use_ssl": True, "ca_cert": str(ca), "verify_cert": True} if ca else {}
    transport = {"use_http_transport": True, "http_path": "cliservice"} if http else {}
    login = {"auth_mechanism": auth_mechanism, "user": user, "password": password}
    if token is not None:
        login = {"auth_mechanism": "JWT", "jwt": token}
    connection = impyla.connect(host=host, port=port, timeout=120, **login, **tls, **transport)
    cursor = None
    try:
        cursor = connection.cursor(configuration=session_keys(settings))
        yield cursor
    finally:
        close_impyla(connection, cursor)


def close_impyla(connection, cursor):
    """Closes both for good: an open cursor would reconnect at interpreter exit to close its session."""
    if cursor is not None:
        with contextlib.suppress(Exception):
            cursor.close()
        cursor._closed = True
    with contextlib.suppress(Exception):
        connection.close()


def rows(connection, statement):
    """Executes a statement with PyHive and answers its rows as dictionaries; none if it answers none."""
    return rows_and_log(connection, statement, with_log=False)[0]


def rows_and_log(connection, statement, with_log=True):
    cursor = connection.cursor()
    try:
        cursor.execute(statement)
        log = cursor.fetch_logs() if with_log else []
        if not cursor.description:
            return [], log
        names = [column[0].split(".")[-1] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()], log
    finally:
        with contextlib.suppress(Exception):
            cursor.close()


def refused_login(address, user="admin"):
    """The reason with which a login of PyHive is refused."""
    with pytest.raises(TTransportException) as refusal:
        open_pyhive(address, user)
    return refusal.value.message


@dataclasses.dataclass
class Refused:
    sqlstate: str
    message: str
    code: int

    def __repr__(self):
        return f"{self.sqlstate}: {self.message}"


def refused(connection, statement):
    """Executes a statement that must be refused; answers the refusal as PyHive shows it."""
    try:
        got = rows(connection, statement)
    except pyhive.exc.OperationalError as error:
        return refusal_of(error)
    raise AssertionError(f"was not refused: {statement}\n{got}")


def sqlstate_of(connection, statement):
    """The SQLSTATE with which a statement is refused; None if it is not."""
    try:
        rows(connection, statement)
    except pyhive.exc.OperationalError as error:
        return refusal_of(error).sqlstate
    return None


def refusal_of(error):
    answer = error.args[0]
    status = answer if getattr(answer, "sqlState", None) else answer.status
    return Refused(status.sqlState, status.errorMessage, status.errorCode)
