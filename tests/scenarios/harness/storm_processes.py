"""The client processes of a storm of reservations, and the journals that they leave (`harness.storm_client`).

One that is killed is followed by another one that sends the rest of its requests.
"""

import collections
import json
import subprocess
import sys
import threading

from harness.processes import REPOSITORY
from harness.waiting import wait_until

SCENARIOS = REPOSITORY / "tests/scenarios"


class StormProcesses:
    """`plan` is what all of them ask for; each of `names` sends so many `requests`, and more until there was `enough`."""

    def __init__(self, folder, seed, names, requests, **plan):
        self.folder, self.seed, self.names, self.requests, self.plan = folder, seed, names, requests, plan
        self.folder.mkdir()
        self.addresses, self.enough = folder / "addresses", folder / "enough"
        self.running, self.started, self.journals = {}, collections.Counter(), {}
        self.ended = False

    def announce(self, addresses):
        """Where the proxies are now."""
        beside = self.addresses.with_suffix(".new")
        beside.write_text(json.dumps(sorted(addresses)))
        beside.rename(self.addresses)

    def start(self, name):
        rest = self.requests - self.sent(name)
        if self.ended or (rest <= 0 and self.enough.exists()):
            return
        self.started[name] += 1
        run = f"{name}-{self.started[name]}"
        plan = {
            "addresses": str(self.addresses),
            "enough": str(self.enough),
            "journal": str(self.folder / f"{run}.journal"),
            "name": run,
            "requests": rest,
        }
        path = self.folder / f"{run}.plan"
        path.write_text(json.dumps(self.plan | plan | {"seed": self.seed}))
        with open(self.folder / f"{run}.err", "wb") as errors:
            command = [sys.executable, "-m", "harness.storm_client", str(path)]
            process = subprocess.Popen(command, cwd=SCENARIOS, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
        self.running[name] = Killable(process)

    def entries(self, name=None):
        """What the clients wrote, or one of them and those that came before it."""
        for path in self.folder.glob("*.journal"):
            self.journals.setdefault(path.stem, Journal(path))
        found = sorted(run for run in self.journals if name in (None, run.rsplit("-", 1)[0]))
        return [entry for run in found for entry in self.journals[run].read()]

    def sent(self, name=None):
        """The requests that were decided; of a reservation that is not finished, none."""
        return sum(it.get("requests", 0) for it in self.entries(name))

    def flying(self):
        """The reservations that are not finished, of the clients that run."""
        counted = collections.Counter(it["event"] for it in self.entries() if self.is_running(it["key"].rsplit("-", 1)[0]))
        return counted["begun"] - counted["refused"] - counted["ended"] - counted["left"]

    def is_running(self, run):
        name, number = run.rsplit("-", 1)
        return int(number) == self.started[name] and self.running[name].is_running()

    def wait(self, within_s, enough):
        """Waits until all requests are sent and there was `enough()`; what is killed meanwhile has to be started
        again by its killer."""

        def done():
            if enough():
                self.enough.touch()
            wrong = [it for it in self.entries() if it["event"] == "wrong"]
            assert not wrong, f"clients received wrong answers: {wrong[:10]}"
            return not any(it.is_running() for it in self.running.values()) and self.sent() >= self.requests * len(self.names)

        wait_until(done, within_s, "all requests are sent", 0.5)

    def end(self):
        self.ended = True
        for it in self.running.values():
            it.kill()


class Journal:
    """What one client wrote, read as it grows. The last line of a killed one may be a part."""

    def __init__(self, path):
        self.path, self.position, self.entries, self.lock = path, 0, [], threading.Lock()

    def read(self):
        with self.lock:
            with open(self.path, "rb") as file:
                file.seek(self.position)
                whole, newline, _ = file.read().rpartition(b"\n")
            self.position += len(whole) + len(newline)
            self.entries += map(json.loads, whole.splitlines())
            return list(self.entries)


class Killable:
    def __init__(self, process):
        self.process = process

    @property
    def pid(self):
        return self.process.pid

    def is_running(self):
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait(timeout=10)
