"""Follows one resource: everything once, then every change; from the beginning again whenever the thread is lost."""

import threading

from harness.kubernetes_client import ApiError, Unreachable

AGAIN_AFTER_S = 0.2


class Watcher(threading.Thread):
    """Calls `all(objects)` after each list and `one(kind, object)` for each change, from a thread of its own."""

    def __init__(self, client, resource, all_, one):
        super().__init__(daemon=True, name=f"watches {resource}")
        self.client, self.resource, self.all, self.one = client, resource, all_, one
        self.closed = threading.Event()
        self.watch = None

    def close(self):
        self.closed.set()
        if self.watch is not None:
            self.watch.close()

    def run(self):
        while not self.closed.is_set():
            try:
                self.follow()
            except (ApiError, Unreachable):
                # Restarted, too old, or away for a while: what it was is seen by listing again.
                self.closed.wait(AGAIN_AFTER_S)

    def follow(self):
        listed = self.client.list(self.resource)
        self.all(listed["items"])
        version = listed["metadata"]["resourceVersion"]
        while not self.closed.is_set():
            self.watch = self.client.watch(self.resource, resourceVersion=version)
            if self.closed.is_set():
                self.watch.close()
            for kind, it in self.watch:
                version = it["metadata"]["resourceVersion"]
                if kind != "BOOKMARK":
                    self.one(kind, it)
