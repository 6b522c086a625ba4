"""`deploy/kubernetes` as an operator applies it: rendered by the real kustomize, and sent to a real API server.

`EH_TEST_KUSTOMIZE` names the program that renders (built from `tests/kubernetes/render` by `tests/run.d/go-programs.sh`). Where
an object goes is asked of the server, so that a kind or version that it doesn't know is an error here too.
"""

import json
import os
import pathlib
import shutil
import subprocess

from harness.control_plane import write_secret
from harness.kubernetes_client import STRICT
from harness.processes import REPOSITORY
from harness.role_keys import RoleKeys

FOLDER = REPOSITORY / "deploy/kubernetes"
RENDERED_WITHIN_S = 60
SECRETS = {"database.url": "postgres://enginehouse:of-the-test@127.0.0.1:1/none"}
# The files of each Secret with keys, in the folder that `keys derive` writes.
KEYS = {"proxy": ["proxy"], "master": ["master", "proxy"], "metadata-agent": ["metadata-agent"]}


class NotRendered(Exception):
    pass


def render(folder):
    program = os.environ.get("EH_TEST_KUSTOMIZE")
    assert program, "EH_TEST_KUSTOMIZE is not set: run tests/run, which builds it"
    done = subprocess.run([program, str(folder)], capture_output=True, text=True, timeout=RENDERED_WITHIN_S, check=False)
    if done.returncode != 0:
        raise NotRendered(done.stderr.strip())
    return json.loads(done.stdout)


def overlay(folder, resources, files=None, **content):
    """Makes a kustomization in `folder` over folders of `deploy/kubernetes`, and renders it."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (files or {}).items():
        write_secret(folder / name, text)
    # Only relative paths are allowed.
    below = {"resources": [os.path.relpath(FOLDER / it, folder) for it in resources]}
    if "components" in content:
        content["components"] = [os.path.relpath(FOLDER / "components" / it, folder) for it in content["components"]]
    # JSON is YAML.
    (folder / "kustomization.yaml").write_text(json.dumps(below | content))
    return render(folder)


def example(folder, **files):
    """The example, rendered where its secrets may be written: a copy beside a copy of what it stands on."""
    shutil.copytree(FOLDER, folder)
    RoleKeys(folder / "example", "enginehouse")
    for name, text in (SECRETS | files).items():
        write_secret(folder / "example" / name, text)
    return render(folder / "example")


def of_kind(objects, kind):
    """name → object; those in different namespaces must have different names."""
    found = {it["metadata"]["name"]: it for it in objects if it["kind"] == kind}
    assert len(found) == sum(it["kind"] == kind for it in objects), f"two {kind} have one name"
    return found


def named(objects, kind, name, namespace=None):
    found = [
        it
        for it in objects
        if (it["kind"], it["metadata"]["name"]) == (kind, name) and namespace in (None, it["metadata"].get("namespace"))
    ]
    assert len(found) == 1, f"{kind} {name}: {len(found)}"
    return found[0]


class Applier:
    """Sends objects to a cluster (`harness.control_plane.Kubernetes`) as its admin."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.client = cluster.admin
        self.kinds = {}

    def path(self, it):
        version, kind = it["apiVersion"], it["kind"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if version not in self.kinds:
            found = self.client.request("GET", base)["resources"]
            self.kinds[version] = {each["kind"]: each for each in found if "/" not in each["name"]}
        resource = self.kinds[version][kind]
        if resource["namespaced"]:
            return f"{base}/namespaces/{it['metadata']['namespace']}/{resource['name']}"
        return f"{base}/{resource['name']}"

    def create(self, it, **query):
        return self.client.request("POST", self.path(it), it, query=STRICT | query)

    def try_out(self, it):
        return self.create(it, dryRun="All")

    def apply(self, objects):
        for it in objects:
            self.create(it)
        for it in objects:
            if it["kind"] == "Namespace":
                self.cluster.wait_namespace(it["metadata"]["name"])
