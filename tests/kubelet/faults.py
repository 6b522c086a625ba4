"""What may go wrong on a node, on command: each fault holds for the pods that it matches until it is lifted.

| kind | what a matching pod sees |
| --- | --- |
| `image` | its image can't be pulled: `ErrImagePull`, then `ImagePullBackOff`; `message=` |
| `config` | its container can't be made: `CreateContainerConfigError`; `message=` |
| `start` | it stays in `ContainerCreating` |
| `crash` | its containers end with `code=` (1) and `reason=` as soon as they run |
| `readiness` | it runs and never gets ready, whatever it answers |
| `end` | its processes end, and nobody confirms it: it stays *terminating* |

What happens once and not for a while is a method of the kubelet: `evict`, `kill`, `lose_node`. That no node takes pods is
said by `nodes.cordon`; the scheduler is the real one.
"""

KINDS = ("image", "config", "start", "crash", "readiness", "end")


def bearing(**labels):
    """Pods with these labels, such as `bearing(tenant_name="t_1")`; others through `**{"a/b": "c"}`."""
    return lambda pod: all(pod["metadata"].get("labels", {}).get(key) == value for key, value in labels.items())


def named(name, namespace=None):
    """The pod of that name."""
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
        # Replaced as a whole, so that whoever goes through them sees one state.
        self.held = (*self.held, fault)
        self.changed()
        return fault

    def lift(self, fault):
        self.held = tuple(it for it in self.held if it is not fault)
        self.changed()

    def of(self, kind, pod):
        """What the fault that the pod has was told; `None` if it has none of this kind."""
        return next((it.options for it in self.held if it.kind == kind and it.match(pod)), None)
