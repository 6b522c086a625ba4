"""The table of the matrix: for every failpoint the role that passes it, and its trigger.

A point without a row, and a row without a point, fail the test. A point that several roles pass has a row for each.
"""

import dataclasses
from collections.abc import Callable

from failpoint_matrix import triggers as d

ONE_PROCESS = "standalone"


@dataclasses.dataclass(frozen=True)
class Row:
    point: str
    role: str
    trigger: Callable
    # The proxy of the statement: `any`, `master`, `other` (not the master); the trigger's default if empty.
    via: str = ""
    # The only process that may be hit; the first to pass if empty.
    only: str = ""
    # "cluster", "standalone" or both.
    where: str = "both"

    @property
    def name(self):
        return f"{self.point}({self.role},{self.trigger.__name__})"

    @property
    def roles(self):
        return (self.role,) if self.role == "engine" else (self.role, ONE_PROCESS)

    @property
    def target(self):
        return self.find if self.only else None

    def find(self, installation):
        if self.only == "engine":
            (engine,) = installation.engines.all().values()
            return engine.pid
        return installation.pid_of(self.only)


def rows(role, trigger, points, **options):
    return [Row(point, role, trigger, **options) for point in points.split()]


ROWS = [
    *rows("proxy", d.agents_die, "master.settle.abort", where="cluster"),
    # The embedded ZooKeeper forgets an alter node with its process: there the agent must live on.
    *rows("proxy", d.agent_hangs, "master.settle.abort", where="standalone"),
    *rows("proxy", d.hang, "orchestrator.delete.marked orchestrator.delete.signalled"),
    *rows("agent", d.transaction_breaks, "agent.alter.before_abort agent.alter.aborted metadata.abort.before_insert"),
    *rows("agent", d.agents_die, "metadata.abort.before_commit metadata.abort.after_insert", where="cluster"),
    *rows("agent", d.transaction_breaks, "metadata.abort.before_commit metadata.abort.after_insert", where="standalone"),
    *rows("proxy", d.sleep("master"), "coordination.session.expired", only="master", where="cluster"),
    *rows("agent", d.sleep("metadata agent"), "coordination.session.expired", only="agent", where="cluster"),
    *rows("engine", d.sleep("engine"), "coordination.session.expired", only="engine"),
    *rows("engine", d.alter, "coordination.registry.before_register engine_agent.register.before engine_agent.drain.begun"),
    *rows("engine", d.restart, "coordination.registry.registered engine_agent.register.done"),
    *rows(
        "engine",
        d.query,
        """
        engine_agent.session.opened engine_agent.statement.accepted datafusion.statement.started
        datafusion.statement.planned datafusion.rows.fetched
        """,
    ),
    *rows("engine", d.query, "hs2.relay.request_sent hs2.relay.reply_begun", only="engine"),
    *rows("engine", d.view, "datafusion.catalog.definition_written datafusion.catalog.definition_published"),
    *rows("engine", d.drop_schema, "datafusion.catalog.schema_moved"),
    *rows("proxy", d.crash, "coordination.permit.deleted master.after.delete_permit master.before.write master.write.sending"),
    *rows("proxy", d.label, "master.after.draw_incarnation"),
    *rows("proxy", d.reclaim, "master.after.retire"),
    *rows("proxy", d.demand, "master.after.scale"),
    *rows("proxy", d.release, "master.after.scale"),
    *rows("proxy", d.seats, "master.after.write_permit_sessions"),
    *rows("proxy", d.hand_over, "proxy.bind.handover"),
    *rows(
        "agent",
        d.alter,
        """
        agent.alter.checked coordination.alter.made metadata.commit.locked metadata.commit.decided
        metadata.commit.slots_written metadata.commit.after_commit metadata.master.locked metadata.master.before_commit
        metadata.ledger.locked metadata.ledger.before_commit agent_api.server.read
        """,
    ),
    *rows("agent", d.limit, "metadata.commit.limits_written"),
    *rows(
        "agent",
        d.create,
        """
        agent.alter.node_made coordination.alter.before_make metadata.commit.validated metadata.commit.before_commit
        """,
    ),
    *rows("agent", d.drop, "agent.alter.committed metadata.commit.object_written"),
    *rows(
        "agent",
        d.start,
        """
        agent.request.checked agent.request.committed metadata.request.locked metadata.request.after_commit
        """,
    ),
    *rows(
        "agent",
        d.restart,
        """
        agent.request.rung metadata.request.slot_written metadata.master.after_commit metadata.ledger.after_commit
        agent_api.server.done
        """,
    ),
    *rows("agent", d.start_by_another, "metadata.scopes.before_commit metadata.scopes.after_commit"),
    *rows("agent", d.reserve, "metadata.reserve.before_commit metadata.reserve.after_commit"),
    *rows(
        "agent",
        d.register,
        """
        metadata.register.locked metadata.register.limits_written metadata.register.before_commit
        metadata.register.after_commit
        """,
    ),
    *rows(
        "agent",
        d.demand,
        """
        metadata.demand.numbered metadata.demand.before_commit metadata.demand.after_commit metadata.scale.slots_written
        """,
    ),
    *rows("agent", d.release, "metadata.scale.slots_written"),
    *rows("agent", d.stop, "metadata.request.validated metadata.request.before_commit"),
    *rows("agent", d.refusal, "metadata.refusal.before_commit metadata.refusal.after_commit"),
    *rows("agent", d.housekeeping, "metadata.housekeeping.before_commit metadata.housekeeping.after_commit"),
    *rows("migrate", d.migrate, "metadata.migrate.before_commit metadata.migrate.after_commit"),
    *rows("agent", d.agent_starts, "coordination.agent.registered"),
    *rows(
        "proxy",
        d.alter,
        """
        agent_api.client.send master.tick.observed master.tick.settled master.tick.snapshot_read master.tick.planned
        master.tick.executed master.before.create_engine master.after.create_permit master.after.create_engine
        master.after.write_permit_uid master.after.record_end master.after.delete_engine master.after.finish
        master.node.before coordination.alter.deleted coordination.permit.created coordination.drain.before
        coordination.drain.written orchestrator.ensure.admitted orchestrator.ensure.spawned orchestrator.delete.admitted
        orchestrator.remove.renamed
        """,
    ),
    *rows(
        "proxy",
        d.restart,
        """
        agent_api.client.answered master.tick.reported master.before.delete_engine master.after.record_uid master.after.ledger
        master.after.drain master.after.remove_fact coordination.permit.uid_set coordination.drain.removed
        orchestrator.ensure.begun orchestrator.ensure.placed orchestrator.ensure.recorded orchestrator.delete.begun
        """,
    ),
    *rows("proxy", d.candidate, "coordination.election.queued"),
    *rows("proxy", d.election, "coordination.election.won master.lock.won master.epoch.raised master.after.ledger_record"),
    *rows("proxy", d.create, "master.node.deleted coordination.alter.before_delete"),
    *rows("proxy", d.query, "proxy.session.opened proxy.bind.engine_chosen proxy.bind.session_opened"),
    *rows("proxy", d.query, "hs2.relay.request_sent hs2.relay.reply_begun", only="proxy"),
    *rows("proxy", d.alter, "proxy.control.id_made", via="any"),
    *rows("proxy", d.alter, "proxy.control.sent", via="master"),
]

# Where engines are pods, the way from a decision to an engine is another one, and so are the points on it: those of masters, of
# the orchestrator, and of what both leave in ZooKeeper. Everything else is as it is with processes.
CONCERNS_PODS = tuple(
    """
    master. orchestrator. coordination.alter. coordination.drain. coordination.election. coordination.permit.
    """.split()
)
PODS_ONLY = ("orchestrator.namespace.made",)
PROCESSES_ONLY = tuple(
    """
    orchestrator.delete.begun orchestrator.delete.marked orchestrator.ensure.begun orchestrator.ensure.spawned
    orchestrator.remove.renamed
    """.split()
)
ROWS_WITH_PODS = [
    it
    for it in ROWS
    # An engine that hangs has a point of its own with processes only: a pod's end is its kubelet's business.
    if it.role == "proxy"
    and it.where != "standalone"
    and it.trigger is not d.hang
    and it.point.startswith(CONCERNS_PODS)
    and it.point not in PROCESSES_ONLY
] + [Row("orchestrator.delete.signalled", "proxy", d.alter), Row("orchestrator.namespace.made", "proxy", d.newcomer)]
# One of each kind, for who can't wait: what is made, written down, changed, drained, deleted and gone.
QUICK_WITH_PODS = tuple(
    """
    coordination.permit.deleted master.after.create_permit master.after.draw_incarnation master.after.record_uid
    orchestrator.delete.signalled orchestrator.ensure.placed orchestrator.namespace.made
    """.split()
)
QUICK_STOPS_WITH_PODS = ("orchestrator.delete.admitted", "orchestrator.ensure.admitted")
# Where it is cut off from everything between the two; and from the API server alone.
QUICK_CUTS_WITH_PODS = ("orchestrator.ensure.admitted",)
QUICK_CUTS_FROM_API = ("orchestrator.ensure.placed",)
# Points at which connections to the API server are reset; at all others calls are held back silently.
RESET_AT = ("coordination.permit.", "master.after.")
