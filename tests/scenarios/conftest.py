"""What scenarios share: one standalone installation and one cluster for those that leave them as they found them, and a
Kubernetes for each file whose engines are pods.

A test that kills or stops something gets an installation of its own (`own_standalone`, `own_cluster`, `own_pod_cluster`).
Every installation's logs are searched after every test: an unexpected WARN or ERROR line fails it.
"""

import functools
import os
import pathlib
import random
import shutil
import signal
import tempfile

import pytest

from harness import hiveserver2, spark
from harness.api_relay import ApiRelay
from harness.clients import pyhive_session, rows
from harness.cluster import Cluster
from harness.control import Control
from harness.evidence import keep
from harness.fixtures import FAILED, searched, started
from harness.golden import GoldenFile
from harness.pods import PodCluster, Pods, PodTenant
from harness.processes import BINARY, run
from harness.secret_scan import KEPT, MARK, Scan
from harness.standalone import Standalone
from harness.tier import skip_long

SEED = int(os.environ.get("EH_TEST_SEED") or random.SystemRandom().randrange(1, 1_000_000))
# The workers of a parallel run inherit it: one run, one seed.
os.environ["EH_TEST_SEED"] = str(SEED)


def pytest_configure():
    # What runs in the background of a script has SIGINT ignored, and so has all that it starts: a Java never hears
    # Ctrl-C then, and a program none that comes before it listens. What has a handler here is reset there.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    skip_long(items)


def pytest_report_header():
    return f"seed: {SEED} (EH_TEST_SEED={SEED} repeats it), binary: {BINARY}"


def pytest_sessionstart():
    if not BINARY.exists():
        pytest.exit(f"{BINARY} is missing: cargo build", returncode=3)


def pytest_terminal_summary(terminalreporter):
    reported = [it for it in terminalreporter.stats.get("passed", []) if it.when == "call" and it.capstdout]
    if reported:
        terminalreporter.section("what the tests measured")
    for report in reported:
        terminalreporter.write_line(report.nodeid)
        for line in report.capstdout.rstrip().splitlines():
            terminalreporter.write_line(f"    {line}")


def pytest_report_teststatus(report):
    reported = getattr(report, "reported", None)
    return ("passed", ".", f"PASSED: {reported}") if reported and report.when == "call" and report.passed else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
        if report.failed and "folder" in item.funcargs:
            keep(item.funcargs["folder"], item.name)
        report.reported = item.stash.get(REPORTED, None)
    return report


REPORTED = pytest.StashKey[str]()


@pytest.fixture
def report(request):
    """A note of the test, shown after its name if it passes; JUnit's reports have no place for it."""

    def execute(what):
        request.node.stash[REPORTED] = what

    return execute


@pytest.fixture(scope="session")
def workspace():
    """The folder of everything that the scenarios make. At its end it is searched for secrets, and each of them is an error."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="enginehouse-scenarios.", dir="/var/tmp"))
    KEPT.begin(folder)
    yield folder
    found = Scan(folder, filter(None, os.environ.get("EH_TEST_SERVER_FILES", "").split(":"))).run()
    if os.environ.get("EH_TEST_KEEP"):
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    assert not found, "\n".join([f"{len(found)} secrets were found", *found[:60]])


@pytest.fixture
def golden_file(snapshot):
    return snapshot.use_extension(GoldenFile)


@pytest.fixture(scope="session")
def seed():
    return SEED


@pytest.fixture
def folder(workspace, request):
    return pathlib.Path(tempfile.mkdtemp(prefix=request.node.name[:40] + ".", dir=workspace))


TOUR = "--listen 127.0.0.1:0 --tour --exit --seed".split()


class Tour:
    """One `standalone --tour --exit`: its data directory, its exit status and what it printed."""

    def __init__(self, folder, seed):
        self.seed = seed
        self.installation = Standalone(folder, "tour")
        self.done = self.run_tour()
        self.rides = folder / "rides.parquet"
        shutil.copy(self.installation.data / "samples/rides/rides.parquet", self.rides)

    def run_tour(self, seed=None):
        return run(
            ["standalone", "--data-dir", self.installation.data, *TOUR, seed or self.seed],
            within_s=180,
            cwd=self.installation.folder,
        )


@pytest.fixture(scope="session")
def toured(workspace, seed):
    tour = Tour(workspace / "tour", seed)
    yield tour
    tour.installation.close()


@pytest.fixture(scope="session")
def shared_standalone(workspace, toured):
    """One standalone for all tests that leave it as they found it, with the tour's sample data."""
    installation = Standalone(workspace / "shared", env={"ENGINEHOUSE_LOG": DEBUG_LOG})
    # A data directory that others can read is refused once there are files in it.
    installation.data.mkdir(mode=0o700)
    rides = installation.data / "samples" / "rides"
    rides.mkdir(parents=True)
    shutil.copy(toured.rides, rides)
    installation.start()
    yield installation
    installation.close()


# The default, and the engine's debug line with the hash of each statement.
DEBUG_LOG = (
    "warn,enginehouse=info,proxy=info,master=info,engine_agent=info,coordination=info,metadata=info,"
    "orchestrator=info,datafusion_engine=info,datafusion_engine::service=debug,embedded_zookeeper=info,hs2=info,"
    "sqlx=error,zookeeper_client=error"
)


@pytest.fixture
def standalone(shared_standalone, request):
    """The shared standalone; its logs are searched after the test."""
    yield from searched(shared_standalone, request)


@pytest.fixture
def control(request):
    """An admin at the cluster of the test, or at the shared standalone."""
    if "cluster" in request.fixturenames:
        return Control(request.getfixturevalue("cluster").addresses["proxy-b"])
    return Control(request.getfixturevalue("standalone").address)


class Tenant:
    def __init__(self, installation, name, users):
        self.installation = installation
        self.control = Control(installation.address)
        secret = f", PROPERTIES ('s3.secret_key' = '{MARK}of-{name}')"
        self.name, self.pool, self.unit = self.control.make(name, options=secret, users=users)
        self.engine = self.control.start(self.name, self.pool, self.unit)

    @property
    def process(self):
        return self.installation.engines.one(self.engine)


@pytest.fixture(scope="session")
def shared_tenant(shared_standalone):
    """A tenant whose one engine lives as long as the shared standalone; alice and bob are its users."""
    tenant = Tenant(shared_standalone, "analysts", "'alice', 'bob'")
    location = shared_standalone.data / "samples/rides"
    with pyhive_session(shared_standalone.address, "alice") as session:
        rows(session, f"CREATE EXTERNAL TABLE rides STORED AS PARQUET LOCATION '{location}/'")
    return tenant


@pytest.fixture
def tenant(shared_tenant, standalone):
    return shared_tenant


@pytest.fixture
def own_standalone(folder, request):
    installation = Standalone(folder)
    try:
        yield from searched(installation, request)
    finally:
        installation.close()


@pytest.fixture(scope="session")
def shared_cluster(workspace):
    """One cluster for all tests that leave it as they found it."""
    yield from started(Cluster(workspace / "cluster", spark=spark.ABSENT, hiveserver2=hiveserver2.datafusion()))


@pytest.fixture
def cluster(shared_cluster, request):
    """The shared cluster, or the one that a file has for its tests; its logs are searched after the test."""
    yield from searched(shared_cluster, request)


@pytest.fixture
def cluster_tenant(cluster, control):
    """Makes tenants on a cluster, which are dropped after the test: (tenant, pool, unit, its user)."""
    made = []

    def make(name, **options):
        made.append(control.make(name, users=f"'{name}_user'", **options))
        return (*made[-1], f"{name}_user")

    yield make
    for tenant in made:
        control.drop(*tenant)


@pytest.fixture
def own_cluster(folder, request):
    """Makes clusters that the test may kill: `own_cluster(section={key: value})`, started unless `start=False`."""
    yield from clusters(Cluster, folder, request)


@pytest.fixture
def own_pod_cluster(pods, folder, request):
    """The same, with engines that are pods."""
    yield from clusters(functools.partial(PodCluster, pods=pods), folder, request)


def clusters(kind, folder, request):
    made = []

    def make(start=True, **settings):
        made.append(kind(folder / f"cluster-{len(made)}", **settings))
        made[-1].logs.begin()
        return made[-1].start() if start else made[-1]

    yield make
    try:
        if not request.node.stash.get(FAILED, False):
            for installation in made:
                installation.logs.check()
    finally:
        for installation in made:
            installation.close()


@pytest.fixture(scope="module")
def pods(workspace, request):
    """A Kubernetes of the file's own."""
    yield from started(Pods(workspace / f"kubernetes-of-{request.module.__name__}"))


@pytest.fixture(scope="module")
def relay(pods):
    """A relay before the API server of `pods`."""
    with ApiRelay(pods.kubernetes) as relay:
        yield relay


@pytest.fixture
def pod_tenant(cluster):
    """Makes tenants (`harness.pods.PodTenant`) on a cluster with pods, which are dropped after the test."""
    made = []

    def make(name, **options):
        made.append(PodTenant(cluster, name, **options))
        return made[-1]

    yield make
    for tenant in made:
        tenant.drop()
