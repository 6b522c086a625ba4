"""What names of hosts mean inside pods: there is no DNS, so every pod has them in its /etc/hosts, which is kept up to date.

A service's name is the addresses of the pods that it selects and that are ready (all that have one, if it publishes
those that aren't). There is no proxy either, so that holds for services with an address of their own as well: their
ports must be those of the pods. A pod with a host name and a subdomain has a name of its own.
"""

import os

DOMAIN = "svc.cluster.local"


class Names:
    """The services, and what their names mean now."""

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
        """Brings the files of all pods that really run up to date."""
        shared = None
        for pod in pods:
            if pod.sight is not None:
                shared = self.lines(pods) if shared is None else shared
                text = self.text(pod, shared)
                if text != pod.names:
                    overwrite(pod.hosts, text)
                    pod.names = text

    def text(self, pod, shared):
        namespace, name = pod.key
        lines = [("127.0.0.1", ["localhost"]), (pod.ip, [pod.seen["spec"].get("hostname", name)])]
        lines += [(it["ip"], it.get("hostnames", [])) for it in pod.seen["spec"].get("hostAliases", [])]
        for address, service, own in shared:
            where, plain = service
            long = f"{plain}.{where}"
            # Only its own namespace's services have short names.
            short = [plain] if where == namespace else []
            lines.append((address, [*short, long, f"{long}.svc", f"{long}.{DOMAIN}"]))
            if own:
                lines.append((address, [f"{own}.{it}" for it in (*short, long, f"{long}.svc", f"{long}.{DOMAIN}")]))
        return "".join(f"{address}\t{' '.join(names)}\n" for address, names in lines)

    def lines(self, pods):
        """(address, service, the pod's own name in it) of each pod behind each service."""
        found = []
        for key, service in sorted(self.services.items()):
            selector = service["spec"].get("selector")
            if not selector:
                continue
            everybody = service["spec"].get("publishNotReadyAddresses", False)
            for pod in pods:
                labels = pod.seen["metadata"].get("labels", {})
                selected = pod.key[0] == key[0] and selector.items() <= labels.items()
                if selected and pod.ip is not None and not pod.over and (everybody or pod.is_ready()):
                    spec = pod.seen["spec"]
                    found.append((pod.ip, key, spec.get("hostname") if spec.get("subdomain") == key[1] else None))
        return found


def key_of(service):
    return service["metadata"]["namespace"], service["metadata"]["name"]


def overwrite(path, text):
    """In place, because the file is mounted; at once, because it is read at any time."""
    data = text.encode()
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(file, data, 0)
        os.ftruncate(file, len(data))
    finally:
        os.close(file)
