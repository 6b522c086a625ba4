"""The blocks of a page that a reader would execute: of its sections *How to: …*, and of the others."""

import re

from harness.processes import REPOSITORY

BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PLAIN = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sections(page="docs/security.md"):
    """heading → its blocks as (language, text), in the order of the page."""
    found = {}
    for section in (REPOSITORY / page).read_text().split("\n## ")[1:]:
        heading, text = section.split("\n", 1)
        if heading.startswith("How to: "):
            found[heading.removeprefix("How to: ")] = BLOCK.findall(text)
    return found


def plain_blocks(page="docs/security.md"):
    """The blocks without a language: commands, statements and parts of files."""
    return PLAIN.findall(re.sub(BLOCK, "", (REPOSITORY / page).read_text()))
