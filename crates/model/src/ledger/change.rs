//! Changes: the operations on one reservation as values, for batches.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::book::{Ledger, Moment};
use super::hold::{Claim, Confirmation, End, overdue_end};
use super::refusal::Refusal;
use super::reservation::{Request, Reservation};
use super::scope::Scopes;

/// An operation on one reservation. All of them are idempotent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// [`Ledger::reserve`]
    Reserve(Arc<Request>),
    /// [`Ledger::enqueue`]
    Enqueue { request: Arc<Request>, wait_ms: i64 },
    /// [`Ledger::admit`]
    Admit { id: Arc<str> },
    /// [`Ledger::adopt`]
    Adopt { request: Arc<Request>, uid: Arc<str> },
    /// [`Ledger::transfer`]
    Transfer { from: Arc<str>, request: Arc<Request> },
    /// [`Ledger::confirm`]
    Confirm(Confirmation),
    /// [`Ledger::renew`]
    Renew { claim: Claim, lease_ms: i64 },
    /// [`Ledger::release`]
    Release(Claim),
    /// [`Ledger::cancel`]
    Cancel { id: Arc<str> },
    /// [`Ledger::end`]
    End(End),
    /// Ends an external reservation if its deadline has passed.
    Expire { id: Arc<str> },
}

/// A change with the scopes of its reservation, which a transaction locks before it reads anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopedChange {
    pub scopes: Scopes,
    pub change: Change,
}

/// The reservation after a change, or why nothing changed.
pub type Decided = Result<Arc<Reservation>, Refusal>;

impl Change {
    /// The reservation that it makes, or applies to; of a transfer, the successor.
    pub fn id(&self) -> &Arc<str> {
        match self {
            Self::Reserve(request)
            | Self::Enqueue { request, .. }
            | Self::Adopt { request, .. }
            | Self::Transfer { request, .. } => &request.id,
            Self::Admit { id } | Self::Cancel { id } | Self::Expire { id } => id,
            Self::Confirm(Confirmation { claim, .. }) | Self::Renew { claim, .. } | Self::Release(claim) => &claim.id,
            Self::End(end) => &end.id,
        }
    }

    /// The request of a change that may make a reservation.
    pub const fn request(&self) -> Option<&Arc<Request>> {
        match self {
            Self::Reserve(request)
            | Self::Enqueue { request, .. }
            | Self::Adopt { request, .. }
            | Self::Transfer { request, .. } => Some(request),
            _ => None,
        }
    }
}

impl Ledger {
    /// Runs the operation, and returns the reservation as it is afterwards.
    pub fn apply(&mut self, change: &Change, at: Moment) -> Result<Arc<Reservation>, Refusal> {
        match change {
            Change::Reserve(request) => self.reserve(request, at),
            Change::Enqueue { request, wait_ms } => self.enqueue(request, *wait_ms, at),
            Change::Admit { id } => self.admit(id, at),
            Change::Adopt { request, uid } => self.adopt(request, uid, at),
            Change::Transfer { from, request } => self.transfer(from, request, at),
            Change::Confirm(confirmation) => self.confirm(confirmation, at),
            Change::Renew { claim, lease_ms } => self.renew(claim, *lease_ms, at),
            Change::Release(claim) => self.release(claim, at),
            Change::Cancel { id } => self.cancel(id, at),
            Change::End(end) => self.end(end, at),
            Change::Expire { id } => {
                let old = self.known(id)?;
                match overdue_end(&old, at.now_ms) {
                    Some(end) => self.end(&end, at),
                    None => Ok(old),
                }
            }
        }
    }
}
