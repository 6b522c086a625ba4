"""The faults between a client and the API server.

| kind | effect on a request that matches |
| --- | --- |
| `error` | refused with `code=` (500) |
| `throttle` | refused with 429 and `Retry-After: retry_after_s=` (1) |
| `silence` | accepted and never answered; waiting clients lose the connection when the fault is lifted |
| `hang_up` | the connection ends without a response |
| `hold` | held back until the fault is lifted |
| `gone` | 410: a list is refused, a watch sends it as its first event and ends, as the server does |
| `stale` | a list is served as of `version=` by the server itself, as a lagging server would |

With `after=True` the first five come after the server has acted: only the response is lost. Watches are exempt.

| kind | effect on an event that `event=` accepts, in a watch that matches |
| --- | --- |
| `drop` | not sent |
| `repeat` | sent twice; with `late=True` after the next event, so that an older version is last |
| `tear` | half of it is sent, and the connection ends |
| `expire` | 410 is sent instead, and the watch ends |
| `end` | the watch ends before it, as servers end watches: a client that resumes misses nothing |

Of what matches the first `skip=` pass, then all are hit until `times=` were (`None`: until the fault is lifted). `share=` hits
a random part instead, drawn with `seed=`: a client with a fixed rhythm would be hit each time. Of several faults that match,
the first one made is injected.
"""

import asyncio
import random

from harness.api_relay.calls import watch_events

# kind → its options with their defaults.
REFUSALS = {
    "error": {"code": 500, "message": "injected by the tests", "after": False},
    "throttle": {"retry_after_s": 1, "message": "too many requests: injected by the tests", "after": False},
    "silence": {"after": False},
    "hang_up": {"after": False},
    "hold": {"after": False},
    "gone": {"message": "too old resource version: injected by the tests"},
    "stale": {"version": None},
}
OF_EVENTS = {
    "drop": {},
    "repeat": {"late": False},
    "tear": {},
    "end": {},
    "expire": {"message": "too old resource version: injected by the tests"},
}
REASONS = {410: "Expired", 429: "TooManyRequests", 500: "InternalError", 504: "Timeout"}


class Fault:
    """One of the kinds above. `injected`: how often it was injected; `left`: how many clients gave
    up waiting for an answer that was held back."""

    def __init__(self, faults, kind, match, event=None, times=1, skip=0, share=1.0, seed=0, **options):
        known = REFUSALS.get(kind, OF_EVENTS.get(kind))
        assert known is not None, f"there is no fault {kind}"
        assert options.keys() <= known.keys(), (
            f"{kind} has the options {sorted(known)}, not {sorted(options.keys() - known.keys())}"
        )
        assert event is None or kind in OF_EVENTS, f"{kind} is none of events"
        assert kind != "stale" or options.get("version"), "stale needs a version"
        assert skip >= 0 and (times is None or times >= 1) and 0 < share <= 1
        self.faults, self.kind, self.match, self.event = faults, kind, match, event or watch_events()
        self.times, self.skip, self.share = times, skip, share
        self.random = random.Random(seed)
        self.options = known | options
        self.seen = self.taken = self.injected = self.left = 0
        self.lifted = asyncio.Event()

    def __getattr__(self, name):
        try:
            return self.__dict__["options"][name]
        except KeyError:
            raise AttributeError(f"a fault has no {name}") from None

    @property
    def after(self):
        return self.options.get("after", False)

    def suits(self, call):
        if self.kind in OF_EVENTS:
            return call.verb == "watch"
        if self.kind == "gone":
            return call.verb in ("list", "watch")
        if self.kind == "stale":
            # The further pages of a list are of the version of its first one.
            return call.verb == "list" and not call.query.get("continue")
        return not (self.after and call.streams)

    def takes(self, call, event=None):
        """Whether to inject it into this request; the caller then reports `done` or `missed`."""
        if not self.suits(call) or not self.match(call) or (event is not None and not self.event(*event)):
            return False
        if self.times is not None and self.taken >= self.times:
            return False
        self.seen += 1
        if self.seen <= self.skip or self.random.random() >= self.share:
            return False
        self.taken += 1
        return True

    def done(self):
        self.injected += 1

    def missed(self):
        """It could not be done: the next one has it."""
        self.taken -= 1

    def status(self):
        code = {"throttle": 429, "gone": 410, "expire": 410}.get(self.kind) or self.code
        details = {"details": {"retryAfterSeconds": self.retry_after_s}} if self.kind == "throttle" else {}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": REASONS[code],
            "code": code,
        } | details

    def lift(self):
        self.faults.lift(self)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.lift()
        assert kind is not None or self.injected, f"the fault {self.kind} was never injected; {self.seen} matched"

    def __repr__(self):
        return f"{self.kind}: {self.injected} injected, {self.seen} matched"


class Faults:
    """Those that hold now; `run(action)` runs in the relay's thread and returns when it has run."""

    def __init__(self, run):
        self.held = ()
        self.run = run

    def add(self, kind, match, **options):
        fault = Fault(self, kind, match, **options)
        self.run(lambda: self.hold(fault))
        return fault

    def hold(self, fault):
        self.held = (*self.held, fault)

    def lift(self, fault):
        self.run(lambda: self.drop(fault))

    def drop(self, fault):
        self.held = tuple(it for it in self.held if it is not fault)
        fault.lifted.set()

    def for_request(self, call):
        return next((it for it in self.held if it.kind in REFUSALS and it.takes(call)), None)

    def for_event(self, call, kind, options):
        return next((it for it in self.held if it.kind in OF_EVENTS and it.takes(call, (kind, options))), None)

    def want_events_of(self, call):
        return any(it.kind in OF_EVENTS and it.suits(call) and it.match(call) for it in self.held)
