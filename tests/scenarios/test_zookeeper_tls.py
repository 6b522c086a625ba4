"""The whole program, built with the cargo feature `zookeeper-tls`, and an ensemble whose servers have a port with TLS and no
other: it works while each of them ends once, and opens no session with servers that it does not trust."""

import re
import signal
import threading

import psutil
import pytest
from kazoo.protocol.states import EventType

from harness import zookeeper
from harness.certificates import Authority
from harness.clients import pyhive_session, rows
from harness.control import Control
from harness.doctor import check, diagnosed, finding
from harness.ensemble import Ensemble
from harness.fixtures import started
from harness.masters import Masters
from harness.processes import BINARY, run, with_zookeeper_tls
from harness.rest import at_rest
from harness.session_monitor import SessionMonitor
from harness.tier import only_long
from harness.waiting import wait_until

WITHIN_S = 60
CANDIDATES = ("proxy-a", "proxy-b")
PROGRAMS = ("agent-1", *CANDIDATES)
# Longer than the servers need to elect a leader: no session ends because a server does.
LONG_SESSION_S = 30
SHORT_SESSION_S = 1
# What the command `cons` of a server prints about each connection that has a session.
SESSION = re.compile(r"\bsid=0x([0-9a-f]+)")
UNTRUSTED = "its certificate was signed by an unknown CA"
NO_SESSION = "it accepts connections but grants no session"
NOT_BUILT = 'zookeeper.tls is "required", but this program was built without the cargo feature zookeeper-tls'


@pytest.fixture(scope="module")
def certificates(workspace):
    folder = workspace / "zookeeper-tls"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def ensemble(certificates):
    yield from started(Ensemble(certificates, 3, Authority(certificates, "trusted")))


def listens_at(member):
    connections = psutil.Process(member.pid).net_connections("tcp")
    return {it.laddr.port for it in connections if it.status == psutil.CONN_LISTEN}


def has_no_plain_port(member):
    """It listens for clients with TLS, and for the other servers."""
    text = (member.folder / "zoo.cfg").read_text()
    of_servers = {int(port) for ports in re.findall(r"^server\..*:(\d+):(\d+)$", text, re.MULTILINE) for port in ports}
    listens = listens_at(member)
    return member.port in listens and listens <= {member.port} | of_servers


def sessions(cluster):
    """The sessions of proxies, metadata agents and engines, by the path of the ephemeral node. Those of candidates for master
    are not among them: a candidate may leave the queue for a new place when its connection is lost."""
    nodes = cluster.nodes
    paths = [f"/{cluster.discovery}/{it}" for it in nodes.below(f"/{cluster.discovery}")]
    paths += [nodes.path(f"agents/{it}") for it in nodes.children("agents")]
    paths += [nodes.path(f"engines/{it}/live") for it in nodes.children("engines")]
    return {path: nodes.client.exists(path).owner_session_id for path in paths}


def connected(members):
    """The sessions that have a connection with one of these servers."""
    return {int(it, 16) for member in members for it in SESSION.findall(member.ask("cons"))}


def are_for_clients(cluster, paths):
    """Whether both proxies are among the nodes that Hive JDBC reads."""
    beginnings = [f"/{cluster.discovery}/serverUri={cluster.addresses[it]};version=" for it in CANDIDATES]
    return all(any(path.startswith(one) for path in paths) for one in beginnings)


def alter(cluster, control, tenant, unit, memory):
    """An ALTER that replaces the engine; the new one answers a query. The order to drain the old one stays for a session
    timeout, so this does not wait until the installation is at rest."""
    (old,) = [it["engine"] for it in control.engines(tenant) if it["current"]]
    created = threading.Event()

    def seen(event):
        if event.type == EventType.CREATED:
            created.set()

    assert cluster.nodes.client.exists(cluster.nodes.path("lock/alter"), watch=seen) is None
    control.execute(f"ALTER RESOURCE UNIT {unit} DRIVER_MEMORY '{memory}' WAIT '1m'")
    assert created.wait(WITHIN_S), "the alter node was created"
    new = control.wait_another(tenant, old)["engine"]
    assert cluster.nodes.exists(f"engines/{new}/live")
    with pyhive_session(control.address, "alice") as session:
        assert rows(session, "SELECT 6 * 7 AS answer") == [{"answer": 42}]


@only_long
def test_all_roles_and_engines_work_with_servers_that_have_only_tls(ensemble, own_cluster):
    assert all(map(has_no_plain_port, ensemble.members))
    timeout = {"session_timeout_s": LONG_SESSION_S}
    cluster = own_cluster(start=False, ensemble=ensemble, binary=with_zookeeper_tls(), candidates=CANDIDATES, **timeout)
    cluster.start(PROGRAMS)
    cluster.logs.allow("could not stand for election", "still waiting")
    masters, control = Masters(cluster), Control(cluster.addresses["proxy-b"])
    tenant, _, unit = control.make("sealed", options=", MIN_ENGINES 1", users="'alice'")
    control.wait_ready(tenant)
    masters.wait_queued(len(CANDIDATES), WITHIN_S)
    cluster.settled(control)
    engines = at_rest(cluster)
    status, report = diagnosed(cluster, cluster.write("doctor"))
    servers = check(report, "servers")
    assert status == 0 and not servers["findings"], report
    assert all(f"{it.address} grants a session" in servers["said"] for it in ensemble.members), report

    with SessionMonitor(cluster, "alice") as monitor:
        owners = sessions(cluster)
        assert are_for_clients(cluster, owners) and all(owners.values()), owners
        for member in ensemble.members:
            member.kill()
            ensemble.leader()
            # Each session that was at this server has moved to another one.
            others = [it for it in ensemble.members if it is not member]
            wait_until(lambda: set(owners.values()) <= connected(others), WITHIN_S, "every session is connected again", 0.2)
            monitor.wait_round()
            assert at_rest(cluster) == engines
            masters.wait_queued(len(CANDIDATES), WITHIN_S)
            ensemble.start()
        assert sessions(cluster) == owners
    assert all(map(has_no_plain_port, ensemble.members))
    alter(cluster, control, tenant, unit, "320M")

    term = masters.wait_acting()
    name = masters.program_of(term)
    master = cluster.programs[name]
    master.send(signal.SIGTERM)
    assert masters.program_of(masters.wait_acting(term.epoch, WITHIN_S)) != name
    assert master.wait(WITHIN_S) == 0
    (other,) = set(CANDIDATES) - {name}
    alter(cluster, Control(cluster.addresses[other]), tenant, unit, "384M")


@only_long
def test_no_role_opens_a_session_with_a_zookeeper_that_it_does_not_trust(ensemble, certificates, own_cluster):
    cluster = own_cluster(
        start=False,
        ensemble=ensemble,
        binary=with_zookeeper_tls(),
        session_timeout_s=SHORT_SESSION_S,
        master={"tick_interval": "200ms"},
        zookeeper={"ca_file": str(Authority(certificates, "other").certificate)},
    )
    cluster.migrate()
    cluster.start_program("proxy-b", wait=False)
    status, report = diagnosed(cluster, cluster.write("another-ca"))
    found = [finding(report, "servers", it.address) for it in ensemble.members]
    assert status == 1 and all(f"it grants no session: {UNTRUSTED}" in it["what"] for it in found), report
    assert all("zookeeper.ca_file" in it["mend"] for it in found), report
    proxy = cluster.programs["proxy-b"]
    wait_until(lambda: UNTRUSTED in proxy.logged(), WITHIN_S, "the proxy logs why it has no session")
    assert proxy.is_running() and "ready:" not in proxy.printed()

    # The servers grant a client without TLS nothing.
    cluster.settings["zookeeper"] = {"tls": "off", "ca_file": ""}
    status, report = diagnosed(cluster, cluster.write("without-tls"))
    found = [finding(report, "servers", it.address) for it in ensemble.members]
    assert status == 1 and all(NO_SESSION in it["what"] for it in found), report

    # A program that has no TLS to ZooKeeper does not start.
    cluster.settings["zookeeper"] = {}
    done = run(["proxy", "--config", cluster.write("without-the-feature")], cwd=cluster.folder, binary=BINARY)
    assert done.returncode != 0 and NOT_BUILT in done.stderr, done

    # With a session each of them would have created its root.
    nodes = zookeeper.Nodes(cluster.root, cluster.zookeeper_passwords(), cluster.connect, ca=ensemble.ca)
    try:
        assert nodes.client.exists(cluster.root) is None
    finally:
        nodes.close()
