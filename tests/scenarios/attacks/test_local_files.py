"""Row E9: files of the machine outside of the allowed locations, for DataFusion engines, which run no code of users."""

import pathlib
import uuid

import pytest

from harness.clients import refused

FORBIDDEN, NO_TABLE = "42501", "42P01"


def outside(target):
    """Files and folders that no statement may read or write: keys, users, another engine, and what every machine has."""
    data = target.standalone.data
    other = target.standalone.engines.one(target.engines["finance"])
    files = (data / "keys/proxy.key", target.folder / "users", target.certificate.key, other.folder / "files/engine.toml")
    assert all(it.is_file() for it in files), files
    return [*files, "/etc/passwd", "/proc/self/environ"], [data / "keys", other.folder / "files", "/tmp"]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_e9_a_datafusion_engine_reads_and_writes_allowed_locations_only(target, scheme):
    files, folders = outside(target)
    name = f"planted_{uuid.uuid4().hex[:8]}"
    create = "CREATE EXTERNAL TABLE {} (line VARCHAR) STORED AS CSV LOCATION '{}{}'"
    attempts = [(create.format(name, scheme, it), FORBIDDEN) for it in files]
    attempts += [(f"COPY (SELECT 'planted' AS a) TO '{scheme}{it}/{name}.csv' STORED AS CSV", FORBIDDEN) for it in folders]
    attempts += [(f"SELECT * FROM '{scheme}{it}'", NO_TABLE) for it in files]
    with target.session("alice") as session:
        for statement, sqlstate in attempts:
            assert refused(session, statement).sqlstate == sqlstate, statement
    assert not [it for folder in folders for it in pathlib.Path(folder).glob(f"{name}*")]
