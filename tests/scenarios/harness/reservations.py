"""The reservations API as a program uses it: JSON over HTTP, one connection for each request."""

import base64
import contextlib
import http.client
import json
import uuid

from harness.waiting import wait_until

PATH = "/api/v1/reservations"


class Holder:
    """A program of one user, which calls one proxy."""

    def __init__(self, address, user, instance="i-1"):
        self.address, self.user, self.instance = address, user, instance

    def call(self, method, path, body=None, key=None):
        """Sends a request; returns (status, JSON)."""
        with self.sent(method, path, body, key) as connection:
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def send_only(self, method, path, body=None, key=None):
        """Sends a request and closes the connection without reading the response."""
        with self.sent(method, path, body, key):
            pass

    @contextlib.contextmanager
    def sent(self, method, path, body, key):
        headers = {"Authorization": "Basic " + base64.b64encode(f"{self.user}:x".encode()).decode()}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if key:
            headers["Idempotency-Key"] = key
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            connection.request(method, path, body and json.dumps(body), headers)
            yield connection
        finally:
            connection.close()

    def request(self, tenant, pool, resource, key=None, **members):
        body = {"tenant": tenant, "pool": pool, "instance": self.instance, "resource": resource, **members}
        return self.call("POST", PATH, body, key or uuid.uuid4().hex)

    def get(self, reservation="", query=""):
        return self.call("GET", f"{PATH}{reservation and '/' + reservation}{query and '?' + query}")

    def act(self, reservation, action, pool, **members):
        return self.call("POST", f"{PATH}/{reservation}/{action}", {"pool": pool, "instance": self.instance, **members})

    def register(self, pool, capacity, key=None, **members):
        """Registers the capacity of a pool."""
        body = {"name": "provider", "instance": self.instance, "capacity": capacity, **members}
        return self.call("PUT", f"/api/v1/pools/{pool}/registration", body, key)

    def registration(self, pool, method="GET", query=""):
        """Reads the registration of a pool, or with DELETE ends it."""
        return self.call(method, f"/api/v1/pools/{pool}/registration{query and '?' + query}")

    def reserved(self, tenant, pool, resource, within_s=30, **members):
        """A reservation that was granted, at once or from the queue: its JSON."""
        status, found = self.request(tenant, pool, resource, wait=f"{within_s}s", **members)
        assert status in (201, 202), found

        def granted():
            status, current = self.get(found["id"], "wait=5s")
            assert status == 200, current
            assert current["state"] in ("waiting", "locked"), current
            return current["state"] == "locked" and current

        return wait_until(granted, within_s, "the reservation is granted")
