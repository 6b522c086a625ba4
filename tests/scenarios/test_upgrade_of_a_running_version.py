"""An upgrade of an installation that runs: the program of an earlier version, built from its commit, is replaced role by role
in the order of `docs/upgrade.md`, while users keep running statements. `test_upgrades.py` begins with the recorded state of
the same version instead.
"""

import pytest
from upgrade.record import QUERIES, SECRET, SHOWN, agent_settings, declare, fill_catalog

from harness import earlier_version
from harness.adoption import adopted, granted_after_adoption, record_steps, steps
from harness.clients import pyhive_session, rows
from harness.control import Control
from harness.decisions import REPLACING, applied
from harness.doctor import diagnosed, ill
from harness.draining import EARLIER_LEAVES, GRACE, begin_to_leave
from harness.ledger import POOL, Ledger
from harness.masters import Masters
from harness.processes import BINARY
from harness.reservations import Holder
from harness.rest import at_rest
from harness.session_monitor import SessionMonitor
from harness.tier import only_long
from harness.waiting import wait_until

VERSIONS = ["0.1.0"]
WITHIN_S = 60
# `tests/run` builds the version before; otherwise that takes most of it.
TIMEOUT_S = earlier_version.BUILT_WITHIN_S + 900
# Of the earlier version: two candidates for master, and a proxy that only serves clients.
CANDIDATES, GATEWAY = ("proxy-a", "proxy-b"), "proxy-c"
NEW_GATEWAY, NEW_CANDIDATES = "proxy-d", ("proxy-e", "proxy-f")


class Upgrade:
    """An installation of the earlier version with the objects of the record, and what has to outlast its upgrade."""

    def __init__(self, cluster):
        self.cluster = cluster
        cluster.start(["agent-1", "agent-2", *CANDIDATES, GATEWAY])
        self.control = Control(cluster.addresses[GATEWAY])
        declare(self.control)
        self.answers = fill_catalog(cluster)
        cluster.settled(self.control)
        self.engines = self.running()
        self.shown = self.show()

    def running(self):
        """The uid and the process of each engine."""
        return {name: (it.uid, it.process) for name, it in self.cluster.engines.all().items()}

    def started(self):
        """The engines that run in addition to those of the earlier version, of which none was restarted."""
        running = self.running()
        assert self.engines.items() <= running.items(), (self.engines, running)
        return running.keys() - self.engines.keys()

    def show(self):
        return {statement: self.control.execute(statement) for statement in SHOWN}

    def migrate(self, monitor):
        self.cluster.binary = BINARY
        self.cluster.migrate()
        record_steps(self.cluster.database)
        monitor.wait_round()

    def declare_more(self):
        """Agents of the earlier version do not check the version of the schema: what they write over the migrated database, and
        the engines that start for it, are part of the upgrade."""
        execute, start = self.control.execute, self.control.start
        start("analysts", "side", "nightly")
        execute("CREATE RESOURCE UNIT late_unit DRIVER_CPU 1, DRIVER_MEMORY '256M', MIN_ENGINES 1")
        execute("CREATE RESOURCE POOL late_pool UNIT_LIST ('late_unit')")
        execute("ALTER TENANT lab RESOURCE_POOL_LIST ('side', 'late_pool') WAIT '1m'")
        execute("CREATE TENANT late RESOURCE_POOL_LIST ('late_pool', 'side') WAIT '1m'")
        self.cluster.settled(self.control)
        assert len(self.started()) == 3
        self.engines, self.shown = self.running(), self.show()

    def replace_agents(self, monitor):
        for name in ("agent-1", "agent-2"):
            self.cluster.restart(name)
            monitor.wait_round()

    def replace_gateway(self, monitor):
        self.start(NEW_GATEWAY, monitor)
        self.control = Control(self.cluster.addresses[NEW_GATEWAY])
        self.drain(GATEWAY, monitor)

    def drain(self, name, monitor):
        """Terminates a proxy; its sessions go on."""
        monitor.leave(name)
        begin_to_leave(self.cluster, name, EARLIER_LEAVES)
        monitor.wait_round()

    def start(self, name, monitor):
        self.cluster.start_program(name)
        monitor.join(name)

    def change_masters_of_the_earlier_version(self, monitor):
        """The other candidate takes over, over the migrated database and with agents of this version; returns its name."""
        masters = Masters(self.cluster)
        term = masters.wait_acting()
        self.drain(masters.program_of(term), monitor)
        return masters.program_of(masters.wait_acting(term.epoch))

    def ask_before_it_is_counted(self, holder):
        """An engine and a reservation of a program, which wait while no master has counted the pool."""
        (row,) = self.control.execute("START ENGINE lab side nightly")
        status, waiting = holder.request("lab", "side", {"type": "Cpu", "cpu": 1})
        assert (status, waiting["state"]) == (202, "waiting"), waiting
        assert Ledger(self.cluster.database).held(POOL, "side") == (0, 0, 0)
        assert not [it for it in steps(self.cluster.database) if it.is_adoption or it.is_grant]
        return row["engine"], waiting["id"]

    def limits_hold(self):
        """What is declared after the upgrade counts the adopted engines: a capacity, then a quota."""
        execute = self.control.execute
        in_pool = len([it for it in self.running() if "-side-" in it])
        of_lab = len([it for it in self.control.engines("lab") if it["pool"] == "side"])
        execute(f"ALTER RESOURCE POOL side CAPACITY (ENGINES {in_pool}) WAIT '1m'")
        self.is_short(f"left 0 of {in_pool} (POOL_ENGINES, retryable")
        execute(f"ALTER RESOURCE POOL side CAPACITY (ENGINES {in_pool + 1}) WAIT '1m'")
        execute(f"CREATE RESOURCE QUOTA q_lab TENANT lab, POOL side, GUARANTEE (ENGINES {of_lab})")
        self.is_short(f"left 0 of {of_lab} (TENANT_ENGINES, retryable")
        execute(f"ALTER RESOURCE QUOTA q_lab GUARANTEE (ENGINES {of_lab + 1}) WAIT '1m'")
        self.control.start("lab", "side", "nightly")

    def is_short(self, amounts):
        refusal = self.control.refused("START ENGINE lab side nightly NOWAIT")
        assert refusal.sqlstate == "53000" and amounts in refusal.message, refusal

    def alter_replaces(self):
        """An ALTER replaces the engines of its unit and no other. Old and new ones fit into the pool together."""
        self.control.execute("ALTER RESOURCE POOL side CAPACITY DEFAULT WAIT '1m'")
        self.control.execute("ALTER RESOURCE UNIT nightly DRIVER_MEMORY '320M' WAIT '2m'")
        self.cluster.settled(self.control)
        left = self.running()
        kept = {name: it for name, it in self.engines.items() if "-nightly-" not in name}
        assert kept.items() <= left.items() and self.engines.keys() & left.keys() == kept.keys(), (self.engines, left)

    def use_new_keys(self):
        """The second step of the keys: no process of the earlier version is left, and some engines are."""
        self.cluster.keys.derive("--use", "1", "--accept", "0,1")
        running = [self.cluster.programs[it] for it in ("agent-1", "agent-2", NEW_GATEWAY, *NEW_CANDIDATES)]
        wait_until(lambda: all("keys replaced" in it.logged() for it in running), WITHIN_S, "every role has read its keys")

    def is_well(self, findings=frozenset()):
        """At rest, which includes that the ledger has no drift, and healthy; returns the engines."""
        self.cluster.settled(self.control)
        engines = at_rest(self.cluster)
        status, report = diagnosed(self.cluster, self.cluster.write("doctor"))
        assert ill(report) == findings, report
        return engines.keys()


@only_long
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_upgrade_of_a_running_version_restarts_no_engine(own_cluster, version):
    cluster = own_cluster(
        start=False,
        binary=earlier_version.program(version),
        candidates=(*CANDIDATES, *NEW_CANDIDATES),
        secret=SECRET,
        metadata_agent=agent_settings(),
        proxy=GRACE,
    )
    upgrade = Upgrade(cluster)
    with SessionMonitor(cluster, "alice", (*CANDIDATES, GATEWAY)) as monitor:
        upgrade.migrate(monitor)
        upgrade.declare_more()
        upgrade.replace_agents(monitor)
        upgrade.replace_gateway(monitor)
        last = upgrade.change_masters_of_the_earlier_version(monitor)
        assert last in CANDIDATES
        assert not upgrade.started() and not steps(cluster.database)

        upgrade.drain(last, monitor)
        program = Holder(cluster.addresses[NEW_GATEWAY], "carol")
        engine, reservation = upgrade.ask_before_it_is_counted(program)
        for name in NEW_CANDIDATES:
            upgrade.start(name, monitor)
        upgrade.control.wait_engine("lab", engine, "ready")
        assert upgrade.started() == {engine}
    for name in (*CANDIDATES, GATEWAY):
        assert cluster.programs[name].wait(WITHIN_S) == 0

    names = upgrade.engines.keys()
    assert adopted(cluster, names).keys() == {*names, engine, reservation}
    granted_after_adoption(cluster.database, names, {engine, reservation})
    replaced = [it for name in NEW_CANDIDATES for it in applied(cluster.logs, name) if it[0] in REPLACING and it[1] != engine]
    assert replaced == [], "an upgrade replaces no engine"
    assert program.act(reservation, "release", "side")[0] == 200
    # What runs has no TLS between roles.
    assert upgrade.is_well({"keys"}) == {*names, engine}
    assert upgrade.show() == upgrade.shown
    with pyhive_session(cluster.addresses[NEW_GATEWAY], "alice", unit="small") as session:
        assert {query: rows(session, query) for query in QUERIES} == upgrade.answers
    upgrade.use_new_keys()
    upgrade.limits_hold()
    upgrade.alter_replaces()
    upgrade.is_well({"keys"})
