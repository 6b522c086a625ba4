"""The installations of the matrix behind one interface: a cluster of separate processes, with pods too, or a standalone.

An installation knows its processes by pid, restarts what was killed, and checks that it is at rest and that every other process
still runs.
"""

import itertools
import signal
import urllib.parse

import tomli_w

from harness.cluster import ROLES, Cluster
from harness.databases import PostgresDatabase, SqliteDatabase
from harness.failpoints import Failpoints
from harness.masters import Masters
from harness.pods import PodCluster
from harness.processes import Program, is_alive, run
from harness.rest import at_rest
from harness.role_keys import zookeeper_passwords
from harness.standalone import Standalone
from harness.tcp_relay import TcpRelay
from harness.waiting import wait_until
from harness.zookeeper import Nodes

DIES_WITHIN_S = 10
SESSION_TIMEOUT_S = 1
# For installations in which no session may be lost on a busy machine.
PATIENT_S = 4
CALL_DEADLINE_S = 2
PROXIES = ("proxy-a", "proxy-b")

# Short times, so that waiting for them costs little; everything else is as an operator has it.
TIMES = {
    "proxy": {"snapshot_poll": "500ms", "bind_deadline": "40s", "load_cache_ms": 200},
    "master": {"tick_interval": "500ms", "alter_grace": "6s", "status_poll": "500ms"},
    "metadata_agent": {"alter_wait": "5s", "alter_deadline": "40s"},
    "engines": {"start_deadline": "20s"},
}


class FreshSchema:
    def __init__(self, installation, point):
        self.installation = installation
        self.database = type(installation.database)()
        self.relay = TcpRelay(server_of(self.database.url)) if installation.relays else None
        url = self.database.url
        if self.relay:
            url = url.replace(server_of(url), self.relay.address)
            installation.relays.passing = self.relay
        self.arguments = ["migrate", "--config", installation.cluster.write("migrate")]
        self.env = installation.points.env | {"ENGINEHOUSE_DATABASE_URL": url}
        self.program = Program(f"{point}.migrate", self.arguments, installation.cluster.folder, self.env)

    def begin(self):
        self.program.start()
        self.installation.passing[self.program.pid] = ("migrate", self.program)

    def finish(self):
        try:
            for _ in range(2):
                done = run(self.arguments, env=self.env, cwd=self.installation.cluster.folder)
                assert done.returncode == 0, done.stdout + done.stderr
            assert self.database.rows("SELECT version FROM schema_version")[0][0] != "0"
        finally:
            if self.relay:
                self.relay.close()
            self.database.close()


class FreshStandalone:
    def __init__(self, installation, point):
        self.installation = installation
        self.standalone = Standalone(installation.folder / point, name=point, env=installation.points.env)

    def begin(self):
        self.standalone.start(wait=False)
        self.installation.passing[self.standalone.program.pid] = ("standalone", self.standalone.program)

    def finish(self):
        self.standalone.start()
        self.standalone.close()


def server_of(url):
    return urllib.parse.urlsplit(url).netloc.rsplit("@", 1)[-1]


class Relays:
    """Relays between each program and what it depends on. Engines, pods too, reach ZooKeeper as the proxy does that made
    them: it is by its configuration that they know where."""

    def __init__(self, cluster):
        self.zookeeper, self.database, self.passing = {}, {}, None
        for name in ROLES:
            self.zookeeper[name] = [TcpRelay(it) for it in cluster.connect.split(",")]
            cluster.connect_of[name] = ",".join(it.address for it in self.zookeeper[name])
        for name in ("agent-1", "agent-2"):
            url = cluster.database.url
            self.database[name] = TcpRelay(server_of(url))
            cluster.url_of[name] = url.replace(server_of(url), self.database[name].address)

    def of(self, name):
        """(relay, how it is cut) of a program. ZooKeeper becomes silent, so that a session expires; connections to the database
        are reset, and new ones refused."""
        silent = [(it, "silence") for it in self.zookeeper.get(name, [])]
        return silent + [(it, "reset") for it in [self.database.get(name)] if it]

    def of_engines(self):
        return [(it, "silence") for name in PROXIES for it in self.zookeeper[name]]

    def close(self):
        for it in itertools.chain(*self.zookeeper.values(), self.database.values()):
            it.close()


class PodRelays(Relays):
    """Also between each proxy and the API server, silently: held calls reach the server when the cut is healed."""

    def __init__(self, cluster):
        super().__init__(cluster)
        self.api = {name: TcpRelay(cluster.pods.kubernetes.address) for name in PROXIES}
        for name, relay in self.api.items():
            cluster.relay_kubernetes(name, relay, call_deadline=f"{CALL_DEADLINE_S}s")

    def of(self, name):
        return super().of(name) + [(it, "silence") for it in [self.api.get(name)] if it]

    def close(self):
        super().close()
        for it in self.api.values():
            it.close()


def killed(program):
    code = program.wait(DIES_WITHIN_S)
    assert code == -signal.SIGKILL, f"{program.name} ended with {code}, not by SIGKILL"


class Installation:
    """What a cluster and a standalone have in common: their programs, by name and by pid."""

    tenant = "matrix"

    def places(self, _tenant):
        return ""

    def role_of(self, pid):
        if pid in self.passing:
            return self.passing[pid][0]
        return (self.name_of(pid) or "engine").split("-")[0]

    def name_of(self, pid):
        return next((it for it, program in self.programs.items() if program.pid == pid), None)

    def registration_of(self, pid):
        """The path of the node with which a process is registered: its session's, but not that of a candidate for master."""
        name = self.name_of(pid)
        if name is not None:
            return self.registration_of_program(name)
        (engine,) = [it.name for it in self.engines.all().values() if it.pid == pid]
        return self.nodes.path(f"engines/{engine}/live")

    def stop(self, name):
        self.programs[name].stop(signal.SIGTERM)

    def revive(self, pid):
        if pid in self.passing:
            return killed(self.passing[pid][1])
        name = self.name_of(pid)
        if name is None:
            return wait_until(lambda: not is_alive(pid), DIES_WITHIN_S, f"engine process {pid} has ended")
        killed(self.programs[name])
        return self.start_again(name)

    def went_on(self, pid):
        if pid in self.passing:
            _, program = self.passing[pid]
            program.wait(DIES_WITHIN_S * 3)


class ClusterInstallation(Installation):
    make_relays = Relays

    def __init__(self, folder, database, ensemble=None, relayed=False, session_timeout_s=SESSION_TIMEOUT_S):
        """`relayed`: every program reaches ZooKeeper and the database through relays of its own, which can be cut."""
        self.points = Failpoints(folder / "points")
        self.passing = {}
        self.kind = database.kind
        self.session_timeout_s = session_timeout_s
        settings = {"database": database, "ensemble": ensemble, "session_timeout_s": session_timeout_s} | TIMES
        self.cluster = self.make_cluster(folder, candidates=PROXIES, env=self.points.env, **settings)
        self.relays = self.make_relays(self.cluster) if relayed else None

    def make_cluster(self, folder, **settings):
        return Cluster(folder, **settings)

    def start(self):
        self.cluster.start()
        self.masters = Masters(self.cluster)
        wait_until(self.masters.term, 30, "there is a master")
        return self

    folder = property(lambda self: self.cluster.folder)
    database = property(lambda self: self.cluster.database)
    engines = property(lambda self: self.cluster.engines)
    nodes = property(lambda self: self.cluster.nodes)
    programs = property(lambda self: self.cluster.programs)
    logs = property(lambda self: self.cluster.logs)

    def master(self):
        return wait_until(lambda: self.masters.running_program_of(self.masters.term()), 20, "a running proxy is master")

    def other(self):
        master = self.master()
        return next(it for it in PROXIES if it != master)

    def address(self, via):
        names = {"any": self.any_proxy, "master": self.master, "other": self.other}
        return self.cluster.addresses[names[via]() if via in names else via]

    def any_proxy(self):
        return next(it for it in ("proxy-b", "proxy-a") if self.programs[it].is_running())

    def program(self, role):
        """The name of a program of a role; `agent` is the first metadata agent."""
        return {"agent": "agent-1", "proxy": "proxy-b"}.get(role, role)

    agents = ("agent-1", "agent-2")

    def pid_of(self, role):
        if role in ("master", "other"):
            return self.programs[getattr(self, role)()].pid
        return self.programs[self.program(role)].pid

    def registration_of_program(self, name):
        address = self.cluster.addresses[name]
        if name in self.agents:
            registered = {it: self.nodes.read(f"agents/{it}") for it in self.nodes.children("agents")}
            # Those of agents that were killed go at any moment.
            (found,) = [it for it, node in registered.items() if node and node["address"] == address]
            return self.nodes.path(f"agents/{found}")
        folder = f"/{self.cluster.discovery}"
        (found,) = [it for it in self.nodes.below(folder) if it.startswith(f"serverUri={address};")]
        return f"{folder}/{found}"

    def start_again(self, name, wait=True):
        self.cluster.start_program(name, wait=wait)

    def all_run(self):
        for name, program in self.programs.items():
            assert program.is_running(), f"{name} ended with {program.process.returncode}: {program.logged()[-2000:]}"
            self.cluster.wait_ready(name)

    def fresh(self, point):
        return FreshSchema(self, point)

    def relays_of(self, pid):
        role = self.role_of(pid)
        if role == "migrate":
            return [(self.relays.passing, "reset")]
        return self.relays.of_engines() if role == "engine" else self.relays.of(self.name_of(pid))

    def proxies(self):
        return [self.cluster.addresses[it] for it in PROXIES]

    def at_rest(self, within_s=60):
        return at_rest(self.cluster, within_s)

    def close(self):
        self.points.clear()
        try:
            self.cluster.close()
        finally:
            if self.relays:
                self.relays.close()


class PodInstallation(ClusterInstallation):
    """The same with pods. All these share one Kubernetes (`pods`, a `harness.pods.Pods`), so each has names of its own."""

    make_relays = PodRelays

    def __init__(self, folder, pods, number, **how):
        self.pods, self.tenant = pods, f"matrix_{number}"
        super().__init__(folder, PostgresDatabase(), **how)

    def make_cluster(self, folder, **settings):
        return PodCluster(folder, self.pods, cluster={"name": self.tenant.replace("_", "-")}, **settings)

    @property
    def namespace(self):
        return self.cluster.namespace(self.tenant, f"{self.tenant}_p")

    def places(self, tenant):
        return f", {self.pods.nodes_of(tenant)}"


class StandaloneInstallation(Installation):
    kind = "sqlite"
    # A drain order stays for as long as a session may live: with the default each replaced engine would take 6 s.
    session_timeout_s = 2

    def __init__(self, folder):
        self.folder = folder
        self.points = Failpoints(folder / "points")
        self.passing = {}
        self.standalone = Standalone(folder, env=self.points.env)
        self.configuration = folder / "enginehouse.toml"
        times = TIMES | {"zookeeper": {"session_timeout": f"{self.session_timeout_s}s"}}
        self.configuration.write_text(tomli_w.dumps(times))
        self.database = SqliteDatabase(self.standalone.data / "metadata.sqlite")
        self.nodes = None

    def start(self):
        self.start_again("standalone")
        return self

    engines = property(lambda self: self.standalone.engines)
    programs = property(lambda self: {"standalone": self.standalone.program})
    logs = property(lambda self: self.standalone.logs)

    def address(self, _via):
        return self.standalone.address

    def master(self):
        return "standalone"

    other = master

    def program(self, _role):
        return "standalone"

    def pid_of(self, _role):
        return self.standalone.program.pid

    def start_again(self, _name, wait=True):
        self.standalone.start("--config", self.configuration, wait=wait)
        if wait:
            self.look_into_registry()

    def fresh(self, point):
        return FreshStandalone(self, point)

    def look_into_registry(self):
        if self.nodes:
            self.nodes.close()
        port = int((self.standalone.data / "zookeeper" / "zookeeper-port").read_text())
        passwords = zookeeper_passwords(self.standalone.data / "keys/master.key")
        self.nodes = Nodes("/enginehouse", passwords, f"127.0.0.1:{port}")

    def all_run(self):
        program = self.standalone.program
        assert program.is_running(), f"it ended with {program.process.returncode}: {program.logged()[-2000:]}"
        self.standalone.address = program.wait_ready().removeprefix("jdbc:hive2://").rstrip("/")
        self.look_into_registry()

    def proxies(self):
        return [self.standalone.address]

    def at_rest(self, within_s=60):
        return at_rest(self, within_s)

    def close(self):
        self.points.clear()
        if self.nodes:
            self.nodes.close()
        self.standalone.close()
