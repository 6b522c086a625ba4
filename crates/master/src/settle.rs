//! Settling: obtains the outcome of every alteration in doubt, and deletes its node at most one tick later.
//!
//! The outcome is read and written, never inferred. A lost agent or an elapsed time only determine when to try: a commit
//! that came first stands. A node is deleted here if the database has its alteration as aborted, or as committed and no
//! longer converging, or if it never had one (debris). The node of a converging alteration is deleted by the tick that acted
//! on it.

use std::time::Duration;

use coordination::{AlterChild, AlterNode, Observation as Coordination};
use model::alteration::{Abort, AlterationProgress, AlterationRecord, Outcome, RequestId};
use model::number::{Epoch, Generation};
use model::snapshot::Snapshot;

use crate::ctx::{ControllerCtx, Effect, Failure, FailureKind};
use crate::failpoints;
use crate::memory::TickMemory;
use crate::settings::Settings;

/// The state of the alter node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settled {
    /// There is none, or it was deleted.
    Free,
    /// Its alteration converges.
    Converging,
    /// It could not be deleted in time; the next tick settles it.
    Moved,
    /// Its alteration is in doubt: what it waits for.
    InDoubt(String),
}

impl Settled {
    pub fn is_in_doubt(&self) -> bool {
        matches!(self, Self::InDoubt(_))
    }

    /// What the master waits for because of it.
    pub fn waits_for(self) -> Option<String> {
        match self {
            Self::InDoubt(what) => Some(what),
            Self::Free | Self::Converging | Self::Moved => None,
        }
    }

    /// A failure to settle leaves the alteration in doubt, unless this process is no longer master.
    pub fn from_failure(failure: Failure) -> Result<Self, Failure> {
        match failure.kind() {
            FailureKind::NotMaster => Err(failure),
            FailureKind::Stale => Ok(Self::Moved),
            FailureKind::Refused | FailureKind::Away => Ok(Self::InDoubt(failure.to_string())),
        }
    }
}

/// Settles the observed alteration.
pub(crate) async fn settle(
    ctx: &dyn ControllerCtx,
    settings: &Settings,
    epoch: Epoch,
    memory: &mut TickMemory,
    coordination: &Coordination,
) -> Result<Settled, Failure> {
    let Some(node) = &coordination.alter else { return Ok(Settled::Free) };
    let ids: Vec<RequestId> = node.children.iter().map(|child| child.id.clone()).collect();
    let now = ctx.clock();
    let age = now.saturating_sub(memory.first_seen(&ids, now));
    for child in &node.children {
        let record = match ctx.settle(&child.id, None).await? {
            Some(record) => record,
            None => match abort_reason(coordination, child, age, settings.alter_grace()) {
                Some(reason) => abort(ctx, epoch, node, child, reason).await?,
                None => return Ok(Settled::InDoubt(format!("the outcome of alteration {}", child.id))),
            },
        };
        if !is_finished(&record) {
            return Ok(Settled::Converging);
        }
    }
    delete_node(ctx, node).await?;
    Ok(Settled::Free)
}

/// The alter node, if a tick has acted on all its alterations.
pub(crate) fn releasable_node<'a>(
    coordination: &'a Coordination,
    snapshot: &Snapshot,
    finished: &[RequestId],
) -> Option<&'a AlterNode> {
    let acted_on = |id: &RequestId| {
        let known = snapshot.alterations.iter().find(|record| record.id == *id);
        known.is_some_and(|record| record.generation <= snapshot.catalog.generation) || finished.contains(id)
    };
    let node = coordination.alter.as_ref()?;
    (!node.is_debris() && node.children.iter().all(|child| acted_on(&child.id))).then_some(node)
}

/// Whether the node of the alteration can be deleted.
fn is_finished(record: &AlterationRecord) -> bool {
    record.outcome == Outcome::Aborted || record.progress != Some(AlterationProgress::Converging)
}

/// Why to abort now, if there is a reason.
fn abort_reason(coordination: &Coordination, child: &AlterChild, age: Duration, grace: Duration) -> Option<String> {
    let agent = child.agent.as_deref().unwrap_or("unknown");
    let is_gone = |session| coordination.agents.iter().all(|it| it.session != session);
    if child.session.is_some_and(is_gone) {
        return Some(format!("metadata agent {agent} is gone"));
    }
    (age >= grace).then(|| format!("metadata agent {agent} did not decide it in {} s", grace.as_secs()))
}

async fn abort(
    ctx: &dyn ControllerCtx,
    epoch: Epoch,
    node: &AlterNode,
    child: &AlterChild,
    reason: String,
) -> Result<AlterationRecord, Failure> {
    // A suspended master has counted its suspension as the agent's delay.
    ctx.lease().state().check()?;
    model::failpoint!(failpoints::ABORT_BEFORE);
    // The content may belong to another alteration.
    let content = node.content.as_ref().ok().filter(|it| it.id == child.id);
    let abort = Abort {
        id: child.id.clone(),
        object: content.map(|it| it.object.clone()),
        base_generation: content.map_or(Generation(0), |it| it.base_generation),
        statement: content.map(|it| it.statement.clone()).unwrap_or_default(),
        requested_by: content.map(|it| it.by.clone()).unwrap_or_default(),
        requested_at_ms: content.map_or(0, |it| it.requested_at_ms),
        decided_by: format!("master {epoch}"),
        reason: reason.clone(),
    };
    let record = match ctx.settle(&child.id, Some(&abort)).await {
        // The content cannot be stored. The node must be deleted all the same, or every later alteration waits for it.
        Err(Failure::Refused(refusal)) => {
            tracing::warn!(alteration = %child.id, refusal, "abort refused; repeated without statement and object");
            let bare = Abort { object: None, statement: String::new(), requested_by: String::new(), ..abort };
            ctx.settle(&child.id, Some(&bare)).await?
        }
        other => other?,
    };
    let record = record.ok_or_else(|| Failure::Unknown("an abort returned no outcome".to_owned()))?;
    tracing::info!(alteration = %child.id, outcome = record.outcome.as_str(), reason, "alteration in doubt settled");
    Ok(record)
}

/// Deletes the node as it was observed.
pub(crate) async fn delete_node(ctx: &dyn ControllerCtx, node: &AlterNode) -> Result<(), Failure> {
    ctx.lease().state().check()?;
    model::failpoint!(failpoints::NODE_BEFORE);
    ctx.apply(Effect::DeleteAlterNode(node)).await?;
    model::failpoint!(failpoints::NODE_DELETED);
    tracing::info!(alterations = ?node.children.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), "alter node deleted");
    Ok(())
}
