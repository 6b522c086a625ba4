//! The trait of the API.

use std::time::Duration;

use async_trait::async_trait;
use model::alteration::{Abort, AlterationProgress, AlterationRecord, RequestId};
use model::demand::Demand;
use model::demand_report::{DemandRecorded, DemandReport};
use model::ledger::{Decided, LedgerRecord, LedgerRecorded, ScopedChange};
use model::number::{Epoch, Generation, Incarnation};
use model::observation::{EngineFacts, Publication, Recorded};
use model::scaling::{LinkScaled, ScaleRequest};
use model::slot::Renewal;
use model::snapshot::{MasterRecord, ProxySnapshot, Snapshot};

use crate::error::ApiError;

/// The calls of a metadata agent for masters and proxies.
#[async_trait]
pub trait AgentApi: Send + Sync + 'static {
    async fn master(&self) -> Result<MasterRecord, ApiError>;

    /// Raises the epoch to `read + 1` for `holder`. A repeat by the same holder succeeds; otherwise
    /// [`ApiError::Deposed`] with the current row.
    async fn raise_epoch(&self, read: Epoch, holder: &str) -> Result<MasterRecord, ApiError>;

    /// The input of a plan, read in one transaction.
    async fn snapshot(&self) -> Result<Snapshot, ApiError>;

    /// The snapshot that a proxy routes by; secret values are masked.
    async fn proxy_snapshot(&self) -> Result<ProxySnapshot, ApiError>;

    /// The outcome of an alteration; `None` while it is in doubt.
    async fn outcome(&self, id: &RequestId) -> Result<Option<AlterationRecord>, ApiError>;

    /// Aborts an alteration, unless its commit came first: check the record's outcome. Needs no epoch.
    async fn abort(&self, abort: &Abort) -> Result<AlterationRecord, ApiError>;

    /// Marks a converging or stalled alteration as converged. [`ApiError::Conflict`] if the plan is older than it; a
    /// repeat returns its progress.
    async fn finish(&self, epoch: Epoch, id: &RequestId, plan: Generation) -> Result<AlterationProgress, ApiError>;

    /// Marks a converging alteration as stalled, if by the database's clock it was decided at least `after` ago;
    /// returns [`AlterationProgress::Converging`] if it is too early.
    async fn stalled(
        &self,
        epoch: Epoch,
        id: &RequestId,
        after: Duration,
        reason: &str,
    ) -> Result<AlterationProgress, ApiError>;

    /// Marks an alteration as superseded by a newer committed one of the same object; otherwise
    /// [`ApiError::Conflict`].
    async fn superseded(&self, epoch: Epoch, id: &RequestId) -> Result<AlterationProgress, ApiError>;

    /// Records uids and ends in one transaction.
    async fn record(&self, epoch: Epoch, facts: &EngineFacts) -> Result<Recorded, ApiError>;

    /// Publishes the rows of a tick for SHOW; [`ApiError::Conflict`] if another tick has ended since.
    async fn publish(&self, epoch: Epoch, publication: &Publication) -> Result<(), ApiError>;

    /// Gives a slot a new incarnation; [`ApiError::Conflict`] if the slot is gone or has changed.
    async fn new_incarnation(&self, epoch: Epoch, renewal: &Renewal) -> Result<Incarnation, ApiError>;

    /// The same for many slots: for each its incarnation or the reason for none, in the same order.
    async fn new_incarnations(
        &self,
        epoch: Epoch,
        renewals: &[Renewal],
    ) -> Result<Vec<Result<Incarnation, String>>, ApiError>;

    /// Changes reservations in one transaction, in order, each with its own result: a refused one does not affect the others.
    async fn ledger(&self, epoch: Epoch, changes: &[ScopedChange]) -> Result<Vec<Decided>, ApiError>;

    /// Records capacities or the end of an admission round, or runs the expiry or the audit.
    async fn record_ledger(&self, epoch: Epoch, record: &LedgerRecord) -> Result<LedgerRecorded, ApiError>;

    /// Replaces the demand of a proxy, and wakes the master if it has increased. A report that is not newer than the last one
    /// has no effect.
    async fn record_demand(&self, report: &DemandReport) -> Result<DemandRecorded, ApiError>;

    /// The sessions of all proxies that wait for an engine now, added up by key.
    async fn demand(&self) -> Result<Vec<Demand>, ApiError>;

    /// Adds and removes slots of origin *demand* in one transaction; a result for each link, in the same order.
    async fn scale(&self, epoch: Epoch, request: &ScaleRequest) -> Result<Vec<LinkScaled>, ApiError>;
}
