"""The roles as separate processes: two metadata agents and two proxies, with a real ZooKeeper and database.

Each cluster has a root of its own in ZooKeeper and a database of its own: in PostgreSQL unless `database=` is another
(harness.databases), in the shared ZooKeeper unless `ensemble=` is one of the test's own (harness.ensemble), which may have TLS.
By default proxy `a` alone is a candidate for master. Any program can be restarted, with failpoints armed in that one start.
"""

import pathlib
import uuid

import tomli_w

from harness import zookeeper
from harness.databases import PostgresDatabase
from harness.engines import Engines
from harness.logs import Logs
from harness.processes import BINARY, Program, run
from harness.role_keys import RoleKeys, zookeeper_passwords
from harness.waiting import wait_until

SESSION_TIMEOUT_S = 4
# The default. Each alteration waits so long for the tick that settles the one before it, which a busy machine delays.
ALTER_WAIT_S = 10
ROLES = {"agent-1": "metadata-agent", "agent-2": "metadata-agent", "proxy-a": "proxy", "proxy-b": "proxy"}


class Cluster:
    def __init__(
        self,
        folder,
        database=None,
        ensemble=None,
        candidates=("proxy-a",),
        session_timeout_s=SESSION_TIMEOUT_S,
        env=None,
        secret=None,
        binary=BINARY,
        **settings,
    ):
        """`settings` are tables of the configuration file; `env` is the environment of every program. `binary` may be changed:
        programs that are started afterwards run it."""
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.name = settings.get("cluster", {}).get("name", "scenario")
        # `secret` is that of an installation of version 0.1.0.
        self.secret, self.keys = secret, RoleKeys(self.folder, self.name, secret)
        self.root = f"/scenarios/{uuid.uuid4().hex[:12]}"
        self.discovery = f"discovery-{uuid.uuid4().hex[:12]}"
        self.samples = self.folder / "samples"
        self.samples.mkdir(exist_ok=True)
        self.settings = settings
        self.binary = binary
        self.candidates = set(candidates)
        self.session_timeout_s = session_timeout_s
        self.env = env or {}
        self.database = database or PostgresDatabase()
        self.connect = ensemble.connect if ensemble else zookeeper.address()
        self.zookeeper_ca = ensemble and ensemble.ca
        # Where single programs reach ZooKeeper, by name: through a relay that can cut them off.
        self.connect_of = {}
        # The same for the database.
        self.url_of = {}
        # What else single programs have for themselves, by name: tables, as in `settings`.
        self.settings_of = {}
        self.state_dir = self.folder / "engines"
        self.engines = Engines(self.state_dir)
        self.logs = Logs(str(self.folder / "*.log"), str(self.state_dir / "engines/*/log"))
        self.programs = {}
        self.addresses = {}
        self.nodes = None

    def configuration(self, candidate=True, name=None):
        """The tables of a program's configuration file. `settings` are tables that override the ones below."""
        tables = {
            "cluster": {"name": self.name} | self.credentials(),
            "zookeeper": {
                "connect": self.connect_of.get(name, self.connect),
                "root": self.root,
                "session_timeout": f"{round(self.session_timeout_s * 1000)}ms",
            }
            | ({"tls": "required", "ca_file": str(self.zookeeper_ca)} if self.zookeeper_ca else {}),
            "database": {"url": self.url_of.get(name, self.database.url)},
            "proxy": {"listen": "127.0.0.1:0", "bind_deadline": "60s", "discovery_namespace": self.discovery},
            "master": {"candidate": candidate},
            "metadata_agent": {"listen": "127.0.0.1:0", "alter_wait": f"{ALTER_WAIT_S}s"},
            "orchestrator": {"state_dir": str(self.state_dir)},
            "engines": {"data_dir": str(self.folder / "data"), "allowed_locations": [str(self.samples)]},
        }
        for section, entries in (*self.settings.items(), *self.settings_of.get(name, {}).items()):
            tables[section] = tables.get(section, {}) | entries
        return tables

    def credentials(self):
        """What the program has for the keys of its role. Version 0.1.0 has one secret for all."""
        if self.secret and self.binary != BINARY:
            return {"secret_file": str(self.folder / "cluster.secret")}
        # What of version 0.1.0 still runs has no TLS between roles.
        return {"keys": str(self.keys.files)} | ({"tls": "optional"} if self.secret else {})

    def write(self, name, candidate=True):
        path = self.folder / f"{name}.toml"
        path.write_text(tomli_w.dumps(self.configuration(candidate, name)))
        return path

    def start(self, programs=ROLES):
        """Migrates and starts programs, by default all."""
        self.migrate()
        for name in programs:
            self.start_program(name, wait=False)
        for name in programs:
            self.wait_ready(name)
        self.nodes = zookeeper.Nodes(self.root, self.zookeeper_passwords(), self.connect, ca=self.zookeeper_ca)
        return self

    def zookeeper_passwords(self):
        """Those of a master, of each generation."""
        old = [zookeeper.derived(self.secret, "zookeeper-master")] if self.secret else []
        return zookeeper_passwords(self.keys.file("master")) + old

    def migrate(self):
        done = run(["migrate", "--config", self.write("migrate")], cwd=self.folder, binary=self.binary)
        assert done.returncode == 0, done.stdout + done.stderr

    def start_program(self, name, wait=True, failpoints=None):
        """Starts a program (again); one that is not in `ROLES` is a proxy. `failpoints` as in ENGINEHOUSE_FAILPOINTS, for this
        start only."""
        path = self.write(name, name in self.candidates)
        if self.secret:
            self.logs.allow('cluster.tls is "optional"')
        env = self.env | ({"ENGINEHOUSE_FAILPOINTS": failpoints} if failpoints else {})
        arguments = [ROLES.get(name, "proxy"), "--config", path]
        self.programs[name] = Program(name, arguments, self.folder, env, self.binary).start()
        if wait:
            self.wait_ready(name)

    def wait_ready(self, name):
        ready = self.programs[name].wait_ready()
        self.addresses[name] = ready.removeprefix("jdbc:hive2://").rstrip("/")

    def restart(self, name):
        """Ends a program, whatever state it is in, and starts it again."""
        self.programs[name].stop()
        self.start_program(name)

    def wait_for_master(self, within_s=30):
        """Waits until a master acts: it holds the lock and has written its tick into the database."""
        before = self.last_tick()
        wait_until(lambda: (self.last_tick() or 0) > (before or 0), within_s, "a master ticks")

    def last_tick(self):
        rows = self.database.rows("SELECT last_tick_ms FROM master")
        return int(rows[0][0]) if rows and rows[0][0] else None

    def settled(self, control, within_s=40):
        """Waits until no alteration is open, no node stands, and what the master has reported, which SHOW and EXPLAIN
        read, knows of no drain either."""

        def quiet():
            open_ones = [
                it
                for it in control.alterations()
                if it["progress"] in ("converging", "stalled") or it["outcome"] == "undecided"
            ]
            return (
                not open_ones
                and not self.nodes.exists("lock/alter")
                and not self.nodes.children("drains")
                and not self.database.rows("SELECT name FROM observed_engine WHERE draining <> 0")
            )

        wait_until(quiet, within_s, "every alteration has converged, neither alter node nor drain order is left", 0.2)

    def wait_ended(self, engine, within_s=120):
        """Waits until the end of an engine is recorded; returns the reason."""
        query = f"SELECT ended_reason FROM engine WHERE name = '{engine}' AND ended_reason IS NOT NULL"
        return wait_until(lambda: self.database.rows(query), within_s, f"the end of engine {engine} is recorded")[0][0]

    def close(self):
        try:
            if self.nodes:
                self.nodes.close()
            failures = []
            # Proxies first.
            for name in sorted(self.programs, reverse=True):
                try:
                    self.programs[name].stop()
                except AssertionError as error:
                    failures.append(str(error))
            assert not failures, "\n".join(failures)
        finally:
            self.engines.end_all()
            self.logs.close()
            self.database.close()
