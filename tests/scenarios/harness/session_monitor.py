"""The view of users while part of an installation is away. A monitor has a session at each proxy that is older than the outage,
in which it keeps running a statement, and opens a new session each time. It keeps every error and the longest wait."""

import threading
import time

from harness.clients import open_pyhive, pyhive_session, rows
from harness.waiting import wait_until

PAUSE_S = 0.2
ROUND_WITHIN_S = 20


class SessionMonitor:
    """A user at some proxies, in a thread of its own. `with SessionMonitor(…):` ends and checks it."""

    def __init__(self, cluster, user, proxies=("proxy-a", "proxy-b")):
        self.cluster = cluster
        self.user = user
        self.proxies = proxies
        self.leaving = set()
        self.errors = []
        self.rounds = 0
        self.slowest_s = 0.0
        self.ended = threading.Event()
        self.began = time.monotonic()
        self.sessions = {it: self._opened(it) for it in proxies}
        self.processes = {name: it.process for name, it in cluster.engines.all().items()}
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self.thread.start()
        self.wait_round()
        return self

    def __exit__(self, kind, *_):
        self.ended.set()
        self.thread.join(timeout=ROUND_WITHIN_S)
        for session in self.sessions.values():
            session.close()
        print(f"the longest that a user waited: {self.slowest_s:.2f} s")
        if kind is None:
            assert not self.thread.is_alive(), "the monitor waits for a response"
            self.check()

    def join(self, proxy):
        """Watches another proxy, too."""
        self.sessions[proxy] = self._opened(proxy)
        self.proxies = (*self.proxies, proxy)
        self.wait_round()

    def leave(self, proxy):
        """Opens no session at this proxy from now on; the old one goes on."""
        self.leaving.add(proxy)
        self.wait_round()

    def wait_round(self):
        """Waits until a round that began after this call has ended: both kinds of session at every proxy."""
        target = self.rounds + 2
        wait_until(lambda: self.rounds >= target or self.errors, ROUND_WITHIN_S, "the monitor has looked again")
        assert not self.errors, self.errors

    def check(self):
        assert not self.errors, self.errors
        now = {name: it.process for name, it in self.cluster.engines.all().items()}
        assert self.processes.items() <= now.items(), (self.processes, now)

    def _opened(self, proxy):
        session = open_pyhive(self.cluster.addresses[proxy], self.user)
        # It binds to an engine and makes state there that only this very session has.
        rows(session, "CREATE TEMPORARY VIEW mine AS SELECT 'still here' AS it")
        return session

    def _watch(self):
        while not self.ended.is_set():
            for proxy in self.proxies:
                self._attempt(proxy, "its old session", self._old)
                if proxy not in self.leaving:
                    self._attempt(proxy, "a new session", self._new)
            self.rounds += 1
            self.ended.wait(PAUSE_S)

    def _attempt(self, proxy, what, attempt):
        at = time.monotonic()
        try:
            attempt(proxy)
        except Exception as error:
            self.errors.append(f"after {at - self.began:.1f} s, {what} at {proxy}: {error}")
        self.slowest_s = max(self.slowest_s, time.monotonic() - at)

    def _old(self, proxy):
        assert rows(self.sessions[proxy], "SELECT it FROM mine") == [{"it": "still here"}]

    def _new(self, proxy):
        with pyhive_session(self.cluster.addresses[proxy], self.user) as session:
            assert rows(session, "SELECT 2 AS two") == [{"two": 2}]
