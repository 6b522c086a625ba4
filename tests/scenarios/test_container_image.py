"""`deploy/Containerfile`: its instructions, and its file system, made by its own script and run as its own user."""

import json
import os
import re
import shutil
import stat

import pytest

from harness.certificates import Certificate
from harness.image import SCRIPT, made, stages, user
from harness.manifests import FOLDER, overlay
from harness.processes import BINARY, REPOSITORY, environment, finished, run
from harness.role_keys import RoleKeys
from kubelet.projection import project

PROGRAM = "/usr/local/bin/enginehouse"


@pytest.fixture(scope="module")
def root(workspace):
    folder = made(workspace / "image")
    yield folder
    shutil.rmtree(folder)


def inside(root, *arguments):
    """Runs the program there, as the image's user and with nothing of this machine."""
    uid, gid = user()
    return finished(["/usr/sbin/chroot", f"--userspec={uid}:{gid}", "--groups=", root, PROGRAM, *arguments], {})


def test_the_image_runs_one_program_as_a_user_on_a_named_base():
    build, last = stages()
    assert re.fullmatch(r"rust:\d+\.\d+-bookworm", build.base) and last.base == "scratch"
    rust = re.search(r'rust-version = "([\d.]+)"', (REPOSITORY / "Cargo.toml").read_text())[1]
    assert build.base.startswith(f"rust:{rust}-")
    assert json.loads(last.one("ENTRYPOINT")) == [PROGRAM]
    assert user()[0] > 0 and user()[1] > 0
    assert last.all("ENV") == last.all("ARG") == last.all("RUN") == []
    assert any("cargo build --release --locked" in it for it in build.all("RUN"))


def test_nothing_is_in_it_but_the_program_its_libraries_and_a_user(root):
    files = {str(it.relative_to(root)): it for it in root.rglob("*") if not it.is_dir()}
    assert all(stat.S_ISREG(it.lstat().st_mode) for it in files.values())
    assert all(not it.stat().st_mode & (stat.S_ISUID | stat.S_ISGID) for it in files.values())
    programs = {it for it, path in files.items() if os.access(path, os.X_OK) and ".so" not in it}
    assert programs == {PROGRAM.lstrip("/")}
    rest = {it for it in files if ".so" not in it} - programs
    assert rest == {"etc/group", "etc/nsswitch.conf", "etc/passwd", "etc/ssl/certs/ca-certificates.crt"}
    own = [path for path in [root, *root.rglob("*")] if path.stat().st_uid == user()[0]]
    assert own == [root / "var/lib/enginehouse"], "the process can change only what it is to write"


def test_the_program_runs_there_as_its_user(root):
    done = inside(root, "--version")
    assert (done.returncode, done.stdout) == (0, run(["--version"]).stdout), done.stderr


def test_it_takes_the_file_that_the_manifests_give_it(root, tmp_path):
    objects = overlay(tmp_path / "base", ["base"])
    data = next(it["data"] for it in objects if it["kind"] == "ConfigMap")
    place, secrets = root / "etc/enginehouse", root / "run/secrets"
    place.mkdir()
    secrets.mkdir(parents=True)
    pair = Certificate(tmp_path, "made")
    files = {"tls.crt": (pair.certificate.read_bytes(), 0o440), "tls.key": (pair.key.read_bytes(), 0o440)}
    try:
        (place / "enginehouse.toml").write_text(data["enginehouse.toml"])
        keys = RoleKeys(tmp_path, "enginehouse")
        files_of_keys = {it.name: (it.read_bytes(), 0o440) for it in (keys.file("master"), keys.file("proxy"))}
        project(volume(secrets / "enginehouse-keys"), files_of_keys, user()[1])
        project(volume(secrets / "enginehouse-users"), {"users": (b"", 0o440)}, user()[1])
        tls = volume(secrets / "enginehouse-tls")
        project(tls, files, user()[1])
        check = ["config", "check", "--config", "/etc/enginehouse/enginehouse.toml"]
        done = inside(root, *check)
        assert done.returncode == 0, done.stderr
        assert "is valid" in done.stdout
        for name, file in (("private key", tls / "tls.key"), ("users file", secrets / "enginehouse-users/users")):
            file.resolve().chmod(0o444)
            done = inside(root, *check)
            assert done.returncode == 1 and name in done.stderr and "can be read by others" in done.stderr, done.stderr
            file.resolve().chmod(0o440)
    finally:
        shutil.rmtree(place)
        shutil.rmtree(secrets)


def volume(folder):
    folder.mkdir()
    return folder


def test_keys_are_read_as_kubernetes_mounts_them_unless_others_could(root, tmp_path):
    uid, gid = user()
    place = root / "run/secrets"
    place.mkdir(parents=True)
    try:
        secret, file = place / "proxy.key", place / "enginehouse.toml"
        file.write_text('[cluster]\nkeys = "/run/secrets"\n[master]\ncandidate = false\n[proxy]\nlisten = "127.0.0.1:1"\n')
        shutil.copy(RoleKeys(tmp_path, "enginehouse").file("proxy"), secret)
        os.chown(secret, 0, gid)
        for mode, refused in ((0o440, False), (0o444, True), (0o460, True)):
            secret.chmod(mode)
            done = inside(root, "proxy", "--config", "/run/secrets/enginehouse.toml")
            # Port 1 is root's: keys that were read lead to that, and no further.
            assert done.returncode == 1
            assert ("can be read by others" in done.stderr) == refused, f"{mode:o}: {done.stderr}"
            assert ("could not listen on 127.0.0.1:1" in done.stderr) != refused, f"{mode:o}: {done.stderr}"
    finally:
        shutil.rmtree(place)


def test_the_manifests_and_the_image_agree_on_user_and_program():
    for path in (FOLDER / "base").glob("*.yaml"):
        for line in path.read_text().splitlines():
            if "runAsUser:" in line or "runAsGroup:" in line or "fsGroup:" in line:
                assert line.split()[-1] == str(user()[0]), f"{path.name}: {line}"


def test_the_script_refuses_what_it_can_not_make(tmp_path):
    def error(*arguments):
        done = finished([SCRIPT, *arguments], environment())
        assert done.returncode != 0
        return done.stderr

    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    assert "usage: image-root BINARY FOLDER" in error()
    assert "is no program" in error(tmp_path / "nothing", tmp_path / "root")
    assert "is not empty" in error(BINARY, tmp_path / "full")
