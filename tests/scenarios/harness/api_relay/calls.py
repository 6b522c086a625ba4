"""What a request asks of the API server, read from its first line as the server itself reads it, and the rules that choose
requests and events by it."""

import urllib.parse

ANY = object()
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "HEAD": "get"}
# What stands behind a namespace's own name and is not in the namespace.
OF_NAMESPACES = ("status", "finalize")
YES = ("true", "1")


class ApiCall:
    """One request. `resource` is `None` for what is no resource, such as `/readyz`; `name` is that of a list or watch too
    if its field selector asks for one name."""

    def __init__(self, method, target):
        self.method, self.target = method, target
        split = urllib.parse.urlsplit(target)
        self.path = split.path
        self.query = dict(urllib.parse.parse_qsl(split.query, keep_blank_values=True))
        self.resource = self.namespace = self.name = self.subresource = None
        words = split.path.strip("/").split("/")
        # /api/v1/…, /apis/GROUP/VERSION/…
        behind = {"api": 2, "apis": 3}.get(words[0])
        if behind is not None and len(words) > behind:
            self.read_resource(words[behind:])
        self.verb = self.read_verb()
        if self.verb in ("list", "watch"):
            self.name = self.selected_name()

    def read_resource(self, words):
        if words[0] == "namespaces" and len(words) > 2 and words[2] not in OF_NAMESPACES:
            self.namespace, words = words[1], words[2:]
        self.resource, self.name, self.subresource = (*words, None, None)[:3]

    def read_verb(self):
        if self.resource is None:
            return self.method.lower()
        if self.method == "GET":
            if self.query.get("watch") in YES:
                return "watch"
            return "list" if self.name is None else "get"
        if self.method == "DELETE":
            return "deletecollection" if self.name is None else "delete"
        return VERBS.get(self.method, self.method.lower())

    def selected_name(self):
        for part in self.query.get("fieldSelector", "").split(","):
            key, equals, value = part.replace("==", "=").partition("=")
            if equals and key == "metadata.name":
                return value
        return None

    @property
    def streams(self):
        """Whether the answer comes bit by bit for as long as the client stays."""
        return self.verb == "watch" or (self.subresource == "log" and self.query.get("follow") in YES)

    def at(self, version):
        """The target of the same list as of an earlier version, which the server answers truly."""
        query = {key: it for key, it in self.query.items() if key != "resourceVersion"}
        query |= {"resourceVersion": version, "resourceVersionMatch": "Exact"}
        return f"{self.path}?{urllib.parse.urlencode(query)}"

    def __repr__(self):
        return f"{self.method} {self.target}"


def api_calls(*verbs, resource=ANY, namespace=ANY, name=ANY):
    """Matches requests by verb (any by default), but for those of a subresource. Of the others a word, or `None` for an absent
    one."""

    def match(call):
        return (
            call.verb in (verbs or (call.verb,))
            and resource in (ANY, call.resource)
            and namespace in (ANY, call.namespace)
            and name in (ANY, call.name)
            and call.subresource is None
        )

    return match


def watch_events(*kinds, name=ANY):
    """Matches events of a watch by kind (`ADDED`, `MODIFIED`, `DELETED`; a `BOOKMARK` only if named) and object."""

    def match(kind, obj):
        return (kind in kinds if kinds else kind != "BOOKMARK") and name in (ANY, obj.get("metadata", {}).get("name"))

    return match
