"""Hive JDBC's ZooKeeper mode: the real driver finds the proxies by itself."""

from harness import zookeeper
from harness.java import beeline_ok
from harness.waiting import wait_until


def test_beeline_finds_only_live_proxies_through_zookeeper(cluster):
    namespace = cluster.discovery
    children = wait_until(
        lambda: len(found := cluster.nodes.below(f"/{namespace}")) == 2 and found, 20, "both proxies are registered"
    )
    for name in ("proxy-a", "proxy-b"):
        address = cluster.addresses[name]
        assert any(it.startswith(f"serverUri={address};version=") and ";sequence=" in it for it in children), children
    query = f";serviceDiscoveryMode=zooKeeper;zooKeeperNamespace={namespace}"
    done = beeline_ok(zookeeper.address(), "SHOW TENANTS LIKE 'no-such-tenant'", query=query)
    assert done.lines()[0].split("\t")[0] == "tenant", done.out
