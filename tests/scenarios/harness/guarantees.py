"""Whether each test that `docs/guarantees.md` names has passed in a run.

    python guarantees.py TIER FOLDER [rust] [python]

The appendix "Tests of the guarantees" of that page states which tier runs which test first. FOLDER is where `tests/run`
keeps what the runners reported: `rust-*.log` of cargo, `cases-passed` of the contract suites, `pytest-*.xml`. Named are
the kinds of tests that this run has in full. Prints what is missing and fails if anything is.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "guarantees.md"
HEADING = "## Tests of the guarantees"
TIERS = ["quick", "default", "long"]
ROW = re.compile(r"^\| `(\w+)` \| (quick|default|long)\b")
# The runner writes a name and its result separately: lines that a test writes past it may be between the two.
PASSED = re.compile(r"\btest (?:\S+::)?(\w+)(?: - should panic)? \.\.\. (?:(?!test |FAILED|ignored)[^\n]*\n)*?ok")
# A table with fewer rows than this was not read.
LEAST = 150


def tiers(page):
    _, section = page.split(HEADING, 1)
    found = dict(it.groups() for it in map(ROW.match, section.splitlines()) if it)
    assert len(found) >= LEAST, f"only {len(found)} tests were read from {PAGE}"
    return found


def of_rust(folder):
    names = set()
    for log in folder.glob("rust-*.log"):
        names |= set(PASSED.findall(log.read_text(errors="replace")))
    cases = folder / "cases-passed"
    return names | (set(cases.read_text().split()) if cases.exists() else set())


def of_python(folder):
    names = set()
    for report in folder.glob("pytest-*.xml"):
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            if not {it.tag for it in case} & {"failure", "error", "skipped"}:
                names.add(case.get("name").split("[", 1)[0])
    return names


def missing(tier, named, passed, kinds):
    """Names of tests that this tier runs and that did not pass; those that a later tier runs and that passed here."""
    of_kind = {name: first for name, first in named.items() if ("python" if name.startswith("test_") else "rust") in kinds}
    due = {name for name, first in of_kind.items() if TIERS.index(first) <= TIERS.index(tier)}
    return sorted(due - passed), sorted(passed & (of_kind.keys() - due))


def main():
    tier, folder, *kinds = sys.argv[1:]
    folder = pathlib.Path(folder)
    if not kinds:
        print("guarantees: this run has no kind of tests in full, nothing is compared")
        return 0
    named = tiers(PAGE.read_text())
    passed = (of_rust(folder) if "rust" in kinds else set()) | (of_python(folder) if "python" in kinds else set())
    lost, early = missing(tier, named, passed, kinds)
    for name in lost:
        print(f"guarantees: {name} has not passed in this run")
    for name in early:
        print(f"guarantees: {name} ran in tier {tier}, and the page names a later one")
    print(f"guarantees: {len(named)} tests named, {len(named.keys() & passed)} passed in this run")
    return 1 if lost or early else 0


if __name__ == "__main__":
    sys.exit(main())
