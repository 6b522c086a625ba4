"""A look into the real ZooKeeper from outside, with kazoo and the master's credential."""

import contextlib
import hashlib
import hmac
import json
import os

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import make_digest_acl

TIMEOUT_S = 10


def address():
    """Where the real ZooKeeper listens; without it a scenario fails, it is never skipped."""
    value = os.environ.get("EH_TEST_ZOOKEEPER")
    assert value, "EH_TEST_ZOOKEEPER is not set: run tests/run, which starts the servers"
    return value


def derived(secret, word, name=""):
    return hmac.new(secret.encode(), word.encode() + b"\0" + name.encode(), hashlib.sha256).hexdigest()


class Nodes:
    def __init__(self, root, passwords, hosts=None, user="master", ca=None):
        """With `ca`, a file of trusted certificates, over TLS."""
        self.root = root
        tls = {} if ca is None else {"use_ssl": True, "ca": str(ca), "check_hostname": True}
        self.client = KazooClient(
            hosts=hosts or address(),
            timeout=TIMEOUT_S,
            auth_data=[("digest", f"{user}:{it}") for it in passwords],
            default_acl=[make_digest_acl(user, it, all=True) for it in passwords],
            **tls,
        )
        self.client.start(timeout=TIMEOUT_S)

    def path(self, name):
        return f"{self.root}/{name}"

    def bytes(self, name):
        with contextlib.suppress(NoNodeError):
            return self.client.get(self.path(name))[0]
        return None

    def read(self, name):
        data = self.bytes(name)
        return None if data is None else json.loads(data)

    def exists(self, name):
        return self.client.exists(self.path(name)) is not None

    def children(self, name):
        return self.below(self.path(name))

    def below(self, path):
        with contextlib.suppress(NoNodeError):
            return sorted(self.client.get_children(path))
        return []

    def master_lock(self, who):
        return self.client.Lock(self.path("lock/master"), who)

    def close(self):
        self.client.stop()
        self.client.close()
