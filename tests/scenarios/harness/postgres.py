"""Databases of their own in the real PostgreSQL."""

import glob
import os
import subprocess
import uuid


def server():
    """The server's URL; without it a scenario fails, it is never skipped."""
    value = os.environ.get("EH_TEST_POSTGRES")
    assert value, "EH_TEST_POSTGRES is not set: run tests/run, which starts the servers"
    return value


def psql(url, statement):
    """Runs one statement with PostgreSQL's own client; answers its rows as lists of text."""
    binary = sorted(glob.glob("/usr/lib/postgresql/*/bin/psql"))[-1]
    done = subprocess.run(
        [binary, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", statement],
        capture_output=True, text=True, timeout=30, check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line.split("|") for line in done.stdout.splitlines()]


class Database:
    """A database that goes when it is closed."""

    def __init__(self):
        self.name = f"eh_{uuid.uuid4().hex[:12]}"
        psql(server(), f"CREATE DATABASE {self.name}")
        self.url = server().rsplit("/", 1)[0] + "/" + self.name

    def rows(self, statement):
        return psql(self.url, statement)

    def close(self):
        psql(server(), f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")
