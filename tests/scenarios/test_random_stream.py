"""A random stream of control statements from several clients, while processes are killed at random. Afterwards every
acknowledged statement has taken effect, every refused one has not, and the rows, the catalog and the engines agree with a
second computation.
"""

import contextlib
import copy
import time

import pytest

from harness.databases import MariadbDatabase, SqliteDatabase
from harness.ensemble import Ensemble
from harness.failpoints import Failpoints
from harness.killer import Killer
from harness.rest import at_rest
from harness.stream_clients import Stream
from harness.stream_verdict import ACKED, REFUSED, UNANSWERED, Rows, judge
from harness.tier import LONG, some

pytestmark = pytest.mark.alone

CLIENTS = 4
REST_WITHIN_S = 90
STREAM_S = 240 if LONG else 30
KILLS = 150 if LONG else 25
# Below this a run is void: statements that were acknowledged, and kills that hit while a statement was in flight. A busy
# machine gets so many times the seconds to come to it.
PATIENCE = 3
MIN_ACKED = 300 if LONG else 50
MIN_HITS = 60 if LONG else 10
QUICK_S, QUICK_KILLS, QUICK_MIN_ACKED, QUICK_MIN_HITS = 15, 10, 20, 3

PAIRS = some(["postgres and one zookeeper", "mariadb and an ensemble"], "postgres and one zookeeper")

# Expected log lines of a process whose peers are killed. Sessions of ZooKeeper are so short here that on a busy machine one
# may expire while its candidate waits for its turn.
EXPECTED = [
    "no metadata agent responds; using the last catalog",
    "decision failed .*failure=(the outcome is unknown|a metadata agent: |zookeeper is not available)",
    "could not stand for election",
]


def pour(stream, killer, seconds, least):
    stream.run()
    killer.start()
    time.sleep(seconds)
    until = time.monotonic() + seconds * (PATIENCE - 1)
    while too_little(stream, killer, least) and killer.is_alive() and time.monotonic() < until:
        time.sleep(0.2)
    killer.end()
    stream.end()


def too_little(stream, killer, least):
    acked, hits = least
    return stream.count(ACKED) < acked or sum(killer.hits.values()) < hits


def load(stream, killer, seed):
    return (
        f"seed {seed}: {stream.count(ACKED)} {ACKED}, {stream.count(REFUSED)} {REFUSED}, "
        f"{stream.count(UNANSWERED)} {UNANSWERED}; killed: {killer}"
    )


def verdict(stream, killer, seed, database, least):
    """Fails, with the seed and the load, if anything is not as it has to be or too little happened."""
    summary = load(stream, killer, seed)
    print(summary)
    rows = Rows(database)
    try:
        judge(stream.statements, rows)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{summary}") from None
    the_verdict_can_fail(stream.statements, rows)
    acked, hits = least
    if too_little(stream, killer, least):
        pytest.fail(f"void: at least {acked} acknowledged statements and {hits} kills in flight are needed; {summary}")


def the_verdict_can_fail(statements, rows):
    """Each of these would be a defect: a verdict that lets one pass is worth nothing."""
    acked = next(it for it in statements.values() if it.outcome == ACKED and it.change is None)
    refused = next(it for it in statements.values() if it.outcome == REFUSED)
    nowhere = ("t_0", "p_0", "u_0", 77)
    request = rows.requests[-1]
    for what, tamper in (
        ("a refused statement was acknowledged", lambda statements, rows: setattr(statements[refused.token], "outcome", ACKED)),
        ("an effect was refused", lambda statements, rows: setattr(statements[acked.token], "outcome", REFUSED)),
        ("an effect is lost", lambda statements, rows: rows.requests.pop()),
        ("an effect came twice", lambda statements, rows: rows.requests.append(request | {"id": "another"})),
        ("a number is unaccounted for", lambda statements, rows: setattr(rows, "counter", rows.counter + 1)),
        ("there is a slot without a request", lambda statements, rows: rows.slots.update({nowhere: (1, "start")})),
        ("a name was issued without a slot", lambda statements, rows: rows.names.update({rows.counter + 9: ("x", nowhere)})),
        ("a comment is an older one", lambda statements, rows: rows.objects["unit", "u_0"][0].update(comment="older")),
    ):
        other_statements, other_rows = copy.deepcopy(statements), copy.deepcopy(rows)
        tamper(other_statements, other_rows)
        with pytest.raises(AssertionError, match="the statements and the state differ"):
            judge(other_statements, other_rows)
            pytest.fail(f"the verdict did not see that {what}")


@pytest.fixture
def servers(request, folder):
    if request.param == "postgres and one zookeeper":
        yield {}
        return
    with contextlib.closing(Ensemble(folder, members=3)) as ensemble:
        yield {"database": MariadbDatabase(), "ensemble": ensemble.start()}


@pytest.mark.parametrize("servers", PAIRS, indirect=True)
def test_exactly_the_acknowledged_statements_take_effect_under_kills(servers, own_cluster, folder, seed):
    failpoints = Failpoints(folder / "points")
    cluster = own_cluster(
        candidates=("proxy-a", "proxy-b"), session_timeout_s=1, master={"tick_interval": "500ms"}, env=failpoints.env, **servers
    )
    cluster.logs.allow(*EXPECTED)

    def proxy(rng):
        name = rng.choice(["proxy-a", "proxy-b"])
        return name, cluster.addresses[name]

    stream = Stream(proxy, seed, CLIENTS)
    stream.set_up(cluster.addresses["proxy-a"])
    killer = Killer(
        {"proxy": ["proxy-a", "proxy-b"], "metadata agent": ["agent-1", "agent-2"]},
        program=lambda name: cluster.programs[name],
        start=cluster.start_program,
        flying=lambda name: stream.flying(name if name and name.startswith("proxy") else None),
        engines=cluster.engines,
        failpoints=failpoints,
        seed=seed,
        kills=KILLS,
    )
    pour(stream, killer, STREAM_S, (MIN_ACKED, MIN_HITS))
    at_rest(cluster, REST_WITHIN_S)
    verdict(stream, killer, seed, cluster.database, (MIN_ACKED, MIN_HITS))


@pytest.mark.quick
def test_standalone_keeps_exactly_the_acknowledged_statements(own_standalone, folder, seed):
    failpoints = Failpoints(folder / "points")
    own_standalone.env = failpoints.env
    installation = own_standalone.start()
    installation.logs.allow(*EXPECTED)
    database = SqliteDatabase(installation.data / "metadata.sqlite")
    stream = Stream(lambda _: ("standalone", installation.address), seed, CLIENTS)
    stream.set_up(installation.address)
    killer = Killer(
        {"standalone": ["standalone"]},
        program=lambda _: installation.program,
        start=lambda _: installation.start(),
        flying=lambda _: stream.flying(),
        engines=installation.engines,
        failpoints=failpoints,
        seed=seed,
        kills=QUICK_KILLS,
    )
    pour(stream, killer, QUICK_S, (QUICK_MIN_ACKED, QUICK_MIN_HITS))
    installation.database, installation.nodes = database, None
    at_rest(installation, REST_WITHIN_S, registry=False)
    verdict(stream, killer, seed, database, (QUICK_MIN_ACKED, QUICK_MIN_HITS))
