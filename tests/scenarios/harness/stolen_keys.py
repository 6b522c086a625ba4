"""What a thief of the key files of a standalone's roles, or of what one of its engines has, logs in with."""

import contextlib
import json
import tomllib

import pytest
from kazoo.client import KazooClient

from harness.components import Component, NotAccepted
from harness.role_keys import zookeeper_passwords

ROOT = "/enginehouse"
TIMEOUT_S = 30
AGENT_REFUSES = "a metadata agent accepts only proxies and masters\nHint: Connect to a proxy."
ENGINE_REFUSES = "an engine accepts only connections of proxies\nHint: Connect to a proxy."


class Stolen:
    """The files of the roles, and where the servers of the installation are."""

    def __init__(self, target):
        self.data = target.standalone.data
        self.proxy, self.master, self.agent = (self.data / f"keys/{it}.key" for it in ("proxy", "master", "metadata-agent"))
        port = int((self.data / "zookeeper/zookeeper-port").read_text())
        self.zookeeper = f"127.0.0.1:{port}"
        with self.login("proxy", self.proxy) as client:
            (name,) = client.get_children(f"{ROOT}/agents")
            self.address = json.loads(client.get(f"{ROOT}/agents/{name}")[0])["address"]
        self.engines = target.standalone.engines.all()
        self.names = target.engines

    @contextlib.contextmanager
    def login(self, user, path=None, password=None):
        passwords = [password] if password else zookeeper_passwords(path)
        client = KazooClient(self.zookeeper, timeout=TIMEOUT_S, auth_data=[("digest", f"{user}:{it}") for it in passwords])
        client.start(timeout=TIMEOUT_S)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def registration(self, tenant):
        with self.login("proxy", self.proxy) as client:
            return json.loads(client.get(f"{ROOT}/engines/{self.names[tenant]}/live")[0])

    def audience(self, tenant):
        return f"engine:{self.names[tenant]}:{self.registration(tenant)['uid']}"

    def launched(self, tenant):
        """The file of an engine, which its users can read."""
        return tomllib.loads((self.engines[self.names[tenant]].folder / "files/engine.toml").read_text())

    def login_as_engine(self, tenant):
        """At ZooKeeper, with the password in that file."""
        return self.login(f"engine-{self.names[tenant]}", password=self.launched(tenant)["credential"]["password"])


def refusal(address, answer):
    with pytest.raises(NotAccepted) as refused:
        Component(address, answer)
    return str(refused.value)
