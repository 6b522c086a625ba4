"""kubectl as far as the how-tos need it: a program that renders with the real kustomize and sends to a real API server.

    kubectl apply -k FOLDER
    kubectl [-n NAMESPACE] wait --for=condition=Ready RESOURCE/NAME --timeout=2m
    kubectl [-n NAMESPACE] get secret NAME -o 'jsonpath={.data.KEY}'

`KUBECONFIG` is one of `harness.control_plane`. Anything else is an error.
"""

import argparse
import json
import os
import pathlib
import re
import sys
import types

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.kubernetes_client import ApiError, Client
from harness.manifests import Applier, render
from harness.waiting import wait_until

CONFLICT = 409
SECONDS = {"s": 1, "m": 60}
RESOURCES = {"certificate": "/apis/cert-manager.io/v1/namespaces/{}/certificates/{}"}


def client():
    config = json.loads(pathlib.Path(os.environ["KUBECONFIG"]).read_text())
    server, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    return Client(server["server"].removeprefix("https://"), server["certificate-authority"], user["token"])


def apply(admin, folder):
    applier = Applier(types.SimpleNamespace(admin=admin))
    for it in render(folder):
        named = f"{it['kind']}/{it['metadata']['name']}"
        try:
            applier.create(it)
            print(f"{named} created")
        except ApiError as error:
            if error.code != CONFLICT:
                raise
            path = f"{applier.path(it)}/{it['metadata']['name']}"
            admin.request("PATCH", path, it, "application/merge-patch+json")
            print(f"{named} configured")


def wait(admin, namespace, what, condition, timeout):
    resource, name = what.split("/")
    kind = condition.removeprefix("condition=")
    path = RESOURCES[resource].format(namespace, name)

    def holds():
        found = admin.request("GET", path).get("status", {}).get("conditions", [])
        return any(it["type"] == kind and it["status"] == "True" for it in found)

    wait_until(holds, int(timeout[:-1]) * SECONDS[timeout[-1]], f"{what} has the condition {kind}", 0.2)
    print(f"{what} condition met")


def get_secret(admin, namespace, name, output):
    key = re.fullmatch(r"jsonpath=\{\.data\.(.+)\}", output)[1].replace("\\.", ".")
    print(admin.get("secrets", name, namespace)["data"][key], end="")


def main():
    parser = argparse.ArgumentParser(prog="kubectl", allow_abbrev=False)
    parser.add_argument("-n", dest="namespace")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("apply").add_argument("-k", dest="folder", required=True)
    waiting = verbs.add_parser("wait")
    waiting.add_argument("--for", dest="condition", required=True)
    waiting.add_argument("--timeout", required=True)
    waiting.add_argument("what")
    getting = verbs.add_parser("get")
    getting.add_argument("resource", choices=["secret"])
    getting.add_argument("name")
    getting.add_argument("-o", dest="output", required=True)
    given = parser.parse_args()
    if given.verb == "apply":
        apply(client(), given.folder)
    elif given.verb == "wait":
        wait(client(), given.namespace, given.what, given.condition, given.timeout)
    else:
        get_secret(client(), given.namespace, given.name, given.output)


if __name__ == "__main__":
    main()
