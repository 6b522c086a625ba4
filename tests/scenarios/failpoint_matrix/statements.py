"""Statements of clients in the background, and their outcomes.

The outcome is *acknowledged*, *refused* (nothing changed) or *lost* (the connection broke, or the server reports an unknown
outcome). Only a lost statement may or may not have taken effect.
"""

import concurrent.futures
import contextlib
import dataclasses
import http.client
import json

import pyhive.exc

from harness.clients import open_pyhive, refusal_of, rows
from harness.waiting import wait_until

# A client's whole patience: more than the proxy's own (60 s), so that it is the server that gives up.
ANSWER_WITHIN_S = 75
AGAIN_WITHIN_S = 30
# Nothing was changed, and it is worth trying again. 55P03: another alteration is in progress, because the one before it has
# yet to be settled. 57P03: ZooKeeper or the metadata agents can't be reached at this moment. 40001: it was aborted.
NOT_NOW = {"55P03", "57P03", "40001"}
# Of a call over REST: no answer, and an answer that decides nothing.
UNDECIDED = {None, 429, 503, 504}


@dataclasses.dataclass
class Outcome:
    kind: str
    rows: list = None
    sqlstate: str = None
    message: str = ""

    def __repr__(self):
        return f"{self.kind}: {self.rows if self.kind == 'acknowledged' else f'{self.sqlstate} {self.message}'}"


def execute(address, statement, user="admin", **settings):
    """Runs a statement in a session of its own and returns the outcome. Settings are session keys, as in `harness.clients`."""
    connection = None
    try:
        connection = open_pyhive(address, user, **settings)
        return Outcome("acknowledged", rows(connection, statement))
    except pyhive.exc.OperationalError as error:
        try:
            refusal = refusal_of(error)
        except (AttributeError, IndexError):
            return Outcome("lost", message=repr(error))
        # Class 08 is about connections; 08007 is an unknown outcome.
        lost = (refusal.sqlstate or "08").startswith("08")
        return Outcome("lost" if lost else "refused", None, refusal.sqlstate, refusal.message)
    except Exception as error:
        return Outcome("lost", message=repr(error))
    finally:
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()


class Statement:
    def __init__(self, pool, installation, statement, via, user, settings):
        self.pool = pool
        self.installation = installation
        self.statement = statement
        self.via = via
        self.user = user
        self.settings = settings
        self.future = self.submit()

    def __repr__(self):
        return f"{self.statement}: {self.future.result() if self.future.done() else 'no answer yet'}"

    def submit(self):
        return self.pool.submit(execute, self.installation.address(self.via), self.statement, self.user, **self.settings)

    def nudge(self):
        """Repeats it after a transient refusal: on a busy machine ZooKeeper's responses may be late for such short sessions."""
        if self.future.done():
            outcome = self.future.result()
            if outcome.kind == "refused" and outcome.sqlstate in NOT_NOW:
                self.future = self.submit()

    def outcome(self):
        try:
            return self.future.result(ANSWER_WITHIN_S)
        except concurrent.futures.TimeoutError:
            raise AssertionError(f"no answer within {ANSWER_WITHIN_S} s: {self.statement}") from None

    def again(self, gone=()):
        def done():
            outcome = execute(self.installation.address("any"), self.statement, self.user, **self.settings)
            if outcome.kind == "refused" and outcome.sqlstate not in NOT_NOW:
                assert outcome.sqlstate in gone, f"repeated: {self.statement}: {outcome}"
                return outcome
            return outcome if outcome.kind == "acknowledged" else None

        return wait_until(done, AGAIN_WITHIN_S, f"acknowledged when repeated: {self.statement}", 0.2)


class Call:
    """A call over REST in the background, under a key of its own: its repeats take effect once. `make()` returns what sends it,
    which returns (status, JSON); the status is `None` if the answer is lost."""

    def __init__(self, pool, make):
        self.pool, self.make = pool, make
        self.future = self.submit()

    def __repr__(self):
        return f"a call: {self.future.result() if self.future.done() else 'no answer yet'}"

    def submit(self):
        send = self.make()

        def run():
            try:
                return send()
            except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
                return None, repr(error)

        return self.pool.submit(run)

    def is_undecided(self):
        status, found = self.future.result(ANSWER_WITHIN_S)
        return status in UNDECIDED or (status == http.HTTPStatus.CONFLICT and found.get("sqlstate") in NOT_NOW)

    def nudge(self):
        """As that of a statement."""
        if self.future.done() and self.is_undecided():
            self.future = self.submit()

    def result(self):
        return self.future.result(ANSWER_WITHIN_S)
