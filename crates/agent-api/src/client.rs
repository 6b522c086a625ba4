//! The caller's side: one connection, made when first needed and again after a call that broke it.

use std::time::Duration;

use async_trait::async_trait;
use hs2::{Auth, Client, ClientError, ClientOptions};
use model::alteration::{Abort, AlterationRecord, Progress, RequestId};
use model::number::{Epoch, Generation, Incarnation};
use model::observation::{Recorded, Report};
use model::slot::Renewal;
use model::snapshot::{MasterRecord, ProxySnapshot, Snapshot};
use serde::de::DeserializeOwned;
use thrift::protocol::TSerializable;
use tokio::sync::Mutex;

use crate::api::AgentApi;
use crate::credential::{SERVICE_MASTER, SERVICE_PROXY};
use crate::error::ApiError;
use crate::method;
use crate::wire::{
    TAbortReq, TApiResp, TFinishReq, TMasterReq, TNewIncarnationReq, TObservedReq, TOutcomeReq, TProxySnapshotReq,
    TRaiseEpochReq, TSnapshotReq, TStalledReq, TSupersededReq,
};

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The elected master.
    Master,
    /// A proxy.
    Proxy,
}

/// A metadata agent, reached over a connection. Calls come one after another.
pub struct AgentClient {
    options: ClientOptions,
    client: Mutex<Option<Client>>,
}

/// Whether a call changes something: if it may have, a lost answer leaves the outcome unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Reads,
    Writes,
}

impl AgentClient {
    /// A client of the agent at `address` (`host:port`). `key` is the derived key of
    /// [`Purpose::MetadataAgent`](model::credential::Purpose). Connects with the first call.
    pub fn new(address: String, role: Role, key: String, call_deadline: Duration) -> Self {
        let service = match role {
            Role::Master => SERVICE_MASTER,
            Role::Proxy => SERVICE_PROXY,
        };
        let mut options = ClientOptions::new(address, Auth::service(service, key, ""));
        options.connect_deadline = call_deadline;
        options.call_deadline = call_deadline;
        Self { options, client: Mutex::new(None) }
    }

    /// Where the agent is.
    pub fn address(&self) -> &str {
        &self.options.address
    }

    async fn call<Q, T>(&self, name: &str, request: &Q, effect: Effect) -> Result<T, ApiError>
    where
        Q: TSerializable + Sync,
        T: DeserializeOwned,
    {
        let mut kept = self.client.lock().await;
        let mut client = match kept.take() {
            Some(client) if !client.is_broken() => client,
            _ => Client::connect(&self.options).await.map_err(|error| ApiError::Unavailable(error.to_string()))?,
        };
        let answer: Result<TApiResp, ClientError> = client.call(name, request, self.options.call_deadline).await;
        match answer {
            Ok(answer) => {
                *kept = Some(client);
                method::from_answer(answer)
            }
            Err(error) if effect == Effect::Writes && !matches!(error, ClientError::Broken) && !error.is_answer() => {
                Err(ApiError::OutcomeUnknown(error.to_string()))
            }
            Err(error) => Err(ApiError::Unavailable(error.to_string())),
        }
    }
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

    async fn finish(&self, epoch: Epoch, id: &RequestId, plan: Generation) -> Result<Progress, ApiError> {
        let request = TFinishReq { epoch: epoch.get(), id: id.to_string(), plan: plan.get() };
        self.call(method::FINISH, &request, Effect::Writes).await
    }

    async fn stalled(&self, epoch: Epoch, id: &RequestId, after: Duration, reason: &str) -> Result<Progress, ApiError> {
        let after_ms = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
        let request = TStalledReq { epoch: epoch.get(), id: id.to_string(), after_ms, reason: reason.to_owned() };
        self.call(method::STALLED, &request, Effect::Writes).await
    }

    async fn superseded(&self, epoch: Epoch, id: &RequestId) -> Result<Progress, ApiError> {
        let request = TSupersededReq { epoch: epoch.get(), id: id.to_string() };
        self.call(method::SUPERSEDED, &request, Effect::Writes).await
    }

    async fn observed(&self, epoch: Epoch, report: &Report) -> Result<Recorded, ApiError> {
        let request = TObservedReq { epoch: epoch.get(), report: method::to_json(report)? };
        self.call(method::OBSERVED, &request, Effect::Writes).await
    }

    async fn new_incarnation(&self, epoch: Epoch, renewal: &Renewal) -> Result<Incarnation, ApiError> {
        let request = TNewIncarnationReq { epoch: epoch.get(), renewal: method::to_json(renewal)? };
        self.call(method::NEW_INCARNATION, &request, Effect::Writes).await
    }
}
