"""The REST API: every example of docs/rest.md is run by curl against a standalone with TLS and passwords."""

import json
import re
import subprocess

import pytest

from harness.certificates import Certificate
from harness.processes import REPOSITORY, run

PAGE = REPOSITORY / "docs/rest.md"
# The address in the examples.
ADDRESS = "localhost:10009"

CONFIGURATION = """
[access]
authentication = ["file"]
users_file = "{folder}/users"

[tls]
mode = "required"
certificate_file = "{folder}/server.crt"
key_file = "{folder}/server.key"
"""

# Values that differ in each run: only their type is compared, or they are null.
VOLATILE = {"alteration", "engine", "config", "sessions", "running", "address", "started_at", "at"}
VOLATILE |= {"object", "statement", "generation", "proxy", "request", "next"}


def examples():
    """The blocks of the section about curl: a script, and the output that the page shows for it, if there is one."""
    section = PAGE.read_text().split("\n## With curl\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```(sh|json)\n(.*?)^```$", section, re.M | re.S)
    found = []
    for language, text in blocks:
        if language == "sh":
            found.append([text, None])
        else:
            assert found[-1][1] is None, "two outputs after one script"
            found[-1][1] = json.loads(text)
    return found


def assert_like(shown, printed, path="$"):
    """The printed value has the shape of the shown one, and its values where they do not differ in each run."""
    assert type(shown) is type(printed), f"{path}: {shown!r} is shown, and {printed!r} was printed"
    if isinstance(shown, dict):
        assert list(shown) == list(printed), f"{path}: {list(printed)}"
        for key, value in shown.items():
            if key in VOLATILE:
                assert isinstance(printed[key], (type(value), type(None))), f"{path}.{key}: {printed[key]!r}"
            else:
                assert_like(value, printed[key], f"{path}.{key}")
    elif isinstance(shown, list):
        assert len(shown) == len(printed), f"{path}: {printed}"
        for at, (one, other) in enumerate(zip(shown, printed, strict=True)):
            assert_like(one, other, f"{path}[{at}]")
    else:
        assert shown == printed, path


@pytest.fixture
def served(own_standalone, folder):
    """The address of a standalone with TLS and the users admin and ann, and files as the page names them."""
    Certificate(folder, "server")
    for user in ("admin", "ann"):
        done = run(["passwd", "--file", folder / "users", user], text=f"pass-of-{user}\n")
        assert done.returncode == 0, done.stderr
    (folder / "enginehouse.toml").write_text(CONFIGURATION.format(folder=folder))
    netrc = folder / "netrc"
    netrc.write_text("machine localhost login admin password pass-of-admin\n")
    netrc.chmod(0o600)
    own_standalone.start("--config", folder / "enginehouse.toml")
    return own_standalone.address.replace("127.0.0.1", "localhost")


def values(text):
    """The JSON objects in an output, one after the other or with other text between them."""
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        value, end = decoder.raw_decode(text, at)
        yield value
        at = text.find("{", end)


def test_each_example_of_the_page_works_as_it_is_shown(served, folder):
    scripts = examples()
    assert len(scripts) >= 6, "the page has lost its examples"
    function = scripts[0][0].replace(ADDRESS, served)
    assert "api() {" in function
    for script, shown in scripts[1:]:
        text = f"set -euo pipefail\n{function}\n{script}"
        done = subprocess.run(["bash", "-c", text], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        if shown is not None:
            *_, last = values(done.stdout)
            assert_like(shown, last)


def test_a_password_is_needed_and_each_user_has_its_own_rights(served, folder):
    def status(path, *options):
        command = ["curl", "--silent", "--cacert", folder / "server.crt", "--output", "/dev/null"]
        command += ["--write-out", "%{http_code}", *options, f"https://{served}/api/v1{path}"]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, check=True).stdout

    assert status("/master") == "401"
    assert status("/master", "--user", "admin:wrong") == "401"
    assert status("/no/such/path") == "401"
    assert status("/master", "--user", "admin:pass-of-admin") == "200"
    assert status("/master", "--user", "ann:pass-of-ann") == "403"
    assert status("/tenants", "--user", "ann:pass-of-ann") == "200"
