"""A program that requests reservations and does with them what programs do: confirms, renews, releases, cancels, forgets.

    python -m harness.storm_client PLAN

PLAN is JSON: `addresses`, a file with the proxies' current addresses; `journal`, a file to which it appends what it begins and
learns; `name`, `seed`, `requests`, `threads`, and what it asks for. It ends when so many of its requests were decided and the
file `enough` exists. Each reservation has a key of its own, which is also its instance. It may be killed at any moment.

Every call is repeated until it is decided, so each answer has to be true: a line `wrong` of the journal is one that is not.
"""

import contextlib
import http.client
import itertools
import json
import os
import pathlib
import random
import sys
import threading
import time

from harness.reservations import PATH, Holder

PAUSE_S = 0.05
# Not decided: the same call may be sent again.
UNDECIDED = {429, 503, 504}
AGAIN = {"55P03", "40001"}
# Deadlines are whole milliseconds of the database's clock.
TOLERANCE_S = 0.05
# Which share of the requests, or of the reservations that were granted.
HANG_UP, REPEAT, WAIT, CANCEL, FORGET, RELEASE_AT_ONCE, LEAVE = 0.06, 0.1, 0.25, 0.4, 0.05, 0.5, 0.08
ENDED = {"released", "lost", "expired", "cancelled"}


class Wrong(Exception):
    pass


class Client:
    def __init__(self, plan):
        self.plan = plan
        self.journal = os.open(plan["journal"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.enough = pathlib.Path(plan["enough"])
        self.numbers, self.decided = itertools.count(), 0
        self.lock = threading.Lock()

    def note(self, event, key, **more):
        os.write(self.journal, (json.dumps({"event": event, "key": key, **more}) + "\n").encode())

    def run(self):
        threads = [threading.Thread(target=self.work, args=(n,)) for n in range(self.plan["threads"])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def work(self, thread):
        rng = random.Random(f"{self.plan['seed']}/{self.plan['name']}/{thread}")
        while True:
            with self.lock:
                if self.decided >= self.plan["requests"] and self.enough.exists():
                    return
                number = next(self.numbers)
            key = f"{self.plan['name']}-{number}"
            try:
                Request(self, rng, key).live()
            except Exception as error:
                self.note("wrong", key, what=f"{type(error).__name__}: {error}")

    def count(self):
        with self.lock:
            self.decided += 1

    def addresses(self):
        return json.loads(pathlib.Path(self.plan["addresses"]).read_text())


class Request:
    """One request and what becomes of it."""

    def __init__(self, client, rng, key):
        self.client, self.rng, self.key = client, rng, key
        plan = client.plan
        self.user = rng.choice(plan["users"])
        self.tenant, self.pool = rng.choice(plan["links"])
        self.ttl_s = rng.choice([1, 2, 3])
        self.cpu_m, self.memory = rng.randrange(50, 700), rng.randrange(16, 256) << 20
        resource = rng.choice(
            [
                {"type": "Load", "memory": self.memory, "cpu_m": self.cpu_m},
                {"type": "Cpu", "cpu_m": self.cpu_m},
                {"type": "LoadInstance", "memory": self.memory, "cpu_m": self.cpu_m, "instances": 1},
            ]
        )
        self.body = {
            "tenant": self.tenant,
            "pool": self.pool,
            "creator": rng.choice(plan["creators"]),
            "instance": key,
            "resource": resource,
            "ttl": f"{self.ttl_s}s",
        }
        if rng.random() < WAIT:
            self.body["wait"] = f"{rng.randrange(300, 2_000)}ms"
        self.id, self.attempts, self.calls = None, 0, 0
        # Monotonic: no deadline of the reservation is before it.
        self.not_before = None

    def live(self):
        self.client.note("begun", self.key)
        began = time.monotonic()
        if self.rng.random() < HANG_UP:
            self.hang_up()
        status, found = self.request()
        self.not_before = began + self.ttl_s
        if status == 409:
            self.finish("refused", attempts=self.attempts, sqlstate=found.get("sqlstate"))
            return
        require(status in (200, 201, 202), status, found)
        self.id = found["id"]
        self.client.note("reserved", self.key, id=self.id)
        if self.rng.random() < REPEAT:
            status, again = self.request()
            require(status in (200, 201, 202) and again["id"] == self.id, "repeat of", found, status, again)
        if found["state"] == "waiting":
            found = self.wait()
        self.end(self.use(found) if found["state"] == "locked" else found)

    def end(self, found):
        self.finish("ended" if found["state"] in ENDED else "left", id=self.id, state=found["state"])

    def finish(self, event, **more):
        self.client.note(event, self.key, requests=self.calls, **more)

    def wait(self):
        if self.rng.random() < CANCEL:
            status, cancelled = self.call("DELETE", f"{PATH}/{self.id}")
            found = self.get()
            # One that has ended by itself meanwhile is not cancelled.
            require(found["state"] == "cancelled" if status == 200 else found["state"] in ENDED, status, cancelled, found)
            return found
        while True:
            found = self.get("?wait=5s")
            if found["state"] != "waiting":
                return found

    def get(self, query=""):
        status, found = self.call("GET", f"{PATH}/{self.id}{query}")
        require(status == 200 and found["id"] == self.id, status, found)
        return found

    def use(self, found):
        drawn = self.rng.random()
        if drawn < FORGET:
            return found
        if drawn > RELEASE_AT_ONCE + FORGET:
            lease_s = self.rng.choice([1, 2, 3])
            more = {"lease": f"{lease_s}s"}
            if self.rng.random() < 0.3:
                # Never more than was granted: that would be charged whatever the limits are.
                more["resource"] = {"type": "Cpu", "cpu_m": self.rng.randrange(1, self.cpu_m)}
            found = self.claim("confirm", lease_s, more)
            for _ in range(self.rng.choice([0, 0, 1, 2])):
                if found["state"] == "used":
                    found = self.claim("renew", lease_s, {"lease": f"{lease_s}s"})
            if found["state"] != "used" or self.rng.random() < LEAVE:
                return found
        status, found = self.act("release")
        require(status == 200 and found["state"] in ENDED, status, found)
        require(found["state"] == "released" or self.late(), "ended before its deadline", found)
        return found

    def claim(self, action, lease_s, more):
        began = time.monotonic()
        # The first of several attempts may have taken effect, and its lease may end before the last one.
        self.not_before = min(self.not_before, began + lease_s)
        status, found = self.act(action, **more)
        if status == 404:
            require(found["code"] == "UNKNOWN_RESERVATION" and self.late(), "unknown before its deadline", found)
            return self.get()
        require(status == 200 and found["state"] == "used", status, found)
        self.not_before = began + lease_s
        return found

    def late(self):
        return time.monotonic() >= self.not_before - TOLERANCE_S

    def request(self):
        return self.call("POST", PATH, self.body, self.key)

    def act(self, action, **more):
        return self.call("POST", f"{PATH}/{self.id}/{action}", {"pool": self.pool, "instance": self.key, **more})

    def holder(self):
        return Holder(self.rng.choice(self.client.addresses()), self.user)

    def call(self, method, path, body=None, key=None):
        """Sends the call to one proxy after the other until it is decided."""
        for repeated in itertools.count():
            self.attempts += method == "POST" and path == PATH
            if repeated:
                time.sleep(PAUSE_S)
            try:
                status, found = self.holder().call(method, path, body, key)
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                continue
            if status not in UNDECIDED and not (status == 409 and found.get("sqlstate") in AGAIN):
                self.calls += 1
                self.client.count()
                return status, found
        return None

    def hang_up(self):
        """Sends the request and closes the connection at once: the repeat may come before it is decided."""
        self.attempts += 1
        with contextlib.suppress(OSError):
            self.holder().send_only("POST", PATH, self.body, self.key)


def require(holds, *what):
    if not holds:
        raise Wrong(" ".join(map(str, what)))


if __name__ == "__main__":
    Client(json.loads(pathlib.Path(sys.argv[1]).read_text())).run()
