"""Waiting for something to become true. Nothing in the scenarios waits without a deadline and a name."""

import time

PAUSE_S = 0.05


def wait_until(condition, within_s, what, pause_s=PAUSE_S):
    """Asks until `condition()` is truthy and answers that; fails with `what` and the last answer after `within_s`."""
    deadline = time.monotonic() + within_s
    while True:
        last = condition()
        if last:
            return last
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {within_s} s: {what}; last seen: {last!r}")
        time.sleep(pause_s)


def stays(condition, for_s, what, pause_s=PAUSE_S):
    """Fails as soon as `condition()` is falsy; answers after `for_s` in which it never was."""
    deadline = time.monotonic() + for_s
    while time.monotonic() < deadline:
        assert condition(), f"did not stay so for {for_s} s: {what}"
        time.sleep(pause_s)
