"""An evaluator of NetworkPolicies by their specification: the tests' API server accepts policies and does not enforce them.

A pod that no policy of a direction selects is open in that direction; a selected one is open to what a policy names. A
connection needs both ends. A `Peer` without a namespace is an address outside of the cluster.
"""

import dataclasses
import ipaddress


@dataclasses.dataclass
class Peer:
    """One end of a connection. `namespace_labels` has the name, as every namespace has it as a label."""

    namespace: str = None
    labels: dict = dataclasses.field(default_factory=dict)
    namespace_labels: dict = dataclasses.field(default_factory=dict)
    address: str = "10.244.0.9"

    def __post_init__(self):
        if self.namespace:
            self.namespace_labels = {"kubernetes.io/metadata.name": self.namespace} | self.namespace_labels


def permits(policies, source, target, port, protocol="TCP"):
    """Whether `source` may open a connection to the port of `target`."""
    return one_way(policies, "Egress", source, target, port, protocol) and one_way(
        policies, "Ingress", target, source, port, protocol
    )


def one_way(policies, direction, own, other, port, protocol):
    if own.namespace is None:
        return True
    chosen = [
        it["spec"]
        for it in policies
        if it["metadata"]["namespace"] == own.namespace
        and direction in it["spec"]["policyTypes"]
        and selects(it["spec"]["podSelector"], own.labels)
    ]
    if not chosen:
        return True
    peers = "to" if direction == "Egress" else "from"
    return any(
        is_port(rule.get("ports"), port, protocol) and is_peer(rule.get(peers), own.namespace, other)
        for spec in chosen
        for rule in spec.get(direction.lower(), [])
    )


def is_port(ports, port, protocol):
    return not ports or any((it["port"], it.get("protocol", "TCP")) == (port, protocol) for it in ports)


def is_peer(peers, namespace, other):
    return not peers or any(matches(it, namespace, other) for it in peers)


def matches(peer, namespace, other):
    if "ipBlock" in peer:
        # Pods have addresses too; whether a block covers them is the network's business, so they are taken as covered.
        address, block = ipaddress.ip_address(other.address), peer["ipBlock"]
        return address in ipaddress.ip_network(block["cidr"]) and not any(
            address in ipaddress.ip_network(it) for it in block.get("except", [])
        )
    if other.namespace is None:
        return False
    if "namespaceSelector" in peer:
        there = selects(peer["namespaceSelector"], other.namespace_labels)
    else:
        there = other.namespace == namespace
    return there and selects(peer.get("podSelector", {}), other.labels)


def selects(selector, labels):
    wanted = selector.get("matchLabels", {})
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        fits(it, labels) for it in selector.get("matchExpressions", [])
    )


def fits(expression, labels):
    key, operator = expression["key"], expression["operator"]
    values = expression.get("values", [])
    return {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }[operator]
