"""The search for secrets (`harness.secret_scan`) finds what a run must not leave, and nothing that has a purpose."""

import base64
import contextlib
import sqlite3

import pytest

from harness.databases import SqliteDatabase
from harness.secret_scan import MARK, Scan

pytestmark = pytest.mark.quick
ROLE_KEY = base64.b64encode(b"k" * 32).decode()
ROOT_KEY = base64.b64encode(b"r" * 32).decode()
PRIVATE_LINE = base64.b64encode(b"p" * 48).decode()
HASH = base64.b64encode(b"h" * 32).decode().rstrip("=")
SECRET = f"{MARK}7f3a"


@pytest.fixture
def left(tmp_path):
    """A folder with secrets where they have a purpose; not below that of the run, which is searched itself."""
    folder = tmp_path / "left"
    folder.mkdir()
    write(folder, "root.key", f'cluster = "c"\nkey = "{ROOT_KEY}"\n')
    write(folder, "keys/proxy.key", f'use = 1\n[[generation]]\nnumber = 1\n[generation.secret]\nzookeeper = "{ROLE_KEY}"\n')
    write(folder, "server.key", f"-----BEGIN PRIVATE KEY-----\n{PRIVATE_LINE}\n-----END PRIVATE KEY-----\n")
    write(folder, "users", f"ann:$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ${HASH}:dba\n")
    write(folder, "engines/e-1/files/engine.toml", f'[properties]\n"s3.secret_key" = "{SECRET}"\n')
    write(folder, "kubernetes/etcd/data/member/wal/0.wal", f"\0\x0a/registry/secrets/ns/e-1\x12{SECRET}\0")
    return folder


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def test_a_secret_that_has_a_purpose_is_not_found(left):
    assert Scan(left).run() == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("proxy-a.log", f"login of ann with {SECRET}"),
        ("proxy-a.log", base64.b64encode(f"ann:{SECRET}".encode())),
        ("proxy-a.log", base64.b64encode(f"user:{SECRET}".encode())),
        ("proxy-a.log", base64.b64encode(f"admin:{SECRET}".encode())),
        ("engines/e-1/log", SECRET.encode().hex()),
        ("engines/e-1/engine.json", f'{{"key": "{ROLE_KEY}"}}'),
        ("zookeeper/log.1", b"\0password\0" + (b"k" * 32).hex().encode()),
        ("proxy-a.out", ROOT_KEY),
        ("enginehouse.toml", PRIVATE_LINE),
        ("data/copy-of-the-users", HASH),
        ("kubernetes/etcd/data/member/wal/1.wal", f"\0\x0a/registry/pods/ns/e-1\x12annotation={SECRET}\0"),
        ("kubernetes/etcd/data/member/snap/db", f"/registry/secrets/ns/s\x12x/registry/configmaps/ns/c\x12{SECRET}"),
        ("core.17", b"\x7fELF" + b"\0" * 12 + b"\x04\0" + b"\0" * 100),
    ],
)
def test_a_secret_in_another_file_is_found(left, name, text):
    write(left, name, text)
    found = Scan(left).run()
    assert len(found) == 1 and name in found[0], found


def test_rows_of_a_database_are_searched_by_table(left):
    path = left / "data/metadata.sqlite"
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE audit (value TEXT)")
        database.commit()
    assert Scan(left).run() == []
    SqliteDatabase(path).rows(f"INSERT INTO audit VALUES ('{SECRET}')")
    places = [it.split(" in ")[1] for it in Scan(left).run()]
    assert any(it.startswith(f"{left}/rows/data_metadata.sqlite/audit") for it in places), places


def test_files_of_servers_have_no_secret_at_all(left, tmp_path):
    servers = tmp_path / "servers"
    servers.mkdir()
    write(servers, "users", SECRET)
    found = Scan(left, [servers]).run()
    assert len(found) == 1 and str(servers) in found[0], found
