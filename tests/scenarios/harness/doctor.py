"""An installation for the doctor, and accessors of its report."""

import json
import re
import urllib.parse

import tomli_w

from harness.cluster import Cluster
from harness.control import Control
from harness.processes import run
from harness.waiting import wait_until

LOOK_WITHIN_S = 90
HEAL_WITHIN_S = 90
# What the finding is about that no other candidate for master waits.
NO_SPARE = "candidates"


class Patient:
    """A cluster with one tenant that has one engine, and the doctor's view of it."""

    def __init__(self, folder, **settings):
        self.cluster = Cluster(folder, **settings).start()
        self.control = Control(self.cluster.addresses["proxy-b"])
        self.tenant, self.pool, self.unit = self.control.make("patient", options=", MIN_ENGINES 1")
        (engine,) = self.control.wait_ready(self.tenant)
        self.engine = engine["engine"]
        self.cluster.settled(self.control)
        self.file = self.cluster.write("doctor")

    def variant(self, name, **sections):
        """Another configuration file: `section=None` leaves a section out, `section={…}` changes keys of it."""
        tables = self.cluster.configuration()
        for section, entries in sections.items():
            tables[section] = entries and tables.get(section, {}) | entries
        path = self.cluster.folder / f"{name}.toml"
        path.write_text(tomli_w.dumps({section: entries for section, entries in tables.items() if entries is not None}))
        return path

    def text(self, file=None):
        return run(["doctor", "--config", file or self.file], within_s=LOOK_WITHIN_S, cwd=self.cluster.folder)

    def look(self, file=None):
        return diagnosed(self.cluster, file or self.file)

    def through(self, relay):
        url = self.cluster.database.url.replace(self.server(), relay.address)
        return self.variant("relay", database={"url": url})

    def server(self):
        """HOST:PORT of the database."""
        return urllib.parse.urlsplit(self.cluster.database.url).netloc.rsplit("@", 1)[-1]

    def stop_proxies(self):
        for name in ("proxy-a", "proxy-b"):
            self.cluster.programs[name].stop()

    def start_proxies(self):
        for name in ("proxy-a", "proxy-b"):
            self.cluster.start_program(name)
        self.control = Control(self.cluster.addresses["proxy-b"])
        self.cluster.wait_for_master()

    def restart_engine(self):
        (engine,) = self.control.wait_ready(self.tenant)
        self.control.execute(f"RESTART ENGINE {self.pool} '{engine['engine']}' FORCE WAIT '1m'")
        self.control.wait_ready(self.tenant)

    def progress(self, alteration):
        (row,) = [it for it in self.control.alterations() if it["id"] == alteration]
        return row["progress"]

    def wait_well(self):
        wait_until(lambda: self.look()[0] == 0, HEAL_WITHIN_S, "the doctor finds nothing any more", 0.5)


def diagnosed(cluster, file):
    """(exit status, report)."""
    command = ["doctor", "--config", file, "--format", "json"]
    done = run(command, within_s=LOOK_WITHIN_S, cwd=cluster.folder, binary=cluster.binary)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def check(report, name):
    (found,) = [it for it in report["checks"] if it["check"] == name]
    return found


def finding(report, name, subject):
    found = [it for it in check(report, name)["findings"] if subject in it["subject"]]
    assert len(found) == 1, json.dumps(check(report, name), indent=1)
    assert found[0]["mend"], found
    return found[0]


def ill(report):
    """The checks that found something. Servers of tests may be set not to wait for the disk, which has a test of its own, and
    one of the two proxies is no candidate for master."""
    found = {it["check"] for it in report["checks"] if any(of["subject"] != NO_SPARE for of in it["findings"])}
    return found - {"durability"}


def as_if_it_waited_for_the_disk(shown):
    shown = re.sub(r"(?m)^(  \w+ +durability +).*$(\n    .*)*", r"\1<as the server is set>", shown)
    shown = re.sub(rf"(?m)^    warning: {NO_SPARE}: .*\n      fix: .*\n", "", shown)
    shown = re.sub(r"(?m)^  (ok|warning) +(?=\w)", "  ok  ", shown)
    return re.sub(r"(?m)^no problems, \d warnings? in (\d+ checks)", r"no problems in \1", shown)
