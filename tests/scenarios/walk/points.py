"""Which failpoints there are: what the program lists, and what the page describes."""

import re

from harness.processes import REPOSITORY, run

PAGE = "docs/failpoints.md"
ROW_OF_THE_PAGE = re.compile(r"^\| `([a-z0-9_.]+)` \| [a-z-]+", re.MULTILINE)


def of_the_program():
    done = run(["--list-failpoints"])
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def of_the_page():
    return ROW_OF_THE_PAGE.findall((REPOSITORY / PAGE).read_text())
