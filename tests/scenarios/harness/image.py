"""The image of `deploy/Containerfile` without a tool that builds images: instructions are read from the file, and its file
system is made by the script that the file itself calls, from the binary of this run."""

import dataclasses
import json
import pathlib
import shlex
import subprocess

from harness.processes import BINARY, REPOSITORY
from kubelet import Image

CONTAINERFILE = REPOSITORY / "deploy/Containerfile"
SCRIPT = REPOSITORY / "deploy/image-root"
MADE_WITHIN_S = 120


@dataclasses.dataclass
class Stage:
    """One stage: its base, and its instructions as (word, rest)."""

    base: str
    name: str
    instructions: list

    def all(self, word):
        return [rest for it, rest in self.instructions if it == word]

    def one(self, word):
        found = self.all(word)
        assert len(found) == 1, f"{len(found)} times {word} in stage {self.name or self.base}"
        return found[0]


def stages():
    found = []
    for line in CONTAINERFILE.read_text().replace("\\\n", " ").splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        word, rest = line.split(None, 1)
        if word == "FROM":
            base, *alias = rest.split(" AS ")
            found.append(Stage(base, alias[0] if alias else "", []))
        else:
            found[-1].instructions.append((word, rest))
    return found


def made(folder):
    """Makes the last stage's file system in `folder`: its COPY lines, each from where the stage before made it."""
    build, last = stages()
    folder = pathlib.Path(folder)
    for line in last.all("COPY"):
        source, target = line.split()[-2:]
        assert f"--from={build.name}" in line and target == "/", line
        maker = [shlex.split(it) for it in build.all("RUN") if it.endswith(source.rstrip("/"))]
        assert [it[0] for it in maker] == ["deploy/image-root"], f"{source} is made by {maker}"
        subprocess.run([SCRIPT, BINARY, folder], check=True, timeout=MADE_WITHIN_S)
    return folder


def user():
    """(uid, gid) that the image runs as."""
    uid, gid = stages()[-1].one("USER").split(":")
    return int(uid), int(gid)


def image(folder):
    """The image for `kubelet`, with its file system in `folder`."""
    last = stages()[-1]
    return Image(
        layers=[made(folder)], entrypoint=json.loads(last.one("ENTRYPOINT")), user=user()[0], workdir=last.one("WORKDIR")
    )
