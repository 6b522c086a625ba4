//! Settling: seeing to it that every alteration on its way has an outcome, and that a node stands no longer than one tick
//! after it.
//!
//! The outcome is asked for and written, never inferred. That an agent is gone, or that time has passed, only chooses
//! the moment to try: a commit that came first stands. A node is deleted here when the database has its
//! alteration as aborted, or committed and no longer converging, or when it never had one (debris); the node of one that
//! converges is deleted by the tick that acted on it.

use std::time::Duration;

use coordination::{AlterChild, AlterNode, Observation as Coordinated};
use model::alteration::{Abort, AlterationProgress, AlterationRecord, Outcome, RequestId};
use model::number::{Epoch, Generation};

use crate::ctx::{ControllerCtx, Failure};
use crate::failpoints;
use crate::memory::TickMemory;
use crate::settings::Settings;

/// What became of the alter node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settled {
    /// There is none, or none any more.
    Free,
    /// It stands: what it waits for, if that is not the engines.
    Stands(Option<String>),
}

/// Settles the alteration that was seen.
pub(crate) async fn settle(
    ctx: &dyn ControllerCtx,
    settings: &Settings,
    epoch: Epoch,
    memory: &mut TickMemory,
    seen: &Coordinated,
) -> Result<Settled, Failure> {
    let Some(node) = &seen.alter else { return Ok(Settled::Free) };
    let ids: Vec<RequestId> = node.children.iter().map(|child| child.id.clone()).collect();
    let now = ctx.now();
    let age = now.saturating_sub(memory.first_seen(&ids, now));
    for child in &node.children {
        let record = match ctx.outcome(&child.id).await? {
            Some(record) => record,
            None => match abort_reason(seen, child, age, settings.alter_grace()) {
                Some(reason) => abort(ctx, epoch, node, child, reason).await?,
                None => return Ok(Settled::Stands(Some(format!("the outcome of alteration {}", child.id)))),
            },
        };
        if !is_finished(&record) {
            return Ok(Settled::Stands(None));
        }
    }
    delete_node(ctx, node).await?;
    Ok(Settled::Free)
}

/// Whether the node of the alteration may go.
fn is_finished(record: &AlterationRecord) -> bool {
    record.outcome == Outcome::Aborted || record.progress != Some(AlterationProgress::Converging)
}

/// Why the moment to abort has come, if it has.
fn abort_reason(seen: &Coordinated, child: &AlterChild, age: Duration, grace: Duration) -> Option<String> {
    let agent = child.agent.as_deref().unwrap_or("unknown");
    let is_gone = |session| seen.agents.iter().all(|it| it.session != session);
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
    // A master that stood still counts that for time in which nobody decided.
    if !ctx.holds_lease() {
        return Err(Failure::Lost("too long without an answer of ZooKeeper".to_owned()));
    }
    model::failpoint!(failpoints::ABORT_BEFORE);
    // The node's content is another one's if it was written for another id.
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
    let record = match ctx.abort(&abort).await {
        // The content cannot be stored. The node must go all the same, or every later alteration waits for it.
        Err(Failure::Refused(refusal)) => {
            tracing::warn!(alteration = %child.id, refusal, "abort refused; repeated without statement and object");
            let bare = Abort { object: None, statement: String::new(), requested_by: String::new(), ..abort };
            ctx.abort(&bare).await?
        }
        other => other?,
    };
    tracing::info!(alteration = %child.id, outcome = record.outcome.as_str(), reason, "undecided alteration settled");
    Ok(record)
}

/// Deletes the node as it was seen.
pub(crate) async fn delete_node(ctx: &dyn ControllerCtx, node: &AlterNode) -> Result<(), Failure> {
    if !ctx.holds_lease() {
        return Err(Failure::Lost("too long without an answer of ZooKeeper".to_owned()));
    }
    model::failpoint!(failpoints::NODE_BEFORE);
    ctx.delete_alter_node(node).await?;
    model::failpoint!(failpoints::NODE_DELETED);
    tracing::info!(alterations = ?node.children.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), "alter node deleted");
    Ok(())
}
