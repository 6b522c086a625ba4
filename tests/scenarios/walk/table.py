"""The table of the walk: for every failpoint which process passes it, and what drives that process there.

A point without a row, and a row without a point, fail the walk. A point that several roles pass has a row for each.
"""

import dataclasses
from collections.abc import Callable

from walk import drives as d

# In a standalone every role but the engine's is one process.
ONE_PROCESS = "standalone"


@dataclasses.dataclass(frozen=True)
class Row:
    """A point, who passes it there, and how."""

    point: str
    role: str
    drive: Callable
    # Through which proxy the statement is said: `any`, `master`, `other` (not the master); the drive's own if empty.
    via: str = ""
    # The only process that is to be hit; whoever passes first if empty.
    only: str = ""
    # What it walks on: "cluster", "standalone" or both.
    where: str = "both"

    @property
    def name(self):
        return f"{self.point}({self.role},{self.drive.__name__})"

    @property
    def roles(self):
        return (self.role,) if self.role == "engine" else (self.role, ONE_PROCESS)

    @property
    def target(self):
        return self.find if self.only else None

    def find(self, ground):
        if self.only == "engine":
            (engine,) = ground.engines.all().values()
            return engine.pid
        return ground.pid_of(self.only)


def row(point, role, drive, **more):
    return Row(point, role, drive, **more)


ROWS = [
    # The longest first: the lanes then end together.
    row("master.settle.abort", "proxy", d.agents_die, where="cluster"),
    # The embedded ZooKeeper forgets an alter node with its process: there the agent must live on.
    row("master.settle.abort", "proxy", d.agent_hangs, where="standalone"),
    row("orchestrator.delete.marked", "proxy", d.hang),
    row("orchestrator.delete.signalled", "proxy", d.hang),
    row("agent.alter.before_abort", "agent", d.transaction_breaks),
    row("agent.alter.aborted", "agent", d.transaction_breaks),
    row("metadata.abort.before_insert", "agent", d.transaction_breaks),
    row("metadata.abort.before_commit", "agent", d.agents_die, where="cluster"),
    row("metadata.abort.before_commit", "agent", d.transaction_breaks, where="standalone"),
    row("metadata.abort.after_insert", "agent", d.agents_die, where="cluster"),
    row("metadata.abort.after_insert", "agent", d.transaction_breaks, where="standalone"),
    row("coordination.session.expired", "proxy", d.sleep("master"), only="master", where="cluster"),
    row("coordination.session.expired", "agent", d.sleep("metadata agent"), only="agent", where="cluster"),
    row("coordination.session.expired", "engine", d.sleep("engine"), only="engine"),
    row("coordination.registry.before_register", "engine", d.alter),
    row("coordination.registry.registered", "engine", d.restart),
    row("engine_agent.register.before", "engine", d.alter),
    row("engine_agent.register.done", "engine", d.restart),
    row("engine_agent.drain.begun", "engine", d.alter),
    row("engine_agent.session.opened", "engine", d.query),
    row("engine_agent.statement.accepted", "engine", d.query),
    row("hs2.relay.request_sent", "engine", d.query, only="engine"),
    row("hs2.relay.reply_begun", "engine", d.query, only="engine"),
    row("datafusion.statement.started", "engine", d.query),
    row("datafusion.statement.planned", "engine", d.query),
    row("datafusion.rows.fetched", "engine", d.query),
    row("datafusion.catalog.definition_written", "engine", d.view),
    row("datafusion.catalog.definition_published", "engine", d.view),
    row("datafusion.catalog.schema_moved", "engine", d.drop_schema),
    row("coordination.permit.deleted", "proxy", d.crash),
    row("master.after.delete_permit", "proxy", d.crash),
    row("master.after.draw_incarnation", "proxy", d.label),
    row("master.before.write", "proxy", d.crash),
    row("proxy.bind.handover", "proxy", d.hand_over),
    # The metadata agent's way of an alteration.
    row("agent.alter.checked", "agent", d.alter),
    row("agent.alter.node_made", "agent", d.create),
    row("agent.alter.committed", "agent", d.drop),
    row("coordination.alter.before_make", "agent", d.create),
    row("coordination.alter.made", "agent", d.alter),
    row("metadata.commit.locked", "agent", d.alter),
    row("metadata.commit.validated", "agent", d.create),
    row("metadata.commit.decided", "agent", d.alter),
    row("metadata.commit.object_written", "agent", d.drop),
    row("metadata.commit.slots_written", "agent", d.alter),
    row("metadata.commit.before_commit", "agent", d.create),
    row("metadata.commit.after_commit", "agent", d.alter),
    # START, STOP, RESTART.
    row("agent.request.checked", "agent", d.start),
    row("agent.request.committed", "agent", d.start),
    row("agent.request.rung", "agent", d.restart),
    row("metadata.request.locked", "agent", d.start),
    row("metadata.request.validated", "agent", d.stop),
    row("metadata.request.slot_written", "agent", d.restart),
    row("metadata.request.before_commit", "agent", d.stop),
    row("metadata.request.after_commit", "agent", d.start),
    # What a metadata agent does for a master, and by itself.
    row("metadata.master.locked", "agent", d.alter),
    row("metadata.master.before_commit", "agent", d.alter),
    row("metadata.master.after_commit", "agent", d.restart),
    row("metadata.housekeeping.before_commit", "agent", d.housekeeping),
    row("metadata.housekeeping.after_commit", "agent", d.housekeeping),
    row("metadata.migrate.before_commit", "migrate", d.migrate),
    row("metadata.migrate.after_commit", "migrate", d.migrate),
    row("coordination.agent.registered", "agent", d.agent_starts),
    row("agent_api.server.read", "agent", d.alter),
    row("agent_api.server.done", "agent", d.restart),
    row("agent_api.client.send", "proxy", d.alter),
    row("agent_api.client.answered", "proxy", d.restart),
    # Elections.
    row("coordination.election.queued", "proxy", d.candidate),
    row("coordination.election.won", "proxy", d.election),
    row("master.lock.won", "proxy", d.election),
    row("master.epoch.raised", "proxy", d.election),
    # A tick.
    row("master.tick.observed", "proxy", d.alter),
    row("master.tick.settled", "proxy", d.alter),
    row("master.tick.snapshot_read", "proxy", d.alter),
    row("master.tick.planned", "proxy", d.alter),
    row("master.tick.executed", "proxy", d.alter),
    row("master.tick.reported", "proxy", d.restart),
    row("master.before.create_engine", "proxy", d.alter),
    row("master.before.delete_engine", "proxy", d.restart),
    row("master.after.create_permit", "proxy", d.alter),
    row("master.after.create_engine", "proxy", d.alter),
    row("master.after.record_uid", "proxy", d.restart),
    row("master.after.write_permit_uid", "proxy", d.alter),
    row("master.after.record_end", "proxy", d.alter),
    row("master.after.drain", "proxy", d.restart),
    row("master.after.delete_engine", "proxy", d.alter),
    row("master.after.remove_fact", "proxy", d.restart),
    row("master.after.finish", "proxy", d.alter),
    row("master.node.before", "proxy", d.alter),
    row("master.node.deleted", "proxy", d.create),
    row("coordination.alter.before_delete", "proxy", d.create),
    row("coordination.alter.deleted", "proxy", d.alter),
    row("coordination.permit.created", "proxy", d.alter),
    row("coordination.permit.uid_set", "proxy", d.restart),
    row("coordination.drain.before", "proxy", d.alter),
    row("coordination.drain.written", "proxy", d.alter),
    row("coordination.drain.removed", "proxy", d.restart),
    row("orchestrator.ensure.admitted", "proxy", d.alter),
    row("orchestrator.ensure.placed", "proxy", d.restart),
    row("orchestrator.ensure.spawned", "proxy", d.alter),
    row("orchestrator.ensure.recorded", "proxy", d.restart),
    row("orchestrator.delete.admitted", "proxy", d.alter),
    row("orchestrator.remove.renamed", "proxy", d.alter),
    # Sessions at a proxy.
    row("proxy.session.opened", "proxy", d.query),
    row("proxy.bind.engine_chosen", "proxy", d.query),
    row("proxy.bind.session_opened", "proxy", d.query),
    row("hs2.relay.request_sent", "proxy", d.query, only="proxy"),
    row("hs2.relay.reply_begun", "proxy", d.query, only="proxy"),
    row("proxy.control.id_made", "proxy", d.alter, via="any"),
    row("proxy.control.sent", "proxy", d.alter, via="master"),
]
