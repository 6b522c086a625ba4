//! Operations on a reservation that exists: confirm, renew, release, cancel, end, and the end of deadlines.
//!
//! Those of a holder name the user, the pool and the instance as well: a program that uses another one's reservation,
//! or one that has ended, receives [`Refusal::Unknown`] and must stop.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::book::{Ledger, Moment};
use super::grant::{transition, wrong_state};
use super::refusal::Refusal;
use super::reservation::{Amounts, Reservation, State};
use crate::resource::Resource;

/// The reservation that a holder claims to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub id: Arc<str>,
    /// Empty for an engine that is charged to no user.
    pub user: String,
    pub pool: String,
    /// The instance.
    pub uid: String,
}

/// What a holder uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actual {
    pub resource: Resource,
    pub amounts: Amounts,
}

/// A confirmation that the reservation is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmation {
    pub claim: Claim,
    /// Charged from now on, regardless of limits. `None` if it is what was reserved.
    pub actual: Option<Actual>,
    /// The lease of an external holder. Engines have none.
    pub lease_ms: Option<i64>,
}

/// The end of a reservation that a master or the expiry decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub id: Arc<str>,
    /// `released`, `lost`, `expired` or `cancelled`.
    pub state: State,
    pub reason: Arc<str>,
}

impl Ledger {
    /// Makes a reservation `used`. A repeat by the same instance succeeds and changes nothing.
    pub fn confirm(&mut self, confirmation: &Confirmation, at: Moment) -> Result<Arc<Reservation>, Refusal> {
        let Confirmation { claim, actual, lease_ms } = confirmation;
        let old = self.claimed(claim)?;
        let is_external = old.request.holder.is_external();
        match old.state {
            State::Used => return Ok(old),
            State::Locked if !(is_external && old.is_overdue(at.now_ms)) => {}
            _ => return Err(Refusal::Unknown(Arc::clone(&claim.id))),
        }
        let amounts = actual.as_ref().map_or(old.amounts, |actual| actual.amounts);
        self.recharge(&old, Some(&amounts))?;
        Ok(self.put(Reservation {
            state: State::Used,
            amounts,
            actual: actual.as_ref().map(|actual| actual.resource.clone()),
            uid: Some(claim.uid.as_str().into()),
            epoch: at.epoch,
            used_at_ms: Some(at.now_ms),
            deadline_ms: lease_ms.filter(|_| is_external).map(|lease_ms| at.now_ms.saturating_add(lease_ms)),
            ..(*old).clone()
        }))
    }

    /// Extends the lease of an external holder, which must not have ended.
    pub fn renew(&mut self, claim: &Claim, lease_ms: i64, at: Moment) -> Result<Arc<Reservation>, Refusal> {
        let old = self.claimed(claim)?;
        if old.state != State::Used || !old.request.holder.is_external() || old.is_overdue(at.now_ms) {
            return Err(Refusal::Unknown(Arc::clone(&claim.id)));
        }
        let deadline_ms = Some(at.now_ms.saturating_add(lease_ms));
        Ok(self.put(Reservation { deadline_ms, ..(*old).clone() }))
    }

    /// Returns the charge. A repeat, and a release after the reservation has ended otherwise, change nothing.
    pub fn release(&mut self, claim: &Claim, at: Moment) -> Result<Arc<Reservation>, Refusal> {
        let old = self.claimed(claim)?;
        if old.state.is_ended() {
            return Ok(old);
        }
        self.finish(&old, State::Released, "released by its holder", at)
    }

    /// Cancels the reservation of an external holder.
    pub fn cancel(&mut self, id: &str, at: Moment) -> Result<Arc<Reservation>, Refusal> {
        let old = self.known(id)?;
        if old.state == State::Cancelled {
            return Ok(old);
        }
        self.finish(&old, State::Cancelled, "cancelled", at)
    }

    /// Ends a reservation; one that has ended stays as it is. It expires only after its deadline.
    pub fn end(&mut self, end: &End, at: Moment) -> Result<Arc<Reservation>, Refusal> {
        let old = self.known(&end.id)?;
        if old.state.is_ended() {
            return Ok(old);
        }
        let is_early = end.state == State::Expired && !old.is_overdue(at.now_ms);
        if is_early || !end.state.is_ended() {
            return Err(wrong_state(Some(old.state), end.state, &old.request));
        }
        self.finish(&old, end.state, &end.reason, at)
    }

    /// The reservation, if it is the claimed one.
    fn claimed(&self, claim: &Claim) -> Result<Arc<Reservation>, Refusal> {
        let found = self.known(&claim.id)?;
        let scopes = &found.request.scopes;
        let is_same = scopes.user_name().unwrap_or_default() == claim.user && scopes.pool_name() == claim.pool;
        let is_other_instance = found.uid.as_deref().is_some_and(|uid| uid != claim.uid);
        if is_same && !is_other_instance { Ok(found) } else { Err(Refusal::Unknown(Arc::clone(&claim.id))) }
    }

    /// Ends the reservation and returns what it is charged.
    fn finish(
        &mut self,
        old: &Arc<Reservation>,
        state: State,
        reason: &str,
        at: Moment,
    ) -> Result<Arc<Reservation>, Refusal> {
        transition(Some(old.state), state, &old.request)?;
        if old.state.is_charged() {
            self.recharge(old, None)?;
        }
        Ok(self.put(Reservation {
            state,
            epoch: at.epoch,
            ended_at_ms: Some(at.now_ms),
            reason: Some(reason.into()),
            ..(**old).clone()
        }))
    }

    /// Replaces what a charged reservation is charged by other amounts, or by none.
    fn recharge(&mut self, old: &Reservation, amounts: Option<&Amounts>) -> Result<(), Refusal> {
        let effect = self.effect(&old.request.lineage, Some(&old.amounts), amounts)?;
        self.charge(&old.request.scopes, &effect)
    }
}

/// How an external reservation ends whose deadline has passed; `None` if it does not end.
pub fn overdue_end(reservation: &Reservation, now_ms: i64) -> Option<End> {
    let (state, reason) = match reservation.state {
        State::Waiting => (State::Expired, "the wait ended"),
        State::Locked => (State::Expired, "not confirmed in time"),
        State::Used => (State::Lost, "the lease ended"),
        State::Released | State::Lost | State::Expired | State::Cancelled => return None,
    };
    let ends = reservation.request.holder.is_external() && reservation.is_overdue(now_ms);
    ends.then(|| End { id: Arc::clone(reservation.id()), state, reason: reason.into() })
}
