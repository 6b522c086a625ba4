"""Arming failpoints in processes that run: files in a folder that every process of an installation looks into.

A file is for one hit: the process that passes the point first claims it. docs/failpoints.md has the form.
"""

import pathlib

import psutil

from harness.waiting import wait_until

CLAIMED_WITHIN_S = 30
STOPPED_WITHIN_S = 5


class Failpoints:
    """The folder of one installation; `env` is what its programs are to be started with."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.env = {"ENGINEHOUSE_FAILPOINTS_FOLDER": str(self.folder)}

    def arm(self, point, action, pid=None):
        """The next process to pass the point (only process `pid`, if given) is to `kill`, `stop` or `hold` itself there."""
        assert action in ("kill", "stop", "hold"), action
        written = self.folder / "being-written"
        written.write_text(action)
        written.rename(self.folder / (f"{point}@{pid}" if pid else point))

    def disarm(self, point):
        for armed in [self.folder / point, *self.folder.glob(f"{point}@*")]:
            armed.unlink(missing_ok=True)

    def clear(self):
        for path in self.folder.iterdir():
            path.unlink(missing_ok=True)

    def claimed_by(self, point):
        """The process that has passed the point; `None` if none has."""
        for claimed in self.folder.glob(f"{point}.*"):
            rest = claimed.name.removeprefix(f"{point}.")
            if rest.isdigit():
                return int(rest)
        return None

    def wait_claimed(self, point, within_s=CLAIMED_WITHIN_S):
        return wait_until(lambda: self.claimed_by(point), within_s, f"a process passes {point}")

    def wait_stopped(self, point, within_s=CLAIMED_WITHIN_S):
        """Waits until a process has stopped at the point, in the kernel's eyes, and answers its id."""
        pid = self.wait_claimed(point, within_s)
        process = psutil.Process(pid)
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED, STOPPED_WITHIN_S, f"{pid} stops at {point}")
        return pid

    def let_go(self, point):
        pid = self.claimed_by(point)
        assert pid, f"no process has passed {point}"
        (self.folder / f"{point}.{pid}").unlink()
