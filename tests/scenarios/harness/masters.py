"""Who is master and since when, read from the database and from ZooKeeper, never from the product's SHOW.

The database's clock is this machine's, so a time that it wrote can be compared with one that was taken here: what is
measured that way contains nothing of how often a test looks.
"""

import dataclasses
import statistics
import time

from harness.waiting import wait_until

ACTS_WITHIN_S = 30
LOOK_EVERY_S = 0.02


@dataclasses.dataclass(frozen=True)
class Term:
    """The row `master`: an epoch, the lock of its holder, when the epoch was raised, when a tick last ended."""

    epoch: int
    lock: str
    session: int
    since_ms: int
    last_tick_ms: int


def wall_ms():
    return time.time() * 1000


class Masters:
    def __init__(self, cluster):
        self.cluster = cluster

    def term(self):
        ((epoch, holder, since_ms, last_tick_ms),) = self.cluster.database.rows(
            "SELECT epoch, holder, since_ms, last_tick_ms FROM master"
        )
        if not int(epoch):
            return None
        lock, session = holder.split(" ")
        return Term(int(epoch), lock, int(session, 16), int(since_ms), int(last_tick_ms))

    def queue(self):
        """The nodes of the candidates that stand for election, the holder of the lock included."""
        return self.cluster.nodes.children("lock/master")

    def wait_queued(self, count, within_s=ACTS_WITHIN_S):
        wait_until(lambda: len(self.queue()) == count, within_s, f"{count} candidates stand for election")

    def program_of(self, term):
        found = self.running_program_of(term)
        assert found, term
        return found

    def running_program_of(self, term):
        """`None` if the program has ended, or its session."""
        who = (self.cluster.nodes.bytes(f"lock/master/{term.lock.rsplit('/', 1)[1]}") or b"").decode()
        programs = self.cluster.programs.items()
        return next((name for name, it in programs if it.is_running() and who.endswith(f":{it.pid}")), None)

    def wait_term_after(self, epoch, within_s=ACTS_WITHIN_S):
        """Waits for a term above an epoch and answers it, as it was first seen."""

        def newer():
            term = self.term()
            return term if term and term.epoch > epoch else None

        return wait_until(newer, within_s, f"an epoch above {epoch}", LOOK_EVERY_S)

    def wait_acting(self, epoch=0, within_s=ACTS_WITHIN_S):
        """Waits until a master of a term above an epoch has ended a tick; answers the term."""

        def acts():
            term = self.term()
            return term if term and term.epoch > epoch and term.last_tick_ms >= term.since_ms else None

        return wait_until(acts, within_s, f"a master of an epoch above {epoch} ticks", LOOK_EVERY_S)


def summary(what, values, unit="ms"):
    """Prints minimum, median, 95th percentile and maximum."""
    print(
        f"{what}: min {min(values):.0f}, median {statistics.median(values):.0f}, "
        f"95th percentile {percentile(values, 95):.0f}, max {max(values):.0f} {unit} in {len(values)} runs"
    )


def percentile(values, percent):
    """The nearest-rank percentile: the smallest value that so many of 100 do not exceed."""
    ordered = sorted(values)
    return ordered[-(-len(ordered) * percent // 100) - 1]
