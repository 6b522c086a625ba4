"""`enginehouse standalone`: every role in one process, engines beside it."""

import pathlib
import signal

from harness.engines import Engines
from harness.logs import Logs
from harness.processes import Program


class Standalone:
    """One installation: a data directory and, while it runs, the process that serves it."""

    def __init__(self, folder, name="standalone", env=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data = self.folder / "data"
        self.env = env
        self.name = name
        self.engines = Engines(self.data / "engines")
        self.logs = Logs(
            str(self.data / "enginehouse.log"), str(self.folder / "*.log"), str(self.data / "engines/engines/*/log")
        )
        self.program = None
        self.address = self.url_options = None

    def start(self, *arguments, listen="127.0.0.1:0", wait=True):
        self.program = Program(
            self.name, ["standalone", "--data-dir", self.data, "--listen", listen, *arguments], self.folder, self.env
        ).start()
        if wait:
            url = self.program.wait_ready()
            assert url.startswith("jdbc:hive2://"), url
            # Behind the address: `;ssl=true`, if logins require TLS.
            self.address, self.url_options = url.removeprefix("jdbc:hive2://").split("/", 1)
        return self

    def stop(self, number=signal.SIGINT):
        return self.program.stop(number)

    def close(self):
        try:
            if self.program and self.program.is_running():
                code, _ = self.program.stop()
                left = self.engines.strays()
                assert code == 0 and not left, f"{self.name} ended with {code} and left {left}"
        finally:
            self.engines.end_all()
            self.logs.close()
