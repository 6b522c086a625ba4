"""The clients of the table of logins: each logs in to a `harness.methods.Target` over one transport and returns the rows of
SHOW TENANTS.

`lacks` has the reason for each login that a client does not have.
"""

import contextlib
import dataclasses
import json
import os
import ssl
import urllib.parse
from collections.abc import Callable

from pyhive import hive
from thrift.transport import THttpClient, TSocket, TSSLSocket, TTransport

from harness import ticket_clients
from harness.clients import ANSWER_WITHIN_S, impyla_session, pyhive_session, rows, split
from harness.java import Jdbc, beeline_ok
from harness.methods import KERBEROS, METHODS, NONE
from harness.processes import environment, finished, run

SASL, THRIFT, HTTP, REST = "SASL", "plain Thrift", "HTTP", "REST"
STATEMENT = "SHOW TENANTS"
JDBC_OPTIONS = {SASL: "", THRIFT: ";auth=noSasl", HTTP: ";transportMode=http;httpPath=cliservice"}


@dataclasses.dataclass(frozen=True)
class Client:
    name: str
    transport: str
    log_in: Callable
    # Whether it sends a token as such, not as its password.
    bearer: bool = False


def jdbc(driver, transport, bearer=False):
    def log_in(target, login):
        if login.ticket:
            query = ticket_clients.jdbc_query(transport == HTTP, target.jdbc_options)
            return ticket_clients.jdbc(target.address, STATEMENT, login.ticket, query, driver)
        query, user, password = target.jdbc_options + JDBC_OPTIONS[transport], login.user, login.password
        if bearer and login.token:
            query, user, password = f"{query};auth=jwt;jwt={login.token}", "", ""
        with Jdbc(target.address, user, query, password, driver) as connection:
            return connection.rows(STATEMENT)

    return log_in


def kyuubi_with_keytab(transport):
    """The driver gets its tickets by itself."""

    def log_in(target, login):
        query = ticket_clients.kyuubi_query(login.keytab, transport == HTTP, target.jdbc_options)
        return ticket_clients.jdbc(target.address, STATEMENT, login.keytab.env, query, "Kyuubi")

    return log_in


def beeline(transport, version="2.3"):
    def log_in(target, login):
        if login.ticket:
            query = ticket_clients.jdbc_query(transport == HTTP, target.jdbc_options)
            done = ticket_clients.beeline(target.address, STATEMENT, login.ticket, query, version)
        else:
            query = target.jdbc_options + JDBC_OPTIONS[transport]
            named = {"user": login.user, "password": login.password}
            done = beeline_ok(target.address, STATEMENT, **named, query=query, version=version)
        assert f"Hive JDBC (version {version}." in done.err, done.err
        return done.lines()[1:]

    return log_in


def pyhive_sasl(target, login):
    ca = {"ca": target.ca} if target.ca else {}
    if login.ticket:
        made = ticket_clients.pyhive_session(target.address, login.ticket, **ca)
    else:
        made = pyhive_session(target.address, login.user, password=login.password, **ca)
    with made as session:
        return rows(session, STATEMENT)


def pyhive_thrift(target, login):
    return pyhive_over(TTransport.TBufferedTransport(socket_to(target)), login)


def socket_to(target):
    host, port = split(target.address)
    if target.ca is None:
        socket = TSocket.TSocket(host, port)
    else:
        context = ssl.create_default_context(cafile=target.ca)
        socket = TSSLSocket.TSSLSocket(host, port, ssl_context=context, server_hostname=host)
    socket.setTimeout(ANSWER_WITHIN_S * 1000)
    return socket


def pyhive_http(target, login):
    """The transport that PyHive makes by itself, but for the deadline, and the certificates that it trusts."""
    tls = {"ssl_context": ssl.create_default_context(cafile=target.ca)} if target.ca else {}
    transport = THttpClient.THttpClient(f"{'https' if tls else 'http'}://{target.address}/cliservice/", **tls)
    transport.setTimeout(ANSWER_WITHIN_S * 1000)
    hive.Connection._set_authorization_header(transport, login.user, login.password)
    return pyhive_over(transport, login)


def pyhive_over(transport, login):
    with contextlib.closing(hive.connect(thrift_transport=transport, username=login.user)) as session:
        return rows(session, STATEMENT)


def impyla(transport):
    def log_in(target, login):
        if login.ticket:
            made = ticket_clients.impyla_session(target.address, login.ticket, ca=target.ca, http=transport == HTTP)
        else:
            options = {"http": transport == HTTP, "auth_mechanism": "NOSASL" if transport == THRIFT else "PLAIN"}
            options |= {"password": login.password, "token": login.token if transport == HTTP else None}
            made = impyla_session(target.address, login.user, ca=target.ca, **options)
        with made as cursor:
            cursor.execute(STATEMENT)
            return cursor.fetchall()

    return log_in


def sql_client(target, login):
    tls = ["--ca", target.ca] if target.ca else []
    command = ["sql", "--url", target.address, *tls, "-u", login.user, "--format", "json", "-e", STATEMENT]
    done = run(command, env={"ENGINEHOUSE_PASSWORD": login.password})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def curl(target, login):
    url = f"{'https' if target.ca else 'http'}://{target.address}/api/v1/tenants"
    if login.ticket:
        status, head, body = ticket_clients.curl(url, login.ticket, ca=target.ca)
        assert status == 200, head
        return json.loads(body)["rows"]
    # What logs in stays out of the list of processes.
    credentials = f'user = "{login.user}:{login.password}"'
    if login.token:
        credentials = f'header = "Authorization: Bearer {login.token}"'
    tls = ["--cacert", target.ca] if target.ca else []
    done = finished(["curl", "-sS", "--fail-with-body", "-K", "-", *tls, url], environment(), text=f"{credentials}\n")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["rows"]


def gohive(transport):
    def log_in(target, login):
        done = run_gohive(transport, target, login)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return log_in


def run_gohive(transport, target, login):
    """`EH_TEST_GOHIVE` names the program (built from `tests/gohive` by `tests/run.d/go-programs.sh`)."""
    program = go_program("EH_TEST_GOHIVE")
    name = {SASL: "sasl", THRIFT: "thrift", HTTP: "http"}[transport]
    command = [program, name, target.address, STATEMENT, *([target.ca] if target.ca else [])]
    env = {"LOGIN_USER": login.user, "LOGIN_PASSWORD": login.password}
    if login.ticket:
        env = login.ticket | {"LOGIN_SERVICE": "HTTP" if transport == HTTP else "hive"}
    return finished(command, environment(env))


def go_program(variable):
    program = os.environ.get(variable)
    assert program, f"{variable} is not set: run tests/run --long, which builds it"
    return program


def usql(transport):
    """`EH_TEST_USQL` names the program (built from `tests/usql`). Its driver has options for certificates that it trusts."""

    def log_in(target, login):
        options = {"auth": "NOSASL" if transport == THRIFT else "PLAIN"}
        options |= {"tls.root_ca_file": target.ca} if target.ca else {}
        url = f"hive://{login.user}:{login.password}@{target.address}/?{urllib.parse.urlencode(options)}"
        done = finished([go_program("EH_TEST_USQL"), "-X", "--json", "-c", STATEMENT, url], environment())
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return log_in


BINARY = (SASL, THRIFT, HTTP)
CLIENTS = [
    *(Client("BeeLine 2.3", it, beeline(it)) for it in BINARY),
    *(Client("BeeLine 3.1", it, beeline(it, "3.1")) for it in BINARY),
    *(Client("Hive JDBC 2.3", it, jdbc("2.3", it)) for it in BINARY),
    *(Client("Hive JDBC 3.1", it, jdbc("3.1", it)) for it in BINARY),
    *(Client("Hive JDBC 4.1", it, jdbc("4.1", it, it == HTTP), it == HTTP) for it in BINARY),
    *(Client("Kyuubi JDBC 1.9", it, jdbc("Kyuubi", it)) for it in BINARY),
    *(Client("Kyuubi JDBC 1.9, keytab", it, kyuubi_with_keytab(it)) for it in (SASL, HTTP)),
    Client("PyHive", SASL, pyhive_sasl),
    Client("PyHive", THRIFT, pyhive_thrift),
    Client("PyHive", HTTP, pyhive_http),
    *(Client("impyla", it, impyla(it), it == HTTP) for it in BINARY),
    *(Client("gohive", it, gohive(it)) for it in BINARY),
    *(Client("usql", it, usql(it)) for it in (SASL, THRIFT)),
    Client("enginehouse sql", SASL, sql_client),
    Client("curl", REST, curl, True),
]
WITHOUT_PASSWORDS = dict.fromkeys(set(METHODS) - {KERBEROS}, "sends no password over plain Thrift")
WITH_KEYTAB = dict.fromkeys({NONE, *METHODS} - {KERBEROS}, "has a keytab in place of a password")
ONE_TICKET = {KERBEROS: "sends one ticket with each call, and a ticket counts once"}
# (client, transport) → the methods that it does not have there, and why.
LACKING = {
    **{("Kyuubi JDBC 1.9, keytab", it): WITH_KEYTAB for it in (SASL, HTTP)},
    ("PyHive", THRIFT): WITHOUT_PASSWORDS,
    ("PyHive", HTTP): ONE_TICKET,
    ("impyla", THRIFT): WITHOUT_PASSWORDS,
    ("gohive", HTTP): ONE_TICKET,
    ("usql", SASL): {KERBEROS: "its driver names no service"},
    ("enginehouse sql", SASL): {KERBEROS: "has no option for tickets"},
}


def lacks(client, method):
    """Why the client does not have the method over its transport; None if it has."""
    if (client.transport, method) == (THRIFT, KERBEROS):
        return "plain Thrift has no tickets"
    return LACKING.get((client.name, client.transport), {}).get(method)
