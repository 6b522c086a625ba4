"""One container as a process of this machine: its image, its start, and its end."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import psutil

from harness.waiting import wait_until
from kubelet.environment import Missing, expanded

INIT = pathlib.Path(__file__).with_name("container_init.py")
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TERMINATION_LOG = "/dev/termination-log"
HOSTNAME_LETTERS = 63
NSENTER = f"{shutil.which('nsenter')} --mount --pid --root --wd"
# A kubelet gives so much of a log as the reason why a container ended.
MESSAGE_BYTES = 2048
MESSAGE_LINES = 80
BEGINS_WITHIN_S = 60
ENDED_WITHIN_S = 60


class Image:
    """What the name of an image stands for.

    `layers`: folders that are its file system, the upper ones first; this machine's own at the bottom by default.
    `files`: path in the container → file or folder of this machine, read-only. An image that doesn't `run` is pretended.
    """

    def __init__(self, files=None, layers=("/",), entrypoint=(), command=(), env=None, user=0, workdir="/", runs=True):
        self.files = files or {}
        self.layers = [str(it) for it in layers]
        self.entrypoint, self.command = list(entrypoint), list(command)
        self.env = env or {}
        self.user, self.workdir, self.runs = user, workdir, runs


class Process:
    def __init__(self, spec, pod, image, folder):
        self.spec, self.pod, self.image = spec, pod, image
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log_file = self.folder / "log"
        self.termination_log = self.folder / "termination-log"
        self.process = None
        self.env = None
        # The reason to report if it was killed on command.
        self.killed_for = None

    def start(self, sight, volumes, hosts):
        """Starts it. `volumes`: volume → folder; `hosts`: the pod's file of host names."""
        env = {"PATH": DEFAULT_PATH, "HOSTNAME": self.pod["metadata"]["name"]} | self.image.env | sight.variables(self.spec)
        self.env = env
        self.termination_log.touch()
        self.termination_log.chmod(0o666)
        (self.folder / "scratch").mkdir(exist_ok=True)
        config = {
            "parent": os.getpid(),
            "hostname": self.pod["spec"].get("hostname", self.pod["metadata"]["name"])[:HOSTNAME_LETTERS],
            "scratch": str(self.folder / "scratch"),
            "layers": self.image.layers,
            "binds": [*self.binds(volumes), bound(hosts, "/etc/hosts"), bound(self.termination_log, TERMINATION_LOG)],
            "argv": self.argv(env),
            "env": env,
            "workdir": self.spec.get("workingDir") or self.image.workdir,
            **self.rights(),
        }
        description = self.folder / "container.json"
        description.touch(mode=0o600)
        description.write_text(json.dumps(config))
        with open(self.log_file, "ab") as log:
            # It ends with the thread that starts it, and all its processes end with it.
            command, output = [sys.executable, "-I", INIT, description], {"stdout": log, "stderr": log}
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **output, start_new_session=True)

    def binds(self, volumes):
        found = [bound(source, target, read_only=True) for target, source in self.image.files.items()]
        for it in self.spec.get("volumeMounts", []):
            source = pathlib.Path(volumes[it["name"]], it.get("subPath", ""))
            found.append(bound(source, it["mountPath"], it.get("readOnly", False)))
        # Mount points below another one come later.
        return sorted(found, key=lambda it: it["target"].count("/"))

    def argv(self, env):
        entrypoint = self.spec.get("command")
        arguments = self.spec.get("args")
        if entrypoint is None:
            words = self.image.entrypoint + (self.image.command if arguments is None else arguments)
        else:
            words = entrypoint + (arguments or [])
        if not words:
            raise Missing("no command specified")
        return [expanded(it, env) for it in words]

    def rights(self):
        own, pods = self.spec.get("securityContext", {}), self.pod["spec"].get("securityContext", {})
        context = pods | own
        user = context.get("runAsUser", self.image.user)
        if context.get("runAsNonRoot") and user == 0:
            raise Missing("container has runAsNonRoot and image will run as root")
        return {
            "uid": user,
            "gid": context.get("runAsGroup", 0 if user == 0 else user),
            "groups": [pods["fsGroup"]] if "fsGroup" in pods else [],
            "no_new_privileges": own.get("allowPrivilegeEscalation") is False,
            "read_only": own.get("readOnlyRootFilesystem", False),
        }

    @property
    def pid(self):
        """The pid of its first process, as this machine counts; `None` once it has ended."""
        try:
            children = psutil.Process(self.process.pid).children() if self.is_running() else []
            return children[0].pid if children else None
        except psutil.NoSuchProcess:
            return None

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def send(self, number):
        """Sends a signal to its first process. The program that becomes the command handles none, so this waits for that."""
        wait_until(lambda: self.has_begun() or not self.is_running(), BEGINS_WITHIN_S, "the container runs its command")
        pid = self.pid
        if pid is not None:
            # It may have ended since.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def has_begun(self):
        try:
            return self.pid is not None and str(INIT) not in psutil.Process(self.pid).cmdline()
        except psutil.NoSuchProcess:
            return False

    def signal_all(self, number):
        """Sends a signal to all its processes, as to those of a machine."""
        if self.is_running():
            # They may have ended since.
            with contextlib.suppress(psutil.NoSuchProcess):
                for it in psutil.Process(self.process.pid).children(recursive=True):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(it.pid, number)

    def kill(self):
        """kill -9 of all its processes."""
        if self.is_running():
            # Before there is a first process, the program that waits for it takes it along.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid or self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=ENDED_WITHIN_S)

    def wait(self):
        """Waits for its end and returns its code as a runtime reports it: that of a signal is above 128."""
        code = self.process.wait()
        return code if code >= 0 else 128 - code

    def log(self):
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def last_words(self, code):
        text = self.termination_log.read_text(errors="replace")
        if not text and code != 0 and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            text = "".join(self.log().splitlines(keepends=True)[-MESSAGE_LINES:])
        return text.encode()[-MESSAGE_BYTES:].decode(errors="ignore") or None

    def run_inside(self, command, within_s):
        """Runs a command inside, as the container's user and in its environment, and returns its exit status. A
        `TimeoutExpired` kills all of it."""
        rights = self.rights()
        enter = f"{NSENTER} --target {self.pid} --setuid={rights['uid']} --setgid={rights['gid']} --"
        nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        process = subprocess.Popen([*enter.split(), *command], env=self.env, **nothing, start_new_session=True)
        try:
            return process.wait(within_s)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(ENDED_WITHIN_S)


def bound(source, target, read_only=False):
    return {"source": str(source), "target": target, "read_only": read_only}


def stop_with_hook(process, grace_s):
    """Runs the `preStop` hook of a container and then terminates it. After the grace period it is killed anyway."""
    hook = process.spec["lifecycle"]["preStop"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        if "sleep" in hook:
            time.sleep(hook["sleep"]["seconds"])
        else:
            process.run_inside(hook["exec"]["command"], grace_s)
    process.send(signal.SIGTERM)
