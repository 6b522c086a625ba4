"""Kills processes of an installation at random with SIGKILL, and starts again what is not an engine's to be replaced.

Some are killed wherever they happen to be, some at a failpoint that they happen to pass, so that the short moments
between two effects are hit too. Bounded: so many kills, and so many of one slot's engines that its back-off stays short.
What it tries comes from the seed; where the processes are at that moment does not.
"""

import collections
import random
import threading
import time

import psutil

from harness.processes import is_alive, run
from harness.waiting import wait_until

PAUSE_S = (0.1, 0.8)
DOWN_S = (0.0, 0.6)
KILLS_OF_A_SLOT = 2
# Shares of all strikes; the rest are kills of processes wherever they are.
AT_POINTS, OF_ENGINES = 0.5, 0.15
# So many points at once, at most for so long: not every point is passed all the time.
ARMED, ARMED_S = 5, 1.0
# Points that a statement, a tick or a drain passes.
PARTS = ("agent.", "agent_api.", "coordination.", "master.", "metadata.", "orchestrator.", "proxy.")


class Killer(threading.Thread):
    """`kinds` maps a kind to the names of its processes; `program(name)` answers the process that has a name now,
    `start(name)` starts it again, `flying(name)` answers how many statements are in flight there (`None`: anywhere)."""

    def __init__(self, kinds, program, start, flying, engines, failpoints, seed, kills, pause_s=PAUSE_S):
        super().__init__(name="killer", daemon=True)
        self.kinds, self.program, self.start_one, self.flying = kinds, program, start, flying
        self.engines, self.failpoints = engines, failpoints
        listed = run(["--list-failpoints"]).stdout.split()
        self.points = [point for point in listed if point.startswith(PARTS)]
        assert self.points, listed
        self.rng = random.Random(f"{seed}/killer")
        self.kills, self.pause_s = kills, pause_s
        self.done = collections.Counter()
        self.hits = collections.Counter()
        self.points_hit = collections.Counter()
        self.of_slot = collections.Counter()
        self.uids = {}
        self.ended = threading.Event()
        self.failure = None

    def run(self):
        try:
            while sum(self.done.values()) < self.kills and not self.ended.wait(self.rng.uniform(*self.pause_s)):
                self.note_uids()
                drawn = self.rng.random()
                if drawn < AT_POINTS:
                    self.strike_at_points()
                elif drawn < AT_POINTS + OF_ENGINES:
                    self.strike_engine()
                else:
                    self.strike()
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"

    def strike(self):
        kind = self.rng.choice(list(self.kinds))
        # Sometimes all of one kind at once, so that none is left to take over.
        names = self.kinds[kind]
        victims = names if self.rng.random() < 0.2 else [self.rng.choice(names)]
        for name in victims:
            flying = self.flying(name)
            self.program(name).kill()
            self.count(kind, flying)
        time.sleep(self.rng.uniform(*DOWN_S))
        for name in victims:
            self.start_one(name)

    def strike_at_points(self):
        points = self.rng.sample(self.points, ARMED)
        until = time.monotonic() + ARMED_S
        for point in points:
            self.failpoints.arm(point, "kill")
        while time.monotonic() < until and not any(self.failpoints.claimed_by(point) for point in points):
            time.sleep(0.005)
        flying = self.flying(None)
        for point in points:
            self.failpoints.disarm(point)
        died = {point: pid for point in points if (pid := self.failpoints.claimed_by(point))}
        for point, pid in died.items():
            wait_until(lambda pid=pid: not is_alive(pid), 10, f"{pid} kills itself at {point}")
            self.failpoints.let_go(point)
            self.points_hit[point] += 1
            name = next((it for names in self.kinds.values() for it in names if self.program(it).pid == pid), None)
            kind = next((kind for kind, names in self.kinds.items() if name in names), "engine")
            self.count(f"{kind} at a failpoint", flying)
            if name:
                time.sleep(self.rng.uniform(*DOWN_S))
                self.program(name).kill()
                self.start_one(name)

    def strike_engine(self):
        running = [it for it in self.engines.all().values() if self.of_slot[slot_of(it)] < KILLS_OF_A_SLOT]
        if running:
            victim = self.rng.choice(running)
            self.of_slot[slot_of(victim)] += 1
            flying = self.flying(None)
            try:
                victim.kill()
            except (ProcessLookupError, psutil.NoSuchProcess):
                return
            self.count("engine", flying)

    def count(self, kind, flying):
        self.done[kind] += 1
        self.hits[kind] += flying > 0

    def note_uids(self):
        """A name stands for one engine for ever: another uid under a known name would be its re-use."""
        for name, engine in self.engines.all().items():
            before = self.uids.setdefault(name, engine.uid)
            assert before == engine.uid, f"engine {name} had uid {before} and has {engine.uid}"

    def end(self):
        """Ends the killing; what was killed has been started again by then."""
        self.ended.set()
        self.join(timeout=90)
        assert not self.is_alive(), "the killer hangs"
        assert self.failure is None, f"the killer failed: {self.failure}"
        self.note_uids()

    def __str__(self):
        kinds = [f"{kind} {count} ({self.hits[kind]} with a statement in flight)" for kind, count in sorted(self.done.items())]
        return f"{', '.join(kinds) or 'none'}; at {len(self.points_hit)} different failpoints"


def slot_of(engine):
    it = engine.labels
    return it["tenant_name"], it["pool_name"], it["unit_name"], it["enginehouse.io/slot"]
