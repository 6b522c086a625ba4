//! Settling: obtains the outcome of every alteration in doubt, and deletes its node at most one tick later.
//!
//! The outcome is read and written, never inferred. A lost agent or an elapsed time only determine when to try: a commit
//! that came first stands. A node is deleted here if the database has its alteration as aborted, or as committed and no
//! longer converging, or if it never had one (debris). The node of a converging alteration is deleted by the tick that acted
//! on it.

use std::collections::BTreeMap;
use std::time::Duration;

use coordination::{AlterChild, AlterNode, Observation as Coordination};
use model::alteration::{Abort, AlterationProgress, AlterationRecord, Outcome, RequestId, Source};
use model::log_throttle::LogThrottle;
use model::number::{Epoch, Generation};
use model::snapshot::Snapshot;

use crate::ctx::{ControllerCtx, Effect, Failure, FailureKind, bounded};
use crate::settings::Settings;

/// How soon a tick follows one with an alteration in doubt: no event is certain to report its commit.
const IN_DOUBT_PAUSE: Duration = Duration::from_millis(200);

/// What settling left to the next ticks; nothing if no alteration is in doubt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    /// What the master waits for because of an alteration in doubt.
    pub waits_for: Option<String>,
    /// When to settle it again, from now on.
    pub due: Option<Duration>,
}

impl Settled {
    fn in_doubt(waits_for: String) -> Self {
        Self { waits_for: Some(waits_for), due: Some(IN_DOUBT_PAUSE) }
    }

    /// A failure to settle leaves the alteration in doubt, unless this process is no longer master. An alter node that has
    /// moved is settled by the next tick.
    fn from_failure(failure: Failure) -> Result<Self, Failure> {
        match failure.kind() {
            FailureKind::NotMaster => Err(failure),
            FailureKind::Stale => Ok(Self::default()),
            FailureKind::Refused | FailureKind::Away => Ok(Self::in_doubt(failure.to_string())),
        }
    }
}

/// Settles alterations and deletes their node. Remembers only what a successor can learn again.
#[derive(Debug, Default)]
pub(crate) struct Settler {
    /// When each alteration of the node was first observed.
    first_seen: BTreeMap<RequestId, Duration>,
    settling: LogThrottle,
    releasing: LogThrottle,
}

impl Settler {
    /// Settles the observed alteration, within the deadline of one effect. What cannot be settled now blocks only the next
    /// alteration: the only failure is that this process is no longer master.
    pub async fn settle_alteration(
        &mut self,
        ctx: &dyn ControllerCtx,
        settings: &Settings,
        epoch: Epoch,
        coordination: &Coordination,
    ) -> Result<Settled, Failure> {
        let settled = match &coordination.alter {
            Some(node) => {
                let age = self.age(node, ctx.clock());
                let settling = Settling { ctx, settings, epoch, coordination, age };
                bounded(settings.effect_deadline, settling.settle(node)).await
            }
            None => Ok(Settled::default()),
        };
        self.log_settled(ctx.clock(), &settled);
        settled.or_else(Settled::from_failure)
    }

    /// Deletes the alter node after the first tick that acted on its alteration, so that other alterations wait for one tick
    /// and not for the engines: the row has what is still missing. Another failure is left to the next tick.
    pub async fn release_node(
        &mut self,
        ctx: &dyn ControllerCtx,
        coordination: &Coordination,
        snapshot: &Snapshot,
        finished: &[RequestId],
    ) -> Result<(), Failure> {
        let Some(node) = releasable_node(coordination, snapshot, finished) else { return Ok(()) };
        let released = delete_node(ctx, node).await;
        self.log_released(ctx.clock(), &released);
        released.or_else(|failure| if failure.kind() == FailureKind::NotMaster { Err(failure) } else { Ok(()) })
    }

    /// For how long the node's alteration has been observed. Forgets others: there is at most one.
    fn age(&mut self, node: &AlterNode, now: Duration) -> Duration {
        self.first_seen.retain(|id, _| node.children.iter().any(|child| child.id == *id));
        let seen = node.children.iter().map(|child| *self.first_seen.entry(child.id.clone()).or_insert(now));
        now.saturating_sub(seen.min().unwrap_or(now))
    }

    fn log_settled(&mut self, now: Duration, settled: &Result<Settled, Failure>) {
        match settled {
            Err(failure) if failure.kind() != FailureKind::NotMaster => {
                if let Some(times) = self.settling.hit(now) {
                    tracing::info!(%failure, times, "could not settle the alteration yet");
                }
            }
            _ => {
                if let Some(times) = self.settling.clear() {
                    tracing::info!(times, "settling works again");
                }
            }
        }
    }

    fn log_released(&mut self, now: Duration, released: &Result<(), Failure>) {
        match released {
            Err(failure) if failure.kind() != FailureKind::NotMaster => {
                if let Some(times) = self.releasing.hit(now) {
                    tracing::info!(%failure, times, "could not delete the alter node; the next tick tries again");
                }
            }
            _ => drop(self.releasing.clear()),
        }
    }
}

/// The settling of one node.
struct Settling<'a> {
    ctx: &'a dyn ControllerCtx,
    settings: &'a Settings,
    epoch: Epoch,
    coordination: &'a Coordination,
    /// For how long its alteration has been observed.
    age: Duration,
}

impl Settling<'_> {
    async fn settle(&self, node: &AlterNode) -> Result<Settled, Failure> {
        for child in &node.children {
            let record = match self.ctx.settle(&child.id, None).await? {
                Some(record) => record,
                None => match self.abort_reason(child) {
                    Some(reason) => self.abort(node, child, reason).await?,
                    None => return Ok(Settled::in_doubt(format!("the outcome of alteration {}", child.id))),
                },
            };
            if !is_finished(&record) {
                return Ok(Settled::default());
            }
        }
        delete_node(self.ctx, node).await?;
        Ok(Settled::default())
    }

    /// Why to abort now, if there is a reason.
    fn abort_reason(&self, child: &AlterChild) -> Option<String> {
        let name = child.agent.as_deref().unwrap_or("unknown");
        let is_gone = |session| self.coordination.agents.iter().all(|agent| agent.session != session);
        if child.session.is_some_and(is_gone) {
            return Some(format!("metadata agent {name} is gone"));
        }
        let grace = self.settings.alter_grace;
        (self.age >= grace).then(|| format!("metadata agent {name} did not decide it in {} s", grace.as_secs()))
    }

    /// Aborts the alteration, unless it was committed. A suspended master has counted its suspension as the agent's delay, so
    /// the lease is checked first, as for every effect.
    async fn abort(&self, node: &AlterNode, child: &AlterChild, reason: String) -> Result<AlterationRecord, Failure> {
        // The content may belong to another alteration.
        let content = node.content.as_ref().ok().filter(|content| content.id == child.id);
        let abort = Abort {
            id: child.id.clone(),
            object: content.map(|content| content.object.clone()),
            base_generation: content.map_or(Generation(0), |content| content.base_generation),
            statement: content.map(|content| content.statement.clone()).unwrap_or_default(),
            requested_by: content.map(|content| content.by.clone()).unwrap_or_default(),
            source: content.map(|content| content.source.clone()).unwrap_or_default(),
            requested_at_ms: content.map_or(0, |content| content.requested_at_ms),
            decided_by: format!("master {}", self.epoch),
            reason: reason.clone(),
        };
        let record = match self.ctx.settle(&child.id, Some(&abort)).await {
            // The content cannot be stored. The node must be deleted all the same, or every later alteration waits for it.
            Err(Failure::Refused(refusal)) => {
                tracing::warn!(alteration = %child.id, refusal, "abort refused; repeated without statement and object");
                let bare = Abort {
                    object: None,
                    statement: String::new(),
                    requested_by: String::new(),
                    source: Source::default(),
                    ..abort
                };
                self.ctx.settle(&child.id, Some(&bare)).await?
            }
            other => other?,
        };
        let record = record.ok_or_else(|| Failure::Unknown("an abort returned no outcome".to_owned()))?;
        tracing::info!(alteration = %child.id, outcome = record.outcome.as_str(), reason, "alteration in doubt settled");
        Ok(record)
    }
}

/// The alter node, if a tick has acted on all its alterations.
fn releasable_node<'a>(
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

/// Deletes the node as it was observed.
async fn delete_node(ctx: &dyn ControllerCtx, node: &AlterNode) -> Result<(), Failure> {
    ctx.apply(Effect::DeleteAlterNode(node)).await?;
    let alterations: Vec<&str> = node.children.iter().map(|child| child.id.as_str()).collect();
    tracing::info!(alterations = alterations.join(", "), "alter node deleted");
    Ok(())
}
