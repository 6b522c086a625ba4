"""Clients that send a random stream of control statements and remember the response to each.

Each statement has a token by which its database row is found: an alteration's is in its COMMENT (a dropped unit is dropped
once), START, STOP and RESTART each have a user of their own. Each has a session of its own on a random proxy. Each client has
one seed; a seed repeats the attempts, not the run.
"""

import collections
import contextlib
import random
import threading

import pyhive.exc

from harness.clients import refusal_of, rows
from harness.plain_client import ANSWER_WITHIN_S, open_session
from harness.stream_model import Change
from harness.stream_verdict import ACKED, REFUSED, UNANSWERED

REQUESTS_EACH = 240
LINKS = [("t_0", "p_0", "u_0"), ("t_0", "p_0", "u_1"), ("t_0", "p_1", "u_2"), ("t_1", "p_0", "u_0"), ("t_1", "p_0", "u_1")]
# The share of CREATE, ALTER and DROP.
ALTERATIONS = 0.5
AGAIN_S = 0.05
MEMORY = ["256M", "384M", "512M"]


class Statement:
    def __init__(self, token, text, change=None, engine=None):
        self.token, self.text, self.change, self.engine = token, text, change, engine
        self.outcome, self.answer, self.error = None, None, None

    def __str__(self):
        return f"[{self.token}] {self.text} ({self.outcome}{f', {self.error}' if self.error else ''})"


class Stream:
    def __init__(self, address, seed, clients):
        """`address(rng)` answers the (name, address) of a proxy to try."""
        self.address = address
        self.seed = seed
        self.statements = {}
        self.engines = collections.deque(maxlen=40)
        self.in_flight = collections.Counter()
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.failures = []
        self.clients = [Client(self, number, random.Random(f"{seed}/{number}")) for number in range(clients)]

    def users(self):
        return [client.user(n) for client in self.clients for n in range(REQUESTS_EACH)]

    def set_up(self, address):
        users = tuple(self.users())
        objects = [Change("CREATE", "unit", f"u_{n}", (("max_engines", 2), ("driver_memory", "256M"))) for n in range(3)]
        objects += [
            Change("CREATE", "pool", "p_0", (("units", ("u_0", "u_1")),)),
            Change("CREATE", "pool", "p_1", (("units", ("u_2",)),)),
            Change("CREATE", "tenant", "t_0", (("pools", ("p_0", "p_1")), ("users", users))),
            Change("CREATE", "tenant", "t_1", (("pools", ("p_0",)), ("users", users))),
        ]
        for number, change in enumerate(objects):
            change = with_comment(change, f"setup-{number}")
            statement = self.begin(f"setup-{number}", change.text(), change)
            self.execute(statement, "set up", address, "admin")
            assert statement.outcome == ACKED, statement

    def begin(self, token, text, change=None, engine=None):
        statement = Statement(token, text, change, engine)
        with self.lock:
            assert token not in self.statements, token
            self.statements[token] = statement
        return statement

    def forget(self, statement):
        with self.lock:
            del self.statements[statement.token]

    def execute(self, statement, proxy, address, user):
        """Runs it on one proxy; afterwards its outcome is known, or `UNANSWERED`. Returns why it could not be sent."""
        try:
            connection = open_session(address, user)
        except Exception as error:
            return error
        with self.lock:
            self.in_flight[proxy] += 1
        try:
            answer = rows(connection, statement.text)
            statement.outcome, statement.answer = ACKED, answer[0] if answer else None
            if statement.change is None and statement.answer:
                with self.lock:
                    self.engines.append((statement.answer["pool"], statement.answer["engine"]))
        except pyhive.exc.OperationalError as error:
            refusal = refusal_of(error)
            statement.error = f"{refusal.sqlstate}: {refusal.message}"
            statement.outcome = UNANSWERED if leaves_open(refusal) else REFUSED
        except Exception as error:
            statement.error, statement.outcome = f"{type(error).__name__}: {error}", UNANSWERED
        finally:
            with self.lock:
                self.in_flight[proxy] -= 1
            with contextlib.suppress(Exception):
                connection.close()
        return None

    def flying(self, proxy=None):
        """How many statements are on their way, at one proxy or at all."""
        with self.lock:
            return self.in_flight[proxy] if proxy else sum(self.in_flight.values())

    def run(self):
        for client in self.clients:
            client.start()

    def end(self):
        self.ended.set()
        for client in self.clients:
            client.join(timeout=ANSWER_WITHIN_S + 15)
        stuck = [client.name for client in self.clients if client.is_alive()]
        assert not stuck, f"{stuck} got no answer within {ANSWER_WITHIN_S} s"
        assert not self.failures, self.failures

    def count(self, outcome):
        with self.lock:
            return sum(it.outcome == outcome for it in self.statements.values())


class Client(threading.Thread):
    def __init__(self, stream, number, rng):
        super().__init__(name=f"client-{number}", daemon=True)
        self.stream, self.number, self.rng = stream, number, rng
        self.alterations, self.requests = 0, 0
        self.own = []

    def user(self, number):
        return f"r{self.number}-{number}"

    def run(self):
        try:
            while not self.stream.ended.is_set():
                self.one()
        except Exception as error:
            self.stream.failures.append(f"{self.name}: {type(error).__name__}: {error}")

    def one(self):
        alter = self.rng.random() < ALTERATIONS
        if alter:
            what = self.rng.choices([self.alter, self.create, self.drop, self.senseless], [30, 6, 6, 6])[0]
            self.alterations += 1
            token = f"a{self.number}-{self.alterations}"
        elif self.requests < REQUESTS_EACH:
            what = self.rng.choices([self.begin_engine, self.end_engine], [22, 24])[0]
            token = self.user(self.requests)
            self.requests += 1
        else:
            return
        made = what(token)
        if made is None:
            return
        statement = self.stream.begin(*made)
        user = "admin" if statement.change else statement.token
        while self.stream.execute(statement, *self.stream.address(self.rng), user) is not None:
            if self.stream.ended.wait(AGAIN_S):
                self.stream.forget(statement)
                break

    def alter(self, token):
        unit = self.rng.choice(["u_0", "u_1", "u_2"])
        change = self.rng.choices(
            [
                Change("ALTER", "unit", unit),
                Change("ALTER", "unit", unit, (("min_engines", self.rng.randrange(3)),)),
                Change("ALTER", "unit", unit, (("max_engines", self.rng.choice([2, 2, 3])),)),
                Change("ALTER", "unit", unit, (("driver_memory", self.rng.choice(MEMORY)),)),
                Change("ALTER", "unit", unit, (("properties", ((f"app.c{self.number}", token),)),)),
                Change("ALTER", "tenant", "t_0", (("pools", self.rng.choice([("p_0",), ("p_0", "p_1")])),)),
                Change("ALTER", "pool", "p_0", (("units", self.rng.choice([("u_0",), ("u_0", "u_1"), ("u_1", "u_0")])),)),
            ],
            [8, 6, 2, 3, 3, 3, 2],
        )[0]
        change = with_comment(change, token)
        return token, change.text(), change, None

    def create(self, token):
        change = with_comment(Change("CREATE", "unit", f"x_{token}".replace("-", "_"), (("driver_memory", "256M"),)), token)
        self.own.append(change.name)
        return token, change.text(), change, None

    def drop(self, _):
        if not self.own:
            return None
        change = Change("DROP", "unit", self.own.pop(self.rng.randrange(len(self.own))))
        return f"drop-{change.name}", change.text(), change, None

    def senseless(self, token):
        change = self.rng.choice(
            [
                Change("ALTER", "unit", "u_9", (("min_engines", 1),)),
                Change("CREATE", "unit", "u_0", (("min_engines", 1),)),
                Change("ALTER", "pool", "p_1", (("units", ("u_9",)),)),
            ]
        )
        change = with_comment(change, token)
        return token, change.text(), change, None

    def begin_engine(self, token):
        tenant, pool, unit = self.rng.choice([*LINKS, ("t_1", "p_1", "u_2")])
        return token, f"START ENGINE {tenant} {pool} {unit}", None, None

    def end_engine(self, token):
        with self.stream.lock:
            known = list(self.stream.engines) or [("p_0", "t-0-p-0-u-0-0-1-000000")]
        pool, engine = self.rng.choice(known)
        verb = self.rng.choice(["STOP", "RESTART"])
        grace = self.rng.choice([" FORCE", " WITHIN '2s'", " WITHIN '5s'"])
        return token, f"{verb} ENGINE {pool} '{engine}'{grace}", None, engine


def with_comment(change, token):
    return Change(change.verb, change.kind, change.name, (*change.options, ("comment", token)))


def leaves_open(refusal):
    """Whether a refusal leaves open what became of the statement: the connection, or the outcome, is not known."""
    late = refusal.sqlstate == "HYT00" and "before it could take effect" not in refusal.message
    return (refusal.sqlstate or "").startswith("08") or late
