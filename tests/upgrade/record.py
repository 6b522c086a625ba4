"""Records the state of an installation, so that later versions can test an upgrade from it.

    EH_TEST_BINARY=<program of the version> python tests/upgrade/record.py VERSION COMMIT [processes|pods]...

Runs the program with a real ZooKeeper, PostgreSQL and Kubernetes (the `EH_TEST_` variables that `tests/run` exports),
issues the statements below, waits until the installation is at rest, and writes `tests/upgrade/VERSION/processes` and
`tests/upgrade/VERSION/pods`. Addresses, paths and the root in ZooKeeper are replaced by names in double braces;
`harness.recorded` describes the files and loads them. The engines keep running while the state is read.
"""

import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "scenarios"), str(HERE.parent)]

from harness import recording
from harness.clients import pyhive_session, refused, rows
from harness.cluster import Cluster
from harness.control import Control
from harness.pods import PodCluster, Pods
from harness.processes import BINARY
from harness.rest import at_rest

SECRET = "recorded" * 8
SECRET_KEYS = ["password", "secret", "token", "credential", "access.key", "time.zone"]
# What the tenant's users see of their data, before and after an upgrade.
QUERIES = [
    "SELECT count(*) AS n, sum(price) AS total FROM sales.rides",
    "SELECT zone, price FROM sales.dear_rides ORDER BY zone",
    "SELECT text, length(text) AS characters FROM backslashes",
]
SHOWN = [
    "SHOW CREATE TENANT analysts",
    "SHOW CREATE TENANT lab",
    "SHOW CREATE RESOURCE POOL main",
    "SHOW CREATE RESOURCE POOL side",
    "SHOW CREATE RESOURCE UNIT small",
    "SHOW CREATE RESOURCE UNIT zoned",
    "SHOW CREATE RESOURCE UNIT nightly",
]


def declare(control, main="", side=""):
    """Units with and without properties, one of them secret; two pools, two tenants, three kinds of slots."""
    for statement in [
        "CREATE RESOURCE UNIT small DRIVER_CPU 1, DRIVER_MEMORY '256M', MIN_ENGINES 1",
        "CREATE RESOURCE UNIT zoned DRIVER_CPU 1, DRIVER_MEMORY '256M', MIN_ENGINES 1, PROPERTIES "
        "('datafusion.execution.batch_size'='4096', 'datafusion.execution.time_zone'='+02:00')",
        "CREATE RESOURCE UNIT nightly DRIVER_CPU 1, DRIVER_MEMORY '256M', MAX_ENGINES 3, COMMENT 'reports, ünïcödé'",
        "CREATE RESOURCE UNIT dropped DRIVER_CPU 1, DRIVER_MEMORY '1G'",
        f"CREATE RESOURCE POOL main UNIT_LIST ('small', 'zoned'){main}",
        f"CREATE RESOURCE POOL side UNIT_LIST ('nightly'){side}, COMMENT 'at night'",
        "CREATE TENANT analysts RESOURCE_POOL_LIST ('main', 'side'), USER_LIST ('alice', 'bob') WAIT '2m'",
        "CREATE TENANT lab RESOURCE_POOL_LIST ('side'), USER_LIST ('carol') WAIT '2m'",
        "ALTER RESOURCE UNIT nightly DRIVER_MEMORY '300M' WAIT '2m'",
        "DROP RESOURCE UNIT dropped",
    ]:
        control.execute(statement)
    restarted = control.start("analysts", "side", "nightly", wait="2m")
    stopped = control.start("analysts", "side", "nightly", wait="2m")
    control.execute(f"RESTART ENGINE side '{restarted}' FORCE WAIT '2m'")
    control.stop("side", stopped, wait="2m")
    control.start("lab", "side", "nightly", wait="2m")
    with pyhive_session(control.address) as session:
        refused(session, "DROP RESOURCE POOL main")


def fill_catalog(cluster):
    """Tables and views of a tenant, one with a backslash in its text; answers what the queries return."""
    folder = cluster.samples / "rides"
    folder.mkdir()
    (folder / "rides.csv").write_text("zone,price\nharbour,12.5\nairport,40.25\nold town,7\n")
    with pyhive_session(cluster.addresses["proxy-b"], "alice", unit="small") as session:
        for statement in [
            "CREATE SCHEMA sales",
            f"CREATE EXTERNAL TABLE sales.rides STORED AS CSV LOCATION '{folder}/' OPTIONS ('format.has_header' 'true')",
            "CREATE VIEW sales.dear_rides AS SELECT zone, price FROM sales.rides WHERE price > 10",
            r"CREATE VIEW backslashes AS SELECT 'C:\new\table' AS text",
        ]:
            rows(session, statement)
        return {query: rows(session, query) for query in QUERIES}


def record(cluster, control, kind, version, answers):
    cluster.settled(control)
    engines = at_rest(cluster)
    shown = {statement: control.execute(statement) for statement in SHOWN}
    recording.write(
        target(version, kind),
        cluster,
        {
            "version": version,
            "kind": kind,
            "engines": sorted(engines),
            "answers": answers,
            "shown": shown,
            "settings": {"metadata_agent": {"secret_keys": SECRET_KEYS}},
        },
    )


def record_processes(version, work):
    cluster = Cluster(work / "processes", secret=SECRET, cluster={"name": "recorded"}, metadata_agent=agent_settings())
    try:
        cluster.start()
        control = Control(cluster.addresses["proxy-b"])
        declare(control)
        record(cluster, control, "processes", version, fill_catalog(cluster))
    finally:
        cluster.close()


def record_pods(version, work):
    pods = Pods(work / "kubernetes")
    cluster = None
    try:
        pods.start()
        cluster = PodCluster(work / "pods", pods, secret=SECRET, cluster={"name": "recorded"}, metadata_agent=agent_settings())
        cluster.start()
        control = Control(cluster.addresses["proxy-b"])
        declare(control, *(f", {pods.nodes_of(pool)}" for pool in ("main", "side")))
        record(cluster, control, "pods", version, {})
    finally:
        if cluster is not None:
            cluster.close()
        pods.close()


def agent_settings():
    return {"listen": "127.0.0.1:0", "alter_wait": "20s", "secret_keys": SECRET_KEYS}


def target(version, kind):
    folder = HERE / version / kind
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def main():
    version, commit, *kinds = sys.argv[1:]
    work = pathlib.Path(tempfile.mkdtemp(prefix="enginehouse-record.", dir="/var/tmp"))
    print(f"recording {BINARY} as {version} in {work}")
    try:
        for kind in kinds or ["processes", "pods"]:
            {"processes": record_processes, "pods": record_pods}[kind](version, work)
            (HERE / version / kind / "commit").write_text(f"{commit}\n")
            print(f"recorded: {HERE / version / kind}")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
