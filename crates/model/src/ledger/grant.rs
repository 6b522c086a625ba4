//! Operations that charge: reserve, enqueue and admit, adopt, and transfer to a successor.
//!
//! Each is idempotent: a repeat returns the reservation as it is, in whatever state.

use std::sync::Arc;

use super::book::{Ledger, Moment};
use super::refusal::Refusal;
use super::reservation::{Request, Reservation, State, is_transition};

impl Ledger {
    /// Grants the request, or returns the reservation that its key has. A request that can never fit is refused as
    /// such.
    pub fn reserve(&mut self, request: &Arc<Request>, at: Moment) -> Result<Arc<Reservation>, Refusal> {
        if let Some(existing) = self.repeated(request)? {
            return Ok(existing);
        }
        self.grant(request, at)?;
        Ok(self.put(locked(request, at, at.now_ms)))
    }

    /// Queues the request of an external holder for `wait_ms`, or returns the reservation that its key has.
    pub fn enqueue(&mut self, request: &Arc<Request>, wait_ms: i64, at: Moment) -> Result<Arc<Reservation>, Refusal> {
        if let Some(existing) = self.repeated(request)? {
            return Ok(existing);
        }
        transition(None, State::Waiting, request)?;
        if let Some(shortage) = self.impossible(request, at.now_ms) {
            return Err(Refusal::Short(Box::new(shortage)));
        }
        for key in request.scopes.in_lock_order() {
            let scope = self.scope(key).ok_or_else(|| Refusal::NoScope(key.clone()))?;
            if !scope.admits_at(at.now_ms) {
                return Err(Refusal::Closed(key.clone()));
            }
        }
        let deadline_ms = Some(at.now_ms.saturating_add(wait_ms));
        Ok(self.put(Reservation {
            state: State::Waiting,
            locked_at_ms: None,
            deadline_ms,
            ..locked(request, at, at.now_ms)
        }))
    }

    /// Grants a waiting request whose wait has not ended.
    pub fn admit(&mut self, id: &str, at: Moment) -> Result<Arc<Reservation>, Refusal> {
        let waiting = self.known(id)?;
        if waiting.state.is_charged() {
            return Ok(waiting);
        }
        transition(Some(waiting.state), State::Locked, &waiting.request)?;
        if waiting.is_overdue(at.now_ms) {
            return Err(wrong_state(Some(waiting.state), State::Locked, &waiting.request));
        }
        self.grant(&waiting.request, at)?;
        Ok(self.put(locked(&waiting.request, at, waiting.asked_at_ms)))
    }

    /// Charges a running engine whose reservation is missing or has ended, regardless of limits. A charged one stays as
    /// it is.
    pub fn adopt(&mut self, request: &Arc<Request>, uid: &str, at: Moment) -> Result<Arc<Reservation>, Refusal> {
        let existing = self.reservation(&request.id).cloned();
        if let Some(existing) = &existing {
            let is_same = existing.request.holder == request.holder && existing.request.lineage == request.lineage;
            if !is_same || existing.request.scopes != request.scopes {
                return Err(Refusal::OtherRequest(Arc::clone(&request.id)));
            }
            if existing.state.is_charged() {
                return Ok(Arc::clone(existing));
            }
        }
        transition(existing.as_ref().map(|existing| existing.state), State::Used, request)?;
        self.one_lineage(request)?;
        let effect = self.effect(&request.lineage, None, Some(&request.amounts))?;
        self.charge(&request.scopes, &effect)?;
        // What was requested stays; what is charged is what runs.
        let row = match &existing {
            Some(existing) => locked(&existing.request, at, existing.asked_at_ms),
            None => locked(request, at, at.now_ms),
        };
        Ok(self.put(Reservation {
            state: State::Used,
            amounts: request.amounts,
            uid: Some(uid.into()),
            locked_at_ms: existing.and_then(|existing| existing.locked_at_ms),
            used_at_ms: Some(at.now_ms),
            deadline_ms: None,
            ..row
        }))
    }

    /// Ends the reservation of an engine and grants its successor's in one change: new − old, checked only where it is
    /// positive, so that no other request can take the capacity in between.
    pub fn transfer(&mut self, from: &str, request: &Arc<Request>, at: Moment) -> Result<Arc<Reservation>, Refusal> {
        if let Some(existing) = self.repeated(request)? {
            return Ok(existing);
        }
        let old = self.known(from)?;
        transition(Some(old.state), State::Released, &old.request)?;
        if old.request.holder.is_external() || old.request.lineage != request.lineage {
            return Err(Refusal::OtherRequest(Arc::clone(old.id())));
        }
        self.one_lineage(request)?;
        let effect = self.effect(&request.lineage, Some(&old.amounts), Some(&request.amounts))?;
        self.check(&request.scopes, &effect, at.now_ms)?;
        self.charge(&request.scopes, &effect)?;
        self.put(Reservation {
            state: State::Released,
            epoch: at.epoch,
            ended_at_ms: Some(at.now_ms),
            reason: Some(format!("transferred to \"{}\"", request.id).into()),
            ..(*old).clone()
        });
        Ok(self.put(locked(request, at, at.now_ms)))
    }

    /// The reservation of the request's key.
    fn repeated(&self, request: &Request) -> Result<Option<Arc<Reservation>>, Refusal> {
        let Some(existing) = self.of_key(request) else {
            // Its id is that of another request, if a reservation has it. The key of an engine is its id.
            let other = if request.holder.is_external() { self.reservation(&request.id) } else { None };
            return other.map_or(Ok(None), |other| Err(Refusal::OtherRequest(Arc::clone(other.id()))));
        };
        if request.repeats(&existing.request) {
            Ok(Some(Arc::clone(existing)))
        } else {
            Err(Refusal::OtherRequest(Arc::clone(existing.id())))
        }
    }

    fn one_lineage(&self, request: &Request) -> Result<(), Refusal> {
        if self.has_other_scopes(request) { Err(Refusal::OtherRequest(Arc::clone(&request.id))) } else { Ok(()) }
    }

    fn grant(&mut self, request: &Request, at: Moment) -> Result<(), Refusal> {
        self.one_lineage(request)?;
        if let Some(shortage) = self.impossible(request, at.now_ms) {
            return Err(Refusal::Short(Box::new(shortage)));
        }
        let effect = self.effect(&request.lineage, None, Some(&request.amounts))?;
        self.check(&request.scopes, &effect, at.now_ms)?;
        self.charge(&request.scopes, &effect)
    }

    pub(super) fn known(&self, id: &str) -> Result<Arc<Reservation>, Refusal> {
        self.reservation(id).cloned().ok_or_else(|| Refusal::Unknown(id.into()))
    }
}

pub(super) fn transition(from: Option<State>, to: State, request: &Request) -> Result<(), Refusal> {
    if is_transition(from, to, request.holder.is_external()) { Ok(()) } else { Err(wrong_state(from, to, request)) }
}

pub(super) fn wrong_state(from: Option<State>, to: State, request: &Request) -> Refusal {
    Refusal::WrongState { id: Arc::clone(&request.id), from, to }
}

fn locked(request: &Arc<Request>, at: Moment, asked_at_ms: i64) -> Reservation {
    Reservation {
        request: Arc::clone(request),
        state: State::Locked,
        amounts: request.amounts,
        actual: None,
        uid: None,
        epoch: at.epoch,
        asked_at_ms,
        locked_at_ms: Some(at.now_ms),
        used_at_ms: None,
        ended_at_ms: None,
        deadline_ms: request.ttl_ms.map(|ttl_ms| at.now_ms.saturating_add(ttl_ms)),
        reason: None,
    }
}
