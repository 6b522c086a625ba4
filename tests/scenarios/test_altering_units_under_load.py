"""ALTER of every option of a resource unit while clients query all the time: no statement fails, whether the option replaces
engines or not."""

import contextlib
import itertools
import re
import threading

from harness import spark
from harness.clients import open_pyhive, rows
from harness.control import Control
from harness.processes import REPOSITORY
from harness.tier import only_long
from harness.waiting import wait_until

CLIENTS = 4
# Of each client, between two alterations.
QUERIES = 5
WITHIN_S = 180
NAMES = REPOSITORY / "crates/ddl/src/statement/units.rs"
# In this order. The owner of an engine is not known in advance, so nothing is kept for owners.
ALTERATIONS = [
    "COMMENT 'altered'",
    "PRIORITY 5",
    "CHARGE 'min'",
    "MAX_ENGINES 20",
    "START_ON_DEMAND TRUE",
    "MIN_ENGINES 1",
    "SPARE_ENGINES 1",
    "IDLE_TIMEOUT '10m'",
    "SESSIONS_PER_ENGINE 2",
    "DRIVER_CPU 2",
    "DRIVER_MEMORY '600M'",
    "PROPERTIES ('datafusion.execution.batch_size'='17')",
    "RUN_AS 'service'",
    "SHARED_BY 'user', MIN_ENGINES 0, SPARE_ENGINES 0",
    "SHARED_BY 'session'",
    "SHARED_BY 'tenant'",
    "MIN_EXECUTORS 0",
    "MAX_EXECUTORS 0",
    "EXECUTOR_CPU 2",
    "EXECUTOR_MEMORY '700M'",
    "ENGINE_TYPE 'spark', PROPERTIES RESET, SESSIONS_PER_ENGINE DEFAULT",
]


class Client:
    """One session that queries all the time."""

    def __init__(self, address, user):
        self.session = open_pyhive(address, user)
        self.answered, self.failures = 0, []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._query)

    def _query(self):
        for number in itertools.takewhile(lambda _: not self.ended.is_set(), itertools.count()):
            try:
                assert rows(self.session, f"SELECT {number} AS n") == [{"n": number}]
            except Exception as error:
                self.failures.append(repr(error))
                return
            self.answered += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join(WITHIN_S)
        self.session.close()


def options():
    listed = re.search(r"const NAMES: .*?= &\[(.*?)\];", NAMES.read_text(), re.DOTALL)[1]
    return set(re.findall(r'"(\w+)"', listed))


@only_long
def test_no_statement_fails_while_each_option_of_a_unit_is_altered(own_cluster):
    assert {it.split()[0] for it in ALTERATIONS} == options(), "every option is altered"
    cluster = own_cluster(spark=spark.on_this_machine(), proxy={"bind_deadline": "5m"})
    control = Control(cluster.addresses["proxy-b"])
    users = [f"client_{number}" for number in range(CLIENTS)]
    tenant, _, unit = control.make("loaded", users=", ".join(f"'{it}'" for it in users), options=", MAX_ENGINES 10")
    with contextlib.ExitStack() as opened:
        clients = [opened.enter_context(Client(control.address, it)) for it in users]

        def check(what):
            failures = [it for client in clients for it in client.failures]
            assert not failures, f"{what}: {failures}"

        for alteration in ["", *ALTERATIONS]:
            if alteration:
                control.execute(f"ALTER RESOURCE UNIT {unit} {alteration} WAIT '3m'")
            before = [it.answered for it in clients]

            def go_on(what=alteration, before=before):
                check(what)
                return all(it.answered >= past + QUERIES for it, past in zip(clients, before, strict=True))

            wait_until(go_on, WITHIN_S, f"every client is answered after {alteration or 'the start'}")
        print(f"{sum(it.answered for it in clients)} statements, {len(cluster.engines.of(tenant))} engines at the end")
        ever = cluster.database.rows(f"SELECT name FROM engine WHERE tenant = '{tenant}'")
        print(f"{len(ever)} engines in all")
