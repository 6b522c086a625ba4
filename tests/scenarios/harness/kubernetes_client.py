"""A plain client of the Kubernetes API: JSON over HTTPS with a token, one connection per thread, watches of their own.

What a client of the tests says is checked strictly (`fieldValidation=Strict`): a misspelt field is an error, never
ignored. Answers are the objects as the server has them; refusals are `ApiError`, a server that can't be reached is
`Unreachable`. Nothing is repeated.
"""

import http.client
import json
import select
import socket
import ssl
import threading
import urllib.parse

REQUEST_WITHIN_S = 30
PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
CORE = "/api/v1"
# Where a resource is, and whether it is in a namespace.
RESOURCES = {
    "clusterrolebindings": ("/apis/rbac.authorization.k8s.io/v1", False),
    "clusterroles": ("/apis/rbac.authorization.k8s.io/v1", False),
    "configmaps": (CORE, True),
    "deployments": ("/apis/apps/v1", True),
    "events": (CORE, True),
    "limitranges": (CORE, True),
    "namespaces": (CORE, False),
    "networkpolicies": ("/apis/networking.k8s.io/v1", True),
    "nodes": (CORE, False),
    "poddisruptionbudgets": ("/apis/policy/v1", True),
    "pods": (CORE, True),
    "resourcequotas": (CORE, True),
    "rolebindings": ("/apis/rbac.authorization.k8s.io/v1", True),
    "roles": ("/apis/rbac.authorization.k8s.io/v1", True),
    "secrets": (CORE, True),
    "selfsubjectaccessreviews": ("/apis/authorization.k8s.io/v1", False),
    "serviceaccounts": (CORE, True),
    "services": (CORE, True),
    "statefulsets": ("/apis/apps/v1", True),
}


class ApiError(Exception):
    """The server refused: `code` of HTTP, `reason` and `message` of the Status."""

    def __init__(self, method, path, code, status):
        self.code = code
        self.status = status
        self.reason = status.get("reason", "")
        self.message = status.get("message", "")
        super().__init__(f"{method} {path}: {code} {self.reason}: {self.message}")


class Unreachable(Exception):
    """There was no answer; whether the request took effect is unknown unless it only reads."""


def path_of(resource, namespace=None, name=None, subresource=None):
    """`namespace=None` of a resource in namespaces means all of them."""
    base, namespaced = RESOURCES[resource]
    parts = [base]
    if namespaced and namespace is not None:
        parts += ["namespaces", namespace]
    parts.append(resource)
    parts += [it for it in (name, subresource) if it is not None]
    return "/".join(parts)


class Client:
    """Whoever has the token."""

    def __init__(self, address, authority, token, agent="enginehouse-scenarios"):
        self.host, port = address.rsplit(":", 1)
        self.port = int(port)
        self.context = ssl.create_default_context(cafile=authority)
        self.headers = {"Accept": "application/json", "User-Agent": agent}
        if token is not None:
            self.headers["Authorization"] = f"Bearer {token}"
        self.local = threading.local()

    def get(self, resource, name, namespace=None, subresource=None):
        return self.request("GET", path_of(resource, namespace, name, subresource))

    def find(self, resource, name, namespace=None):
        """The object, or `None` if there is none."""
        try:
            return self.get(resource, name, namespace)
        except ApiError as error:
            if error.code != http.HTTPStatus.NOT_FOUND:
                raise
            return None

    def list(self, resource, namespace=None, **query):
        """The list with its resourceVersion; `labelSelector=`, `fieldSelector=`, `limit=` … as the API calls them."""
        return self.request("GET", path_of(resource, namespace), query=query)

    def items(self, resource, namespace=None, **query):
        return self.list(resource, namespace, **query)["items"]

    def create(self, resource, body, namespace=None, name=None, subresource=None, **query):
        """`name` and `subresource` for what is posted to an object, such as a binding or an eviction."""
        path = path_of(resource, namespace, name, subresource)
        return self.request("POST", path, body, query={"fieldValidation": "Strict"} | query)

    def replace(self, resource, body, namespace=None, subresource=None, **query):
        path = path_of(resource, namespace, body["metadata"]["name"], subresource)
        return self.request("PUT", path, body, query={"fieldValidation": "Strict"} | query)

    def patch(self, resource, name, body, namespace=None, subresource=None, kind="merge", **query):
        path = path_of(resource, namespace, name, subresource)
        return self.request("PATCH", path, body, PATCH_TYPES[kind], {"fieldValidation": "Strict"} | query)

    def delete(self, resource, name, namespace=None, grace_s=None, uid=None):
        """The object that is on its way out, or the Status of one that is gone."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        return self.request("DELETE", path_of(resource, namespace, name), options)

    def watch(self, resource, namespace=None, **query):
        """An iterator over the events that follow `resourceVersion=`; `close()` ends it from any thread."""
        return Watch(self, path_of(resource, namespace), {"watch": "true", "allowWatchBookmarks": "true"} | query)

    def request(self, method, path, body=None, content_type="application/json", query=None):
        """The JSON of the answer, or its text if it is none."""
        data = None if body is None else json.dumps(body).encode()
        headers = self.headers | ({"Content-Type": content_type} if data else {})
        target = target_of(path, query)
        connection = self.connection()
        try:
            connection.request(method, target, data, headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(f"{method} {target}: {error!r}") from error
        answer = decoded(response, text)
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise ApiError(method, target, response.status, status_of(answer))
        return answer

    def connection(self):
        """This thread's connection; a new one if the server has ended it since."""
        if not hasattr(self.local, "connection"):
            self.local.connection = self.open(REQUEST_WITHIN_S)
        idle = self.local.connection.sock
        # Nothing is to be read between two requests, but the end.
        if idle is not None and select.select([idle], [], [], 0)[0]:
            self.local.connection.close()
        return self.local.connection

    def open(self, timeout_s):
        connection = http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=self.context)
        connection.connect = lambda connect=connection.connect: connect_at_once(connection, connect)
        return connection


def connect_at_once(connection, connect):
    """Small requests go out at once: without this, each waits for the acknowledgement of the one before it."""
    connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def target_of(path, query):
    given = {name: value for name, value in (query or {}).items() if value is not None}
    return f"{path}?{urllib.parse.urlencode(given)}" if given else path


def decoded(response, text):
    if (response.getheader("Content-Type") or "").startswith("application/json"):
        return json.loads(text)
    return text.decode(errors="replace")


def status_of(answer):
    return answer if isinstance(answer, dict) else {"message": answer}


class Watch:
    """The events of one watch: `(type, object)`, bookmarks included. It ends when the server or `close()` ends it; a
    resource version that is too old is an `ApiError` of 410, whether it is the answer or an event."""

    # The server says something at least once a minute (a bookmark), or ends the watch.
    SILENT_S = 120

    def __init__(self, client, path, query):
        self.target = target_of(path, query)
        self.closed = False
        self.connection = client.open(self.SILENT_S)
        try:
            self.connection.request("GET", self.target, headers=client.headers)
            self.response = self.connection.getresponse()
            if self.response.status >= http.HTTPStatus.BAD_REQUEST:
                answer = decoded(self.response, self.response.read())
                raise ApiError("GET", self.target, self.response.status, status_of(answer))
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            raise Unreachable(f"GET {self.target}: {error!r}") from error
        except ApiError:
            self.connection.close()
            raise
        # Closing the connection while another thread reads from it would wait for that thread; its socket can be shut.
        self.socket = self.connection.sock

    def __iter__(self):
        while True:
            try:
                line = self.response.readline()
            except (OSError, http.client.HTTPException, ValueError) as error:
                if self.closed:
                    return
                raise Unreachable(f"GET {self.target}: {error!r}") from error
            if not line:
                return
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise ApiError("GET", self.target, event["object"].get("code", 0), event["object"])
            yield event["type"], event["object"]

    def close(self):
        self.closed = True
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the server had ended it
