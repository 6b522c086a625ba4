//! The client of a metadata agent: one connection, opened when needed and again after a call that broke it.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use hs2::{Client, ClientError};
use model::alteration::{Abort, AlterationProgress, AlterationRecord, RequestId};
use model::cause::Cause;
use model::demand::Demand;
use model::demand_report::{DemandRecorded, DemandReport};
use model::error::{ErrorKind, UserError};
use model::failpoint;
use model::ledger::{Decided, LedgerRecord, LedgerRecorded, ScopedChange};
use model::millis;
use model::number::{Epoch, Generation, Incarnation};
use model::observation::{EngineFacts, Publication, Recorded};
use model::scaling::{LinkScaled, ScaleRequest};
use model::slot::Renewal;
use model::snapshot::{MasterRecord, ProxySnapshot, Snapshot};
use serde::de::DeserializeOwned;
use thrift::protocol::TSerializable;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::api::AgentApi;
use crate::caller::{Caller, MetadataAgentEndpoint};
use crate::error::ApiError;
use crate::failpoints::{CLIENT_ANSWERED, CLIENT_SEND};
use crate::method;
use crate::report::ReportMessage;
use crate::reservations::{RegistrationCall, ReservationApi, ReservationCall, ReservationReply, ReservationRequest};
use crate::wire::{
    TAbortReq, TApiResp, TDemandReq, TFinishReq, TLedgerReq, TMasterReq, TNewIncarnationReq, TNewIncarnationsReq,
    TObservedReq, TOutcomeReq, TProxySnapshotReq, TRaiseEpochReq, TRecordDemandReq, TRecordLedgerReq, TReservationsReq,
    TScaleReq, TSnapshotReq, TStalledReq, TSupersededReq,
};

/// A metadata agent, called over one connection. Calls run one after the other.
pub struct AgentClient {
    endpoint: MetadataAgentEndpoint,
    caller: Caller,
    call_deadline: Duration,
    client: Mutex<Option<Client>>,
}

/// The cause of a failed call, with the agent's address.
#[derive(Debug, thiserror::Error)]
#[error("{address}")]
struct CallFailed {
    address: String,
    source: ClientError,
}

/// Whether a call may change state: then a lost response leaves the outcome unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Reads,
    Writes,
}

impl AgentClient {
    /// A client of the agent. Connects with the first call.
    pub fn new(endpoint: MetadataAgentEndpoint, caller: Caller, call_deadline: Duration) -> Self {
        Self { endpoint, caller, call_deadline, client: Mutex::new(None) }
    }

    pub fn address(&self) -> &str {
        &self.endpoint.address
    }

    /// Calls within the deadline, which includes waiting for earlier calls and connecting.
    async fn call<Q, T>(&self, name: &str, request: &Q, effect: Effect) -> Result<T, ApiError>
    where
        Q: TSerializable + Sync,
        T: DeserializeOwned,
    {
        let deadline = Instant::now() + self.call_deadline;
        let busy = |_| ApiError::Unavailable(format!("{}: earlier calls took too long", self.endpoint.address).into());
        let mut kept = timeout_at(deadline, self.client.lock()).await.map_err(busy)?;
        let answer = self.exchange(&mut kept, name, request, deadline).await;
        answer.map_err(|error| self.failed(error, effect)).and_then(method::from_answer)
    }

    /// Sends the call over the existing connection, or over a new one if nothing could be sent. The connection is
    /// taken out meanwhile, so that a cancelled call drops it.
    async fn exchange<Q>(
        &self,
        kept: &mut Option<Client>,
        name: &str,
        request: &Q,
        deadline: Instant,
    ) -> Result<TApiResp, ClientError>
    where
        Q: TSerializable + Sync,
    {
        if let Some(mut client) = kept.take() {
            match send(&mut client, name, request, deadline).await {
                Err(ClientError::Broken) => {}
                outcome => return keep(kept, client, outcome),
            }
        }
        let mut client = self.connect(deadline).await?;
        let outcome = send(&mut client, name, request, deadline).await;
        keep(kept, client, outcome)
    }

    async fn connect(&self, deadline: Instant) -> Result<Client, ClientError> {
        let mut options = self.caller.metadata_agent(&self.endpoint, "")?;
        options.connect_deadline = self.call_deadline;
        options.call_deadline = self.call_deadline;
        timeout_at(deadline, Client::connect(&options)).await.unwrap_or_else(|_| {
            let reason = format!("no connection within {} ms", self.call_deadline.as_millis());
            let source = io::Error::new(io::ErrorKind::TimedOut, reason);
            Err(ClientError::Connect { address: self.endpoint.address.clone(), source })
        })
    }

    /// A call that an agent of version 0.1.0 does not know: another agent may know it.
    async fn call_known<Q, T>(&self, name: &str, request: &Q, effect: Effect) -> Result<T, ApiError>
    where
        Q: TSerializable + Sync,
        T: DeserializeOwned,
    {
        match self.call(name, request, effect).await {
            Err(ApiError::Refused(error)) if error.kind == ErrorKind::NotSupported => {
                Err(ApiError::Unavailable(error.text().into()))
            }
            answered => answered,
        }
    }

    /// Classifies a failed call: a lost response leaves the outcome of a write unknown, and a read has none.
    fn failed(&self, error: ClientError, effect: Effect) -> ApiError {
        if let ClientError::Refused(_) = error {
            return ApiError::Refused(error.user_error());
        }
        let may_have_effect =
            effect == Effect::Writes && matches!(error, ClientError::Timeout { .. } | ClientError::Wire(_));
        let is_answer = error.is_answer();
        let cause = Cause::from(CallFailed { address: self.endpoint.address.clone(), source: error });
        if is_answer {
            // The agent responded that it does not know the call.
            ApiError::Refused(UserError::new(ErrorKind::NotSupported, cause.to_string()))
        } else if may_have_effect {
            ApiError::OutcomeUnknown(cause)
        } else {
            ApiError::Unavailable(cause)
        }
    }
}

/// Keeps the connection for the next call unless this one left it between two messages.
fn keep<T>(kept: &mut Option<Client>, client: Client, outcome: Result<T, ClientError>) -> Result<T, ClientError> {
    if outcome.as_ref().map_or_else(ClientError::is_answer, |_| true) {
        *kept = Some(client);
    }
    outcome
}

async fn send<Q>(client: &mut Client, name: &str, request: &Q, deadline: Instant) -> Result<TApiResp, ClientError>
where
    Q: TSerializable + Sync,
{
    failpoint!(CLIENT_SEND);
    let answer = client.call(name, request, deadline.saturating_duration_since(Instant::now())).await;
    failpoint!(CLIENT_ANSWERED);
    answer
}

#[async_trait]
impl AgentApi for AgentClient {
    async fn master(&self) -> Result<MasterRecord, ApiError> {
        self.call(method::MASTER, &TMasterReq {}, Effect::Reads).await
    }

    async fn raise_epoch(&self, read: Epoch, holder: &str) -> Result<MasterRecord, ApiError> {
        let request = TRaiseEpochReq { read: read.get(), holder: holder.to_owned() };
        self.call(method::RAISE_EPOCH, &request, Effect::Writes).await
    }

    async fn snapshot(&self) -> Result<Snapshot, ApiError> {
        self.call(method::SNAPSHOT, &TSnapshotReq {}, Effect::Reads).await
    }

    async fn proxy_snapshot(&self) -> Result<ProxySnapshot, ApiError> {
        self.call(method::PROXY_SNAPSHOT, &TProxySnapshotReq {}, Effect::Reads).await
    }

    async fn outcome(&self, id: &RequestId) -> Result<Option<AlterationRecord>, ApiError> {
        self.call(method::OUTCOME, &TOutcomeReq { id: id.to_string() }, Effect::Reads).await
    }

    async fn abort(&self, abort: &Abort) -> Result<AlterationRecord, ApiError> {
        self.call(method::ABORT, &TAbortReq { abort: method::to_json(abort)? }, Effect::Writes).await
    }

    async fn finish(&self, epoch: Epoch, id: &RequestId, plan: Generation) -> Result<AlterationProgress, ApiError> {
        let request = TFinishReq { epoch: epoch.get(), id: id.to_string(), plan: plan.get() };
        self.call(method::FINISH, &request, Effect::Writes).await
    }

    async fn stalled(
        &self,
        epoch: Epoch,
        id: &RequestId,
        after: Duration,
        reason: &str,
    ) -> Result<AlterationProgress, ApiError> {
        let after_ms = millis::from_duration(after);
        let request = TStalledReq { epoch: epoch.get(), id: id.to_string(), after_ms, reason: reason.to_owned() };
        self.call(method::STALLED, &request, Effect::Writes).await
    }

    async fn superseded(&self, epoch: Epoch, id: &RequestId) -> Result<AlterationProgress, ApiError> {
        let request = TSupersededReq { epoch: epoch.get(), id: id.to_string() };
        self.call(method::SUPERSEDED, &request, Effect::Writes).await
    }

    async fn record(&self, epoch: Epoch, facts: &EngineFacts) -> Result<Recorded, ApiError> {
        let report = method::to_json(&ReportMessage::from(facts))?;
        self.call(method::OBSERVED, &TObservedReq { epoch: epoch.get(), report }, Effect::Writes).await
    }

    async fn publish(&self, epoch: Epoch, publication: &Publication) -> Result<(), ApiError> {
        let report = method::to_json(&ReportMessage::from(publication))?;
        let request = TObservedReq { epoch: epoch.get(), report };
        self.call::<_, Recorded>(method::OBSERVED, &request, Effect::Writes).await.map(drop)
    }

    async fn new_incarnation(&self, epoch: Epoch, renewal: &Renewal) -> Result<Incarnation, ApiError> {
        let request = TNewIncarnationReq { epoch: epoch.get(), renewal: method::to_json(renewal)? };
        self.call(method::NEW_INCARNATION, &request, Effect::Writes).await
    }

    /// An agent of version 0.1.0 does not know the call: send one call per slot.
    async fn new_incarnations(
        &self,
        epoch: Epoch,
        renewals: &[Renewal],
    ) -> Result<Vec<Result<Incarnation, String>>, ApiError> {
        let request = TNewIncarnationsReq { epoch: epoch.get(), renewals: method::to_json(&renewals)? };
        match self.call(method::NEW_INCARNATIONS, &request, Effect::Writes).await {
            Err(ApiError::Refused(error)) if error.kind == ErrorKind::NotSupported => {}
            answered => return answered,
        }
        let mut drawn = Vec::with_capacity(renewals.len());
        for renewal in renewals {
            drawn.push(match self.new_incarnation(epoch, renewal).await {
                Ok(incarnation) => Ok(incarnation),
                Err(ApiError::Conflict(reason)) => Err(reason),
                Err(error) => return Err(error),
            });
        }
        Ok(drawn)
    }

    async fn ledger(&self, epoch: Epoch, changes: &[ScopedChange]) -> Result<Vec<Decided>, ApiError> {
        let request = TLedgerReq { epoch: epoch.get(), changes: method::to_json(&changes)? };
        self.call_known(method::LEDGER, &request, Effect::Writes).await
    }

    async fn record_ledger(&self, epoch: Epoch, record: &LedgerRecord) -> Result<LedgerRecorded, ApiError> {
        let request = TRecordLedgerReq { epoch: epoch.get(), record: method::to_json(record)? };
        self.call_known(method::RECORD_LEDGER, &request, Effect::Writes).await
    }

    async fn record_demand(&self, report: &DemandReport) -> Result<DemandRecorded, ApiError> {
        let request = TRecordDemandReq { report: method::to_json(report)? };
        self.call_known(method::RECORD_DEMAND, &request, Effect::Writes).await
    }

    async fn demand(&self) -> Result<Vec<Demand>, ApiError> {
        self.call_known(method::DEMAND, &TDemandReq {}, Effect::Reads).await
    }

    async fn scale(&self, epoch: Epoch, request: &ScaleRequest) -> Result<Vec<LinkScaled>, ApiError> {
        let request = TScaleReq { epoch: epoch.get(), request: method::to_json(request)? };
        self.call_known(method::SCALE, &request, Effect::Writes).await
    }
}

#[async_trait]
impl ReservationApi for AgentClient {
    async fn reservations(&self, request: ReservationRequest) -> Result<ReservationReply, ApiError> {
        let effect = match request.call {
            ReservationCall::Get { .. }
            | ReservationCall::List(_)
            | ReservationCall::Registration { call: RegistrationCall::Get, .. } => Effect::Reads,
            ReservationCall::Reserve(_)
            | ReservationCall::Confirm { .. }
            | ReservationCall::Renew { .. }
            | ReservationCall::Release { .. }
            | ReservationCall::Registration { .. } => Effect::Writes,
        };
        let request = TReservationsReq { request: method::to_json(&request)? };
        self.call(method::RESERVATIONS, &request, effect).await
    }
}
