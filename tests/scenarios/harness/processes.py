"""Processes of the binary: started with a deadline and stopped by pid."""

import contextlib
import os
import pathlib
import signal
import subprocess
import time

import psutil

from harness.waiting import wait_until

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
BINARY = pathlib.Path(os.environ.get("EH_TEST_BINARY", REPOSITORY / "target/debug/enginehouse"))
READY_WITHIN_S = 60
STOP_WITHIN_S = 25


def with_zookeeper_tls():
    """The program with the cargo feature `zookeeper-tls`, in place of `BINARY` (built by `tests/run.d/zookeeper-tls.sh`)."""
    program = os.environ.get("EH_TEST_BINARY_ZOOKEEPER_TLS")
    assert program, "EH_TEST_BINARY_ZOOKEEPER_TLS is not set: run tests/run --long, which builds it"
    assert pathlib.Path(program).exists(), f"{program} is missing: it could not be built"
    return pathlib.Path(program)


def environment(extra=None):
    plain = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ}
    return plain | {"RUST_BACKTRACE": "1"} | (extra or {})


class Program:
    """One process of the binary. Standard output goes to `<name>.out`, standard error to `<name>.log`."""

    def __init__(self, name, arguments, folder, env=None, binary=BINARY):
        self.name = name
        self.arguments = [str(binary), *map(str, arguments)]
        self.out = pathlib.Path(folder) / f"{name}.out"
        self.log = pathlib.Path(folder) / f"{name}.log"
        self.env = environment(env)
        self.process = None

    def start(self):
        # What an earlier run of it printed is not this one's.
        with open(self.out, "wb") as out, open(self.log, "ab") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": log}
            place = {"cwd": self.out.parent, "env": self.env}
            self.process = subprocess.Popen(self.arguments, **streams, **place, start_new_session=True)
        return self

    @property
    def pid(self):
        return self.process.pid

    def printed(self):
        return self.out.read_text(errors="replace")

    def logged(self):
        return self.log.read_text(errors="replace")

    def wait_ready(self, within_s=READY_WITHIN_S):
        """Waits for the line `ready: …` and answers what follows the colon."""

        def line():
            for line in self.printed().splitlines():
                if line.startswith("ready: "):
                    return line.removeprefix("ready: ").strip()
            code = self.process.poll()
            assert code is None, f"{self.name} ended with {code}:\n{self.printed()}\n{self.logged()[-4000:]}"
            return None

        return wait_until(line, within_s, f"{self.name} prints ready:")

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def wait(self, within_s):
        return self.process.wait(timeout=within_s)

    def send(self, number):
        os.kill(self.process.pid, number)

    def pause(self):
        self.send(signal.SIGSTOP)
        process = psutil.Process(self.pid)
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED, 5, f"{self.name} is stopped")

    def resume(self):
        self.send(signal.SIGCONT)

    def kill(self):
        if self.is_running():
            self.process.kill()
        self.process.wait(timeout=10)

    def stop(self, number=signal.SIGINT, within_s=STOP_WITHIN_S):
        """Asks it to end and answers (exit status, seconds); kills it, and fails, if it does not."""
        if not self.is_running():
            return self.process.returncode if self.process else None, 0.0
        began = time.monotonic()
        self.send(signal.SIGCONT)
        self.send(number)
        try:
            return self.process.wait(timeout=within_s), time.monotonic() - began
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not end within {within_s} s:\n{self.logged()[-4000:]}") from None


def run(arguments, within_s=120, env=None, text=None, cwd=None, binary=BINARY):
    return finished([binary, *arguments], environment(env), within_s, text, cwd)


def finished(command, env, within_s=120, text=None, cwd=None):
    """Runs a command to its end, with an environment of its own."""
    return subprocess.run(
        list(map(str, command)),
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        capture_output=True,
        text=True,
        timeout=within_s,
        env=env,
        cwd=cwd,
        check=False,
    )


def cpu_seconds(pid):
    """The CPU time that a process has used, its ended children not counted."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def process_of(pid):
    """The process and when it started: together they name one process, as a pid alone does not."""
    process = psutil.Process(pid)
    return process.pid, process.create_time()


def is_alive(pid, started=None):
    """Whether a thread of this very process runs. A process is a zombie as soon as its first thread has ended, while others may
    still have its files and ports open."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1:
            return False
        return started is None or process.create_time() == started
    except psutil.NoSuchProcess:
        return False


def working_below(folder):
    """pid → working directory of the processes that work in a folder or below it, where each engine has one of its own. It
    reads one link for each process, because it is called often."""
    top, found = str(pathlib.Path(folder).resolve()), {}
    for pid in psutil.pids():
        directory = working_directory(pid)
        if f"{directory}/".startswith(f"{top}/"):
            found[pid] = directory
    return found


def working_directory(pid):
    """Empty for a process that has ended. One whose first thread has ended works where its other threads do."""
    process = pathlib.Path(f"/proc/{pid}")
    with contextlib.suppress(OSError):
        return os.readlink(process / "cwd")
    with contextlib.suppress(OSError):
        for thread in (process / "task").iterdir():
            with contextlib.suppress(OSError):
                return os.readlink(thread / "cwd")
    return ""


def kill_below(folder):
    """Kills the processes that work below a folder, and returns them."""
    found = working_below(folder)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found
