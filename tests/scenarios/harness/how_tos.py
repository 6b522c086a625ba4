"""The how-tos of a page: its sections *How to: …*, with the blocks that a reader would execute."""

import re

from harness.processes import REPOSITORY

BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sections(page="docs/security.md"):
    """heading → its blocks as (language, text), in the order of the page."""
    found = {}
    for section in (REPOSITORY / page).read_text().split("\n## ")[1:]:
        heading, text = section.split("\n", 1)
        if heading.startswith("How to: "):
            found[heading.removeprefix("How to: ")] = BLOCK.findall(text)
    return found
