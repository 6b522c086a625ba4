"""The rotation of all keys by the commands of docs/security.md: nothing is restarted, no statement of eight clients fails."""

import itertools
import os
import threading

import pytest
from kazoo.exceptions import NoAuthError

from harness.clients import open_pyhive, pyhive_session, rows
from harness.control import Control
from harness.doctor import diagnosed
from harness.how_tos import sections
from harness.processes import BINARY, environment, finished
from harness.role_keys import zookeeper_passwords
from harness.waiting import wait_until
from harness.zookeeper import Nodes

CLIENTS = 8
SECRET = "my.password"
WITHIN_S = 60
# How many key files each program reads.
FILES = {"agent-1": 1, "agent-2": 1, "proxy-a": 2, "proxy-b": 1}


class Client(threading.Thread):
    """Queries in one session, opens others, and runs control statements, all the time."""

    def __init__(self, address, number):
        super().__init__(daemon=True)
        self.address, self.number = address, number
        self.rounds, self.failures = 0, []
        self.ended = threading.Event()

    def run(self):
        try:
            with pyhive_session(self.address, "ann") as session:
                for number in itertools.takewhile(lambda _: not self.ended.is_set(), itertools.count()):
                    assert rows(session, f"SELECT {number} AS n") == [{"n": number}]
                    assert rows(session, "SHOW ENGINES t_1")
                    with pyhive_session(self.address, "ann") as another:
                        assert rows(another, "SELECT 1 AS n") == [{"n": 1}]
                    self.rounds += 1
        except Exception as error:
            self.failures.append(repr(error))


class Clients:
    def __init__(self, cluster):
        addresses = itertools.cycle([cluster.addresses["proxy-a"], cluster.addresses["proxy-b"]])
        self.clients = [Client(next(addresses), number) for number in range(CLIENTS)]

    def wait_round(self):
        """Until each client has begun and ended a round."""
        targets = [it.rounds + 2 for it in self.clients]

        def passed():
            return all(it.rounds >= target or it.failures for it, target in zip(self.clients, targets, strict=True))

        wait_until(passed, WITHIN_S, "each client has gone round")
        assert [it.failures for it in self.clients if it.failures] == []

    def __enter__(self):
        for client in self.clients:
            client.start()
        self.wait_round()
        return self

    def __exit__(self, *_):
        for client in self.clients:
            client.ended.set()
        for client in self.clients:
            client.join(WITHIN_S)


def keys_of_engines(cluster, passwords):
    """The generations that each registered engine accepts, its own first."""
    nodes = Nodes(cluster.root, passwords, cluster.connect)
    try:
        return {it: (nodes.read(f"engines/{it}/live") or {}).get("keys") for it in nodes.children("engines")}
    finally:
        nodes.close()


def wait_read(cluster, times, renewals):
    """Until each program has read its files this often, and the master has renewed the access lists."""

    def read():
        return all(cluster.programs[name].logged().count("keys replaced") >= times * count for name, count in FILES.items())

    wait_until(read, WITHIN_S, "every program has read its key files")

    def renewed():
        return cluster.programs["proxy-a"].logged().count("access lists name the accepted generations") >= renewals

    wait_until(renewed, WITHIN_S, "the access lists are renewed")


def test_all_keys_rotate_under_clients_without_a_failed_statement(own_cluster, folder):
    cluster = own_cluster()
    programs = folder / "bin"
    programs.mkdir()
    (programs / "enginehouse").symlink_to(BINARY)
    env = environment({"PATH": f"{programs}:{os.environ['PATH']}"})
    commands = [text for _, text in sections()["rotate all keys"]]
    assert len(commands) == 3

    def execute(command):
        done = finished(["sh", "-ec", command], env, cwd=cluster.folder)
        assert done.returncode == 0, done.stderr

    def check_keys():
        _, report = diagnosed(cluster, cluster.write("doctor"))
        return next(it for it in report["checks"] if it["check"] == "keys")

    control = Control(cluster.addresses["proxy-b"])
    secret = f"PROPERTIES ('{SECRET}'='hunter2-rotated')"
    control.execute(
        f"CREATE RESOURCE UNIT uc_1 DRIVER_CPU 1, DRIVER_MEMORY '512M', MAX_ENGINES 4, START_ON_DEMAND FALSE, {secret}"
    )
    control.execute("CREATE RESOURCE POOL rp_1 UNIT_LIST ('uc_1')")
    control.execute("CREATE TENANT t_1 RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('ann')")
    first = control.start("t_1", "rp_1", "uc_1")
    processes = {name: it.process for name, it in cluster.programs.items()}
    before = {it: zookeeper_passwords(cluster.keys.file(it)) for it in ("master", "proxy", "metadata-agent")}
    assert keys_of_engines(cluster, before["master"]) == {first: [1]}
    healthy = check_keys()
    assert healthy["findings"] == [] and "secret properties sealed with 1: 1 resource unit" in healthy["said"], healthy

    with Clients(cluster) as clients:
        execute(commands[0])
        wait_read(cluster, 1, renewals=1)
        clients.wait_round()
        execute(commands[1])
        # The same generations are accepted.
        wait_read(cluster, 2, renewals=1)
        # Also if an agent that had not read its file yet has sealed with the generation before.
        wait_until(lambda: "sealed with 2: 1 resource unit" in check_keys()["said"], WITHIN_S + 60, "values are sealed again")
        clients.wait_round()
        second = control.start("t_1", "rp_1", "uc_1")
        passwords = zookeeper_passwords(cluster.keys.file("master"))
        assert keys_of_engines(cluster, passwords) == {first: [1], second: [2, 1]}
        clients.wait_round()
        (finding,) = check_keys()["findings"]
        assert "generation 1 of the keys cannot be retired yet" in finding["what"] and first in finding["what"], finding
        control.execute(f"RESTART ENGINE rp_1 '{first}'")
        wait_until(lambda: first not in keys_of_engines(cluster, passwords), WITHIN_S, "the first engine is replaced")
        control.wait_ready("t_1", 2)
        assert all(it == [2, 1] for it in keys_of_engines(cluster, passwords).values())
        (finding,) = check_keys()["findings"]
        assert "nothing that is registered needs it" in finding["what"], finding
        assert "enginehouse keys derive --use 2 --accept 2" in finding["mend"], finding
        execute(commands[2])
        wait_read(cluster, 3, renewals=2)
        clients.wait_round()
        third = control.start("t_1", "rp_1", "uc_1")
        assert keys_of_engines(cluster, zookeeper_passwords(cluster.keys.file("master")))[third] == [2]
        [launched] = cluster.state_dir.glob(f"engines/{third}/files/engine.toml")
        assert "hunter2-rotated" in launched.read_text(), "the value is opened without generation 1"
        clients.wait_round()
    assert [it.failures for it in clients.clients if it.failures] == []
    assert {name: it.process for name, it in cluster.programs.items()} == processes, "nothing was restarted"
    assert check_keys()["findings"] == []
    # The old passwords open nothing any more.
    for user, passwords in before.items():
        nodes = Nodes(cluster.root, passwords, cluster.connect, user="agent" if user == "metadata-agent" else user)
        try:
            for name in ("engines", "agents", "drains", "lock/master", f"engines/{third}"):
                with pytest.raises(NoAuthError):
                    nodes.client.get(nodes.path(name))
        finally:
            nodes.close()


def test_a_key_file_that_cannot_be_used_keeps_the_keys_in_use(own_cluster):
    cluster = own_cluster()
    control = Control(cluster.addresses["proxy-b"])
    control.execute("CREATE RESOURCE UNIT uc_1 DRIVER_CPU 1")
    path, proxy = cluster.keys.file("proxy"), cluster.programs["proxy-b"]
    good = path.read_text()
    path.write_text(good[: len(good) // 2])
    text = "could not read the key file; the previous keys stay in use"
    cluster.logs.allow(text)
    wait_until(lambda: text in proxy.logged(), WITHIN_S, "the proxy has seen the file")
    assert control.execute("SHOW RESOURCE UNITS")
    assert open_pyhive(cluster.addresses["proxy-b"], "admin").close() is None
    path.write_text(good)
    wait_until(lambda: "key file can be read again" in proxy.logged(), WITHIN_S, "the file is good again")
