"""What a container sees of its pod and of the cluster: variables, and files of its volumes. As a kubelet makes them.

What is referred to and isn't there, and isn't optional, is `Missing`: the container can't be made yet. Where it is a volume
that refers to it, it is `NotMounted`: nothing of the pod can.
"""

import base64
import os
import pathlib
import re

from kubelet.quantity import quantity

REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
DEFAULT_TOKEN_S = 3600


class Missing(Exception):
    """What the pod refers to is not there, in the words of a kubelet."""


class NotMounted(Exception):
    """A volume can't be made, in the words of a kubelet."""


class Sight:
    """One pod's sight of the cluster. `client` reads config maps and secrets and makes tokens."""

    def __init__(self, pod, ip, host_ip, client, inherited):
        self.pod, self.ip, self.host_ip, self.client, self.inherited = pod, ip, host_ip, client, inherited
        self.namespace = pod["metadata"]["namespace"]

    def field(self, path):
        """The value of a `fieldRef`."""
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        chosen = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
        if chosen:
            return metadata.get(chosen[1], {}).get(chosen[2], "")
        if path in ("metadata.labels", "metadata.annotations"):
            entries = metadata.get(path.split(".")[1], {})
            return "".join(f'{key}="{value}"\n' for key, value in sorted(entries.items()))
        return {
            "metadata.name": metadata["name"],
            "metadata.namespace": self.namespace,
            "metadata.uid": metadata["uid"],
            "spec.nodeName": spec.get("nodeName", ""),
            "spec.serviceAccountName": spec.get("serviceAccountName", ""),
            "status.podIP": self.ip,
            "status.podIPs": self.ip,
            "status.hostIP": self.host_ip,
        }[path]

    def resource(self, wanted, container=None):
        """The value of a `resourceFieldRef`, rounded up."""
        name = wanted.get("containerName", container and container["name"])
        spec = self.pod["spec"]
        container = next(it for it in (*spec["containers"], *spec.get("initContainers", [])) if it["name"] == name)
        kind, what = wanted["resource"].split(".", 1)
        value = quantity(container.get("resources", {}).get(kind, {}).get(what, "0"))
        divisor = quantity(wanted.get("divisor", "1"))
        return str(-(-value // (divisor or 1)))

    def keys(self, resource, name, optional=False):
        """key → bytes of a config map or secret."""
        found = self.client.find(resource, name, self.namespace)
        if found is None:
            if optional:
                return {}
            raise Missing(f'{"configmap" if resource == "configmaps" else "secret"} "{name}" not found')
        if resource == "secrets":
            return {key: base64.b64decode(value) for key, value in found.get("data", {}).items()}
        plain = {key: value.encode() for key, value in found.get("data", {}).items()}
        return plain | {key: base64.b64decode(value) for key, value in found.get("binaryData", {}).items()}

    def key(self, resource, reference):
        value = self.keys(resource, reference["name"], reference.get("optional", False)).get(reference["key"])
        if value is None and not reference.get("optional", False):
            raise Missing(f"couldn't find key {reference['key']} in {resource[:-1]} {self.namespace}/{reference['name']}")
        return None if value is None else value.decode()

    def variables(self, container):
        """The container's environment."""
        values = dict(self.inherited)
        for source in container.get("envFrom", []):
            for kind, resource in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
                if kind in source:
                    wanted = source[kind]
                    for key, value in self.keys(resource, wanted["name"], wanted.get("optional", False)).items():
                        values[source.get("prefix", "") + key] = value.decode()
        for variable in container.get("env", []):
            value = self.value(variable, container, values)
            if value is not None:
                values[variable["name"]] = value
        return values

    def value(self, variable, container, values):
        source = variable.get("valueFrom")
        if source is None:
            return expanded(variable.get("value", ""), values)
        if "fieldRef" in source:
            return self.field(source["fieldRef"]["fieldPath"])
        if "resourceFieldRef" in source:
            return self.resource(source["resourceFieldRef"], container)
        if "configMapKeyRef" in source:
            return self.key("configmaps", source["configMapKeyRef"])
        return self.key("secrets", source["secretKeyRef"])

    def write_volumes(self, folder):
        """Makes the folders of all volumes; answers volume → folder."""
        made = {}
        for volume in self.pod["spec"].get("volumes", []):
            place = pathlib.Path(folder) / volume["name"]
            place.mkdir(parents=True, exist_ok=True)
            made[volume["name"]] = place
            group = self.pod["spec"].get("securityContext", {}).get("fsGroup")
            if "emptyDir" in volume:
                place.chmod(0o777 if group is None else 0o2777)
                if group is not None:
                    os.chown(place, 0, group)
                continue
            mode = next((it.get("defaultMode", 0o644) for key, it in volume.items() if key != "name"), 0o644)
            try:
                files = self.files(volume)
            except Missing as missing:
                raise NotMounted(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {missing}') from missing
            for path, (content, own_mode) in files.items():
                file = place / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
                file.chmod((own_mode or mode) | (0 if group is None else 0o040))
                if group is not None:
                    os.chown(file, 0, group)
        return made

    def files(self, source):
        """path → (content, mode or `None`) of a volume or of one source of a projected one."""
        if "projected" in source:
            together = {}
            for it in source["projected"]["sources"]:
                together |= self.files(it)
            return together
        if "downwardAPI" in source:
            return {it["path"]: (self.downward(it).encode(), it.get("mode")) for it in source["downwardAPI"]["items"]}
        if "serviceAccountToken" in source:
            wanted = source["serviceAccountToken"]
            return {wanted["path"]: (self.token(wanted).encode(), 0o644)}
        for kind, resource, name in (("configMap", "configmaps", "name"), ("secret", "secrets", "secretName")):
            if kind in source:
                wanted = source[kind]
                keys = self.keys(resource, wanted.get(name) or wanted["name"], wanted.get("optional", False))
                return chosen_of(keys, wanted.get("items"))
        raise Missing(f"volume {source.get('name', '')} is of a kind that these tests don't have: {sorted(source)}")

    def downward(self, item):
        return self.field(item["fieldRef"]["fieldPath"]) if "fieldRef" in item else self.resource(item["resourceFieldRef"])

    def token(self, wanted):
        """A token that is good while the pod is there."""
        metadata = self.pod["metadata"]
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "expirationSeconds": wanted.get("expirationSeconds", DEFAULT_TOKEN_S),
                "audiences": [wanted["audience"]] if wanted.get("audience") else [],
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]},
            },
        }
        account = self.pod["spec"].get("serviceAccountName", "default")
        made = self.client.create("serviceaccounts", asked, self.namespace, account, "token")
        return made["status"]["token"]


def chosen_of(keys, items):
    if items is None:
        return {key: (value, None) for key, value in keys.items()}
    absent = [it["key"] for it in items if it["key"] not in keys]
    if absent:
        raise Missing(f"references non-existent config key: {absent[0]}")
    return {it["path"]: (keys[it["key"]], it.get("mode")) for it in items}


def expanded(text, values):
    """`$(NAME)` is the variable, if there is one; `$$` is `$`."""
    return REFERENCE.sub(lambda found: "$" if found[0] == "$$" else values.get(found[1], found[0]), text)
