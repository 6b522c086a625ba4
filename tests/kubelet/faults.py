"""Faults of a node, on command: each holds for the pods that it matches until it is lifted.

| kind | what a matching pod observes |
| --- | --- |
| `image` | its image cannot be pulled: `ErrImagePull`, then `ImagePullBackOff`; `message=` |
| `config` | its container cannot be created: `CreateContainerConfigError`; `message=` |
| `start` | it stays in `ContainerCreating` |
| `crash` | its containers end with `code=` (1) and `reason=` as soon as they run |
| `readiness` | it runs and never becomes ready, whatever its probes return |
| `end` | its processes end without a confirmation: it stays *terminating* |

Single events are methods of the kubelet: `evict`, `kill`.
"""

KINDS = ("image", "config", "start", "crash", "readiness", "end")


def bearing(**labels):
    """Pods with these labels, such as `bearing(tenant_name="t_1")`; others through `**{"a/b": "c"}`."""
    return lambda pod: all(pod["metadata"].get("labels", {}).get(key) == value for key, value in labels.items())


def named(name, namespace=None):
    return lambda pod: pod["metadata"]["name"] == name and namespace in (None, pod["metadata"]["namespace"])


class Fault:
    """One of `KINDS` for the pods that `match` accepts."""

    def __init__(self, faults, kind, match, options):
        assert kind in KINDS, kind
        self.faults, self.kind, self.match, self.options = faults, kind, match, options

    def lift(self):
        self.faults.lift(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lift()


class Faults:
    """The faults that hold now; `changed` is called after each change."""

    def __init__(self, changed):
        self.held = ()
        self.changed = changed

    def add(self, kind, match, options):
        fault = Fault(self, kind, match, options)
        self.held = (*self.held, fault)
        self.changed()
        return fault

    def lift(self, fault):
        self.held = tuple(it for it in self.held if it is not fault)
        self.changed()

    def of(self, kind, pod):
        return next((it.options for it in self.held if it.kind == kind and it.match(pod)), None)
