"""Engines as processes of this machine, read from the state directory of the process orchestrator."""

import json
import os
import pathlib
import signal

from harness.processes import is_alive, kill_below, process_of, working_below
from harness.rest import described
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
            self.pid = next(iter(working_below(self.folder)), None)

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
        return self.pid is not None and is_alive(self.pid)

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


class EnginesByName:
    """Engines of either kind: `all` answers those that run, by name."""

    def of(self, tenant, unit=None):
        running = self.all().values()
        return [it for it in running if it.labels["tenant_name"] == tenant and unit in (None, it.labels["unit_name"])]

    def one(self, name, within_s=30):
        return wait_until(lambda: self.all().get(name), within_s, f"engine {name} runs")


class Engines(EnginesByName):
    def __init__(self, state_dir):
        self.state_dir = pathlib.Path(state_dir)

    def all(self):
        found = {}
        for folder in sorted((self.state_dir / "engines").glob("*")):
            try:
                engine = Engine(folder)
            except (OSError, json.JSONDecodeError):
                continue  # being made or removed at this moment
            if engine.is_alive():
                found[engine.name] = engine
        return found

    def running(self):
        """Those whose process runs, as `harness.rest` compares them; what else is there is a difference."""
        found, different = {}, []
        processes = working_below(self.state_dir)
        for folder in sorted((self.state_dir / "engines").iterdir()):
            if folder.name.startswith("."):
                different.append(f"{folder.name} is left of an engine that was being made or removed")
                continue
            try:
                engine = Engine(folder)
            except (OSError, json.JSONDecodeError) as error:
                different.append(f"the directory of {folder.name} is being made or removed, or can't be read: {error}")
                continue
            if engine.is_alive():
                found[engine.name] = described(engine.uid, engine.pid, engine.labels)
            else:
                different.append(f"engine {engine.name} (pid {engine.pid}) has ended and its directory is there")
        known = {it["pid"] for it in found.values()}
        strays = {pid: folder for pid, folder in processes.items() if pid not in known}
        different += [f"process {pid} works in {it} and is no engine of the state directory" for pid, it in strays.items()]
        return found, different

    def strays(self):
        return working_below(self.state_dir)

    def end_all(self):
        wait_until(lambda: not kill_below(self.state_dir), 10, f"no engine is left below {self.state_dir}")
