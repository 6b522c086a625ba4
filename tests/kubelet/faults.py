"""Faults of a node, on command: each holds for the pods that it matches until it is lifted.

| kind | what a matching pod observes |
| --- | --- |
| `image` | its image cannot be pulled: `ErrImagePull`, then `ImagePullBackOff`; `message=` |
| `config` | its container cannot be created: `CreateContainerConfigError`; `message=` |
| `start` | it stays in `ContainerCreating` |
| `crash` | its containers end with `code=` (1) and `reason=` as soon as they run |
| `end` | its processes end without a confirmation: it stays *terminating* |

Single events are methods of the kubelet: `evict`, `kill`.
"""

import contextlib
import typing
from collections.abc import Callable

KINDS = ("image", "config", "start", "crash", "end")


def bearing(**labels):
    """Pods with these labels, such as `bearing(tenant_name="t_1")`; others through `**{"a/b": "c"}`."""
    return lambda pod: all(pod["metadata"].get("labels", {}).get(key) == value for key, value in labels.items())


def named(name, namespace=None):
    return lambda pod: pod["metadata"]["name"] == name and namespace in (None, pod["metadata"]["namespace"])


class Fault(typing.NamedTuple):
    """One of `KINDS` for the pods that `match` accepts."""

    kind: str
    match: Callable
    options: dict


class Faults:
    """The faults that hold now; `changed` is called after each change."""

    def __init__(self, changed):
        self.held = ()
        self.changed = changed

    def add(self, kind, match, options):
        """What is returned lifts the fault with `close()`, and at the end of a `with` block."""
        assert kind in KINDS, kind
        fault, lift = Fault(kind, match, options), contextlib.ExitStack()
        self.hold((*self.held, fault))
        lift.callback(lambda: self.hold(tuple(it for it in self.held if it is not fault)))
        return lift

    def hold(self, faults):
        self.held = faults
        self.changed()

    def of(self, kind, pod):
        return next((it.options for it in self.held if it.kind == kind and it.match(pod)), None)
