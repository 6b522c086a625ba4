"""A program that is no engine and holds reservations, through the REST API of any proxy."""

import base64
import http.client
import json

from harness.clients import split

ANSWER_WITHIN_S = 75
PATH = "/api/v1/reservations"


class Holder:
    """Reserves for a tenant on a pool, as one of its users. Without an answer, a call has the status `None`."""

    def __init__(self, user, tenant, pool, instance="batch-1"):
        self.user, self.tenant, self.pool, self.instance = user, tenant, pool, instance

    def reserve(self, address, key, resource, **options):
        """(status, reservation or problem). `key` names the request; a repeat of it is the same reservation."""
        body = {"tenant": self.tenant, "pool": self.pool, "resource": resource, "instance": self.instance} | options
        return self.call(address, PATH, body, {"Idempotency-Key": key})

    def confirm(self, address, name):
        return self.call(address, f"{PATH}/{name}/confirm", self.claim())

    def release(self, address, name):
        return self.call(address, f"{PATH}/{name}/release", self.claim())

    def claim(self):
        return {"pool": self.pool, "instance": self.instance}

    def call(self, address, path, body, headers=None):
        credentials = base64.b64encode(f"{self.user}:x".encode()).decode()
        headers = {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"} | (headers or {})
        connection = http.client.HTTPConnection(*split(address), timeout=ANSWER_WITHIN_S)
        try:
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            return None, repr(error)
        finally:
            connection.close()
