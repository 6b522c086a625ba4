//! The calls of masters and proxies: each is one verb of the store.

use std::sync::Arc;
use std::time::Duration;

use agent_api::{AgentApi, ApiError};
use async_trait::async_trait;
use metadata::{Error, Store};
use model::alteration::{Abort, AlterationProgress, AlterationRecord, RequestId};
use model::demand::Demand;
use model::demand_report::{DemandRecorded, DemandReport};
use model::ledger::{Decided, LedgerRecord, LedgerRecorded, ScopedChange};
use model::number::{Epoch, Generation, Incarnation};
use model::observation::{EngineFacts, Publication, Recorded};
use model::scaling::{LinkScaled, ScaleRequest};
use model::slot::Renewal;
use model::snapshot::{MasterRecord, ProxySnapshot, Snapshot};

use super::context::Agent;

/// Serves masters with connections of their own, which no statement uses.
pub(super) struct Api {
    agent: Arc<Agent>,
    of_masters: Store,
    of_proxies: Store,
}

impl Api {
    pub(super) fn new(agent: Arc<Agent>) -> Self {
        Self { of_masters: agent.store.for_masters(), of_proxies: agent.store.clone(), agent }
    }
}

pub(super) fn api_error(error: Error) -> ApiError {
    match error {
        Error::Deposed(record) => {
            // Logged because the caller may have given up the call.
            tracing::info!(epoch = %record.epoch, holder = record.holder, "write of a deposed master refused");
            ApiError::Deposed(record)
        }
        Error::Conflict(reason) => ApiError::Conflict(reason),
        Error::Unavailable(cause) | Error::LockTimeout(cause) => ApiError::Unavailable(cause),
        // Only this agent is affected: another one has the version of the database's schema.
        error @ (Error::NewerSchema { .. } | Error::OlderSchema { .. }) => ApiError::Unavailable(error.into()),
        Error::OutcomeUnknown(cause) => ApiError::OutcomeUnknown(cause),
        other => ApiError::Refused(other.user_error()),
    }
}

#[async_trait]
impl AgentApi for Api {
    async fn master(&self) -> Result<MasterRecord, ApiError> {
        self.of_masters.master().await.map_err(api_error)
    }

    async fn raise_epoch(&self, read: Epoch, holder: &str) -> Result<MasterRecord, ApiError> {
        self.of_masters.raise_epoch(read, holder).await.map_err(api_error)
    }

    async fn snapshot(&self) -> Result<Snapshot, ApiError> {
        self.of_masters.snapshot().await.map_err(api_error)
    }

    async fn proxy_snapshot(&self) -> Result<ProxySnapshot, ApiError> {
        self.of_proxies.proxy_snapshot().await.map_err(api_error)
    }

    async fn outcome(&self, id: &RequestId) -> Result<Option<AlterationRecord>, ApiError> {
        self.of_masters.outcome(id).await.map_err(api_error)
    }

    async fn abort(&self, abort: &Abort) -> Result<AlterationRecord, ApiError> {
        self.of_masters.abort(abort).await.map_err(api_error)
    }

    async fn finish(&self, epoch: Epoch, id: &RequestId, plan: Generation) -> Result<AlterationProgress, ApiError> {
        self.of_masters.finish(epoch, id, plan).await.map_err(api_error)
    }

    async fn stalled(
        &self,
        epoch: Epoch,
        id: &RequestId,
        after: Duration,
        reason: &str,
    ) -> Result<AlterationProgress, ApiError> {
        self.of_masters.stalled(epoch, id, after, reason).await.map_err(api_error)
    }

    async fn superseded(&self, epoch: Epoch, id: &RequestId) -> Result<AlterationProgress, ApiError> {
        self.of_masters.superseded(epoch, id).await.map_err(api_error)
    }

    async fn record(&self, epoch: Epoch, facts: &EngineFacts) -> Result<Recorded, ApiError> {
        self.of_masters.record(epoch, facts).await.map_err(api_error)
    }

    async fn publish(&self, epoch: Epoch, publication: &Publication) -> Result<(), ApiError> {
        self.of_masters.publish(epoch, publication).await.map_err(api_error)
    }

    async fn new_incarnation(&self, epoch: Epoch, renewal: &Renewal) -> Result<Incarnation, ApiError> {
        self.of_masters.new_incarnation(epoch, renewal).await.map_err(api_error)
    }

    async fn new_incarnations(
        &self,
        epoch: Epoch,
        renewals: &[Renewal],
    ) -> Result<Vec<Result<Incarnation, String>>, ApiError> {
        self.of_masters.new_incarnations(epoch, renewals).await.map_err(api_error)
    }

    async fn ledger(&self, epoch: Epoch, changes: &[ScopedChange]) -> Result<Vec<Decided>, ApiError> {
        self.of_masters.ledger(epoch, changes).await.map_err(api_error)
    }

    async fn record_ledger(&self, epoch: Epoch, record: &LedgerRecord) -> Result<LedgerRecorded, ApiError> {
        self.of_masters.record_ledger(epoch, record).await.map_err(api_error)
    }

    async fn record_demand(&self, report: &DemandReport) -> Result<DemandRecorded, ApiError> {
        let recorded = self.of_proxies.record_demand(report).await.map_err(api_error)?;
        if recorded == DemandRecorded::Increased {
            self.agent.ring().await;
        }
        Ok(recorded)
    }

    async fn demand(&self) -> Result<Vec<Demand>, ApiError> {
        self.of_masters.demand().await.map_err(api_error)
    }

    async fn scale(&self, epoch: Epoch, request: &ScaleRequest) -> Result<Vec<LinkScaled>, ApiError> {
        self.of_masters.scale(epoch, request).await.map_err(api_error)
    }
}
