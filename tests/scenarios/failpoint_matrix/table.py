"""The table of the matrix: for every failpoint the role that passes it, and its trigger.

A point without a row, and a row without a point, fail the test. A point that several roles pass has a row for each.
"""

import dataclasses
from collections.abc import Callable

from failpoint_matrix import triggers as d

# In a standalone every role but the engine's is one process.
ONE_PROCESS = "standalone"


@dataclasses.dataclass(frozen=True)
class Row:
    """A point, who passes it there, and how."""

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


ROWS = [
    # The longest first, so that the workers end at about the same time.
    Row("master.settle.abort", "proxy", d.agents_die, where="cluster"),
    # The embedded ZooKeeper forgets an alter node with its process: there the agent must live on.
    Row("master.settle.abort", "proxy", d.agent_hangs, where="standalone"),
    Row("orchestrator.delete.marked", "proxy", d.hang),
    Row("orchestrator.delete.signalled", "proxy", d.hang),
    Row("agent.alter.before_abort", "agent", d.transaction_breaks),
    Row("agent.alter.aborted", "agent", d.transaction_breaks),
    Row("metadata.abort.before_insert", "agent", d.transaction_breaks),
    Row("metadata.abort.before_commit", "agent", d.agents_die, where="cluster"),
    Row("metadata.abort.before_commit", "agent", d.transaction_breaks, where="standalone"),
    Row("metadata.abort.after_insert", "agent", d.agents_die, where="cluster"),
    Row("metadata.abort.after_insert", "agent", d.transaction_breaks, where="standalone"),
    Row("coordination.session.expired", "proxy", d.sleep("master"), only="master", where="cluster"),
    Row("coordination.session.expired", "agent", d.sleep("metadata agent"), only="agent", where="cluster"),
    Row("coordination.session.expired", "engine", d.sleep("engine"), only="engine"),
    Row("coordination.registry.before_register", "engine", d.alter),
    Row("coordination.registry.registered", "engine", d.restart),
    Row("engine_agent.register.before", "engine", d.alter),
    Row("engine_agent.register.done", "engine", d.restart),
    Row("engine_agent.drain.begun", "engine", d.alter),
    Row("engine_agent.session.opened", "engine", d.query),
    Row("engine_agent.statement.accepted", "engine", d.query),
    Row("hs2.relay.request_sent", "engine", d.query, only="engine"),
    Row("hs2.relay.reply_begun", "engine", d.query, only="engine"),
    Row("datafusion.statement.started", "engine", d.query),
    Row("datafusion.statement.planned", "engine", d.query),
    Row("datafusion.rows.fetched", "engine", d.query),
    Row("datafusion.catalog.definition_written", "engine", d.view),
    Row("datafusion.catalog.definition_published", "engine", d.view),
    Row("datafusion.catalog.schema_moved", "engine", d.drop_schema),
    Row("coordination.permit.deleted", "proxy", d.crash),
    Row("master.after.delete_permit", "proxy", d.crash),
    Row("master.after.draw_incarnation", "proxy", d.label),
    Row("master.before.write", "proxy", d.crash),
    Row("master.write.sending", "proxy", d.crash),
    Row("proxy.bind.handover", "proxy", d.hand_over),
    # The metadata agent's way of an alteration.
    Row("agent.alter.checked", "agent", d.alter),
    Row("agent.alter.node_made", "agent", d.create),
    Row("agent.alter.committed", "agent", d.drop),
    Row("coordination.alter.before_make", "agent", d.create),
    Row("coordination.alter.made", "agent", d.alter),
    Row("metadata.commit.locked", "agent", d.alter),
    Row("metadata.commit.validated", "agent", d.create),
    Row("metadata.commit.decided", "agent", d.alter),
    Row("metadata.commit.object_written", "agent", d.drop),
    Row("metadata.commit.slots_written", "agent", d.alter),
    Row("metadata.commit.before_commit", "agent", d.create),
    Row("metadata.commit.after_commit", "agent", d.alter),
    # START, STOP, RESTART.
    Row("agent.request.checked", "agent", d.start),
    Row("agent.request.committed", "agent", d.start),
    Row("agent.request.rung", "agent", d.restart),
    Row("metadata.request.locked", "agent", d.start),
    Row("metadata.request.validated", "agent", d.stop),
    Row("metadata.request.slot_written", "agent", d.restart),
    Row("metadata.request.before_commit", "agent", d.stop),
    Row("metadata.request.after_commit", "agent", d.start),
    # What a metadata agent does for a master, and by itself.
    Row("metadata.master.locked", "agent", d.alter),
    Row("metadata.master.before_commit", "agent", d.alter),
    Row("metadata.master.after_commit", "agent", d.restart),
    Row("metadata.housekeeping.before_commit", "agent", d.housekeeping),
    Row("metadata.housekeeping.after_commit", "agent", d.housekeeping),
    Row("metadata.migrate.before_commit", "migrate", d.migrate),
    Row("metadata.migrate.after_commit", "migrate", d.migrate),
    Row("coordination.agent.registered", "agent", d.agent_starts),
    Row("agent_api.server.read", "agent", d.alter),
    Row("agent_api.server.done", "agent", d.restart),
    Row("agent_api.client.send", "proxy", d.alter),
    Row("agent_api.client.answered", "proxy", d.restart),
    # Elections.
    Row("coordination.election.queued", "proxy", d.candidate),
    Row("coordination.election.won", "proxy", d.election),
    Row("master.lock.won", "proxy", d.election),
    Row("master.epoch.raised", "proxy", d.election),
    # A tick.
    Row("master.tick.observed", "proxy", d.alter),
    Row("master.tick.settled", "proxy", d.alter),
    Row("master.tick.snapshot_read", "proxy", d.alter),
    Row("master.tick.planned", "proxy", d.alter),
    Row("master.tick.executed", "proxy", d.alter),
    Row("master.tick.reported", "proxy", d.restart),
    Row("master.before.create_engine", "proxy", d.alter),
    Row("master.before.delete_engine", "proxy", d.restart),
    Row("master.after.create_permit", "proxy", d.alter),
    Row("master.after.create_engine", "proxy", d.alter),
    Row("master.after.record_uid", "proxy", d.restart),
    Row("master.after.write_permit_uid", "proxy", d.alter),
    Row("master.after.record_end", "proxy", d.alter),
    Row("master.after.drain", "proxy", d.restart),
    Row("master.after.delete_engine", "proxy", d.alter),
    Row("master.after.remove_fact", "proxy", d.restart),
    Row("master.after.finish", "proxy", d.alter),
    Row("master.node.before", "proxy", d.alter),
    Row("master.node.deleted", "proxy", d.create),
    Row("coordination.alter.before_delete", "proxy", d.create),
    Row("coordination.alter.deleted", "proxy", d.alter),
    Row("coordination.permit.created", "proxy", d.alter),
    Row("coordination.permit.uid_set", "proxy", d.restart),
    Row("coordination.drain.before", "proxy", d.alter),
    Row("coordination.drain.written", "proxy", d.alter),
    Row("coordination.drain.removed", "proxy", d.restart),
    Row("orchestrator.ensure.begun", "proxy", d.restart),
    Row("orchestrator.ensure.admitted", "proxy", d.alter),
    Row("orchestrator.ensure.placed", "proxy", d.restart),
    Row("orchestrator.ensure.spawned", "proxy", d.alter),
    Row("orchestrator.ensure.recorded", "proxy", d.restart),
    Row("orchestrator.delete.begun", "proxy", d.restart),
    Row("orchestrator.delete.admitted", "proxy", d.alter),
    Row("orchestrator.remove.renamed", "proxy", d.alter),
    # Sessions at a proxy.
    Row("proxy.session.opened", "proxy", d.query),
    Row("proxy.bind.engine_chosen", "proxy", d.query),
    Row("proxy.bind.session_opened", "proxy", d.query),
    Row("hs2.relay.request_sent", "proxy", d.query, only="proxy"),
    Row("hs2.relay.reply_begun", "proxy", d.query, only="proxy"),
    Row("proxy.control.id_made", "proxy", d.alter, via="any"),
    Row("proxy.control.sent", "proxy", d.alter, via="master"),
]

# Where engines are pods, the way from a decision to an engine is another one, and so are the points on it: those of masters, of
# the orchestrator, and of what both leave in ZooKeeper. Everything else is as it is with processes.
CONCERNS_PODS = (
    "master.",
    "orchestrator.",
    "coordination.alter.",
    "coordination.drain.",
    "coordination.election.",
    "coordination.permit.",
)
PODS_ONLY = ("orchestrator.namespace.made",)
PROCESSES_ONLY = (
    "orchestrator.delete.begun",
    "orchestrator.delete.marked",
    "orchestrator.ensure.begun",
    "orchestrator.ensure.spawned",
    "orchestrator.remove.renamed",
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
QUICK_WITH_PODS = (
    "coordination.permit.deleted",
    "master.after.create_permit",
    "master.after.draw_incarnation",
    "master.after.record_uid",
    "orchestrator.delete.signalled",
    "orchestrator.ensure.placed",
    "orchestrator.namespace.made",
)
# Where a master is stopped between a look at what it may do and the call.
QUICK_STOPS_WITH_PODS = ("orchestrator.delete.admitted", "orchestrator.ensure.admitted")
# Where it is cut off from everything between the two; and from the API server alone.
QUICK_CUTS_WITH_PODS = ("orchestrator.ensure.admitted",)
QUICK_CUTS_FROM_API = ("orchestrator.ensure.placed",)
# Points at which connections to the API server are reset; at all others calls are held back silently.
RESET_AT = ("coordination.permit.", "master.after.")
