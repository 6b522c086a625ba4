"""Row D13: what a pod of an engine reaches, by the policies of `deploy/kubernetes` as their specification reads."""

from harness.manifests import example
from harness.network_policy import Peer, permits
from harness.pods import HOME


def test_d13_an_engine_reaches_no_address_of_others(workspace):
    """The network of the tests enforces no policies."""
    namespace, cluster = "rp-1--t-1", {"enginehouse.io/cluster": "enginehouse"}
    objects = example(workspace / "deploy-of-attacks")
    policies = [it for it in objects if it["kind"] == "NetworkPolicy"]

    def engine(where, role="engine", **labels):
        return Peer(where, {"enginehouse.io/role": role} | cluster | labels, cluster)

    def ours(part):
        return Peer(HOME, {"app.kubernetes.io/name": "enginehouse", "app.kubernetes.io/component": part})

    sources = {
        "engine": engine(namespace),
        "Spark's driver": engine(namespace, **{"spark-role": "driver"}),
        "Spark's executor": engine(namespace, "executor", **{"spark-role": "executor"}),
        "a pod that an engine has created": Peer(namespace, {"app": "x"}, cluster),
        "a pod with a role's labels": Peer(namespace, ours("metadata-agent").labels, cluster),
    }
    targets = {
        "169.254.169.254": Peer(address="169.254.169.254"),
        "database": Peer(HOME, {"enginehouse.io/part": "database"}),
        **{f"a {it}": ours(it) for it in ("proxy", "master", "metadata-agent")},
        "an engine of another tenant": engine("rp-2--t-2"),
        "a driver of another tenant": engine("rp-2--t-2", **{"spark-role": "driver"}),
        "a pod of another application": Peer("strangers", {"app": "x"}),
    }
    ports = (22, 53, 80, 443, 2181, 3306, 5432, 6443, 7078, 7079, 8080, 10009, 10020, 10021)
    names = {(source, target, 53) for source in sources for target in targets}
    opened = {
        (source, target, port)
        for source, own in sources.items()
        for target, other in targets.items()
        for port in ports
        if permits(policies, own, other, port)
    }
    assert opened - names == set()
    # The evaluator does find what is open.
    zookeeper = Peer(HOME, {"enginehouse.io/part": "zookeeper"})
    assert permits(policies, sources["engine"], zookeeper, 2181) and permits(policies, ours("proxy"), sources["engine"], 10021)
