"""The search of C17 over all that a run of scenarios leaves: no secret is in a file that has no purpose for it.

Secrets are the keys of roles and engines, the private keys of certificates, the hashes of users files, and each text that
begins with `MARK`, as passwords and secret properties of scenarios do. Files are the logs and folders of installations, the
transaction log of ZooKeeper, the files of etcd, which have each label, annotation, config map and event that was ever written,
and the rows of each database at its end (`keep_rows`). What ends earlier than the run is kept until then: logs (`keep_log`) and
the secrets of engines (`keep_engine`).
"""

import base64
import contextlib
import mmap
import os
import pathlib
import re
import sqlite3
import subprocess
import tomllib

MARK = "canary-"
SEARCHED_WITHIN_S = 600
# Files that may have any secret, by their paths below the folder of a run, and their purpose.
PURPOSES = {
    r"(.*/)?[^/]*\.key(\.new)?": "keys of roles and certificates",
    r"(.*/)?users": "a users file",
    r"(.*/)?cluster\.secret": "the secret of an installation of version 0.1.0",
    r"(.*/)?[^/]*\.(password|token|url)": "a credential that a test has written for a program",
    r"(.*/)?files/engine\.toml": "what an engine is launched with",
    r"(.*/)?(slapd\.conf|data/data\.mdb)": "a directory, which knows its users",
    r"(.*/)?issuer/.*": "an issuer of tokens, which knows its users",
    r"(.*/)?tokens\.csv": "the users of an API server",
    r"(.*/)?[^/]*\.kubeconfig": "the login to an API server",
    r"(.*/)?early|misedited/new": "what the test of an attack sends, or writes in place of the users file",
    r"kubernetes-of-test_upgrades/.*": "pods of version 0.1.0, which had their keys in an annotation",
}
# What etcd has below this prefix may be secret.
ETCD_KEY = re.compile(rb"/registry/([a-z0-9.-]+)/[^\x00-\x20]*")
ETCD_SECRETS = b"secrets"
ETCD_FILE = re.compile(r"(.*/)?etcd/data/.*")
ELF_CORE = (b"\x7fELF", b"\x04\x00")
# What the Secret of an engine has in etcd, which keeps its files as they are.
ENGINE_PASSWORD = re.compile(rb'\[credential\]\n(?:\w+ = [^\n]*\n)*?password = "([^"]+)"')
HASH = re.compile(rb"\$argon2id\$[^:\s]+\$([A-Za-z0-9+/]{20,})")


class Kept:
    """What ends before the run does. `folder` is that of the run; without one nothing is kept."""

    def __init__(self):
        self.folder = None
        self.secrets = {}

    def begin(self, folder):
        self.folder, self.secrets = folder, {}

    def keep_log(self, path, file):
        """The log of an engine whose folder has gone; `file` was opened before."""
        if self.folder and not os.path.exists(path):
            file.seek(0)
            self.write(f"ended/{path.replace('/', '_')[-200:]}", file.read())

    def keep_engine(self, folder):
        """The secrets of an engine that runs, in the folder of its log."""
        with contextlib.suppress(OSError, tomllib.TOMLDecodeError, KeyError):
            text = (pathlib.Path(folder) / "files/engine.toml").read_text()
            self.secrets[tomllib.loads(text)["credential"]["password"]] = f"password of {folder}"

    def keep_rows(self, database):
        """All rows of a database (harness.databases) that is about to go."""
        if self.folder:
            for table, text in database.dump().items():
                self.write(f"rows/{database.name}/{table}", text.encode())

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab") as file:
            file.write(content)


KEPT = Kept()


class Scan:
    def __init__(self, folder, more=()):
        """`more` are further folders, whose files have no secret."""
        self.folder, self.more = pathlib.Path(folder), [pathlib.Path(it) for it in more]
        self.secrets = {}
        self.found = []

    def run(self):
        """Returns what was found: each secret by a name, with the file."""
        files = [pathlib.Path(parent, it) for parent, _, names in os.walk(self.folder) for it in names]
        self.add_marks()
        for path in files:
            with contextlib.suppress(OSError):
                self.add_secrets(path)
                self.keep_sqlite(path)
                if path.name.startswith("core") and is_core(path):
                    self.found.append(f"a core file: {path}")
        self.secrets |= KEPT.secrets
        first = {}
        for path, offset, secret in self.hits():
            if not self.has_purpose(path, offset):
                first.setdefault((secret, path), offset)
        self.found += [f"{self.secrets[secret]} in {path}, at byte {offset}" for (secret, path), offset in first.items()]
        return self.found

    def add_marks(self):
        """The mark in clear, as hexadecimal digits, and in the three forms that it has within a text in base64."""
        self.secrets[MARK] = "a canary"
        self.secrets[MARK.encode().hex()] = "a canary in hexadecimal"
        for before in range(3):
            encoded = base64.b64encode(b"\0" * before + MARK.encode()).decode().rstrip("=")
            # Without the characters that also depend on what is beside the mark.
            begin, end = (0, 2, 3)[before], len(encoded) - (1 if (before + len(MARK)) % 3 else 0)
            self.secrets[encoded[begin:end]] = "a canary in base64"

    def add_secrets(self, path):
        if path.suffix == ".key" and path.is_file():
            text = path.read_text()
            if "PRIVATE KEY-----" in text:
                self.add(text.splitlines()[1], path)
                return
            with contextlib.suppress(tomllib.TOMLDecodeError):
                self.add_role(tomllib.loads(text), path)
        elif path.name == "users" and path.is_file():
            for line in HASH.findall(path.read_bytes()):
                self.add(line.decode(), path)
        elif ETCD_FILE.fullmatch(str(path.relative_to(self.folder))) and path.stat().st_size:
            with opened(path) as content:
                for password in set(ENGINE_PASSWORD.findall(content)):
                    self.add(password.decode(), path)

    def add_role(self, table, path):
        secrets = [table["key"]] if isinstance(table.get("key"), str) else []
        secrets += [key for it in table.get("generation", []) for key in it.get("secret", {}).values()]
        for secret in secrets:
            self.add(secret, path)
            # As a password of ZooKeeper.
            self.add(base64.b64decode(secret).hex(), path)

    def add(self, secret, path):
        assert len(secret) >= 20, f"{path}: too short to be looked for"
        self.secrets[secret] = f"a secret of {path.relative_to(self.folder)}"

    def keep_sqlite(self, path):
        if path.name != "metadata.sqlite":
            return
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for table in tables:
                rows = database.execute(f'SELECT * FROM "{table}"').fetchall()
                name = str(path.relative_to(self.folder)).replace("/", "_")
                target = self.folder / f"rows/{name}/{table}"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text("\n".join(map(repr, rows)))

    def hits(self):
        """(path, offset, secret) for each place that has one. grep finds thousands of words at once."""
        words = self.folder / "searched-words"
        words.write_text("\n".join(self.secrets) + "\n")
        command = ["grep", "-raobFHZ", f"--exclude={words.name}", "-f", words, self.folder, *self.more]
        done = subprocess.run([*map(str, command)], capture_output=True, timeout=SEARCHED_WITHIN_S, check=False)
        words.unlink()
        # Files of ZooKeeper may go meanwhile.
        assert done.returncode in (0, 1) or b"No such file" in done.stderr, done.stderr.decode(errors="replace")[-2000:]
        for line in done.stdout.splitlines():
            path, found = line.split(b"\0", 1)
            offset, secret = found.split(b":", 1)
            yield pathlib.Path(os.fsdecode(path)), int(offset), secret.decode()

    def has_purpose(self, path, offset):
        if not path.is_relative_to(self.folder):
            return False
        name = str(path.relative_to(self.folder))
        if any(re.fullmatch(place, name) for place in PURPOSES):
            return True
        return ETCD_FILE.fullmatch(name) is not None and is_of_secret(path, offset)


def is_of_secret(path, offset):
    """Whether the value at that place of a file of etcd belongs to a Secret: its key is written before it."""
    with opened(path) as content:
        at = content.rfind(b"/registry/", 0, offset)
        key = ETCD_KEY.match(content[at : at + 200]) if at >= 0 else None
    return key is not None and key[1] == ETCD_SECRETS


@contextlib.contextmanager
def opened(path):
    """The content of a file that need not fit into memory."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content


def is_core(path):
    with open(path, "rb") as file:
        head = file.read(18)
    return (head[:4], head[16:18]) == ELF_CORE
