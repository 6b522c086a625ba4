"""Hive JDBC's ZooKeeper mode: the real driver finds the proxies by itself."""

from harness import zookeeper
from harness.java import beeline_ok
from harness.waiting import wait_until


def test_beeline_finds_only_live_proxies_through_zookeeper(cluster):
    namespace = cluster.discovery
    names = "proxy-a", "proxy-b"

    def registered():
        """Whether these proxies are, and no other: not one that was there before an earlier test restarted it."""
        found = cluster.nodes.below(f"/{namespace}")
        beginnings = [f"serverUri={cluster.addresses[it]};version=" for it in names]
        return len(found) == 2 and all(any(it.startswith(one) and ";sequence=" in it for it in found) for one in beginnings)

    wait_until(registered, 20, "both proxies are registered")
    query = f";serviceDiscoveryMode=zooKeeper;zooKeeperNamespace={namespace}"
    done = beeline_ok(zookeeper.address(), "SHOW TENANTS LIKE 'no-such-tenant'", query=query)
    assert done.lines()[0].split("\t")[0] == "tenant", done.out
