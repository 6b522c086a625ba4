"""A recorder of every pod that ever existed in a namespace, according to the API server."""

import threading

ENDS_WITHIN_S = 60


class PodRecorder:
    """Writes down every pod of a namespace, those included that are there when it begins: `names`, uid → name."""

    def __init__(self, client, namespace):
        self.names = {}
        self.watch = client.watch("pods", namespace)
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def follow(self):
        for kind, pod in self.watch:
            if kind == "ADDED":
                self.names[pod["metadata"]["uid"]] = pod["metadata"]["name"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.watch.close()
        self.thread.join(ENDS_WITHIN_S)
