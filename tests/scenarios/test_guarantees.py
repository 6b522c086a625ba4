"""`tests/run` compares the tests that `docs/guarantees.md` names with those that passed."""

import pytest

from harness import guarantees

pytestmark = pytest.mark.quick

NAMED = {"test_a_scenario": "default", "test_a_long_one": "long", "a_case": "quick", "a_rust_test": "default"}
KINDS = ("rust", "python")


@pytest.fixture
def reported(folder):
    """What the runners report of a run in which everything passed that the default tier runs."""
    (folder / "rust-roles.log").write_text("test one::a_rust_test ... ok\ntest one::another ... FAILED\n")
    (folder / "cases-passed").write_text("a_case\n")
    (folder / "pytest-beside.xml").write_text(
        '<testsuites><testsuite><testcase name="test_a_scenario[pods]"><skipped/></testcase>'
        '<testcase name="test_a_scenario[processes]"/><testcase name="test_a_long_one"><skipped/></testcase>'
        '<testcase name="test_broken"><failure/></testcase></testsuite></testsuites>'
    )
    return folder


def passed(folder):
    return guarantees.of_rust(folder) | guarantees.of_python(folder)


def test_each_named_test_of_a_tier_has_to_pass_in_its_run(reported):
    assert passed(reported) == {"a_rust_test", "a_case", "test_a_scenario"}
    assert guarantees.missing("default", NAMED, passed(reported), KINDS) == ([], [])
    assert guarantees.missing("long", NAMED, passed(reported), KINDS) == (["test_a_long_one"], [])
    for gone in ("a_rust_test", "a_case", "test_a_scenario"):
        assert guarantees.missing("default", NAMED, passed(reported) - {gone}, KINDS) == ([gone], [])
    assert guarantees.missing("default", NAMED, {"a_case", "a_rust_test"}, ("rust",)) == ([], [])


def test_a_test_that_runs_before_its_tier_is_named(reported):
    assert guarantees.missing("quick", NAMED, passed(reported), KINDS) == ([], ["a_rust_test", "test_a_scenario"])


def test_lines_between_a_name_and_its_result_hide_no_result(folder):
    (folder / "rust-others.log").write_text(
        "test a::first ... model: 5 states\nmodel: 6 states\nok\ntest second ... okmodel: 7 states\n\n"
        "warning: test third - should panic ... ok\ntest fourth ... model: 8 states\nFAILED\n"
        "test fifth ... ignored, needs a server\ntest sixth ... FAILED\n\nfailures:\nok\n"
    )
    assert guarantees.of_rust(folder) == {"first", "second", "third"}


def test_the_table_of_the_page_is_read():
    named = guarantees.tiers(guarantees.PAGE.read_text())
    assert named["test_an_upgrade_keeps_pods"] == "default"
    assert set(named.values()) == set(guarantees.TIERS)
    with pytest.raises(AssertionError, match="only 1 tests"):
        guarantees.tiers(f"{guarantees.HEADING}\n\n| test | tier |\n| --- | --- |\n| `a_case` | quick | `x.rs` |\n")
