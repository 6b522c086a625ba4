"""The containers that the harness starts, by themselves: whatever becomes of who started them, nothing of them is left."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import psutil
import pytest

from harness.waiting import wait_until
from kubelet.container import Image, Process
from kubelet.environment import Sight

WITHIN_S = 60
SCENARIOS = pathlib.Path(__file__).parent
# Starts a container and waits to be killed; prints the pids of what waits for it and of its first process.
STARTER = """
import json, pathlib, sys, time
sys.path.insert(0, sys.argv[1])
from test_containers_leave_nothing import started
it = started(pathlib.Path(sys.argv[2]), int(sys.argv[3]), ["/bin/sh", "-c", "sleep 3600 & echo begun; wait"])
while not (it.has_begun() and "begun" in it.log()):
    time.sleep(0.05)
print(json.dumps([it.process.pid, it.pid]), flush=True)
time.sleep(3600)
"""


def started(folder, user, command):
    """A container that runs a command as a user, with nothing of a cluster."""
    folder.mkdir(parents=True)
    pod = {"metadata": {"name": "one", "namespace": "default", "uid": "u"}, "spec": {"securityContext": {"runAsUser": user}}}
    (folder / "hosts").touch()
    it = Process({"name": "main", "image": "any", "command": command}, pod, Image(), folder / "main")
    it.start(Sight(pod, "127.0.0.1", "127.0.0.1", None, {}), {}, folder / "hosts")
    return it


def namespaces(pid):
    return {kind: os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("mnt", "pid")}


def inside(found):
    """The processes that are in one of these namespaces."""
    there = []
    for process in psutil.process_iter():
        try:
            if any(it in found.values() for it in namespaces(process.pid).values()):
                there.append(process)
        except OSError:
            continue  # ended
    return there


@pytest.mark.parametrize("user", [0, 12345])
@pytest.mark.parametrize("killed", ["starter", "waiter"])
def test_all_of_a_container_ends_with_who_started_it(folder, user, killed):
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, SCENARIOS, folder / "container", str(user)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    first = None
    try:
        waiter, first = json.loads(starter.stdout.readline())
        found = namespaces(first)
        assert found["pid"] != namespaces("self")["pid"] and len(inside(found)) >= 2
        os.kill(starter.pid if killed == "starter" else waiter, signal.SIGKILL)
        wait_until(lambda: not inside(found), WITHIN_S, "no process of the container is left")
    finally:
        starter.kill()
        starter.wait()
        starter.stdout.close()
        if first is not None and psutil.pid_exists(first):
            os.kill(first, signal.SIGKILL)


def test_one_whose_starter_is_gone_before_it_begins_does_not_begin(folder):
    """It may be that late: it is a program that has to be loaded."""
    it = started(folder / "container", 0, ["/bin/true"])
    assert it.wait() == 0
    description = it.folder / "container.json"
    # As if somebody else had been its parent.
    description.write_text(json.dumps(json.loads(description.read_text()) | {"parent": 1}))
    late = subprocess.run(
        [sys.executable, "-I", SCENARIOS / "kubelet/container_init.py", description],
        timeout=WITHIN_S,
        capture_output=True,
        check=False,
        text=True,
    )
    assert late.returncode == 128 and "has ended" in late.stderr


def test_nothing_is_mounted_when_a_container_has_ended(folder):
    before = pathlib.Path("/proc/self/mounts").read_text()
    it = started(folder / "container", 0, ["/bin/sh", "-c", "echo written >/usr/here; sleep 3600"])
    wait_until(lambda: it.has_begun() and pathlib.Path(f"/proc/{it.pid}/root/usr/here").exists(), WITHIN_S, "it runs")
    assert pathlib.Path("/proc/self/mounts").read_text() == before
    it.kill()
    assert it.wait() == 137
    assert pathlib.Path("/proc/self/mounts").read_text() == before
    assert list((it.folder / "scratch").iterdir()) == [] and not pathlib.Path("/usr/here").exists()
