"""A client of the Kubernetes API that speaks plain objects, over the transport of the official client.

The server validates strictly (`fieldValidation=Strict`): a misspelt field is an error, never ignored. Results are the objects
as the server has them; refusals are `ApiError`, and a server that cannot be reached is `Unreachable`. No request is repeated.
"""

import contextlib
import http
import json
import socket
import urllib.parse

import urllib3
from kubernetes.client import ApiClient, ApiException, Configuration

REQUEST_WITHIN_S = 30
# Idle connections that a client keeps, one for each of its threads.
CONNECTIONS = 64
# A server sends something at least once a minute (a bookmark), or ends the watch.
SILENT_S = 120
STRICT = {"fieldValidation": "Strict"}
CORE = "/api/v1"
# Where a resource is, and whether it is in a namespace.
RESOURCES = {
    "clusterrolebindings": ("/apis/rbac.authorization.k8s.io/v1", False),
    "clusterroles": ("/apis/rbac.authorization.k8s.io/v1", False),
    "configmaps": (CORE, True),
    "deployments": ("/apis/apps/v1", True),
    "events": (CORE, True),
    "leases": ("/apis/coordination.k8s.io/v1", True),
    "namespaces": (CORE, False),
    "networkpolicies": ("/apis/networking.k8s.io/v1", True),
    "nodes": (CORE, False),
    "pods": (CORE, True),
    "rolebindings": ("/apis/rbac.authorization.k8s.io/v1", True),
    "roles": ("/apis/rbac.authorization.k8s.io/v1", True),
    "secrets": (CORE, True),
    "selfsubjectaccessreviews": ("/apis/authorization.k8s.io/v1", False),
    "serviceaccounts": (CORE, True),
    "services": (CORE, True),
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
    """A client with one token; threads may share it."""

    def __init__(self, address, authority, token):
        configuration = Configuration(host=f"https://{address}", ssl_ca_cert=str(authority), retries=False)
        configuration.proxy = None
        configuration.connection_pool_maxsize = CONNECTIONS
        self.api = ApiClient(configuration)
        self.headers = {"Accept": "application/json", "Authorization": f"Bearer {token}"}

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
        return self.request("POST", path, body, query=STRICT | query)

    def replace(self, resource, body, namespace=None, subresource=None, **query):
        path = path_of(resource, namespace, body["metadata"]["name"], subresource)
        return self.request("PUT", path, body, query=STRICT | query)

    def patch(self, resource, name, body, namespace=None, subresource=None, kind="merge", **query):
        path = path_of(resource, namespace, name, subresource)
        return self.request("PATCH", path, body, f"application/{kind}-patch+json", STRICT | query)

    def delete(self, resource, name, namespace=None, grace_s=None, uid=None):
        options = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        return self.request("DELETE", path_of(resource, namespace, name), options)

    def watch(self, resource, namespace=None, **query):
        """An iterator over the events that follow `resourceVersion=`; `close()` ends it from any thread."""
        return Watch(self, path_of(resource, namespace), {"watch": "true", "allowWatchBookmarks": "true"} | query)

    def request(self, method, path, body=None, content_type="application/json", query=None, within_s=REQUEST_WITHIN_S):
        """The JSON of the response, or its text if it is none."""
        target = target_of(path, query)
        with reachable(method, target):
            response = self.open(method, target, body, content_type, within_s)
            return content(response)

    def open(self, method, target, body=None, content_type="application/json", within_s=REQUEST_WITHIN_S):
        headers = self.headers | ({"Content-Type": content_type} if body is not None else {})
        response = self.api.call_api(
            method, self.api.configuration.host + target, headers, body, _request_timeout=(within_s, within_s)
        ).response
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            answer = content(response)
            status = answer if isinstance(answer, dict) else {"message": answer}
            raise ApiError(method, target, response.status, status)
        return response


@contextlib.contextmanager
def reachable(method, target):
    """What ends without a response is `Unreachable`."""
    try:
        yield
    except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(f"{method} {target}: {error!r}") from error


def content(response):
    data = response.data
    if response.headers.get("Content-Type", "").startswith("application/json"):
        return json.loads(data)
    return data.decode(errors="replace")


def target_of(path, query):
    given = {name: value for name, value in (query or {}).items() if value is not None}
    return f"{path}?{urllib.parse.urlencode(given)}" if given else path


class Watch:
    """The events of one watch: `(type, object)`, bookmarks included. It ends when the server or `close()` ends it; a
    resource version that is too old is an `ApiError` of 410, whether it is the response or an event."""

    def __init__(self, client, path, query):
        self.target = target_of(path, query)
        self.closed = False
        with reachable("GET", self.target):
            self.response = client.open("GET", self.target, within_s=SILENT_S)
        self.socket = self.response.connection.sock

    def __iter__(self):
        try:
            with reachable("GET", self.target):
                for line in self.response:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise ApiError("GET", self.target, event["object"].get("code", 0), event["object"])
                    yield event["type"], event["object"]
        except Unreachable:
            if not self.closed:
                raise

    def close(self):
        """Ends the watch; another thread may be reading from it."""
        self.closed = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
