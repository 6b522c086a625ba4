"""cert-manager in a Kubernetes of the tests: the definitions of its resources, and its controllers as a process.

Its webhooks do not run: what they would refuse beyond the definitions is accepted here. `tests/run.d/go-programs.sh` fetches
the definitions (`EH_TEST_CERT_MANAGER_DEFINITIONS`) and builds the program (`EH_TEST_CERT_MANAGER`) from cert-manager's module.
"""

import os
import pathlib
import subprocess

import yaml

from harness.kubernetes_client import ApiError
from harness.manifests import Applier
from harness.server_process import ServerProcess
from harness.waiting import wait_until

KINDS = {"certificaterequests", "certificates", "clusterissuers", "issuers"}
WITHIN_S = 60


def path_of(variable, what):
    value = os.environ.get(variable)
    assert value, f"{variable} is not set: run tests/run, which {what}"
    return pathlib.Path(value)


def define(cluster):
    """Makes the definitions, and waits until the API server has their resources."""
    folder = path_of("EH_TEST_CERT_MANAGER_DEFINITIONS", "fetches them")
    applier = Applier(cluster)
    for path in sorted(folder.glob("*.yaml")):
        applier.create(yaml.safe_load(path.read_text()))

    def served():
        try:
            found = cluster.admin.request("GET", "/apis/cert-manager.io/v1")["resources"]
        except ApiError:
            return False
        return {it["name"] for it in found} >= KINDS

    wait_until(served, WITHIN_S, "the resources of cert-manager are served")


class CertManager(ServerProcess):
    """The controllers of one namespace, with the rights of the admin. They end with this process."""

    name = "cert-manager"
    stdin = subprocess.PIPE

    def __init__(self, cluster, folder, namespace):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.cluster, self.namespace = cluster, namespace

    def command(self):
        program = path_of("EH_TEST_CERT_MANAGER", "with --long builds it")
        return [program, self.cluster.kubeconfig(), self.namespace]

    def answers(self):
        return True
