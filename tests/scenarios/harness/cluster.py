"""The roles as separate processes: two metadata agents and two proxies, with the real ZooKeeper and PostgreSQL.

Each cluster has a root of its own in ZooKeeper and a database of its own. Proxy `a` is a candidate for master, proxy
`b` is not. All configuration is in the files that an operator would write.
"""

import pathlib
import secrets
import signal
import uuid

from harness import zookeeper
from harness.engines import Engines
from harness.logs import Logs
from harness.postgres import Database
from harness.processes import Program, run
from harness.waiting import wait_until

SESSION_TIMEOUT_S = 4
ALTER_WAIT_S = 3


class Cluster:
    """An installation of separate processes."""

    def __init__(self, folder, **settings):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.secret = secrets.token_hex(32)
        secret_file = self.folder / "cluster.secret"
        secret_file.touch(mode=0o600)
        secret_file.write_text(self.secret + "\n")
        self.root = f"/scenarios/{uuid.uuid4().hex[:12]}"
        self.discovery = f"discovery-{uuid.uuid4().hex[:12]}"
        self.samples = self.folder / "samples"
        self.samples.mkdir(exist_ok=True)
        self.settings = settings
        self.database = Database()
        self.state_dir = self.folder / "engines"
        self.engines = Engines(self.state_dir)
        self.logs = Logs(str(self.folder / "*.log"), str(self.state_dir / "engines/*/log"))
        self.programs = {}
        self.addresses = {}
        self.nodes = None

    def configuration(self, candidate=True):
        """The text of a configuration file. `settings` are tables that override the ones below."""
        tables = {
            "cluster": {"name": "scenario", "secret_file": str(self.folder / "cluster.secret")},
            "zookeeper": {
                "connect": zookeeper.address(), "root": self.root, "session_timeout": f"{SESSION_TIMEOUT_S}s",
            },
            "database": {"url": self.database.url},
            "proxy": {
                "listen": "127.0.0.1:0", "bind_deadline": "60s", "discovery_namespace": self.discovery,
            },
            "master": {"candidate": candidate},
            "metadata_agent": {"listen": "127.0.0.1:0", "alter_wait": f"{ALTER_WAIT_S}s"},
            "orchestrator": {"state_dir": str(self.state_dir)},
            "engines": {"data_dir": str(self.folder / "data"), "allowed_locations": [str(self.samples)]},
        }
        for section, entries in self.settings.items():
            tables[section] = tables[section] | entries
        return "\n".join(
            f"[{section}]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in entries.items())
            for section, entries in tables.items()
        )

    def write(self, name, candidate=True):
        path = self.folder / f"{name}.toml"
        path.write_text(self.configuration(candidate))
        return path

    def start(self):
        done = run(["migrate", "--config", self.write("migrate")], cwd=self.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        for name in ("agent-1", "agent-2"):
            self.start_program(name, "metadata-agent", wait=False)
        self.start_program("proxy-a", "proxy", wait=False)
        self.start_program("proxy-b", "proxy", candidate=False, wait=False)
        for name in list(self.programs):
            self.wait_ready(name)
        self.nodes = zookeeper.Nodes(self.root, self.secret)
        return self

    def start_program(self, name, role, candidate=True, wait=True):
        path = self.write(name, candidate)
        self.programs[name] = Program(name, [role, "--config", path], self.folder).start()
        if wait:
            self.wait_ready(name)

    def wait_ready(self, name):
        ready = self.programs[name].wait_ready()
        self.addresses[name] = ready.removeprefix("jdbc:hive2://").rstrip("/")

    def restart(self, name, role="proxy", number=signal.SIGINT, candidate=True):
        self.programs[name].stop(number)
        self.start_program(name, role, candidate)

    def wait_for_master(self, within_s=30):
        """Waits until a master acts: it holds the lock and has written its tick into the database."""
        before = self.last_tick()
        wait_until(lambda: (self.last_tick() or 0) > (before or 0), within_s, "a master ticks")

    def last_tick(self):
        rows = self.database.rows("SELECT last_tick_ms FROM master")
        return int(rows[0][0]) if rows and rows[0][0] else None

    def settled(self, control, within_s=40):
        """Waits until no alteration is open and no node stands."""

        def quiet():
            open_ones = [it for it in control.alterations() if it["progress"] in ("converging", "stalled")
                         or it["outcome"] == "undecided"]
            return not open_ones and not self.nodes.exists("lock/alter") and not self.nodes.children("drains")

        wait_until(quiet, within_s, "every alteration has converged, neither alter node nor drain fact is left", 0.2)

    def close(self):
        """Ends everything that this started, whatever state it is in."""
        try:
            if self.nodes:
                self.nodes.close()
            failures = []
            for name in ("proxy-a", "proxy-b", "agent-1", "agent-2"):
                if name in self.programs:
                    try:
                        self.programs[name].stop()
                    except AssertionError as error:
                        failures.append(str(error))
            assert not failures, "\n".join(failures)
        finally:
            self.engines.end_all()
            self.logs.close()
            self.database.close()


def toml(value):
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
