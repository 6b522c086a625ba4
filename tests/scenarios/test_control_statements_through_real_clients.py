"""Every control statement through the real clients, and what each of them shows of an error."""

import pytest
from impala.error import Error

from harness.clients import impyla_session, pyhive_session, refused, rows
from harness.java import Jdbc, beeline
from harness.waiting import wait_until

COLUMNS = {
    "engines": (
        "tenant pool unit engine state config current origin owner sessions seats running address started_at reason"
    ).split(),
    "change": ["alteration", "object", "state"],
    "request": ["engine", "state", "tenant", "pool", "unit"],
    "properties": ["property", "value"],
}


def life_of_a_tenant(name):
    t, p, u = f"{name}_t", f"{name}_p", f"{name}_u"
    return [
        (
            f"CREATE RESOURCE UNIT {u} DRIVER_CPU 1, DRIVER_MEMORY '512M', PROPERTIES ('x.password'='s3cret', 'a'='b')",
            "change",
            f'resource unit "{u}"',
        ),
        (f"CREATE RESOURCE UNIT IF NOT EXISTS {u} DRIVER_CPU 2", "change", u),
        (f"CREATE RESOURCE POOL {p} UNIT_LIST ('{u}'), COMMENT 'ünï'", "change", p),
        (f"CREATE TENANT {t} RESOURCE_POOL_LIST ('{p}'), USER_LIST ('carol')", "change", t),
        (f"ALTER TENANT {t} COMMENT 'it''s changed'", "change", t),
        (f"SHOW TENANTS LIKE '{name}%'", None, t),
        (f"SHOW RESOURCE POOLS LIKE '{name}%'", None, p),
        (f"SHOW RESOURCE UNITS LIKE '{name}%'", None, u),
        (f"DESCRIBE TENANT {t}", "properties", "carol"),
        (f"DESC RESOURCE POOL {p}", "properties", "ünï"),
        (f"DESCRIBE RESOURCE UNIT {u}", "properties", "******"),
        (f"SHOW CREATE TENANT {t}", None, f"CREATE TENANT {t}"),
        (f"SHOW CREATE RESOURCE POOL {p}", None, f"CREATE RESOURCE POOL {p}"),
        (f"SHOW CREATE RESOURCE UNIT {u}", None, "'x.password'='******'"),
        (f"SHOW RESOURCE UNIT {u} FOR POOL", None, p),
        (f"SHOW RESOURCE POOL {p} FOR TENANT", None, t),
        (f"EXPLAIN ALTER RESOURCE UNIT {u} MIN_ENGINES 1", None, "create engine"),
        (f"START ENGINE {t} {p} {u} WAIT '1m'", "request", "ready"),
        (f"SHOW ENGINES {t}", "engines", "ready"),
        (f"SHOW ENGINES POOL {t} {p}", "engines", "ready"),
        (f"SHOW ENGINES UNIT {t} {p} {u}", "engines", "1_512M"),
        (f"DESCRIBE ENGINE {p} '{{engine}}'", "properties", "enginehouse.io/slot"),
        (f"RESTART ENGINE {p} '{{engine}}' WITHIN '10s' WAIT '1m'", "request", "ready"),
        (f"STOP ENGINE {p} '{{engine}}' FORCE WAIT '1m'", "request", "gone"),
        (f"SHOW ENGINES {t}", "engines", None),
        (f"SHOW DEMAND TENANT {t}", None, None),
        ("SHOW ALTERATIONS LIMIT 5", None, "converged"),
        ("SHOW MASTER", None, None),
        (f"DROP TENANT {t} WAIT '1m'", "change", t),
        (f"DROP RESOURCE POOL {p}", "change", p),
        (f"DROP RESOURCE UNIT {u}", "change", u),
        (f"DROP RESOURCE UNIT IF EXISTS {u}", "change", u),
    ]


def live(name, execute):
    engine = None
    for statement, columns, part in life_of_a_tenant(name):
        if part is None and columns == "engines":
            # The one that was replaced may still be on its way out.
            wait_until(lambda it=statement: execute(it) == [], 20, "no engine is left", 0.2)
        answer = execute(statement.format(engine=engine) if "{engine}" in statement else statement)
        shown = "\n".join(str(cell) for row in answer for cell in row.values())
        if columns and answer:
            assert list(answer[0]) == COLUMNS[columns], f"{statement}: {list(answer[0])}"
        if part is None:
            assert columns != "engines" or answer == [], f"{statement}: {answer}"
        else:
            assert part in shown, f"{part!r} is not in the answer of {statement}:\n{shown}"
        assert "s3cret" not in shown, statement
        if statement.startswith(("START", "SHOW ENGINES", "RESTART")) and answer:
            engine = answer[0]["engine"]


def test_jdbc_runs_every_control_statement(standalone):
    with Jdbc(standalone.address) as jdbc:
        live("by_jdbc", jdbc.rows)


def test_pyhive_runs_every_control_statement(standalone):
    with pyhive_session(standalone.address) as session:
        live("by_pyhive", lambda statement: rows(session, statement))


def test_impyla_runs_every_control_statement(standalone):
    with impyla_session(standalone.address) as cursor:

        def execute(statement):
            cursor.execute(statement)
            names = [column[0] for column in cursor.description or []]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()] if names else []

        live("by_impyla", execute)


ERRORS = [
    ("SHOW RESOURCE POOL rp_1 FRO TENANT", "42601", "FOR"),
    ("CREATE TENANT Bad$Name RESOURCE_POOL_LIST ('p')", "42601", "line 1, column"),
    ("CREATE RESOURCE UNIT errs_u DRIVER_CPU 'many'", "22023", "many"),
    ("SHOW ENGINES unknown_name", "42704", 'tenant "unknown_name" does not exist'),
    ("DROP RESOURCE UNIT analysts_u", "2BP01", "analysts_p"),
    ("CREATE TENANT analysts", "42710", 'tenant "analysts" already exists'),
    ("CREATE RESOURCE POOL errs_p UNIT_LIST ('unknown_name')", "42704", "unknown_name"),
    ("CREATE RESOURCE UNIT errs_u MIN_ENGINES 3, MAX_ENGINES 2", "22023", "MIN_ENGINES"),
    ("STOP ENGINE analysts_p 'no-such-engine'", "42704", "no-such-engine"),
    ("SELECT * FROM no_such_table", "42P01", "no_such_table"),
    ("SELECT no_such_column FROM rides", "42703", "no_such_column"),
    ("SELEC 1", "42601", ""),
    ("SELECT arrow_cast(1000, 'Int8')", "22003", ""),
    ("SELECT arrow_cast('x', 'Int64')", "22018", ""),
]


def test_jdbc_and_pyhive_expose_the_sqlstate_of_every_kind_of_error(standalone, tenant):
    keys = "?enginehouse.tenant=analysts"
    with Jdbc(standalone.address, query=keys) as jdbc, pyhive_session(standalone.address, tenant="analysts") as session:
        for statement, sqlstate, part in ERRORS:
            for client, error in (("JDBC", jdbc.refused(statement)), ("PyHive", refused(session, statement))):
                assert error.sqlstate == sqlstate, f"{client}: {statement}: {error!r} {error}"
                assert part in error.message, f"{client}: {statement}: {error.message}"
        assert jdbc.rows("SELECT 1 AS one") == [{"one": "1"}]
        assert rows(session, "SELECT 1 AS one") == [{"one": 1}]


def test_impyla_and_beeline_show_the_message_of_every_kind_of_error(standalone, tenant):
    with impyla_session(standalone.address, tenant="analysts") as cursor:
        for statement, _, part in ERRORS:
            with pytest.raises(Error) as error:
                cursor.execute(statement)
                cursor.fetchall()
            assert part in str(error.value), f"{statement}: {error.value}"
    statement, sqlstate, part = ERRORS[3]
    done = beeline(standalone.address, statement)
    assert done.status != 0
    assert f"(state={sqlstate}," in done.err and part in done.err, done.err


def test_a_user_of_no_tenant_learns_nothing_of_what_exists(standalone, tenant):
    with pyhive_session(standalone.address, "mallory") as session:
        there = refused(session, "SHOW ENGINES analysts")
        missing = refused(session, "SHOW ENGINES unknown_name")
        assert there.sqlstate == missing.sqlstate == "42501", (there, missing)
        assert there.message.replace("analysts", "X") == missing.message.replace("unknown_name", "X")
        assert refused(session, "CREATE TENANT mallorys").sqlstate == "42501"
        assert refused(session, "SHOW MASTER").sqlstate == "42501"


def test_a_user_may_view_engines_of_the_tenant_and_not_alter_it(standalone, tenant):
    with pyhive_session(standalone.address, "alice") as session:
        assert [it["engine"] for it in rows(session, "SHOW ENGINES analysts")] == [tenant.engine]
        assert rows(session, f"DESCRIBE ENGINE {tenant.pool} '{tenant.engine}'")
        assert refused(session, "ALTER TENANT analysts COMMENT 'mine'").sqlstate == "42501"
        assert refused(session, "DROP TENANT analysts").sqlstate == "42501"
