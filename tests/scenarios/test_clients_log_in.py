"""Every client logs in with each method of authentication that it has, over each of its transports, plain and inside TLS, to a
gateway with several methods at once. The long tier prints the table of all logins, those with a ticket included."""

import contextlib

import pytest
from thrift.transport.TTransport import TTransportException

from harness import ticket_clients
from harness.java import JdbcError
from harness.login_clients import CLIENTS, HTTP, SASL, THRIFT, lacks, run_gohive
from harness.methods import KERBEROS, METHODS, NONE, Gateways, Login
from harness.tier import LONG, only_long

# One login of each client inside TLS, which together have each method and each transport.
DEFAULT = [
    ("BeeLine 2.3", SASL, "file"),
    ("Hive JDBC 2.3", THRIFT, "file"),
    ("Hive JDBC 3.1", SASL, "file"),
    ("Hive JDBC 4.1", HTTP, "jwt"),
    ("Kyuubi JDBC 1.9", HTTP, "ldap"),
    ("PyHive", HTTP, "file"),
    ("impyla", SASL, "ldap"),
    ("enginehouse sql", SASL, "jwt"),
]
# The reason of a refusal in the audit.
REPLAYED = r'event="login_failed" .*Request is a replay'


@pytest.fixture(scope="module")
def gateways(workspace):
    # Only the long tier has a cell with a ticket.
    methods = [it for it in METHODS if LONG or it != KERBEROS]
    with contextlib.closing(Gateways(workspace / "logins", methods)) as made:
        yield made


def client_of(name, transport):
    (client,) = [it for it in CLIENTS if (it.name, it.transport) == (name, transport)]
    return client


@pytest.mark.parametrize(("name", "transport", "method"), DEFAULT, ids=[it[0] for it in DEFAULT])
def test_each_client_logs_in_inside_tls(gateways, name, transport, method):
    target = gateways.target(method, with_tls=True)
    rows = client_of(name, transport).log_in(target, gateways.login(method))
    assert len(rows) == 1, f"it sees the tenant of its group: {rows}"
    gateways.check_logs()


def test_a_wrong_password_has_its_reason_in_the_error_of_the_driver(gateways):
    target = gateways.target("file", with_tls=True)
    for name in ("Hive JDBC 3.1", "Hive JDBC 4.1", "Kyuubi JDBC 1.9"):
        with pytest.raises(JdbcError, match="authentication failed"):
            client_of(name, SASL).log_in(target, Login("fay", "wrong"))


@only_long
def test_every_client_logs_in_with_each_method_that_it_has(gateways):
    results, failures = {}, []
    for method in (NONE, *METHODS):
        for with_tls in (False, True):
            target = gateways.target(method, with_tls)
            for client in CLIENTS:
                if lacks(client, method):
                    continue
                try:
                    rows = client.log_in(target, gateways.login(method))
                    assert len(rows) == 1, f"it sees the tenant of its group: {rows}"
                    result = "ok"
                except Exception as error:
                    result = "failed"
                    where = "TLS" if with_tls else "plain"
                    failures.append(f"{client.name}, {client.transport}, {method}, {where}: {error}")
                results[client, method, with_tls] = result
    print(table(results))
    assert not failures, "\n".join(failures)
    gateways.check_logs()


@only_long
def test_a_client_that_repeats_its_ticket_logs_in_once(gateways):
    """Over HTTP PyHive and gohive send one ticket with each call: the first one opens a session, the second one is refused."""
    target = gateways.target(KERBEROS, with_tls=False)
    clients = {"PyHive": repeat_with_pyhive, "gohive": repeat_with_gohive}
    for name, repeat in clients.items():
        before = gateways.logs(target).count(REPLAYED)
        repeat(target, gateways.login(KERBEROS))
        assert gateways.logs(target).count(REPLAYED) > before, name
        assert client_of(name, SASL).log_in(target, gateways.login(KERBEROS)), f"{name} logs in over SASL"
    gateways.check_logs()


def repeat_with_pyhive(target, login):
    """PyHive ignores the status of the response, and reads its text as a message."""
    with pytest.raises(TTransportException, match="Length exceeded max allowed"):
        ticket_clients.pyhive_http(target.address, login.ticket)


def repeat_with_gohive(target, login):
    done = run_gohive(HTTP, target, login)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "HTTP Response code: 401\n"), done


def table(results):
    """By client and transport: each method, plain and inside TLS. A number leads to the reason why a client lacks a login."""
    notes = []
    lines = [["client", "transport", *(method for it in (NONE, *METHODS) for method in (it, "")), ""]]
    lines.append(["", "", *["plain", "TLS"] * (1 + len(METHODS)), ""])
    for client in CLIENTS:
        line = [client.name, client.transport]
        for method in (NONE, *METHODS):
            reason = lacks(client, method)
            if reason is None and method == "jwt" and not client.bearer:
                reason = "the token is sent as the password"
            if reason and reason not in notes:
                notes.append(reason)
            mark = f" [{notes.index(reason) + 1}]" if reason else ""
            line += [f"{results.get((client, method, with_tls), '-')}{mark}" for with_tls in (False, True)]
        lines.append(line)
    widths = [max(len(line[at]) for line in lines if at < len(line)) for at in range(len(lines[0]))]
    printed = ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=False)).rstrip() for line in lines]
    return "\n".join(printed + [f"[{at}] {reason}" for at, reason in enumerate(notes, start=1)])
