"""Proxies that are terminated and drain (`proxy.drain_grace`): their readiness, and how a test terminates one."""

import http.client
import signal

from harness.waiting import wait_until

WITHIN_S = 60
GRACE = {"drain_grace": "1h"}
LEAVES = (503, "the proxy is shutting down")
# In the words of version 0.1.0.
EARLIER_LEAVES = (503, "this proxy is being stopped and opens no session")


def probe(address, path="/readyz"):
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=WITHIN_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode().strip()
    except ConnectionRefusedError:
        return 0, ""
    finally:
        connection.close()


def begin_to_leave(cluster, name, leaves=LEAVES):
    """Terminates a proxy and waits until it drains: a second signal would otherwise merge with the pending first one."""
    cluster.programs[name].send(signal.SIGTERM)
    wait_until(lambda: probe(cluster.addresses[name]) == leaves, WITHIN_S, f"{name} says that it leaves")
