"""The root key of an installation and the key files of its roles, made by the program."""

import base64
import pathlib
import tomllib

from harness.processes import run


class RoleKeys:
    def __init__(self, folder, cluster, secret=None):
        """`secret` is the cluster secret of an installation of version 0.1.0: the generation 0 of its keys."""
        pathlib.Path(folder).mkdir(exist_ok=True)
        self.root, self.files = pathlib.Path(folder) / "root.key", pathlib.Path(folder) / "keys"
        more = []
        if secret:
            more = ["--from", pathlib.Path(folder) / "cluster.secret"]
            more[1].touch(mode=0o600)
            more[1].write_text(f"{secret}\n")
        self.command("init", "--cluster", cluster, *more)
        self.derive()

    def command(self, verb, *arguments):
        done = run(["keys", verb, "--root", self.root, *arguments])
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def derive(self, *arguments):
        return self.command("derive", "--keys", self.files, *arguments)

    def file(self, role):
        return self.files / f"{role}.key"


def secrets_of(path):
    """The secret values of a key file of a role, as it has them, by name and generation."""
    generations = tomllib.loads(path.read_text())["generation"]
    return {(name, it["number"]): key for it in generations for name, key in it.get("secret", {}).items()}


def zookeeper_passwords(path):
    """The passwords with which the role of a key file logs in to ZooKeeper, the first one of the generation in use."""
    in_use = tomllib.loads(path.read_text())["use"]
    keys = {number: key for (name, number), key in secrets_of(path).items() if name == "zookeeper"}
    return [base64.b64decode(keys[it]).hex() for it in sorted(keys, key=lambda it: (it != in_use, -it))]
