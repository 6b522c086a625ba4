//! The copy in which reclaim ends engines and grants requests before it is known whether that is of use.

use std::sync::Arc;

use model::ledger::{End, Moment, Reservation, Scopes, Shortage, State};
use model::quota::Share;
use model::resource::{Amount, Component};

use super::engine::RunningEngine;
use crate::admit::{Entitlement, Headroom, Obstacle, Request, Shortages};
use model::fit::NodeAmount;

#[derive(Debug)]
pub(super) struct Copied {
    headroom: Headroom,
    at: Moment,
}

impl Copied {
    pub const fn new(headroom: Headroom, at: Moment) -> Self {
        Self { headroom, at }
    }

    /// The charged reservation of an engine.
    pub fn reservation(&self, engine: &RunningEngine) -> Option<&Arc<Reservation>> {
        let reservation = self.headroom.ledger.reservation(&engine.id)?;
        (reservation.state.is_charged() && !reservation.request.holder.is_external()).then_some(reservation)
    }

    pub fn entitlement(&self, request: &Request) -> Entitlement {
        self.headroom.entitlement(request)
    }

    pub fn grant(&mut self, request: &Request) -> Result<(), Obstacle> {
        self.headroom.grant(request, self.at).map(drop)
    }

    /// The share of the tenant.
    pub fn share(&self, scopes: &Scopes) -> Share {
        self.headroom.share(scopes, &Amount::ZERO)
    }

    /// The share of its tenant after the reservation has ended.
    pub fn share_without(&self, reservation: &Reservation) -> Share {
        self.headroom.share(&reservation.request.scopes, &self.headroom.ledger.change_by_end(reservation))
    }

    /// Whether the tenant still holds its guarantee after the reservation has ended, of what it exceeds now. Otherwise its
    /// slots would request engines within the guarantee.
    pub fn keeps_guarantee_without(&self, reservation: &Reservation) -> bool {
        let change = self.headroom.ledger.change_by_end(reservation);
        let Some(tenant) = self.headroom.ledger.scope(reservation.request.scopes.tenant()) else { return false };
        let held = tenant.counter.held;
        Component::ALL.into_iter().all(|component| {
            let after = held.get(component).saturating_add(change.get(component));
            tenant
                .guarantees()
                .amount
                .get(component)
                .is_none_or(|guarantee| held.get(component) <= guarantee || after >= guarantee)
        })
    }

    /// Whether the tenant holds more than its guarantee of something that is short. On a node every component counts.
    pub fn borrows(&self, scopes: &Scopes, shortages: &Shortages) -> bool {
        if shortages.nodes.is_some() {
            return self.headroom.ledger.borrows(scopes, &Amount::ZERO);
        }
        let Some(tenant) = self.headroom.ledger.scope(scopes.tenant()) else { return false };
        shortages.amounts.iter().any(|Shortage { component, .. }| {
            let guarantee = tenant.guarantees().amount.get(*component);
            guarantee.is_some_and(|guarantee| tenant.counter.held.get(*component) > guarantee)
        })
    }

    /// Ends the engine and returns what it is charged. One without a reservation only leaves its nodes.
    pub fn release(&mut self, engine: &RunningEngine) {
        for (node, amount) in &engine.nodes {
            self.headroom.nodes.give_back(node, *amount);
        }
        if self.reservation(engine).is_some() {
            let end = End { id: Arc::clone(&engine.id), state: State::Released, reason: "reclaimed".into() };
            // The state was checked, and what is charged can be returned.
            let ended = self.headroom.ledger.end(&end, self.at);
            debug_assert!(ended.is_ok(), "{ended:?}");
        }
    }

    /// Undoes a release: `reservation` is what the engine had.
    pub fn restore(&mut self, engine: &RunningEngine, reservation: &Reservation) {
        for (node, amount) in &engine.nodes {
            self.headroom.nodes.occupy(node, *amount);
        }
        let restored = self.headroom.ledger.restore(reservation);
        debug_assert!(restored.is_ok(), "{restored:?}");
    }

    /// Whether a released engine fits into what is left.
    pub fn has_capacity_for(&self, engine: &RunningEngine, reservation: &Reservation) -> bool {
        let fits = |node: &str, amount: NodeAmount| self.headroom.nodes.free(node).is_none_or(|free| amount.fits(free));
        let shortages = self.headroom.ledger.shortages_of_restore(reservation, self.at.now_ms);
        let is_short = shortages.map_or(true, |all| all.iter().any(Shortage::is_of_pool));
        !is_short && engine.nodes.iter().all(|(node, amount)| fits(node, *amount))
    }
}
