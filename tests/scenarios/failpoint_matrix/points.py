"""Which failpoints there are: what the program lists, and what the page describes."""

import re

from harness.processes import REPOSITORY, run

PAGE = "docs/failpoints.md"
ONLY_OF_PROCESSES, ONLY_OF_PODS = "(Processes only.)", "(Pods only.)"
ROW_OF_THE_PAGE = re.compile(r"^\| `([a-z0-9_.]+)` \| [a-z-]+", re.MULTILINE)


def of_the_program():
    done = run(["--list-failpoints"])
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def of_the_page():
    return ROW_OF_THE_PAGE.findall((REPOSITORY / PAGE).read_text())


def marked_on_the_page(of):
    """The points with this mark: `ONLY_OF_PROCESSES` or `ONLY_OF_PODS`."""
    lines = (REPOSITORY / PAGE).read_text().splitlines()
    return ROW_OF_THE_PAGE.findall("\n".join(it for it in lines if of in it))
