"""C18: a dictionary against what a backup of an installation has: database, ZooKeeper, labels of engines."""

import base64
import hashlib
import hmac
import itertools
import json
import os
import pathlib
import re
import sqlite3

from harness.attacked import password_of

KEY = "spark.hadoop.fs.s3a.secret.key"
UNIT = "c18"
# A value that a dictionary has, and that is in no other text.
VALUE = "swordfish-1983"
WORDS = ["swordfish-1982", VALUE, "swordfish-1984", "hunter2", "letmein-please"]
DIGESTS = ["md5", "sha1", "sha224", "sha256", "sha384", "sha512", "sha3_256", "blake2b", "blake2s"]
# The digits of the shortest digest that the product stores: a fingerprint.
DIGITS = 16


class Stolen:
    """What was stolen, and which texts of it could be digests."""

    def __init__(self, data):
        self.data = data
        runs = re.findall(rb"[0-9a-f]{%d,}" % DIGITS, data)
        self.digests = {run[at : at + DIGITS] for run in runs for at in range(len(run) - DIGITS + 1)}
        self.digests |= {run[:DIGITS] for run in re.findall(rb"[A-Za-z0-9+/]{%d,}" % DIGITS, data)}

    def confirms(self, word, public):
        """Whether it has the word, or a digest of it that is not keyed, or keyed with what is public."""
        encoded = base64.b64encode(word.encode()).rstrip(b"=")
        if word.encode() in self.data or encoded in self.data:
            return True
        return any(trace in self.digests for trace in traces_of(word, public))


def texts_of(word):
    """What could be hashed of a value: alone, with its key, as JSON of the secret pairs, and after the name of the unit."""
    pairs = json.dumps({KEY: word}, separators=(",", ":"))
    alone = [word, f"{KEY}={word}", f"{KEY}:{word}", f"{KEY}\0{word}", pairs, json.dumps({KEY: word})]
    return [*alone, *(f"{prefix}{text}" for text in alone for prefix in (f"{UNIT}\0", f"{UNIT}:", UNIT))]


def traces_of(word, public):
    for text, name in itertools.product(texts_of(word), DIGESTS):
        digests = [hashlib.new(name, text.encode()).digest()]
        digests += [hmac.new(key, text.encode(), name).digest() for key in public]
        for digest in digests:
            yield digest.hex()[:DIGITS].encode()
            yield base64.b64encode(digest)[:DIGITS]


def dump(database, copy):
    """The text of every row of a copy of the database, as a restored backup would show it."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as source, sqlite3.connect(copy) as target:
        source.backup(target)
        return "\n".join(target.iterdump()).encode()


def files_below(folder):
    paths = (pathlib.Path(parent, it) for parent, _, files in os.walk(folder) for it in files)
    return [path for path in paths if path.is_file()]


def test_c18_a_dictionary_confirms_nothing_in_a_stolen_backup(target, tmp_path):
    data = target.standalone.data
    try:
        target.execute(f"CREATE RESOURCE UNIT {UNIT} DRIVER_MEMORY '512M', PROPERTIES ('{KEY}'='{VALUE}', 'a'='b')")
        target.execute(f"CREATE RESOURCE POOL {UNIT} UNIT_LIST ('{UNIT}')")
        target.execute(f"CREATE TENANT {UNIT} RESOURCE_POOL_LIST ('{UNIT}'), USER_LIST ('alice')")
        target.execute(f"START ENGINE {UNIT} {UNIT} {UNIT} WAIT '1m'")
        target.execute(f"ALTER RESOURCE UNIT {UNIT} COMMENT 'the value stays'")
        rows = dump(data / "metadata.sqlite", tmp_path / "copy.sqlite")
        [launched] = (data / "engines/engines").glob(f"{UNIT}-*/files/engine.toml")
        # An engine has its secrets; the records of engines, with their labels, are in the other files.
        of_engines = [path for path in files_below(data / "engines/engines") if "files" not in path.parts]
        of_zookeeper = files_below(data / "zookeeper")
        assert of_engines and of_zookeeper
        stolen = Stolen(rows + b"".join(path.read_bytes() for path in of_engines + of_zookeeper))
        public = [b"", UNIT.encode(), b"enginehouse", KEY.encode(), password_of("alice").encode()]
        assert len(re.findall(rb"sealed:1:1:[A-Za-z0-9+/=]+", rows)) == 1, rows
        assert re.search(rb'"fingerprint":"[0-9a-f]{%d}"' % DIGITS, rows), "what the dictionary is for is not there"
        # The attack finds what it is given: the value where it has to be, and a digest that is not keyed.
        assert Stolen(launched.read_bytes()).confirms(VALUE, public)
        unkeyed = hashlib.sha256(f'{{"{KEY}":"{VALUE}"}}'.encode()).hexdigest()[:DIGITS]
        assert Stolen(f"label: {unkeyed}".encode()).confirms(VALUE, public)
        assert [word for word in WORDS if stolen.confirms(word, public)] == []
    finally:
        target.execute(f"DROP TENANT IF EXISTS {UNIT} WAIT '1m'")
        target.execute(f"DROP RESOURCE POOL IF EXISTS {UNIT}")
        target.execute(f"DROP RESOURCE UNIT IF EXISTS {UNIT}")
