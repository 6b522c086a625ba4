"""C8, C10, C11 and C13: statements beyond the rights of a user, over SQL and REST. A refusal changes nothing, and does not
reveal whether its object exists."""

import contextlib
import functools
import json

import pytest
from impala_thrift_gen.TCLIService import ttypes

from harness.attacked import USERS
from harness.clients import refused, rows, sqlstate_of
from harness.thrift_messages import decode, execute
from harness.tier import some
from harness.transports import TRANSPORTS, Refused, Sasl
from harness.waiting import wait_until

JSON = {"Content-Type": "application/json"}
# A users file is read again every 5 s.
READ_AGAIN_WITHIN_S = 5 + 15
CONVERGED_WITHIN_S = 30
# A list of users counts as soon as proxies have read it.
COUNTS_WITHIN_S = 15

# Of objects that exist and of others: neither is made, changed or dropped.
DDL = [
    "CREATE RESOURCE UNIT c10 DRIVER_CPU 1",
    "CREATE RESOURCE UNIT IF NOT EXISTS small",
    "ALTER RESOURCE UNIT small MAX_ENGINES 1",
    "ALTER RESOURCE UNIT small PROPERTIES ('a'='b')",
    "ALTER RESOURCE UNIT IF EXISTS c10 MAX_ENGINES 1",
    "DROP RESOURCE UNIT small",
    "DROP RESOURCE UNIT IF EXISTS c10",
    "CREATE RESOURCE POOL c10",
    "CREATE RESOURCE POOL IF NOT EXISTS shared",
    "ALTER RESOURCE POOL shared UNIT_LIST ()",
    "ALTER RESOURCE POOL IF EXISTS c10 COMMENT 'x'",
    "DROP RESOURCE POOL shared",
    "DROP RESOURCE POOL IF EXISTS c10",
    "CREATE TENANT c10 RESOURCE_POOL_LIST ('shared'), USER_LIST ('olga')",
    "CREATE TENANT IF NOT EXISTS sales",
    "ALTER TENANT sales USER_LIST ('olga')",
    "ALTER TENANT sales ADMIN_LIST ('olga')",
    "ALTER TENANT IF EXISTS c10 COMMENT 'x'",
    "DROP TENANT sales WAIT '1s'",
    "DROP TENANT IF EXISTS c10",
]
SQL = [
    "SELECT 1",
    "SELECT current_user",
    "CREATE TABLE c11 (a INT)",
    "INSERT INTO c11 VALUES (1)",
    "DROP TABLE IF EXISTS c11",
    "SHOW TABLES",
    "EXPLAIN SELECT 1",
    "DESCRIBE c11",
]


def state(target):
    """What no refused statement changes: the objects, their alterations, and the processes of the engines."""
    shown = [
        "SHOW RESOURCE UNITS",
        "SHOW RESOURCE POOLS",
        "SHOW TENANTS",
        "SHOW ALTERATIONS LIMIT 3",
        "SHOW CREATE TENANT sales",
    ]
    shown += ["SHOW CREATE TENANT finance", "SHOW CREATE RESOURCE POOL shared", "SHOW CREATE RESOURCE UNIT small"]
    with target.session("admin") as admin:
        # An earlier test may have altered something.
        wait_until(lambda: not converging(admin), CONVERGED_WITHIN_S, "no alteration is converging")
        found = {statement: rows(admin, statement) for statement in shown}
        engines = [row for tenant in target.engines for row in rows(admin, f"SHOW ENGINES {tenant}")]
    found["engines"] = [(row["engine"], row["state"], row["config"], row["started_at"]) for row in engines]
    found["processes"] = {name: it.process for name, it in target.standalone.engines.all().items()}
    return found


def converging(admin):
    return [it for it in rows(admin, "SHOW ALTERATIONS LIMIT 3") if it["progress"] == "converging"]


def rest(target, user, method, path, body=None):
    """SQLSTATE and status of a REST call, and all of its response that does not differ in each one."""
    status, headers, answer = target.http(method, f"/api/v1{path}", json.dumps(body) if body is not None else None, user, JSON)
    varying = ("date", "enginehouse-request")
    kept = sorted((key.lower(), value) for key, value in headers.items() if key.lower() not in varying)
    return json.loads(answer).get("sqlstate"), status, answer, kept


class User:
    """A user with a session over each transport, and REST. To execute a statement returns SQLSTATE and the whole reply."""

    def __init__(self, target, name, stack):
        self.target, self.name = target, name
        self.transports = {"REST": lambda text: rest(target, name, "POST", "/statements", {"statement": text})}
        for transport, connect in TRANSPORTS.items():
            connection = stack.enter_context(connect(target, name))
            self.transports[transport] = functools.partial(self.execute, connection, connection.open())

    @staticmethod
    def execute(connection, session, statement):
        reply = connection.exchange(execute(session, statement))
        return decode(reply).sqlstate, reply

    def assert_forbidden(self, statement):
        for transport, run in self.transports.items():
            sqlstate, *reply = run(statement)
            assert sqlstate == "42501", (self.name, transport, statement, reply)

    def assert_rest_forbidden(self, method, path, body=None):
        sqlstate, status, *reply = rest(self.target, self.name, method, path, body)
        assert (sqlstate, status) == ("42501", 403), (self.name, method, path, reply)


def test_c8_an_engine_of_another_tenant_is_refused_like_an_unknown_one(target):
    """Both tenants use one pool, so an engine's name is all that a statement needs."""
    before = state(target)
    for name, other in ("alice", "finance"), ("bob", "sales"):
        engine = target.engines[other]
        # Of the same length, so that whole replies can be compared.
        unknown = engine[:-6] + engine[-6:].translate(str.maketrans("0123456789abcdef", "fedcba9876543210"))
        names = {engine: unknown, other: "x" * len(other)}
        with contextlib.ExitStack() as stack:
            user = User(target, name, stack)
            for statement in (
                f"STOP ENGINE shared '{engine}'",
                f"STOP ENGINE shared '{engine}' FORCE",
                f"STOP ENGINE shared '{engine}' WITHIN '1s' WAIT '1s'",
                f"RESTART ENGINE shared '{engine}'",
                f"RESTART ENGINE shared '{engine}' FORCE WAIT '1s'",
                f"DESCRIBE ENGINE shared '{engine}'",
                f"DESC ENGINE shared '{engine}'",
                f"SHOW ENGINES {other}",
                f"SHOW ENGINES UNIT {other} shared small",
                f"START ENGINE {other} shared small WAIT '1s'",
            ):
                user.assert_forbidden(statement)
                for transport, run in user.transports.items():
                    assert replaced(names, run(statement)) == repr(run(replaced(names, statement))), (
                        name,
                        transport,
                        statement,
                    )
            for method, path, body in (
                ("GET", f"/engines/shared/{engine}", None),
                ("POST", f"/engines/shared/{engine}/stop", {"force": True}),
                ("POST", f"/engines/shared/{engine}/restart", {"within": "1s", "wait": "1s"}),
                ("GET", f"/engines?tenant={other}", None),
                ("POST", "/engines", {"tenant": other, "pool": "shared", "unit": "small"}),
            ):
                user.assert_rest_forbidden(method, path, body)
                without = json.loads(replaced(names, json.dumps([path, body])))
                received = rest(target, name, method, path, body)
                assert replaced(names, received) == repr(rest(target, name, method, *without)), (name, method, path)
        # Nor by choosing the tenant of a session.
        with target.session(name, tenant=other) as session:
            assert refused(session, "SELECT 1").sqlstate == "42501", (name, other)
    assert state(target) == before


def replaced(names, value):
    text = value if isinstance(value, str) else repr(value)
    for name, other in names.items():
        text = text.replace(name, other)
    return text


def test_c10_an_operator_changes_no_object(target):
    before = state(target)
    with contextlib.ExitStack() as stack:
        olga = User(target, "olga", stack)
        for statement in DDL:
            olga.assert_forbidden(statement)
    assert state(target) == before


def test_c11_an_auditor_starts_stops_and_queries_nothing(target):
    """Engines of each tenant, DDL, and SQL, also by the calls for metadata."""
    before = state(target)
    with contextlib.ExitStack() as stack:
        audrey = User(target, "audrey", stack)
        for tenant, engine in target.engines.items():
            for statement in (
                f"START ENGINE {tenant} shared small",
                f"START ENGINE {tenant} shared small WAIT '1s'",
                f"STOP ENGINE shared '{engine}' FORCE",
                f"RESTART ENGINE shared '{engine}' WAIT '1s'",
                f"DESCRIBE ENGINE shared '{engine}'",
                f"ALTER TENANT {tenant} USER_LIST ('audrey')",
                f"EXPLAIN DROP TENANT {tenant}",
            ):
                audrey.assert_forbidden(statement)
            audrey.assert_rest_forbidden("POST", "/engines", {"tenant": tenant, "pool": "shared", "unit": "small"})
            audrey.assert_rest_forbidden("POST", f"/engines/shared/{engine}/stop", {"force": True})
            audrey.assert_rest_forbidden("POST", f"/engines/shared/{engine}/restart", {"force": True})
    for transport, connect in TRANSPORTS.items():
        for settings in ({}, *({"enginehouse.tenant": tenant} for tenant in target.engines)):
            with connect(target, "audrey") as connection:
                session = connection.open(**settings)
                # The proxy keeps these for an engine that the session never gets.
                for statement in ("USE information_schema", "SET a=b"):
                    connection.execute(session, statement)
                for statement in SQL:
                    received = connection.execute(session, statement)
                    assert (received.status.sqlState, received.operationHandle) == ("42501", None), (
                        transport,
                        settings,
                        statement,
                        received,
                    )
                for method in ("GetTables", "GetColumns", "GetSchemas", "GetCatalogs", "GetTypeInfo"):
                    received = connection.call(method, getattr(ttypes, f"T{method}Req")(session))
                    assert (received.status.sqlState, received.operationHandle) == ("42501", None), (
                        transport,
                        settings,
                        method,
                        received,
                    )
    assert state(target) == before


def leaves_the_list_of_a_tenant(target):
    """The bound session continues until it moves; a new one is refused."""
    target.execute("ALTER TENANT finance USER_LIST ('bob', 'carol')")
    with target.session("carol", tenant="finance") as bound:
        try:
            assert tenants(target, "carol") == ["finance", "sales"]
            assert rows(bound, "SELECT current_user AS name") == [{"name": "carol"}]
        finally:
            target.execute("ALTER TENANT finance USER_LIST ('bob')")
        assert_left(target, bound, "carol", "finance", COUNTS_WITHIN_S)


def leaves_a_group(target):
    """The same, as soon as the users file is read again; a cached login keeps no group. Who was removed runs nothing but SQL of
    the bound engine, and does not log in."""
    with target.session("carol") as bound, target.session("carol") as idle:
        assert rows(bound, "SELECT current_user AS name") == [{"name": "carol"}]
        try:
            target.passwd("carol", "etl")
            assert_left(target, bound, "carol", "sales", READ_AGAIN_WITHIN_S)
            assert refused(idle, "SELECT 1").sqlstate == "42501", "an open session that was not bound"
            target.passwd("carol", "", "--delete")
            wait_until(lambda: sqlstate_of(idle, "SHOW TENANTS") == "28000", READ_AGAIN_WITHIN_S, "carol was removed")
            with pytest.raises(Refused, match="authentication failed"):
                Sasl(target, "carol", source="127.0.13.1")
        finally:
            target.passwd("carol", USERS["carol"])
            wait_until(lambda: sqlstate_of(idle, "SELECT 1") is None, READ_AGAIN_WITHIN_S, "carol is there again")


@pytest.mark.parametrize("leave", some([leaves_the_list_of_a_tenant, leaves_a_group], leaves_the_list_of_a_tenant))
def test_c13_a_user_who_left_the_list_or_a_group_binds_no_more(target, leave):
    leave(target)


def tenants(target, user):
    return sorted(row["tenant"] for row in target.execute("SHOW TENANTS", user))


def assert_left(target, bound, user, tenant, within_s):
    """A user who was bound to an engine of the tenant has lost it within the time."""

    def is_refused():
        with target.session(user, tenant=tenant) as session:
            return sqlstate_of(session, "SELECT 1") == "42501"

    wait_until(is_refused, within_s, f"{user} binds no new session to {tenant}")
    assert tenant not in tenants(target, user)
    assert refused(bound, f"SHOW ENGINES {tenant}").sqlstate == "42501"
    assert rows(bound, "SELECT 7 AS seven") == [{"seven": 7}], "the bound session continues"
    # It moves with the next choice of an engine.
    rows(bound, f"SET enginehouse.tenant={tenant}")
    assert refused(bound, "SELECT 1").sqlstate == "42501", "the next bind"
