"""Loads the recorded state of an earlier version (`harness.recording` describes the files) into real servers.

The rows go into a database of the test's own, the nodes below a root of its own, with their access lists; ephemeral nodes
belong to processes and are left to them. Engines are started again from their recorded files or pods, by the program that
is tested: what they find is what the earlier version wrote for them. A pod's uid is drawn by the API server, so it
replaces the recorded one in rows and nodes. Times in rows are moved, as if the state had been recorded just now: what is
older than its retention would be deleted.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import sqlite3
import subprocess
import time

from kazoo.exceptions import NodeExistsError
from kazoo.security import ACL, Id

from harness.kubernetes_client import ApiError
from harness.processes import REPOSITORY, environment
from harness.recording import connected, placeholders
from harness.waiting import wait_until

FOLDER = REPOSITORY / "tests" / "upgrade"
CONFLICT = 409
DROPPED = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink", "ownerReferences")
TIMES = (
    "decided_at_ms",
    "done_at_ms",
    "ended_at_ms",
    "finished_at_ms",
    "issued_at_ms",
    "last_tick_ms",
    "observed_at_ms",
    "requested_at_ms",
    "retired_at_ms",
    "since_ms",
    "started_at_ms",
)
MARIADB = " ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"


class Recorded:
    def __init__(self, version, kind):
        self.folder = FOLDER / version / kind
        self.about = json.loads((self.folder / "installation.json").read_text())
        self.names = {}
        newest = max(it for found in self.json("rows.json").values() for row in found for it in times(row).values())
        self.age_ms = int(time.time() * 1000) - newest

    def text(self, name):
        text = (self.folder / name).read_text()
        for placeholder, value in self.names.items():
            text = text.replace(placeholder, value)
        return text

    def json(self, name):
        return json.loads(self.text(name))

    def rows(self):
        """The rows of each table."""
        return {
            table: [row | {name: it + self.age_ms for name, it in times(row).items()} for row in found]
            for table, found in self.json("rows.json").items()
        }

    def place(self, cluster):
        """Fixes what the placeholders stand for in an installation that is not started yet."""
        self.names = placeholders(cluster)

    def load_rows(self, run, kind):
        """Makes the tables and fills them; `run` executes one statement in a database of that kind."""
        for statement in filter(None, map(str.strip, self.text("schema.sql").split(";\n"))):
            if kind == "mariadb" and statement.startswith("CREATE TABLE"):
                statement = statement.replace(" TEXT", " MEDIUMTEXT") + MARIADB
            run(statement)
        for table, found in self.rows().items():
            for row in found:
                values = ", ".join(literal(it, kind) for it in row.values())
                run(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})")

    def load_sqlite(self, path):
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            self.load_rows(connection.execute, "sqlite")

    def load_znodes(self, cluster):
        with connected(cluster.connect, cluster.secret) as client:
            for it in self.json("znodes.json"):
                if it["ephemeral"]:
                    continue
                access = [ACL(one["rights"], Id(one["scheme"], one["id"])) for one in it["access"]]
                try:
                    client.create(it["path"], it["text"].encode(), acl=access)
                except NodeExistsError:
                    # Above the root all tests share a node; pods run already, and one may have registered.
                    assert it["path"] == cluster.root.rsplit("/", 1)[0] or it["path"].endswith("/answered"), it["path"]

    def load_files(self):
        for it in self.json("files.json"):
            path = pathlib.Path(it["path"])
            if it["text"] is None:
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(it["text"])
            path.chmod(it["mode"])

    def start_processes(self, cluster):
        """Starts each engine as the process orchestrator does; answers the children. They hold their locks."""
        children = []
        for name, variables in self.json("environments.json").items():
            folder = cluster.state_dir / "engines" / name
            record = json.loads((folder / "engine.json").read_text())
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with open(folder / "log", "ab") as log:
                streams = {"stdin": lock, "stdout": log, "stderr": log}
                env = environment(variables)
                child = subprocess.Popen(record["argv"], cwd=folder / "files", env=env, **streams, start_new_session=True)
            # The child has it as its standard input; ours would keep a dead engine alive.
            os.close(lock)
            started = json.loads((folder / "process.json").read_text())
            started |= {"pid": child.pid, "start_ticks": start_ticks(child.pid)}
            (folder / "process.json").write_text(json.dumps(started))
            children.append(child)
        return children

    def load_objects(self, pods):
        """Makes nodes, namespaces, what is in them, and the pods; the uids of the pods become placeholders' values."""
        nodes = set()
        for it in self.json("objects.json"):
            kind, had = it["kind"], it["object"]
            body = {key: value for key, value in had.items() if key not in ("status", "kind", "apiVersion")}
            body["metadata"] = {key: value for key, value in had["metadata"].items() if key not in DROPPED}
            if kind == "namespaces":
                pods.kubernetes.namespace(had["metadata"]["name"], had["metadata"].get("labels"))
                continue
            if kind == "pods" and had["spec"]["nodeName"] not in nodes:
                nodes.add(had["spec"]["nodeName"])
                pods.kubelet.nodes.add(had["spec"]["nodeName"], cpu="64", memory="64Gi")
            try:
                made = pods.admin.create(kind, body, had["metadata"]["namespace"])
            except ApiError as error:
                # What each namespace is given by the controllers.
                assert error.code == CONFLICT, error
                continue
            if kind == "pods":
                self.names[had["metadata"]["uid"]] = made["metadata"]["uid"]


def times(row):
    """The columns with a time, in milliseconds since 1970."""
    return {name: it for name, it in row.items() if name in TIMES and it is not None}


def start_ticks(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])


def literal(value, kind):
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    text = value.replace("'", "''")
    return "'" + (text.replace("\\", "\\\\") if kind == "mariadb" else text) + "'"


def wait_registered(cluster, names, within_s=60):
    for name in names:
        wait_until(lambda name=name: cluster.nodes.exists(f"engines/{name}/live"), within_s, f"{name} registers")
