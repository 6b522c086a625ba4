"""Engines as processes of this machine, read from the state directory of the process orchestrator."""

import json
import os
import pathlib
import signal

from harness.processes import is_alive, process_of, working_below
from harness.rest import running_engines
from harness.waiting import wait_until


class Engine:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.name = self.folder.name
        self.file = self.folder / "engine.json"
        self.record = json.loads(self.file.read_text())
        written = self.folder / "process.json"
        if written.exists():
            self.pid = json.loads(written.read_text())["pid"]
        else:
            # Who started it died before writing that down.
            self.pid = next(it.pid for it in working_below(self.folder))

    @property
    def labels(self):
        return self.record["labels"]

    @property
    def uid(self):
        return self.record["uid"]

    @property
    def process(self):
        """(pid, start time): names one process for ever."""
        return process_of(self.pid)

    def is_alive(self):
        return is_alive(self.pid)

    def kill(self):
        """kill -9 of the engine's process."""
        os.kill(self.pid, signal.SIGKILL)

    def log(self):
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def set_label(self, key, value):
        """Changes a label by hand, as an operator with an editor would."""
        record = json.loads(self.file.read_text())
        assert key in record["labels"], record["labels"]
        record["labels"][key] = value
        text = self.file.with_suffix(".edited")
        text.write_text(json.dumps(record, indent=2))
        text.rename(self.file)


class Engines:
    def __init__(self, state_dir):
        self.state_dir = pathlib.Path(state_dir)

    def all(self):
        found = {}
        for folder in sorted((self.state_dir / "engines").glob("*")):
            try:
                engine = Engine(folder)
            except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError, StopIteration):
                continue  # being made or removed at this moment
            if engine.is_alive():
                found[engine.name] = engine
        return found

    def of(self, tenant, unit=None):
        return [
            engine
            for engine in self.all().values()
            if engine.labels["tenant_name"] == tenant and unit in (None, engine.labels["unit_name"])
        ]

    def one(self, name, within_s=30):
        return wait_until(lambda: self.all().get(name), within_s, f"engine {name} runs")

    def running(self):
        """The same as `harness.rest` wants it, and what else is there."""
        return running_engines(self.state_dir)

    def strays(self):
        return working_below(self.state_dir)

    def end_all(self):
        for process in self.strays():
            try:
                process.kill()
            except OSError:
                pass  # it ended by itself
        wait_until(lambda: not self.strays(), 10, f"no engine is left below {self.state_dir}")
