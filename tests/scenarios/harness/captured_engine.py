"""An engine whose code has taken what its agent has: its agent is stopped before it registers, and an attacker who holds its
ZooKeeper password registers in its place, or writes what it likes below its permit."""

import contextlib
import json
import os
import signal
import time
import tomllib

from harness.clients import rows
from harness.engines import Engine
from harness.stolen_keys import ROOT
from harness.waiting import wait_until

# How long the process of a new engine may take to appear. It registers some 100 ms later.
APPEARS_WITHIN_S = 30
LOOK_EVERY_S = 0.001
STATE_WITHIN_S = 20


class CapturedEngine:
    def __init__(self, stolen, folder):
        record = Engine(folder)
        self.name, self.pid, self.uid, self.labels = record.name, record.pid, record.uid, record.labels
        self.password = tomllib.loads((folder / "files/engine.toml").read_text())["credential"]["password"]
        self.stolen = stolen
        self.permit = f"{ROOT}/engines/{self.name}"

    def login(self):
        return self.stolen.login(f"engine-{self.name}", password=self.password)

    def registration(self, address):
        """What a proxy accepts: the registration that the agent would have written, with another address."""
        fields = {"version": 1, "address": address, "capacity": 2000, "config": self.labels["enginehouse.io/config"]}
        fields |= {"program_version": "0.1.0", "uid": self.uid, "catalog": "shared", "keys": [1]}
        return json.dumps(fields).encode()

    def register(self, client, content):
        """Writes this below the permit as the registration, which every role may read and which ends with the client."""
        wait_until(lambda: b'"uid"' in client.get(self.permit)[0], STATE_WITHIN_S, "the permit has a uid")
        client.create(f"{self.permit}/live", content, ephemeral=True)


@contextlib.contextmanager
def captured_engine(target, stolen, tenant, user, pool="shared", unit="small"):
    """Yields the engine of a new tenant for one user. Afterwards the engine ends and the tenant is dropped."""
    target.execute(f"CREATE TENANT {tenant} RESOURCE_POOL_LIST ('{pool}'), USER_LIST ('{user}')")
    engine = None
    try:
        with target.session("admin") as admin:
            rows(admin, f"START ENGINE {tenant} {pool} {unit}")
        engine = CapturedEngine(stolen, stopped(target, tenant))
        yield engine
    finally:
        if engine:
            os.kill(engine.pid, signal.SIGCONT)
        target.execute(f"DROP TENANT {tenant} WAIT '1m'")


def stopped(target, tenant):
    """The folder of the tenant's engine, whose process is stopped as soon as it is there."""
    folders, until = target.standalone.data / "engines/engines", time.monotonic() + APPEARS_WITHIN_S
    while time.monotonic() < until:
        for written in folders.glob(f"{tenant}-*/process.json"):
            os.kill(json.loads(written.read_text())["pid"], signal.SIGSTOP)
            return written.parent
        time.sleep(LOOK_EVERY_S)
    raise AssertionError(f"no engine of {tenant} within {APPEARS_WITHIN_S} s")
