"""A server of a test's own: a process in a group of its own, which can be killed, stopped for a while and started again."""

import os
import signal
import subprocess

from harness.waiting import wait_until

START_WITHIN_S = 60
STOP_WITHIN_S = 20
KILLED_WITHIN_S = 10


class ServerProcess:
    stop_signal = signal.SIGTERM
    # What it gets as its standard input and its environment; `None` is ours.
    stdin = subprocess.DEVNULL
    env = None
    start_within_s = START_WITHIN_S
    process = None

    @property
    def pid(self):
        return self.process.pid

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def start(self):
        self.launch()
        self.wait_serving()
        return self

    def launch(self):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                list(map(str, self.command())),
                stdin=self.stdin,
                stdout=log,
                stderr=log,
                env=self.env,
                cwd=self.folder,
                start_new_session=True,
            )

    def wait_serving(self):
        def serves():
            assert self.is_running(), f"{self.name} ended:\n{(self.folder / 'log').read_text(errors='replace')[-3000:]}"
            return self.answers()

        wait_until(serves, self.start_within_s, f"{self.name} serves", 0.1)

    def signal(self, number):
        os.killpg(self.process.pid, number)

    def kill(self):
        if self.is_running():
            self.signal(signal.SIGKILL)
        self.process.wait(timeout=KILLED_WITHIN_S)

    def pause(self):
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def stop(self):
        if self.is_running():
            self.resume()
            self.process.send_signal(self.stop_signal)
            try:
                self.process.wait(timeout=STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.kill()

    close = stop
