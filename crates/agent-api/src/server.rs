//! The server side: one method for each call of the trait.

use std::time::Duration;

use hs2::Call;
use model::alteration::RequestId;
use model::error::{ErrorKind, UserError};
use model::failpoint;
use model::ledger::ScopedChange;
use model::number::{Epoch, Generation};
use model::observation::Recorded;
use model::slot::Renewal;
use serde::Serialize;
use thrift::protocol::TSerializable;

use crate::api::AgentApi;
use crate::error::ApiError;
use crate::failpoints::{SERVER_DONE, SERVER_READ};
use crate::method;
use crate::report::ReportMessage;
use crate::verification::SERVICE_MASTER;
use crate::wire::{
    TAbortReq, TApiResp, TFinishReq, TLedgerReq, TNewIncarnationReq, TNewIncarnationsReq, TObservedReq, TOutcomeReq,
    TRaiseEpochReq, TRecordDemandReq, TRecordLedgerReq, TScaleReq, TStalledReq, TSupersededReq,
};

pub(crate) fn read<T: TSerializable>(call: &Call<'_>) -> Result<T, ApiError> {
    call.decode()
        .map_err(|error| ApiError::Refused(UserError::new(ErrorKind::Syntax, "invalid call").detail(error.to_string())))
}

fn id(text: String) -> Result<RequestId, ApiError> {
    RequestId::new(text).map_err(ApiError::Refused)
}

/// The calls that a proxy may make. A master may make all: it alone writes, and reads secret properties.
const OF_PROXIES: [&str; 4] = [method::MASTER, method::PROXY_SNAPSHOT, method::OUTCOME, method::RECORD_DEMAND];

/// Serves a call for HiveServer2's extension hook: the whole reply, or `None` for an unknown method. `service` is the role that
/// the caller has proven.
pub async fn serve(api: &dyn AgentApi, service: Option<&str>, call: &Call<'_>) -> Option<Vec<u8>> {
    failpoint!(SERVER_READ);
    let is_known = method::ALL.contains(&call.name);
    if is_known && service != Some(SERVICE_MASTER) && !OF_PROXIES.contains(&call.name) {
        let refused = UserError::new(ErrorKind::InsufficientPrivilege, format!("only a master may call {}", call.name));
        return Some(call.reply(&answered::<()>(Err(ApiError::Refused(refused)))));
    }
    let answer = match call.name {
        method::MASTER => method::to_answer(api.master().await),
        method::SNAPSHOT => method::to_answer(api.snapshot().await),
        method::PROXY_SNAPSHOT => method::to_answer(api.proxy_snapshot().await),
        method::OUTCOME => answered(outcome(api, call).await),
        method::ABORT => answered(abort(api, call).await),
        method::RAISE_EPOCH => answered(raise_epoch(api, call).await),
        method::FINISH => answered(finish(api, call).await),
        method::STALLED => answered(stalled(api, call).await),
        method::SUPERSEDED => answered(superseded(api, call).await),
        method::OBSERVED => answered(observed(api, call).await),
        method::NEW_INCARNATION => answered(new_incarnation(api, call).await),
        method::NEW_INCARNATIONS => answered(new_incarnations(api, call).await),
        method::LEDGER => answered(ledger(api, call).await),
        method::RECORD_LEDGER => answered(record_ledger(api, call).await),
        method::RECORD_DEMAND => answered(record_demand(api, call).await),
        method::DEMAND => method::to_answer(api.demand().await),
        method::SCALE => answered(scale(api, call).await),
        _ => return None,
    };
    failpoint!(SERVER_DONE);
    Some(call.reply(&answer))
}

fn answered<T: Serialize>(outcome: Result<T, ApiError>) -> TApiResp {
    method::to_answer(outcome)
}

async fn outcome(api: &dyn AgentApi, call: &Call<'_>) -> Result<impl Serialize + use<>, ApiError> {
    api.outcome(&id(read::<TOutcomeReq>(call)?.id)?).await
}

async fn abort(api: &dyn AgentApi, call: &Call<'_>) -> Result<impl Serialize + use<>, ApiError> {
    api.abort(&method::from_json(&read::<TAbortReq>(call)?.abort)?).await
}

async fn raise_epoch(api: &dyn AgentApi, call: &Call<'_>) -> Result<impl Serialize + use<>, ApiError> {
    let request: TRaiseEpochReq = read(call)?;
    api.raise_epoch(Epoch(request.read), &request.holder).await
}

async fn finish(api: &dyn AgentApi, call: &Call<'_>) -> Result<impl Serialize + use<>, ApiError> {
    let request: TFinishReq = read(call)?;
    api.finish(Epoch(request.epoch), &id(request.id)?, Generation(request.plan)).await
}

async fn stalled(api: &dyn AgentApi, call: &Call<'_>) -> Result<impl Serialize + use<>, ApiError> {
    let request: TStalledReq = read(call)?;
    let after_ms = u64::try_from(request.after_ms)
        .map_err(|_| ApiError::Refused(UserError::new(ErrorKind::InvalidValue, "negative duration")))?;
    let after = Duration::from_millis(after_ms);
    api.stalled(Epoch(request.epoch), &id(request.id)?, after, &request.reason).await
}

async fn superseded(api: &dyn AgentApi, call: &Call<'_>) -> Result<impl Serialize + use<>, ApiError> {
    let request: TSupersededReq = read(call)?;
    api.superseded(Epoch(request.epoch), &id(request.id)?).await
}

async fn observed(api: &dyn AgentApi, call: &Call<'_>) -> Result<impl Serialize + use<>, ApiError> {
    let request: TObservedReq = read(call)?;
    let (epoch, message) = (Epoch(request.epoch), method::from_json::<ReportMessage>(&request.report)?);
    let (facts, publication) = message.split();
    let recorded = match facts {
        Some(facts) => api.record(epoch, &facts).await?,
        None => Recorded::default(),
    };
    if let Some(publication) = publication {
        api.publish(epoch, &publication).await?;
    }
    Ok(recorded)
}

async fn new_incarnation(api: &dyn AgentApi, call: &Call<'_>) -> Result<impl Serialize + use<>, ApiError> {
    let request: TNewIncarnationReq = read(call)?;
    api.new_incarnation(Epoch(request.epoch), &method::from_json(&request.renewal)?).await
}

async fn new_incarnations(api: &dyn AgentApi, call: &Call<'_>) -> Result<impl Serialize + use<>, ApiError> {
    let request: TNewIncarnationsReq = read(call)?;
    let renewals: Vec<Renewal> = method::from_json(&request.renewals)?;
    api.new_incarnations(Epoch(request.epoch), &renewals).await
}

async fn ledger(api: &dyn AgentApi, call: &Call<'_>) -> Result<impl Serialize + use<>, ApiError> {
    let request: TLedgerReq = read(call)?;
    let changes: Vec<ScopedChange> = method::from_json(&request.changes)?;
    api.ledger(Epoch(request.epoch), &changes).await
}

async fn record_ledger(api: &dyn AgentApi, call: &Call<'_>) -> Result<impl Serialize + use<>, ApiError> {
    let request: TRecordLedgerReq = read(call)?;
    api.record_ledger(Epoch(request.epoch), &method::from_json(&request.record)?).await
}

async fn record_demand(api: &dyn AgentApi, call: &Call<'_>) -> Result<impl Serialize + use<>, ApiError> {
    api.record_demand(&method::from_json(&read::<TRecordDemandReq>(call)?.report)?).await
}

async fn scale(api: &dyn AgentApi, call: &Call<'_>) -> Result<impl Serialize + use<>, ApiError> {
    let request: TScaleReq = read(call)?;
    api.scale(Epoch(request.epoch), &method::from_json(&request.request)?).await
}
