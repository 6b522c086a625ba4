"""Where a pod may run: the filters of the Kubernetes scheduler that the system relies on, as pure functions over objects.

Node name, node selector and required node affinity, taints and tolerations, unschedulable nodes, and whether the
requests fit into what is allocatable beside the pods that are there. Scoring is the number of pods: the emptiest node,
then the first by name. What the real one says when nothing fits is said in its words, since people will read them.
"""

import collections
import re
from decimal import Decimal

SUFFIXES = {
    "": 1, "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": 10**3, "M": 10**6, "G": 10**9,
    "T": 10**12, "P": 10**15, "E": 10**18, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
}
UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
AFFINITY_REASON = "node(s) didn't match Pod's node affinity/selector"


def quantity(text):
    """`100m`, `1.5Gi`, `2` as a number."""
    number, exponent, suffix = re.fullmatch(r"([+-]?[0-9.]+)([eE][+-]?[0-9]+)?([A-Za-z]*)", str(text)).groups()
    return Decimal(number + (exponent or "")) * SUFFIXES[suffix]


def requests_of(pod):
    """What the pod asks for: its containers together, or one of its first containers if that is more; plus overhead."""
    spec = pod["spec"]
    together = collections.Counter()
    for container in spec["containers"]:
        together.update(asked(container.get("resources", {}).get("requests")))
    for container in spec.get("initContainers", []):
        for name, value in asked(container.get("resources", {}).get("requests")).items():
            together[name] = max(together[name], value)
    together.update(asked(spec.get("overhead")))
    return together


def asked(amounts):
    return {name: quantity(value) for name, value in (amounts or {}).items()}


class Load:
    """What the pods of one node ask for together."""

    def __init__(self):
        self.pods = 0
        self.requests = collections.Counter()

    def add(self, requests):
        self.pods += 1
        self.requests.update(requests)

    def remove(self, requests):
        self.pods -= 1
        self.requests.subtract(requests)


def place(pod, nodes, loads):
    """(node's name, `None`), or (`None`, why no node will do). `loads`: node's name → what is on it."""
    reasons = collections.Counter()
    fitting = []
    requests = requests_of(pod)
    for node in nodes:
        name = node["metadata"]["name"]
        load = loads.get(name) or Load()
        refused = refusals(pod, requests, node, load)
        if refused:
            reasons.update(refused)
        else:
            fitting.append((load.pods, name))
    if fitting:
        return min(fitting)[1], None
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return None, f"0/{len(nodes)} nodes are available" + (f": {told}." if told else ".")


def refusals(pod, requests, node, load):
    """Why the pod can't run on the node beside those that are there; the filters in the order of the real ones."""
    taint = repelled_by(pod, node)
    if taint:
        if taint["key"] == UNSCHEDULABLE["key"]:
            return ["node(s) were unschedulable"]
        value = taint.get("value", "")
        return [f"node(s) had untolerated taint {{{taint['key']}: {value}}}"]
    if not matches_affinity(pod, node):
        return [AFFINITY_REASON]
    return shortages(requests, node, load)


def repelled_by(pod, node):
    """The first taint that the pod does not tolerate."""
    taints = list(node["spec"].get("taints", []))
    if node["spec"].get("unschedulable"):
        taints.insert(0, UNSCHEDULABLE)
    tolerations = pod["spec"].get("tolerations", [])
    for taint in taints:
        if taint["effect"] != "PreferNoSchedule" and not any(tolerates(it, taint) for it in tolerations):
            return taint
    return None


def tolerates(toleration, taint):
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", "")


def matches_affinity(pod, node):
    labels = node["metadata"].get("labels", {})
    if any(labels.get(key) != value for key, value in pod["spec"].get("nodeSelector", {}).items()):
        return False
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    # Terms are alternatives; one that says nothing matches nothing.
    return any(matches_term(term, node) for term in required["nodeSelectorTerms"])


def matches_term(term, node):
    labels = node["metadata"].get("labels", {})
    fields = {"metadata.name": node["metadata"]["name"]}
    expressions = [(it, labels) for it in term.get("matchExpressions") or []]
    expressions += [(it, fields) for it in term.get("matchFields") or []]
    return bool(expressions) and all(holds(it, values) for it, values in expressions)


def holds(expression, values):
    key, wanted = expression["key"], expression.get("values") or []
    match expression["operator"]:
        case "In":
            return key in values and values[key] in wanted
        case "NotIn":
            return values.get(key) not in wanted
        case "Exists":
            return key in values
        case "DoesNotExist":
            return key not in values
        case "Gt":
            return key in values and int(values[key]) > int(wanted[0])
        case "Lt":
            return key in values and int(values[key]) < int(wanted[0])
    raise AssertionError(f"unknown operator {expression['operator']}")


def shortages(requests, node, load):
    there = asked(node["status"].get("allocatable"))
    short = [f"Insufficient {name}" for name, value in sorted(requests.items())
             if value and load.requests[name] + value > there.get(name, 0)]
    if load.pods + 1 > there.get("pods", 0):
        short.insert(0, "Too many pods")
    return short
