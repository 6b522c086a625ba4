"""The program of a recorded version (`tests/upgrade`), built from its commit in this repository's history.

A commit is built once, without optimization: its source and what cargo makes of it are removed afterwards, and the program
stays in the cache of the tests. `tests/run --long` builds before it starts servers; a test that finds no program builds it
itself. Also a program:

    python earlier_version.py VERSION...

which prints the path of each.
"""

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.processes import REPOSITORY, environment

VERSIONS = REPOSITORY / "tests" / "upgrade"
CACHE = pathlib.Path(os.environ.get("ENGINEHOUSE_TEST_CACHE") or pathlib.Path.home() / ".cache/enginehouse-tests") / "versions"
BUILT_WITHIN_S = 3600
FETCHED_WITHIN_S = 300
# What cargo and rustup need of our environment. Flags of the current build are not the earlier one's.
PASSED_ON = (
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "HTTPS_PROXY",
    "https_proxy",
    "SSL_CERT_FILE",
    "CARGO_HTTP_CAINFO",
)
LAST_LINES = 40


def program(version):
    """The path of the program."""
    commit = (VERSIONS / version / "processes" / "commit").read_text().strip()
    folder = CACHE / commit
    built = folder / "enginehouse"
    folder.mkdir(parents=True, exist_ok=True)
    # Two runs at once build it once.
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            require(commit, version)
            build(commit, folder, built)
    return built


def git(*arguments, within_s=FETCHED_WITHIN_S):
    return subprocess.run(["git", "-C", REPOSITORY, *arguments], capture_output=True, text=True, timeout=within_s, check=False)


def require(commit, version):
    """Fetches the commit where the history is shallow; fails without it."""
    kind = f"{commit}^{{commit}}"
    if git("cat-file", "-e", kind).returncode == 0:
        return
    fetched = git("fetch", "--quiet", "--depth", "1", "origin", commit)
    assert git("cat-file", "-e", kind).returncode == 0, (
        f"the history of {REPOSITORY} has no commit {commit}, from which version {version} is built, and it could not be "
        f"fetched from origin; get the whole history with git fetch --unshallow:\n{fetched.stderr}"
    )


def build(commit, folder, built):
    # What an earlier run left that was killed.
    for left in folder.glob("build.*"):
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix="build.", dir=folder) as name:
        work = pathlib.Path(name)
        source, target = work / "source", work / "target"
        source.mkdir()
        archive = work / "source.tar"
        archived = git("archive", f"--output={archive}", commit)
        assert archived.returncode == 0, archived.stderr
        subprocess.run(["tar", "-xf", archive, "-C", source], check=True)
        command = ["nice", "-n", "10", "cargo", "build", "--locked", "--package", "enginehouse", "--bin", "enginehouse"]
        # In a third of the time of the development profile, which optimizes what the version depends on.
        command += ["--config", "profile.dev.debug=false", "--config", 'profile.dev.package."*".opt-level=0']
        env = environment({it: os.environ[it] for it in PASSED_ON if it in os.environ})
        env |= {"CARGO_TARGET_DIR": str(target), "CARGO_INCREMENTAL": "0"}
        done = subprocess.run(command, cwd=source, env=env, capture_output=True, text=True, timeout=BUILT_WITHIN_S, check=False)
        last = "\n".join(done.stderr.splitlines()[-LAST_LINES:])
        assert done.returncode == 0, f"commit {commit} could not be built:\n{last}"
        made = work / "enginehouse"
        shutil.copy2(target / "debug" / "enginehouse", made)
        # In one step: a program that is there is whole.
        made.rename(built)


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        print(program(wanted))
