"""SQL of a DataFusion engine compared with Spark 3.5: the same statements through the same clients, the same results.

Each statement of `differential/statements.sql`, and each with parameters below, runs on both. Rows are compared as a client
receives them, types by their family, and column names where the statement has `-- names`. A statement with different results is
in `differential/differences.txt` under the name of the difference, which `docs/sql-differences.md` explains; a difference that
no longer exists fails too. The default tier compares with Spark's recorded answers (`differential/spark.json`), because Spark
needs more than a minute; `--long` records them again and compares them.
"""

import contextlib
import decimal
import json
import math
import os
import pathlib
import re

import pytest

from harness.bare_spark import BareSpark
from harness.clients import impyla_session, open_pyhive
from harness.fixtures import started
from harness.java import Jdbc, JdbcError
from harness.processes import REPOSITORY
from harness.tier import only_long

pytestmark = pytest.mark.alone

DATA = pathlib.Path(__file__).with_name("differential")
PAGE = REPOSITORY / "docs/sql-differences.md"
# Statements and their parameters, as PyHive and impyla take them; JDBC writes `?` for `%s`.
PARAMETERS = [
    ("SELECT %s", "O'Brien"),
    ("SELECT %s", "' or 1=1 -- "),
    ("SELECT %s", "it's"),
    ("SELECT %s", ""),
    ("SELECT %s", "back\\slash"),
    ("SELECT %s", "a\\b"),
    ("SELECT %s", "\\' or 1=1 -- "),
    ("SELECT %s", "trailing\\"),
    ("SELECT %s", "new\nline\ttab"),
    ("SELECT %s", 'double"quote'),
    ("SELECT %s", "grüße €"),
    ("SELECT %s", 42),
    ("SELECT %s", None),
    ("SELECT count(*) FROM (VALUES ('a'), ('b')) t(x) WHERE x = %s", "' or 'a'='a"),
    ("SELECT count(*) FROM (VALUES ('it''s')) t(x) WHERE x = %s", "it's"),
    ("SELECT %s LIKE 'a%%'", "abc"),
]
NUMBERS = {"TINYINT_TYPE", "SMALLINT_TYPE", "INT_TYPE", "BIGINT_TYPE"}
FRACTIONS = {"FLOAT_TYPE", "DOUBLE_TYPE", "DECIMAL_TYPE"}


def statements():
    lines = (DATA / "statements.sql").read_text().splitlines()
    return [line for line in lines if line.strip() and not line.startswith("--")]


def is_named(statement):
    return statement.endswith("-- names")


def listed():
    lines = [line.split(": ", 1) for line in (DATA / "differences.txt").read_text().splitlines() if line and line[0] != "#"]
    return {statement: name for name, statement in lines}


@pytest.fixture(scope="module")
def reference(workspace):
    for it in started(BareSpark(workspace / "reference-spark")):
        yield it.address


def family(name):
    name = (name or "").upper()
    name = name if name.endswith("_TYPE") else f"{name}_TYPE"
    if name in NUMBERS:
        return "whole"
    return "fraction" if name in FRACTIONS else name


def plain(value):
    """A value as it is compared: numbers by value, to twelve digits, texts without blanks of JSON."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float, decimal.Decimal)):
        number = float(value)
        return "NaN" if math.isnan(number) else float(f"{number:.12g}")
    return str(value) if not isinstance(value, bytes) else value.decode("latin-1")


def by_cursor(cursor, statement, parameters=None):
    try:
        cursor.execute(statement, parameters)
        description = cursor.description or []
        rows = cursor.fetchall() if description else []
    except Exception as error:  # The clients' errors have no common class.
        return ["refused", str(error)]
    names = [column[0] for column in description]
    return [names, [family(column[1]) for column in description], [list(map(plain, row)) for row in rows]]


def differs(name, ours, theirs):
    if "refused" in (ours[0], theirs[0]):
        return ours[0] != theirs[0]
    return ours[1:] != theirs[1:] or (is_named(name) and ours[0] != theirs[0])


def compare(run, cases):
    found = {}
    for name, statement, parameters in cases:
        ours, theirs = run("ours", statement, parameters), run("theirs", statement, parameters)
        if differs(name, ours, theirs):
            found[name] = (ours, theirs)
    return found


def check(found, expected):
    unlisted = {name: both for name, both in found.items() if name not in expected}
    gone = [name for name in expected if name not in found]
    text = "\n".join(f"{name}\n    here:  {ours}\n    Spark: {theirs}" for name, (ours, theirs) in unlisted.items())
    assert not unlisted, f"{len(unlisted)} differences that are not listed:\n{text}"
    assert not gone, f"listed, and no differences any more: {gone}"


def cases():
    plainly = [(statement, statement, None) for statement in statements()]
    return plainly + [(f"{statement} with {value!r}", statement, (value,)) for statement, value in PARAMETERS]


def test_the_page_of_differences_lists_what_the_data_lists():
    names = set(re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(), re.MULTILINE))
    assert names == set(listed().values())
    assert set(listed()) <= {name for name, _, _ in cases()}


def by_pyhive(session):
    def run(statement, parameters):
        with contextlib.closing(session.cursor()) as cursor:
            return by_cursor(cursor, statement, parameters)

    return run


def test_pyhive_gets_from_this_engine_what_spark_gave(standalone, tenant):
    recorded = json.loads((DATA / "spark.json").read_text())
    assert set(recorded) == {name for name, _, _ in cases()}, "record Spark's answers again"
    with contextlib.closing(open_pyhive(standalone.address, "alice")) as session:
        ours = by_pyhive(session)
        found = {}
        for name, statement, parameters in cases():
            given = ours(statement, parameters)
            if differs(name, given, recorded[name]):
                found[name] = (given, recorded[name])
    check(found, listed())


@only_long
def test_the_recorded_answers_are_sparks(reference):
    with contextlib.closing(open_pyhive(reference, "alice")) as session:
        theirs = by_pyhive(session)
        answers = {name: theirs(statement, parameters) for name, statement, parameters in cases()}
    # The text of a refusal holds ids.
    answers = {name: ["refused"] if answer[0] == "refused" else answer for name, answer in answers.items()}
    file = DATA / "spark.json"
    if os.environ.get("EH_GOLDEN") == "update":
        lines = (f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items())
        file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    assert json.loads(file.read_text()) == json.loads(json.dumps(answers))


@only_long
def test_impyla_gets_from_this_engine_what_spark_gives(standalone, tenant, reference):
    with impyla_session(standalone.address, "alice") as ours, impyla_session(reference, "alice") as theirs:
        cursors = {"ours": ours, "theirs": theirs}
        check(compare(lambda whose, *rest: by_cursor(cursors[whose], *rest), cases()), listed())


@only_long
def test_jdbc_gets_from_this_engine_what_spark_gives(standalone, tenant, reference):
    with Jdbc(standalone.address, "alice") as ours, Jdbc(reference, "alice") as theirs:
        sessions = {"ours": ours, "theirs": theirs}
        check(compare(lambda whose, *rest: by_jdbc(sessions[whose], *rest), cases()), listed())


def by_jdbc(session, statement, parameters=None):
    if parameters:
        statement = statement.replace("%s", "?").replace("%%", "%")
    try:
        names, types, rows = session.result(statement, parameters or ())
    except JdbcError as error:
        return ["refused", str(error)]
    return [names, [family(name) for name in types], [list(map(number_or_text, row)) for row in rows]]


def number_or_text(text):
    try:
        return plain(float(text))
    except (TypeError, ValueError):
        return text
