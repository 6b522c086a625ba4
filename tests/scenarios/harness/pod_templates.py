"""The pods of rendered manifests, and what the program makes of their files and variables."""

import base64
import pathlib
import shutil
import tomllib

from harness.certificates import Certificate
from harness.control_plane import write_secret
from harness.manifests import named, of_kind
from harness.processes import run
from harness.role_keys import RoleKeys
from kubelet.environment import expanded

OURS = "enginehouse"
POD_IP = "10.1.2.3"
ROLES = {"enginehouse-proxy": "proxy", "enginehouse-master": "master", "enginehouse-metadata-agent": "metadata-agent"}
# The keys of the configuration that name files of Secrets.
FILES = [("cluster", "keys"), ("access", "users_file"), ("tls", "certificate_file"), ("tls", "key_file")]


def templates(objects):
    found = {}
    for name, role in ROLES.items():
        template = named(objects, "Deployment", name)["spec"]["template"]
        metadata = template["metadata"] | {"name": name, "namespace": OURS}
        found[role] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    return found


def variables(container, objects):
    values = {}
    for it in container["env"]:
        source = it.get("valueFrom", {})
        if "fieldRef" in source:
            assert source["fieldRef"]["fieldPath"] == "status.podIP"
            values[it["name"]] = POD_IP
        elif "secretKeyRef" in source:
            data = named(objects, "Secret", source["secretKeyRef"]["name"])["data"]
            values[it["name"]] = base64.b64decode(data[source["secretKeyRef"]["key"]]).decode()
        else:
            values[it["name"]] = expanded(it["value"], values)
    return values


def checked(container, objects, folder):
    """What `config check` prints in that container, with files from its volumes in `folder`."""
    config = next(it for name, it in of_kind(objects, "ConfigMap").items() if name.startswith("enginehouse-config"))
    text = config["data"]["enginehouse.toml"]
    (folder / "enginehouse.toml").write_text(text)
    mounts = {it["mountPath"]: folder / it["name"] for it in container["volumeMounts"]}
    env, files = variables(container, objects), tomllib.loads(text)
    for section, key in FILES:
        path = pathlib.Path(files[section][key])
        variable = f"ENGINEHOUSE_{section}_{key}".upper()
        if str(path) in mounts:
            env[variable] = str(mounts[str(path)])
        elif str(path.parent) in mounts:
            env[variable] = str(mounts[str(path.parent)] / path.name)
    for name, value in env.items():
        path = pathlib.Path(value)
        if str(path.parent) in mounts:
            env[name] = str(mounts[str(path.parent)] / path.name)
    if container["args"][0] != "proxy":
        # The check would read the files of proxies, which this role does not.
        env["ENGINEHOUSE_PROXY_SERVES_CLIENTS"] = "false"
    write_files(folder)
    done = run(["config", "check", "--config", folder / "enginehouse.toml"], env=env)
    assert done.returncode == 0, f"{container['name']}: {done.stderr}"
    printed = tomllib.loads(done.stdout)
    for section, key in FILES:
        printed[section][key] = files[section][key]
    return printed


def write_files(folder):
    """The content of the volumes, each in a folder with its name."""
    if (folder / "tls").exists():
        return
    for volume in ("tls", "users", "directory", "database"):
        (folder / volume).mkdir()
    RoleKeys(folder, "enginehouse")
    made = Certificate(folder, "made")
    shutil.copy(made.certificate, folder / "directory/ca.crt")
    shutil.copy(made.certificate, folder / "database/ca.crt")
    made.certificate.rename(folder / "tls/tls.crt")
    made.key.rename(folder / "tls/tls.key")
    write_secret(folder / "users/users", "")
    write_secret(folder / "directory/password", "secret")
    write_secret(folder / "database/password", "secret")
