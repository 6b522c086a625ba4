"""A pod's view of the cluster: environment variables and volume files, made as a kubelet makes them.

A missing reference that is not optional is `Missing`: the container cannot be created yet. In a volume it is `NotMounted`:
no container of the pod can.
"""

import base64
import contextlib
import os
import pathlib
import re

from kubelet.projection import project

REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
DEFAULT_TOKEN_S = 3600


class Missing(Exception):
    """A missing reference, in a kubelet's words."""


class NotMounted(Exception):
    """A volume that cannot be set up, in a kubelet's words."""


class Sight:
    """One pod's view. `client` reads config maps and secrets and makes tokens."""

    def __init__(self, pod, ip, host_ip, client, inherited):
        self.pod, self.ip, self.host_ip, self.client, self.inherited = pod, ip, host_ip, client, inherited
        self.namespace = pod["metadata"]["namespace"]

    def field(self, path):
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

    def keys(self, resource, name, optional=False):
        """key → bytes of a config map or secret."""
        found = self.client.find(resource, name, self.namespace)
        if found is None:
            if optional:
                return {}
            raise Missing(f'{"configmap" if resource == "configmaps" else "secret"} "{name}" not found')
        if resource == "secrets":
            return decoded(found)
        return {key: value.encode() for key, value in found.get("data", {}).items()}

    def key(self, resource, reference):
        value = self.keys(resource, reference["name"], reference.get("optional", False)).get(reference["key"])
        if value is None and not reference.get("optional", False):
            raise Missing(f"couldn't find key {reference['key']} in {resource[:-1]} {self.namespace}/{reference['name']}")
        return None if value is None else value.decode()

    def variables(self, container):
        values = dict(self.inherited)
        for variable in container.get("env", []):
            value = self.value(variable, values)
            if value is not None:
                values[variable["name"]] = value
        return values

    def value(self, variable, values):
        source = variable.get("valueFrom")
        if source is None:
            return expanded(variable.get("value", ""), values)
        if "fieldRef" in source:
            return self.field(source["fieldRef"]["fieldPath"])
        if "configMapKeyRef" in source:
            return self.key("configmaps", source["configMapKeyRef"])
        return self.key("secrets", source["secretKeyRef"])

    def write_volumes(self, folder):
        """Makes the folders of all volumes; returns volume → folder."""
        made = {}
        for volume in self.pod["spec"].get("volumes", []):
            own = made[volume["name"]] = pathlib.Path(folder) / volume["name"]
            own.mkdir(parents=True, exist_ok=True)
            group = self.pod["spec"].get("securityContext", {}).get("fsGroup")
            if "emptyDir" in volume:
                own.chmod(0o777 if group is None else 0o2777)
                if group is not None:
                    os.chown(own, 0, group)
                continue
            try:
                self.project(own, volume, self.files(volume))
            except Missing as missing:
                raise NotMounted(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {missing}') from missing
        return made

    def project(self, folder, volume, files):
        """Writes files (path → content, mode or `None`) of a volume that is not an `emptyDir`."""
        mode = next((it.get("defaultMode", 0o644) for key, it in volume.items() if key != "name"), 0o644)
        group = self.pod["spec"].get("securityContext", {}).get("fsGroup")
        # With a group the files are readable for it.
        of_group = 0 if group is None else 0o440
        project(folder, {path: (content, (own or mode) | of_group) for path, (content, own) in files.items()}, group)

    def replace_secret(self, secret, volumes):
        """Replaces the files of the volumes (volume → folder) that are this Secret's. One that lacks a key changes nothing."""
        keys = decoded(secret)
        for volume in self.pod["spec"].get("volumes", []):
            if volume.get("secret", {}).get("secretName") == secret["metadata"]["name"]:
                with contextlib.suppress(Missing):
                    folder, files = volumes[volume["name"]], chosen_of(keys, volume["secret"].get("items"), "secret")
                    if any((folder / path).read_bytes() != content for path, (content, _) in files.items()):
                        self.project(folder, volume, files)

    def files(self, source):
        """path → (content, mode or `None`) of a volume or of one source of a projected one."""
        if "projected" in source:
            return {path: it for one in source["projected"]["sources"] for path, it in self.files(one).items()}
        if "downwardAPI" in source:
            items = source["downwardAPI"]["items"]
            return {it["path"]: (self.field(it["fieldRef"]["fieldPath"]).encode(), it.get("mode")) for it in items}
        if "serviceAccountToken" in source:
            token = source["serviceAccountToken"]
            return {token["path"]: (self.token(token).encode(), 0o644)}
        for kind, resource, name in (("configMap", "configmaps", "name"), ("secret", "secrets", "secretName")):
            if kind in source:
                reference = source[kind]
                keys = self.keys(resource, reference.get(name) or reference["name"], reference.get("optional", False))
                return chosen_of(keys, reference.get("items"), "config" if kind == "configMap" else kind)
        raise Missing(f"volume {source.get('name', '')} is of a kind that is not supported: {sorted(source)}")

    def token(self, projection):
        metadata = self.pod["metadata"]
        spec = {
            "expirationSeconds": projection.get("expirationSeconds", DEFAULT_TOKEN_S),
            "audiences": [projection["audience"]] if projection.get("audience") else [],
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]},
        }
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        account = self.pod["spec"].get("serviceAccountName", "default")
        return self.client.create("serviceaccounts", request, self.namespace, account, "token")["status"]["token"]


def decoded(secret):
    return {key: base64.b64decode(value) for key, value in secret.get("data", {}).items()}


def chosen_of(keys, items, kind):
    if items is None:
        return {key: (value, None) for key, value in keys.items()}
    absent = [it["key"] for it in items if it["key"] not in keys]
    if absent:
        raise Missing(f"references non-existent {kind} key: {absent[0]}")
    return {it["path"]: (keys[it["key"]], it.get("mode")) for it in items}


def expanded(text, values):
    """`$(NAME)` is the variable, if there is one; `$$` is `$`."""
    return REFERENCE.sub(lambda found: "$" if found[0] == "$$" else values.get(found[1], found[0]), text)
