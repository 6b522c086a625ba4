//! A request for a reservation, with what decides when it is admitted. Engines and external programs are the same here.

use std::sync::Arc;

use model::ledger;

use model::fit::Pods;

/// A request that is to be granted or queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What is reserved if it is granted. Its id is that of no other request.
    pub reservation: Arc<ledger::Request>,
    /// The id of the reservation that it replaces: an engine that ends before its successor is created transfers its
    /// charge.
    pub replaces: Option<Arc<str>>,
    /// Higher ones first.
    pub priority: i32,
    /// When the slot row was inserted, the demand was recorded, or the external program asked, in milliseconds since
    /// 1970.
    pub asked_at_ms: i64,
    /// `None` for an external program: it runs where no node is reserved for it.
    pub pods: Option<Pods>,
}

impl Request {
    pub fn id(&self) -> &str {
        &self.reservation.id
    }

    /// Whether the other one is impossible exactly if this one is, for the same reason.
    pub(super) fn needs_same(&self, other: &Self) -> bool {
        let needs = |request: &Self| (request.reservation.amounts, request.pods, request.replaces.is_some());
        needs(self) == needs(other) && self.reservation.scopes == other.reservation.scopes
    }

    /// For how long it has waited.
    pub const fn waited_ms(&self, now_ms: i64) -> i64 {
        now_ms.saturating_sub(self.asked_at_ms)
    }
}
