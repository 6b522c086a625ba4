"""Golden files: output with everything that differs between two runs masked at the same width.

pytest --snapshot-update …     writes them; review the difference before committing it
"""

import pathlib
import re

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden"

# What is masked: digits in a time and a port, digits and letters in what is random.
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+")
RANDOM = [
    re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])"),
    re.compile(r"(?<=\b0x)[0-9a-f]{8,16}\b"),
    re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"),
]
# The hash of a configuration with a secret property covers a fingerprint keyed with the installation's random secret.
KEYED = re.compile(r"config hash|enginehouse\.io/config\b")
HASH = re.compile(r"\b[0-9a-f]{16}\b")
# A hash that follows from the statements alone is compared.
STABLE = re.compile(r"unit_properties")


def masked(text, replacements=()):
    """The text with `#` for what changes from run to run, so that every width stays what it is.

    `replacements` are (pattern, text) of things that change in length: they keep the width of their cell instead.
    """
    return "".join(masked_line(line, replacements) for line in text.splitlines(keepends=True))


def masked_line(line, replacements):
    for pattern in (TIME, PORT):
        line = pattern.sub(lambda match: re.sub(r"\d", "#", match.group(0)), line)
    if not STABLE.search(line):
        for pattern in RANDOM:
            line = pattern.sub(lambda match: re.sub(r"[0-9a-f]", "#", match.group(0)), line)
    if KEYED.search(line):
        line = HASH.sub(lambda match: "#" * len(match.group(0)), line)
    for found, shown in replacements:
        line = re.sub(found + r" *", lambda match, shown=shown: shown.ljust(len(match.group(0))), line)
    return line


def first_column_of_width(text, width):
    lines = []
    for line in text.splitlines(keepends=True):
        end = re.search("[┬╪┆┴]", line)
        if line[0] in "┌╞│└" and end:
            cell = line[1 : end.start()]
            cell = cell.rstrip().ljust(width) if line[0] == "│" else cell[0] * width
            line = line[0] + cell + line[end.start() :]
        lines.append(line)
    return "".join(lines)


class GoldenFile(SingleFileSnapshotExtension):
    """`golden/<test file>/<name>.txt`, as plain text."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"

    @classmethod
    def dirname(cls, *, test_location):
        return str(FOLDER / test_location.basename)

    @classmethod
    def get_snapshot_name(cls, *, test_location, index=0):
        return str(index)
