//! The bounds of every call: its deadline and, for an effect, the lease.
//!
//! The reconciler calls every context through [`BoundedCtx`]. A read ends at its deadline. An effect is sent only under a valid
//! lease; it may be several calls, and when the lease is no longer valid, the rest is not sent.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use model::alteration::{Abort, AlterationRecord, RequestId};
use model::demand::Demand;
use model::ledger::{LedgerRecord, LedgerRecorded};
use model::name::TenantName;
use model::number::Epoch;
use model::observation::Publication;
use model::snapshot::Snapshot;
use planner::{Instance, Probe};
use tokio::time::{sleep, timeout};

use super::{Applied, ControllerCtx, Effect, Failure, Lease, Observation};
use crate::failpoints;

/// The deadline of an observation, in deadlines of one call: it takes up to four requests for each engine.
const OBSERVE_DEADLINES: u32 = 6;

/// How often the lease is checked during an effect.
const LEASE_POLL: Duration = Duration::from_millis(50);

/// Any context with bounded calls.
pub(crate) struct BoundedCtx<'a> {
    ctx: &'a dyn ControllerCtx,
    /// The deadline of one call.
    deadline: Duration,
}

impl<'a> BoundedCtx<'a> {
    pub fn new(ctx: &'a dyn ControllerCtx, deadline: Duration) -> Self {
        Self { ctx, deadline }
    }

    /// Sends an effect under the lease. The failpoint is between the check of the lease and the call.
    async fn effect<T>(
        &self,
        failpoint: Option<&'static str>,
        call: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        self.lease().state().check()?;
        if let Some(name) = failpoint {
            model::failpoint!(name);
        }
        tokio::select! {
            biased;
            lost = self.lease_lost() => Err(lost),
            result = bounded(self.deadline, call) => result,
        }
    }

    /// Waits until the lease is no longer valid.
    async fn lease_lost(&self) -> Failure {
        loop {
            if let Err(lost) = self.lease().state().check() {
                return lost;
            }
            sleep(LEASE_POLL).await;
        }
    }
}

#[async_trait]
impl ControllerCtx for BoundedCtx<'_> {
    fn clock(&self) -> Duration {
        self.ctx.clock()
    }

    fn lease(&self) -> &dyn Lease {
        self.ctx.lease()
    }

    async fn wait(&self) {
        self.ctx.wait().await;
    }

    async fn observe(&self) -> Result<Observation, Failure> {
        bounded(self.deadline * OBSERVE_DEADLINES, self.ctx.observe()).await
    }

    async fn probe(&self, probe: &Probe) -> Result<Option<Instance>, Failure> {
        bounded(self.deadline, self.ctx.probe(probe)).await
    }

    async fn snapshot(&self) -> Result<Snapshot, Failure> {
        bounded(self.deadline, self.ctx.snapshot()).await
    }

    async fn demand(
        &self,
        observation: &mut Observation,
        tenants: &BTreeSet<TenantName>,
    ) -> Result<Vec<Demand>, Failure> {
        bounded(self.deadline, self.ctx.demand(observation, tenants)).await
    }

    async fn settle(&self, id: &RequestId, abort: Option<&Abort>) -> Result<Option<AlterationRecord>, Failure> {
        let call = self.ctx.settle(id, abort);
        match abort {
            None => bounded(self.deadline, call).await,
            Some(_) => self.effect(Some(failpoints::ABORT_BEFORE), call).await,
        }
    }

    async fn apply(&self, effect: Effect<'_>) -> Result<Applied, Failure> {
        let applied = self.effect(failpoints::before(&effect), self.ctx.apply(effect)).await?;
        if applied != Applied::Declined {
            model::failpoint!(failpoints::after(&effect));
        }
        Ok(applied)
    }

    async fn record(&self, epoch: Epoch, record: &LedgerRecord) -> Result<LedgerRecorded, Failure> {
        let recorded = self.effect(Some(failpoints::WRITE_CHECKED), self.ctx.record(epoch, record)).await?;
        model::failpoint!(failpoints::LEDGER_RECORDED);
        Ok(recorded)
    }

    async fn publish(&self, epoch: Epoch, publication: &Publication) -> Result<(), Failure> {
        self.effect(None, self.ctx.publish(epoch, publication)).await
    }
}

/// Ends a call at its deadline: its outcome is unknown.
pub(crate) async fn bounded<T>(limit: Duration, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = |_| Err(Failure::Unknown(format!("no answer within {} s", limit.as_secs_f32())));
    timeout(limit, call).await.unwrap_or_else(late)
}
