"""Failpoints of running processes, armed by files (`ENGINEHOUSE_FAILPOINTS_FOLDER`, docs/failpoints.md).

A file arms one point for one hit; the process that passes it first claims it by renaming the file, so the walk knows
who was hit, and nobody else is.
"""

import pathlib

from harness.processes import run
from harness.waiting import wait_until

LOOK_EVERY_S = 0.01


class Points:
    """The folder of one installation."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def env(self):
        return {"ENGINEHOUSE_FAILPOINTS_FOLDER": str(self.folder)}

    def arm(self, name, action="kill", pid=None):
        """Arms a point, for one process if `pid` says so."""
        new = self.folder / "new"
        new.write_text(action)
        new.rename(self.folder / (f"{name}@{pid}" if pid else name))

    def hit(self, name):
        """The process that was hit, `None` if none was."""
        for path in self.folder.glob(f"{name}.*"):
            rest = path.name[len(name) + 1:]
            if rest.isdigit():
                return int(rest)
        return None

    def wait_hit(self, name, within_s):
        return wait_until(lambda: self.hit(name), within_s, f"a process passes {name}", LOOK_EVERY_S)

    def let_go(self, name):
        """Lets a process that is held go on; also forgets the hit."""
        for path in self.folder.glob(f"{name}.*"):
            path.unlink(missing_ok=True)

    def clear(self):
        """Disarms everything, and forgets every hit."""
        for path in self.folder.iterdir():
            path.unlink(missing_ok=True)


def of_the_binary():
    """The points that the program lists."""
    done = run(["--list-failpoints"])
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
