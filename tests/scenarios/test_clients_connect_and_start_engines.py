"""The real clients on a tenant whose engines only START makes: they connect, run START ENGINE, and then query."""

import pytest
from impala.error import HiveServer2Error

from harness.clients import impyla_session, pyhive_session, refused, rows
from harness.java import Jdbc, beeline, beeline_ok


@pytest.fixture
def lonely(control, request):
    name = "lonely_" + request.node.name.split("_")[1]
    made = control.make(name, options=", START_ON_DEMAND FALSE", users=f"'{name}_user'")
    yield (*made, f"{name}_user")
    control.drop(*made)


def start_statement(lonely):
    tenant, pool, unit, _ = lonely
    return f"START ENGINE {tenant} {pool} {unit}"


def test_beeline_connects_to_a_tenant_without_an_engine_and_starts_one(standalone, lonely):
    user = lonely[-1]
    done = beeline(standalone.address, "SELECT 40 + 2 AS answer", user=user)
    assert done.status != 0
    assert f"{start_statement(lonely)}" in done.err, done.err
    assert "(state=55000," in done.err, done.err
    done = beeline_ok(standalone.address, start_statement(lonely) + " WAIT '1m'", "SELECT 40 + 2 AS answer", user=user)
    lines = done.lines()
    assert lines[0].split("\t")[:2] == ["engine", "state"], lines
    assert lines[1].split("\t")[1] == "ready", lines
    assert lines[-2:] == ["answer", "42"], lines


def test_jdbc_connects_to_a_tenant_without_an_engine_and_starts_one(standalone, lonely):
    with Jdbc(standalone.address, lonely[-1]) as jdbc:
        error = jdbc.refused("SELECT 1")
        assert (error.sqlstate, start_statement(lonely) in error.message) == ("55000", True), error
        started = jdbc.rows(start_statement(lonely) + " WAIT '1m'")
        assert started[0]["state"] == "ready", started
        assert jdbc.rows("SELECT 40 + 2 AS answer") == [{"answer": "42"}]


def test_pyhive_connects_to_a_tenant_without_an_engine_and_starts_one(standalone, lonely):
    with pyhive_session(standalone.address, lonely[-1]) as session:
        refusal = refused(session, "SELECT 1")
        assert (refusal.sqlstate, start_statement(lonely) in refusal.message) == ("55000", True), refusal
        started = rows(session, start_statement(lonely) + " WAIT '1m'")
        assert started[0]["state"] == "ready", started
        assert rows(session, "SELECT 40 + 2 AS answer") == [{"answer": 42}]


def test_impyla_connects_to_a_tenant_without_an_engine_and_starts_one(standalone, lonely):
    with impyla_session(standalone.address, lonely[-1]) as cursor:
        with pytest.raises(HiveServer2Error) as error:
            cursor.execute("SELECT 1")
        assert start_statement(lonely) in str(error.value)
        cursor.execute(start_statement(lonely) + " WAIT '1m'")
        assert cursor.fetchall()[0][1] == "ready"
        cursor.execute("SELECT 40 + 2 AS answer")
        assert cursor.fetchall() == [(42,)]


def test_an_asynchronous_statement_waits_for_an_engine_that_is_starting(standalone, lonely):
    user = lonely[-1]
    with pyhive_session(standalone.address, user) as session:
        rows(session, start_statement(lonely))
        assert rows(session, "SELECT 40 + 2 AS answer") == [{"answer": 42}]
    with Jdbc(standalone.address, user) as jdbc:
        assert jdbc.rows("SELECT 6 * 7 AS answer") == [{"answer": "42"}]
