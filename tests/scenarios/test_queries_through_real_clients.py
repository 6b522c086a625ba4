"""Queries through the real clients: unbound USE and SET, large results, many sessions, other people's SQL."""

import concurrent.futures
import contextlib
import decimal
import hashlib
import re
import threading

import pytest
from pyhive.exc import OperationalError

from harness import rides
from harness.clients import impyla_session, open_pyhive, pyhive_session, refusal_of, rows
from harness.java import Jdbc, beeline_ok
from harness.processes import REPOSITORY
from harness.tier import some
from harness.waiting import wait_until

pytestmark = pytest.mark.alone

SESSIONS = 50
# The first of them waits until the last one has been counted.
TOGETHER_WITHIN_S = 240
COPIES = 5
MILLION = rides.TOUR_ROWS * COPIES
FOREIGN = REPOSITORY / "crates/ddl/tests/data/foreign"


def test_use_and_set_before_binding_are_replayed_at_binding(standalone, tenant):
    with pyhive_session(standalone.address, "alice") as session:
        rows(session, "CREATE SCHEMA IF NOT EXISTS before_binding")
    with pyhive_session(standalone.address, "alice", database="before_binding") as session:
        rows(session, "SET my.variable=forty-two")
        shown = rows(session, "SET my.variable")
        assert "forty-two" in str(shown), shown
        assert "before_binding" in str(rows(session, "SELECT current_schema() AS it"))
        assert "forty-two" in str(rows(session, "SET my.variable"))
    with Jdbc(standalone.address, "alice", "before_binding") as jdbc:
        assert "before_binding" in str(jdbc.rows("SELECT current_schema() AS it"))
    with impyla_session(standalone.address, "alice") as cursor:
        cursor.execute("USE before_binding")
        cursor.execute("SELECT current_schema()")
        assert "before_binding" in str(cursor.fetchall())


def test_a_rejected_schema_is_refused_when_the_session_opens(standalone, tenant):
    with pytest.raises(OperationalError) as error, pyhive_session(standalone.address, "alice", database="no_such_schema"):
        pass
    refusal = refusal_of(error.value)
    assert refusal.sqlstate == "3F000" and "no_such_schema" in refusal.message, refusal


def must_choose(address):
    with pyhive_session(address, "bob") as session:
        try:
            rows(session, "SELECT 1")
        except OperationalError as error:
            return refusal_of(error)
        return None


def test_a_session_of_several_tenants_must_choose_one_with_set(standalone, tenant, control):
    made = control.make("second", users="'bob'")
    try:
        refusal = wait_until(lambda: must_choose(standalone.address), 10, "bob has to choose")
        assert "analysts" in refusal.message and "second" in refusal.message, refusal
        with pyhive_session(standalone.address, "bob") as session:
            rows(session, "SET enginehouse.tenant=analysts")
            assert rows(session, "SELECT 1 AS one") == [{"one": 1}]
        for query in ("?enginehouse.tenant=analysts", "#enginehouse.tenant=analysts"):
            with Jdbc(standalone.address, "bob", query) as jdbc:
                assert jdbc.rows("SELECT 1 AS one") == [{"one": "1"}], query
    finally:
        control.drop(*made)


@pytest.mark.parametrize("copies", some([1, COPIES], 1))
def test_impyla_reads_up_to_a_million_expected_rows(standalone, tenant, seed, copies):
    """A million in --long: impyla takes most of the time for decoding them."""
    with impyla_session(standalone.address, "alice") as cursor:
        cursor.execute(
            "SELECT r.id, r.city, r.passengers, r.fare, r.paid_by, copy.value AS copy "
            f"FROM rides r CROSS JOIN generate_series(1, {copies}) AS copy"
        )
        seen = {}
        while batch := cursor.fetchmany(50_000):
            for number, city, passengers, fare, paid_by, copy in batch:
                key = (number, copy)
                assert key not in seen, key
                seen[key] = (city, passengers, fare, paid_by)
    assert len(seen) == copies * rides.TOUR_ROWS
    for number in range(1, rides.TOUR_ROWS + 1):
        it = rides.ride(seed, number)
        wanted = (it.city, it.passengers, rides.cents(it.fare_cents), it.paid_by)
        for copy in range(1, copies + 1):
            city, passengers, fare, paid_by = seen.pop((number, copy))
            assert (city, passengers, decimal.Decimal(fare), paid_by) == wanted, (number, copy)
    assert not seen


def test_beeline_reads_a_million_expected_rows(standalone, tenant):
    done = beeline_ok(
        standalone.address,
        f"SELECT value AS id, value * value % 1000 AS v FROM generate_series(1, {MILLION})",
        user="alice",
        output="csv2",
    )
    header, *lines = done.lines()
    assert header == "id,v"
    assert len(lines) == MILLION
    numbers = sorted(tuple(map(int, line.split(","))) for line in lines)
    assert all(number == (at, at * at % 1000) for at, number in enumerate(numbers, start=1))


def test_pyhive_reads_the_same_aggregates_as_the_formula(standalone, tenant, seed):
    with pyhive_session(standalone.address, "alice") as session:
        answer = rows(
            session,
            "SELECT city, count(*) AS n, sum(fare) AS fares, max(distance_km) AS far FROM rides "
            "GROUP BY city ORDER BY fares DESC LIMIT 5",
        )
    got = [(it["city"], it["n"], decimal.Decimal(it["fares"]), decimal.Decimal(it["far"])) for it in answer]
    assert got == rides.tour_query(seed)


def test_fifty_concurrent_sessions_keep_their_own_settings_and_answers(standalone, tenant, control):
    def one(number):
        if number % 2:
            with impyla_session(standalone.address, "alice") as cursor:
                cursor.execute(f"SET mine={number}")
                cursor.execute(f"SELECT sum(value) FROM generate_series(1, {number * 1000})")
                total = cursor.fetchall()[0][0]
                cursor.execute("SET mine")
                mine = str(cursor.fetchall())
                opened.wait(timeout=TOGETHER_WITHIN_S)
        else:
            with pyhive_session(standalone.address, "alice") as session:
                rows(session, f"SET mine={number}")
                total = rows(session, f"SELECT sum(value) AS s FROM generate_series(1, {number * 1000})")[0]["s"]
                mine = str(rows(session, "SET mine"))
                opened.wait(timeout=TOGETHER_WITHIN_S)
        n = number * 1000
        assert total == n * (n + 1) // 2, number
        assert f"'{number}'" in mine or f"={number}" in mine, (number, mine)
        return number

    # No session closes before all have their rows, so that there are fifty at the same time.
    opened = threading.Barrier(SESSIONS + 1)
    with concurrent.futures.ThreadPoolExecutor(SESSIONS) as pool:
        futures = [pool.submit(one, number) for number in range(1, SESSIONS + 1)]

        def counted():
            for future in futures:
                if future.done():
                    future.result()
            return control.engine("analysts", tenant.engine)["sessions"] == SESSIONS

        wait_until(counted, TOGETHER_WITHIN_S / 2, f"SHOW ENGINES counts {SESSIONS} sessions", 0.5)
        opened.wait(timeout=TOGETHER_WITHIN_S)
        assert sorted(future.result(60) for future in futures) == list(range(1, SESSIONS + 1))
    wait_until(lambda: control.engine("analysts", tenant.engine)["sessions"] == 0, 30, "SHOW ENGINES counts none any more", 0.5)


def received(tenant):
    pattern = re.compile(r'statement received.*?bytes=(\d+).*?sha256="?([0-9a-f]{64})')
    return [(int(length), digest) for length, digest in pattern.findall(tenant.process.log())]


def test_foreign_sql_reaches_the_engine_byte_for_byte(standalone, tenant):
    corpus = {path.name: path.read_bytes() for path in sorted(FOREIGN.glob("*.sql"))}
    assert len(corpus) >= 60
    million = ("SELECT '" + "ä' '\r\n-- it''s; SHOW ENGINES t_1\n" * 40_000).encode()
    corpus["a megabyte"] = million
    assert len(million) > 1_000_000
    missing = []
    for client in ("PyHive", "impyla"):
        before = len(received(tenant))
        connection = open_pyhive(standalone.address, "alice")
        rows(connection, "SELECT 1")
        connection.close()
        for _name, data in corpus.items():
            execute(client, standalone.address, data.decode())
        wanted = {(len(data), hashlib.sha256(data).hexdigest()): name for name, data in corpus.items()}
        arrived = set(received(tenant)[before:])
        missing += [f"{client}: {name}" for key, name in wanted.items() if key not in arrived]
    assert not missing, missing


def execute(client, address, text):
    """Sends one text to a bound session; what the engine thinks of it does not matter here."""
    if client == "PyHive":
        with pyhive_session(address, "alice") as session:
            rows(session, "SELECT 1")
            with contextlib.suppress(Exception):
                rows(session, text)
        return
    with impyla_session(address, "alice") as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchall()
        with contextlib.suppress(Exception):
            cursor.execute(text)


def test_parameters_of_pyhive_stay_values(standalone, tenant):
    values = ["' or 1=1 --", "it's", "a\\b", "\\", "x\ny\tz", 'say "x"', "100%", "日本 😀", ""]
    with pyhive_session(standalone.address, "alice") as session:
        cursor = session.cursor()
        for value in values:
            cursor.execute("SELECT %s", (value,))
            assert cursor.fetchall() == [(value,)], value
            cursor.execute("SELECT count(*) FROM rides WHERE city = %s", (value,))
            assert cursor.fetchall() == [(0,)], value
    with impyla_session(standalone.address, "alice") as cursor:
        cursor.execute("SELECT count(*) FROM rides WHERE city = %(city)s", {"city": values[0]})
        assert cursor.fetchall() == [(0,)]


def test_parameters_of_jdbc_stay_values(standalone, tenant):
    values = ["' or 1=1 --", "\\' or 1=1 --", "it's", "x\ny\tz", 'say "x"', "100%", "?", "日本 😀", ""]
    with Jdbc(standalone.address, "alice") as jdbc:
        for value in values:
            _, _, answer = jdbc.result("SELECT count(*) FROM rides WHERE city = ? OR passengers = ?", (value, -1))
            assert answer == [["0"]], value
            # The driver drops a backslash before a quote.
            assert jdbc.result("SELECT ?", (value,))[2] == [[value.replace("\\'", "'")]], value
        assert jdbc.result("SELECT ?, ?", (42, None))[2] == [["42", None]]
        assert jdbc.result("SELECT ?", ("a\\b",))[2] == [["a\b"]]


def test_metadata_calls_of_the_drivers_are_answered_by_the_engine(standalone, tenant):
    with impyla_session(standalone.address, "alice") as cursor:
        cursor.get_tables(database_name="default")
        assert "rides" in str(cursor.fetchall())
        columns = dict(cursor.get_table_schema("rides", "default"))
        assert list(columns)[:2] == ["id", "city"] and "DECIMAL" in columns["fare"], columns
    done = beeline_ok(standalone.address, "!tables", user="alice")
    assert "rides" in done.out, done.out
