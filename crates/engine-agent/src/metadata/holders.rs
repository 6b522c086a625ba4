//! The calls of external holders: programs that reserve capacity of a pool, confirm, renew and release it, and programs that
//! register the capacity of a pool.
//!
//! A call names its user, whose rights are decided here, and the id of its request, which is the key of a reservation.
//! The row of the ledger is the only state: every agent gives the same result, and a repeat changes nothing.
//! A call that takes effect is audited in the transaction of its effect, a refused one afterwards; renewals, and reads,
//! are not audited.
//!
//! A stale holder: one whose reservation has ended, or belongs to another user or instance, receives
//! `UNKNOWN_RESERVATION` and must stop. Reservations of engines cannot be changed here.

mod claim;
mod context;
mod poller;
mod read;
mod registration;
mod reserve;
mod settings;
mod text;

use std::sync::Arc;

use agent_api::{ApiError, ReservationApi, ReservationCall, ReservationReply, ReservationRequest};
use async_trait::async_trait;

use super::context::Agent;

pub(super) use poller::ReservationPoller;
pub use settings::HolderSettings;

use context::{Failed, HolderContext};

/// Serves the calls of holders at one agent.
pub(super) struct HolderService {
    agent: Arc<Agent>,
}

impl HolderService {
    pub(super) const fn new(agent: Arc<Agent>) -> Self {
        Self { agent }
    }
}

#[async_trait]
impl ReservationApi for HolderService {
    async fn reservations(&self, request: ReservationRequest) -> Result<ReservationReply, ApiError> {
        let ReservationRequest { id, user, groups, source, deadline_ms, call } = request;
        let context = HolderContext::new(Arc::clone(&self.agent), id, (user, groups), source, deadline_ms);
        // On a task of its own: a transaction runs to its end even if the connection is closed.
        let task = tokio::spawn(async move {
            let outcome = run(&context, &call).await.map_err(|failed| context.in_time(failed));
            if let Err(Failed::Refused(refused)) = &outcome {
                context.record_refusal(&call, &refused.error).await;
            }
            outcome
        });
        match task.await {
            Ok(Ok(answer)) => Ok(Ok(answer)),
            Ok(Err(Failed::Refused(refused))) => Ok(Err(*refused)),
            Ok(Err(Failed::Api(error))) => Err(error),
            Err(error) => {
                tracing::error!(%error, "reservation task panicked");
                Err(ApiError::OutcomeUnknown("the call failed unexpectedly".into()))
            }
        }
    }
}

async fn run(context: &HolderContext, call: &ReservationCall) -> Result<agent_api::ReservationAnswer, Failed> {
    match call {
        ReservationCall::Reserve(ask) => reserve::reserve(context, ask, text::of(context.user(), call)).await,
        ReservationCall::Get { id, hold_ms, known } => read::get(context, id, *hold_ms, *known).await,
        ReservationCall::List(list) => read::list(context, list).await,
        ReservationCall::Confirm { claim, resource, lease_ms } => {
            claim::confirm(context, claim, resource.as_ref(), *lease_ms, text::of(context.user(), call)).await
        }
        ReservationCall::Renew { claim, lease_ms } => claim::renew(context, claim, *lease_ms).await,
        ReservationCall::Release { claim } => claim::release(context, claim, text::of(context.user(), call)).await,
        ReservationCall::Registration { pool, call: of_pool } => {
            registration::run(context, pool, of_pool, text::of(context.user(), call)).await
        }
    }
}
