//! Calls about reservations: sent to any metadata agent, and to another one while none has decided.
//!
//! Every call is idempotent, so one whose outcome is unknown is sent again under its id, until the deadline of the call, which
//! also ends its transaction. A wait for another state is a
//! sequence of short calls, so that an agent that dies delays it by one of them.

use std::time::Duration;

use agent_api::{ApiError as AgentError, ReservationAnswer, ReservationCall, ReservationRequest};
use model::alteration::Source;
use model::error::{ErrorKind, LOCK_TIMEOUT, REQUEST_TIMEOUT, UserError};
use model::ledger::State;
use model::millis;

use super::execution::Call;
use super::problem::ApiError;

/// The longest wait for another state of a reservation.
pub(super) const MAX_RESERVATION_WAIT: Duration = Duration::from_secs(30);
/// How long one agent is waited for; less than the deadline of a call to an agent.
const HOLD: Duration = Duration::from_secs(5);
/// How long a call is sent to agents that do not decide it.
const RESERVATION_DEADLINE: Duration = Duration::from_secs(20);
/// The pause before all agents are tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

impl Call {
    /// The answer of a metadata agent.
    pub(super) async fn reservation(&self, call: ReservationCall) -> Result<ReservationAnswer, ApiError> {
        let groups = self.gateway.groups(&self.principal).await?;
        self.gateway.activity.statements.add();
        let mut request = ReservationRequest {
            id: self.id.clone(),
            user: self.principal.user.clone(),
            groups,
            source: Source {
                via: self.principal.via.clone(),
                method: Some(self.principal.method.to_owned()),
                proxy: Some(self.gateway.address.clone()),
                client: Some(self.client.to_string()),
            },
            deadline_ms: None,
            call,
        };
        let clock = &self.gateway.clock;
        let until = clock.boottime() + RESERVATION_DEADLINE;
        let mut is_in_doubt = false;
        loop {
            request.deadline_ms = Some(millis::from_duration(until.saturating_sub(clock.boottime())));
            let undecided = match self.gateway.agents.reservations(&request).await {
                Ok(Ok(answer)) => return Ok(answer),
                // An earlier attempt may have taken effect nevertheless.
                Ok(Err(refused)) if is_in_doubt && is_late(&refused.error) => {
                    AgentError::Conflict(refused.error.text())
                }
                Ok(Err(refused)) => return Err(ApiError::of_ledger(refused)),
                Err(AgentError::Refused(error)) => return Err(error.into()),
                Err(error) => error,
            };
            is_in_doubt |= matches!(undecided, AgentError::OutcomeUnknown(_));
            if clock.boottime() >= until {
                return Err(self.undecided(&undecided, is_in_doubt).into());
            }
            tracing::debug!(error = %undecided, id = %self.id, "repeating a call about a reservation");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// The reservation once its state is not `known`, or after the wait.
    pub(super) async fn reservation_after(
        &self,
        id: String,
        wait: Duration,
        known: Option<State>,
    ) -> Result<ReservationAnswer, ApiError> {
        let clock = &self.gateway.clock;
        let until = clock.boottime() + wait;
        let _waiting = if wait.is_zero() { None } else { Some(self.admitted.wait()?) };
        loop {
            let hold = until.saturating_sub(clock.boottime()).min(HOLD);
            let hold_ms = millis::from_duration(hold);
            let answer = self.reservation(ReservationCall::Get { id: id.clone(), hold_ms, known }).await?;
            let is_pending = match &answer {
                ReservationAnswer::One(reservation) => reservation.state == known.unwrap_or(State::Waiting),
                ReservationAnswer::Page { .. } | ReservationAnswer::Registration(_) => false,
            };
            if !is_pending || clock.boottime() >= until || self.gateway.draining.is_cancelled() {
                return Ok(answer);
            }
        }
    }

    fn undecided(&self, error: &AgentError, is_in_doubt: bool) -> UserError {
        if is_in_doubt {
            return UserError::new(ErrorKind::OutcomeUnknown, "outcome of the call is unknown")
                .detail(format!("Request {}: {error}.", self.id))
                .hint("Repeat the request with the same Idempotency-Key.");
        }
        match error {
            AgentError::Unavailable(_) => self.gateway.agents.none_reachable(),
            other => UserError::new(ErrorKind::Timeout, "deadline of the call exceeded")
                .detail(format!("Nothing was changed (REQUEST_TIMEOUT, retryable): {other}."))
                .hint("Repeat the request.")
                .with_error_code(REQUEST_TIMEOUT),
        }
    }
}

/// Whether a call was refused because it took too long. That decides nothing about an earlier attempt.
fn is_late(error: &UserError) -> bool {
    matches!(error.error_code(), LOCK_TIMEOUT | REQUEST_TIMEOUT)
}
