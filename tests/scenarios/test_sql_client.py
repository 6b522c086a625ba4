"""`enginehouse sql`: formats, files, exit status."""

import csv
import io
import json

import pytest

from harness.processes import run

pytestmark = pytest.mark.quick


def sql(standalone, *arguments, **options):
    return run(["sql", "--url", standalone.address, "-u", "alice", *arguments], **options)


def test_each_format_prints_the_same_rows(standalone, tenant):
    query = "SELECT 1 AS n, 'a,\"b' AS t, CAST(NULL AS STRING) AS nothing UNION ALL SELECT 2, 'ä', 'x' ORDER BY n"
    table = sql(standalone, "-e", query)
    assert table.returncode == 0 and "2 rows" in table.stdout and '│ 1 ┆ a,"b ┆ NULL    │' in table.stdout, table.stdout
    as_csv = sql(standalone, "--format", "csv", "-e", query)
    assert list(csv.reader(io.StringIO(as_csv.stdout))) == [["n", "t", "nothing"], ["1", 'a,"b', ""], ["2", "ä", "x"]]
    as_json = sql(standalone, "--format", "json", "-e", query)
    assert [json.loads(line) for line in as_json.stdout.splitlines()] == [
        {"n": 1, "t": 'a,"b', "nothing": None},
        {"n": 2, "t": "ä", "nothing": "x"},
    ]


def test_a_file_is_run_until_its_first_error_with_status_one(standalone, tenant, folder):
    script = folder / "script.sql"
    script.write_text("-- a remark; with a semicolon\nSELECT 'one;' AS a;\nSELECT * FROM missing;\nSELECT 'never' AS b;\n")
    done = sql(standalone, "-f", script)
    assert done.returncode == 1
    assert "one;" in done.stdout and "never" not in done.stdout
    assert 'error 42P01: table "missing" does not exist' in done.stderr, done.stderr
    assert sql(standalone, "-f", "-", text="SELECT 1 AS from_standard_input;\n").returncode == 0


def test_urls_of_jdbc_are_understood_and_wrong_ones_refused(standalone, tenant):
    url = f"jdbc:hive2://{standalone.address}/default?enginehouse.tenant=analysts"
    done = run(["sql", "--url", url, "-u", "bob", "--format", "csv", "-e", "SELECT 1 AS one"])
    assert (done.returncode, done.stdout) == (0, "one\n1\n"), done
    assert run(["sql", "--url", "jdbc:mysql://x/", "-e", "SELECT 1"]).returncode != 0
    refused = run(["sql", "--url", "127.0.0.1:1", "-e", "SELECT 1"])
    assert refused.returncode != 0 and "127.0.0.1:1" in refused.stderr, refused
