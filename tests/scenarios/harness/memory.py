"""The memory of processes by role: what was resident at the start, and the most that ever was, as the kernel counts."""

import contextlib
import dataclasses
import pathlib
import re
import threading

LOOK_EVERY_S = 0.25
MIB = 1024


@dataclasses.dataclass
class Used:
    """One process: its role, and its resident memory in KiB."""

    role: str
    start: int
    peak: int


@dataclasses.dataclass
class Growth:
    """The memory that a process needed in addition, in MiB; known in the end."""

    needed_mib: float = 0


class Memory(threading.Thread):
    """Follows processes until it is ended. `processes()` answers (role, pid) of those that are there now.

    The kernel keeps the peak itself (`VmHWM`), so nothing between two looks is missed while a process lives; one that
    ended is known by its last look.
    """

    def __init__(self, processes):
        super().__init__(name="memory", daemon=True)
        self.processes = processes
        self.used = {}
        self.ended = threading.Event()
        self.look()

    def run(self):
        while not self.ended.wait(LOOK_EVERY_S):
            self.look()

    def look(self):
        for role, pid in self.processes():
            now = resident(pid)
            if now:
                used = self.used.setdefault(pid, Used(role, now["VmRSS"], 0))
                used.peak = max(used.peak, now["VmHWM"])

    def end(self):
        self.look()
        self.ended.set()
        self.join(timeout=10)

    def table(self, limits):
        """(lines, roles above their limit): role, processes, most at the start, highest peak, limit, in MiB."""
        lines = [f"{'role':16}{'processes':>10}{'at start':>10}{'peak':>8}{'limit':>8}  MiB resident"]
        above = []
        for role in sorted(limits):
            of_role = [it for it in self.used.values() if it.role == role]
            assert of_role, f"no process of role {role} was seen"
            start, peak = (max(getattr(it, key) for it in of_role) // MIB for key in ("start", "peak"))
            lines.append(f"{role:16}{len(of_role):>10}{start:>10}{peak:>8}{limits[role]:>8}")
            if peak > limits[role]:
                above.append(role)
        return lines, above


def resident(pid):
    """`VmRSS` and `VmHWM` of a process in KiB; empty if it has ended."""
    try:
        return {key: kib for key, kib in status(pid).items() if key in ("VmRSS", "VmHWM")}
    except OSError:
        return {}


def status(pid):
    """The sizes that the kernel knows of a process, in KiB."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return {key: int(kib) for key, kib in re.findall(r"^(Vm\w+):\s+(\d+) kB$", text, re.MULTILINE)}


@contextlib.contextmanager
def no_growth(pid, by_mib):
    """Inside, the process never needs `by_mib` more memory than before, and reserves no GiB for what does not come."""
    # From here on the peak of what is resident is that since here.
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
    before = status(pid)
    growth = Growth()
    yield growth
    after = status(pid)
    needed = growth.needed_mib = (after["VmHWM"] - before["VmRSS"]) / MIB
    reserved = (after["VmPeak"] - before["VmPeak"]) / MIB
    assert needed < by_mib and reserved < 1024, f"grown by {needed:.1f} MiB, and by {reserved:.0f} MiB of addresses"
