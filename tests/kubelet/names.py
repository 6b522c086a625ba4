"""Host names inside pods: there is no DNS, so each pod's /etc/hosts has the names of services and is kept up to date.

A service's name resolves to the addresses of its selected pods that are ready, or of all if it publishes those too. There is no
proxy either, so services with an address of their own must have the ports of their pods.
"""

import os

DOMAIN = "svc.cluster.local"


class Names:
    def __init__(self):
        self.services = {}

    def see_all(self, services):
        self.services = {key_of(it): it for it in services}

    def see(self, kind, service):
        if kind == "DELETED":
            self.services.pop(key_of(service), None)
        else:
            self.services[key_of(service)] = service

    def write(self, pods):
        endpoints = None
        for pod in pods:
            if pod.sight is not None:
                endpoints = self.endpoints(pods) if endpoints is None else endpoints
                text = self.text(pod, endpoints)
                if text != pod.names:
                    overwrite(pod.hosts, text)
                    pod.names = text

    def text(self, pod, endpoints):
        namespace, name = pod.key
        lines = [("127.0.0.1", ["localhost"]), (pod.ip, [pod.seen["spec"].get("hostname", name)])]
        for address, (where, service) in endpoints:
            long = f"{service}.{where}"
            # Only services of the pod's own namespace have short names.
            short = [service] if where == namespace else []
            lines.append((address, [*short, long, f"{long}.svc", f"{long}.{DOMAIN}"]))
        return "".join(f"{address}\t{' '.join(names)}\n" for address, names in lines)

    def endpoints(self, pods):
        """(address, service) of each pod of each service."""
        found = []
        for key, service in sorted(self.services.items()):
            selector = service["spec"].get("selector")
            unready = service["spec"].get("publishNotReadyAddresses", False)
            for pod in pods if selector else ():
                labels = pod.seen["metadata"].get("labels", {})
                selected = pod.key[0] == key[0] and selector.items() <= labels.items()
                if selected and pod.ip is not None and not pod.over and (unready or pod.is_ready()):
                    found.append((pod.ip, key))
        return found


def key_of(service):
    return service["metadata"]["namespace"], service["metadata"]["name"]


def overwrite(path, text):
    """In place, because the file is mounted, and in one write, because it may be read at any time."""
    data = text.encode()
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(file, data, 0)
        os.ftruncate(file, len(data))
    finally:
        os.close(file)
