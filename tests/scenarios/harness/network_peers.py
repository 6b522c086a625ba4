"""Who may send to whom in a cluster, as the NetworkPolicies of rendered manifests see it."""

from harness.network_policy import Peer, permits
from harness.pod_templates import OURS

ENGINES = "rp-1--t-1"
PORTS = (22, 53, 80, 443, 2181, 2888, 3306, 3888, 5432, 6443, 7078, 7079, 8080, 10009, 10020, 10021)


def peers():
    def ours(role):
        return Peer(OURS, {"app.kubernetes.io/name": "enginehouse", "app.kubernetes.io/component": role})

    def engine(namespace=ENGINES, **labels):
        labels = {"enginehouse.io/role": "engine", "enginehouse.io/cluster": "enginehouse"} | labels
        return Peer(namespace, labels, {"enginehouse.io/cluster": "enginehouse"})

    spark = {"spark-role": "driver"}
    return {
        "proxy": ours("proxy"),
        "master": ours("master"),
        "agent": ours("metadata-agent"),
        "zookeeper": Peer(OURS, {"enginehouse.io/part": "zookeeper"}),
        "database": Peer(OURS, {"enginehouse.io/part": "database"}),
        "engine": engine(),
        "another engine": engine(),
        "driver": engine(**spark),
        "another driver": engine(**spark),
        "executor": engine(**{"enginehouse.io/role": "executor", "spark-role": "executor"}),
        "pod among engines": Peer(ENGINES, {"app": "x"}, {"enginehouse.io/cluster": "enginehouse"}),
        "client": Peer("people", {}, {"enginehouse.io/clients": "true"}),
        "stranger": Peer("strangers", {"app": "x"}),
        "names": Peer("kube-system", {"k8s-app": "kube-dns"}),
        "metadata address": Peer(address="169.254.169.254"),
        "internet": Peer(address="93.184.215.14"),
        "api server": Peer(address="10.96.0.1"),
    }


def opened_by(objects, known):
    policies = [it for it in objects if it["kind"] == "NetworkPolicy"]
    return {
        (source, target, port)
        for source in known
        if known[source].namespace == OURS
        for target in known
        for port in (*PORTS, 389, 636)
        if permits(policies, known[source], known[target], port)
    }
