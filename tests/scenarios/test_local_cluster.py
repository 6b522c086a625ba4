"""`deploy/local/cluster`: what an operator starts, asks and stops on one machine, with servers of its own."""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

import psutil
import pytest

from harness.control import Control
from harness.ports import free_ports
from harness.processes import BINARY, REPOSITORY, finished, is_alive, kill_below, process_of, working_below
from harness.waiting import wait_until

SCRIPT = REPOSITORY / "deploy/local/cluster"
NAMES = ["metadata-agent-1", "metadata-agent-2", "postgres", "proxy-1", "proxy-2", "zookeeper"]


class Local:
    def __init__(self, folder):
        self.folder = folder
        zookeeper, postgres, *rest = free_ports(6)
        self.ports = [zookeeper, postgres, *rest]
        self.env = {
            "EH_PROGRAM": str(BINARY),
            "EH_ZOOKEEPER_PORT": str(zookeeper),
            "EH_POSTGRES_PORT": str(postgres),
            "EH_PROXY_PORTS": f"{rest[0]} {rest[1]}",
            "EH_AGENT_PORTS": f"{rest[2]} {rest[3]}",
        }
        self.proxies = [f"127.0.0.1:{port}" for port in rest[:2]]

    def execute(self, verb):
        plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        env = plain | (self.env if verb == "start" else {})
        return finished(["bash", SCRIPT, verb, self.folder], env, within_s=180)

    def start(self):
        done = self.execute("start")
        assert done.returncode == 0, done.stdout + done.stderr + self.logs()
        ready = " ".join(["ready:", *(f"jdbc:hive2://{it}/" for it in self.proxies)])
        assert ready in done.stdout.splitlines(), done.stdout

    def stop(self):
        done = self.execute("stop")
        assert done.returncode == 0, done.stdout + done.stderr
        assert self.running() == {}, f"left running: {self.running()}"

    def running(self):
        return {name: int(pid) for name, pid in re.findall(r"(\S+): runs, pid (\d+)", self.execute("status").stdout)}

    def logs(self):
        return "".join(f"\n{it.name}:\n{it.read_text(errors='replace')[-1500:]}" for it in (self.folder / "log").glob("*.log"))


@pytest.fixture
def local():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="enginehouse-local.", dir="/var/tmp"))
    folder.chmod(0o755)
    it = Local(folder)
    yield it
    it.execute("stop")
    left = kill_below(folder)
    shutil.rmtree(folder, ignore_errors=True)
    assert not left, f"left running: {left}"


def test_the_script_starts_an_installation_and_stops_exactly_that(local):
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        assert local.execute("status").returncode != 0
        local.start()
        first = local.running()
        assert sorted(first) == NAMES and local.execute("status").returncode == 0
        processes = {name: process_of(pid) for name, pid in first.items()}
        made = Control(local.proxies[0]).make("kept", users="'alice'", options=", MIN_ENGINES 1")
        other = Control(local.proxies[1])
        (engine,) = other.wait_ready(made[0])
        for address in local.proxies:
            assert Control(address).execute("SELECT 40 + 2 AS answer", "alice") == [{"answer": 42}]
        done = local.execute("start")
        assert done.returncode != 0 and "it runs already" in done.stderr, done.stderr
        assert local.running() == first
        engines = working_below(local.folder / "engines")
        assert len(engines) == 1
        os.kill(first["metadata-agent-2"], 9)
        wait_until(lambda: not is_alive(*processes["metadata-agent-2"]), 10, "the agent has ended")
        done = local.execute("status")
        assert done.returncode != 0 and "metadata-agent-2: ended; see" in done.stdout, done.stdout
        (local.folder / "enginehouse.toml").open("a").write("# edited\n")
        local.stop()
        assert not [name for name, process in processes.items() if is_alive(*process)]
        assert not [pid for pid in engines if is_alive(pid)]
        assert working_below(local.folder) == {} and bystander.poll() is None
        earlier = (local.folder / "log/proxy-1.log").read_text()
        local.start()
        assert (local.folder / "enginehouse.toml").read_text().endswith("# edited\n")
        assert (local.folder / "log/proxy-1.log").read_text().startswith(earlier)
        control = Control(local.proxies[1])
        wait_until(
            lambda: (it := control.wait_ready(made[0])[0]) and it["engine"] != engine["engine"] and not it["reason"],
            40,
            "a new engine is ready, as a master has seen it since",
        )
        assert Control(local.proxies[0]).execute("SELECT 40 + 2 AS answer", "alice") == [{"answer": 42}]
        local.stop()
    finally:
        bystander.kill()
        bystander.wait()


def test_a_stop_leaves_no_child_of_an_engine_that_ignores_sigterm(local):
    stubborn = local.folder / "spark-submit"
    stubborn.write_text(
        "#!/bin/sh\ntrap '' TERM INT HUP\nsleep 600 & one=$!\nsetsid sleep 600 </dev/null >/dev/null 2>&1 &\n"
        "echo $$ $one $! > started\nwhile true; do sleep 1; done\n"
    )
    stubborn.chmod(0o755)
    local.env |= {"ENGINEHOUSE_SPARK_UNCONFINED": "true", "ENGINEHOUSE_SPARK_PROGRAM": str(stubborn)}
    local.start()
    control = Control(local.proxies[0])
    tenant, pool, unit = control.make("stubborn", users="'alice'", options=", ENGINE_TYPE 'spark', MAX_EXECUTORS 0")
    control.execute(f"START ENGINE {tenant} {pool} {unit}")
    (started,) = wait_until(
        lambda: [it for it in local.folder.glob("engines/engines/*/files/spark/started") if it.read_text().strip()],
        60,
        "the child of an engine runs",
    )
    family = [int(it) for it in started.read_text().split()]
    assert all(psutil.pid_exists(pid) for pid in family)
    local.stop()
    assert not [pid for pid in family if is_alive(pid)]
    assert working_below(local.folder) == {}


def test_a_port_that_is_in_use_is_named_and_nothing_is_started(local):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        local.env["EH_AGENT_PORTS"] = f"{local.ports[4]} {port}"
        done = local.execute("start")
    assert done.returncode != 0
    assert done.stderr == f"cluster: port {port} is in use; EH_AGENT_PORTS chooses another\n", done.stderr
    assert local.running() == {} and working_below(local.folder) == {}


def test_a_failed_start_stops_what_it_started_and_no_foreign_pid(local):
    broken = local.folder / "broken"
    broken.write_text("#!/bin/sh\ncase \"$1\" in migrate|keys) exit 0;; esac\necho 'this program can only fail'\nexit 3\n")
    broken.chmod(0o755)
    local.env["EH_PROGRAM"] = str(broken)
    done = local.execute("start")
    assert done.returncode != 0 and "this program can only fail" in done.stderr, done.stderr
    assert "what it had started is stopped" in done.stderr, done.stderr
    assert working_below(local.folder) == {}
    assert all(not is_listening(port) for port in local.ports)
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        (local.folder / "pid" / "postgres").write_text(f"{bystander.pid} 1\n")
        local.stop()
        assert bystander.poll() is None and psutil.pid_exists(bystander.pid)
    finally:
        bystander.kill()
        bystander.wait()


# Its first thread has ended, as the launcher's of a JVM does while the others still close what they have open.
WITHOUT_ITS_FIRST_THREAD = """
import ctypes, platform, socket, sys, threading, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # exit(2): of this thread alone
"""


def test_a_process_runs_until_its_last_thread_has_ended(local):
    (local.folder / "pid").mkdir()
    (port,) = free_ports(1)
    child = subprocess.Popen([sys.executable, "-c", WITHOUT_ITS_FIRST_THREAD, str(port)], cwd=local.folder)
    try:
        process = psutil.Process(child.pid)
        wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE, 10, "the first thread has ended")
        assert process.num_threads() == 2 and is_listening(port)
        assert is_alive(*process_of(child.pid)) and list(working_below(local.folder)) == [child.pid]
        started = pathlib.Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
        (local.folder / "pid/proxy-1").write_text(f"{child.pid} {started}\n")
        assert local.running() == {"proxy-1": child.pid}
        # The child is ours and is not waited for: what stays is a zombie of no threads, which the script takes for ended.
        local.stop()
        assert not is_listening(port) and not is_alive(child.pid) and working_below(local.folder) == {}
    finally:
        child.kill()
        child.wait()


def is_listening(port):
    with socket.socket() as it:
        return it.connect_ex(("127.0.0.1", port)) == 0
