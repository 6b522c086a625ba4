"""The load of the benchmark of the hot path: `hot-path load`, whose clients check every byte of every reply.

The engines are its backend, a HiveServer2 server at memory speed (`hot-path backend`). `tests/run --long` builds the program.
"""

import re
import subprocess

from harness.processes import BINARY
from harness.waiting import wait_until

PROGRAM = BINARY.parent / "hot-path"
BEGINS_WITHIN_S = 60
GOES_ON_WITHIN_S = 20
ENDS_WITHIN_S = 60
BACKEND = {
    "unconfined": True,
    "command": [str(PROGRAM), "backend", "--listen", "{host}:{port}", "--announce", "{directory}/announced"],
}


class BenchmarkLoad:
    """Clients at proxies, in a process of their own. The first wrong reply, refused call or lost connection ends it."""

    def __init__(self, folder, addresses, user, clients):
        self.log = folder / "hot-path.log"
        addresses = [word for address in addresses for word in ("--connect", address)]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [PROGRAM, "load", *addresses, "--user", user, "--clients", str(clients)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )

    def __enter__(self):
        wait_until(lambda: "running: " in self.printed(), BEGINS_WITHIN_S, "every client of the load has a session")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def printed(self):
        printed = self.log.read_text()
        assert self.process.poll() is None, f"the load has ended:\n{printed[-2000:]}"
        return printed

    def frames(self):
        """The frames that were received and compared so far."""
        reports = re.findall(r"^.* s: .* (\d+) frames, ", self.printed(), re.MULTILINE)
        return int(reports[-1]) if reports else 0

    def goes_on(self):
        """Waits until further frames were received, twice, since one report may still be from before."""
        for _ in range(2):
            before = self.frames()
            wait_until(lambda: self.frames() > before, GOES_ON_WITHIN_S, "the load goes on", 0.2)

    def end(self):
        """Ends the clients in order, and answers the last report. Fails if a reply was not as expected."""
        self.printed()
        self.process.stdin.close()
        code = self.process.wait(ENDS_WITHIN_S)
        printed = self.log.read_text()
        assert code == 0 and "every reply was as expected" in printed, printed[-2000:]
        return printed.splitlines()[-2]
