//! What can still be granted: a copy of the ledger and of the nodes in which a plan makes its grants.
//!
//! A grant changes both or none. The copy decides only what is tried: the database decides each grant again by the rows
//! that it changes, and a grant that it refuses is planned again.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::ledger::{Ledger, Moment, Of, Refusal, Scope, ScopeKey, Scopes, Shortage, State};
use model::quota::{Limit, Share};
use model::resource::{Amount, Component};

use super::request::Request;
use model::fit::{Nodes, NodesFull, Taken};

/// The weight of a tenant whose quota sets none.
const DEFAULT_WEIGHT: u32 = 1;

/// A copy of what is charged and of what is free.
#[derive(Debug, Clone, Default)]
pub struct Headroom {
    pub ledger: Ledger,
    pub nodes: Nodes,
    /// The weights of tenants on pools; 1 for an absent one.
    pub weights: BTreeMap<ScopeKey, u32>,
    /// What the nodes lend to a request that replaces the reservation with this id: what they have for that one. Complete for
    /// each id that is present; others have what their pods take.
    pub freed: BTreeMap<Arc<str>, Taken>,
}

/// What a request is to its tenant's guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entitlement {
    /// Whether the tenant has a guarantee, and holds no more than it including the request.
    pub is_guaranteed: bool,
    /// Whether the tenant would hold more than its guarantee of a component.
    pub borrows: bool,
    /// The tenant's share including the request.
    pub share: Share,
    /// How much the tenant has, including the request, of what tenants without a share compete for; 0 while the share or a
    /// guarantee decides.
    pub portion: Share,
    /// What the request adds to its user, creator and tenant.
    pub raise: Amount,
}

/// Why a request is not granted now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Obstacle {
    Short(Shortages),
    /// By a closed scope, or because the reservation is in another state.
    Refused(Refusal),
}

/// All that a request is short of; never nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shortages {
    /// In the order in which they are reported.
    pub amounts: Vec<Shortage>,
    pub nodes: Option<NodesFull>,
}

impl Shortages {
    /// Whether it is short of nothing but shared amounts, pool amounts or nodes, so that only other tenants can release
    /// it. The unguaranteed part of a pool is the limit of tenants without a guarantee: those that borrow do not hold
    /// it.
    pub fn are_of_pool(&self) -> bool {
        self.amounts.iter().all(|shortage| shortage.is_of_pool() && shortage.of != Of::Unguaranteed)
    }
}

impl Headroom {
    /// What the tenant is entitled to if the request is granted.
    pub(crate) fn entitlement(&self, request: &Request) -> Entitlement {
        let scopes = &request.reservation.scopes;
        let raise = match self.replaced(request) {
            Some(old) => self.ledger.raise_by_transfer(old, &request.reservation),
            None => self.ledger.raise(&request.reservation),
        };
        let (tenant, pool) = (self.ledger.scope(scopes.tenant()), self.ledger.scope(scopes.pool()));
        let borrows = tenant.is_some_and(|tenant| tenant.borrows(&raise));
        let is_guaranteed = tenant.is_some_and(has_guarantee) && !borrows;
        let (share, portion) = match (tenant, pool) {
            (Some(tenant), Some(pool)) => {
                let share = tenant.share_of(pool, &raise, self.weight(scopes));
                let is_compared = !is_guaranteed && share <= Share::ZERO;
                (share, if is_compared { portion(tenant, pool, &raise) } else { Share::ZERO })
            }
            _ => (Share::Infinite, Share::ZERO),
        };
        Entitlement { is_guaranteed, borrows, share, portion, raise }
    }

    /// Whether requests of the tenant can be within a guarantee.
    pub(super) fn has_guarantee(&self, tenant: &ScopeKey) -> bool {
        self.ledger.scope(tenant).is_some_and(has_guarantee)
    }

    fn weight(&self, scopes: &Scopes) -> u32 {
        self.weights.get(scopes.tenant()).copied().unwrap_or(DEFAULT_WEIGHT)
    }

    /// The share of the tenant if it holds `ask` more, or less.
    pub(crate) fn share(&self, scopes: &Scopes, ask: &Amount) -> Share {
        self.ledger.share(scopes, ask, self.weight(scopes))
    }

    /// Whether the request adds anything to what the pool is charged; a transfer to a successor of the same size does
    /// not.
    pub(crate) fn adds_to_pool(&self, request: &Request) -> bool {
        let before = self.replaced(request).map_or(Amount::ZERO, |old| *old.amounts.requests());
        request.reservation.amounts.requests().any_more(&before)
    }

    /// Grants the request, if the ledger and the nodes allow it. Returns what its pods take of the nodes.
    pub(crate) fn grant(&mut self, request: &Request, at: Moment) -> Result<Taken, Obstacle> {
        let (taken, freed) = self.take_nodes(request).map_err(|full| self.obstacle(request, at, Some(full)))?;
        match self.reserve(request, at) {
            Ok(()) => {
                if let (Some(from), Some(_)) = (&request.replaces, freed) {
                    self.freed.remove(from);
                }
                Ok(taken)
            }
            Err(refusal) => {
                self.undo(&taken, freed.as_ref());
                Err(match refusal {
                    Refusal::Short(_) => self.obstacle(request, at, None),
                    refusal => Obstacle::Refused(refusal),
                })
            }
        }
    }

    /// How many requests like this one, of engines that have no slot yet, would be granted one after the other; at most `most`. The
    /// request is not [`impossible`](super::impossible).
    pub(crate) fn grantable(&mut self, request: &Request, most: u64, at: Moment) -> u64 {
        let most = self.ledger.grantable(&request.reservation, most, at);
        let mut all = Vec::new();
        let mut granted = 0;
        while granted < most {
            let Ok((taken, _)) = self.take_nodes(request) else { break };
            granted += 1;
            if taken.is_empty() {
                // Neither do the others take anything of a node.
                granted = most;
            }
            all.push(taken);
        }
        for taken in &all {
            self.nodes.put_back(taken);
        }
        granted
    }

    /// Whether the request would be granted.
    pub(crate) fn has_capacity_for(&mut self, request: &Request, at: Moment) -> bool {
        let Ok((taken, freed)) = self.take_nodes(request) else { return false };
        self.undo(&taken, freed.as_ref());
        let shortages = match self.replaced(request) {
            Some(old) => self.ledger.shortages_of_transfer(old, &request.reservation, at.now_ms),
            None => self.ledger.shortages(&request.reservation, at.now_ms),
        };
        shortages.is_ok_and(|shortages| shortages.is_empty())
    }

    /// Puts the pods of the request on nodes; those of the engine that it replaces leave theirs.
    fn take_nodes(&mut self, request: &Request) -> Result<(Taken, Option<Taken>), NodesFull> {
        let Some(pods) = &request.pods else { return Ok((Taken::default(), None)) };
        let freed = request.replaces.as_ref().and_then(|from| self.freed.get(from)).cloned();
        if let Some(freed) = &freed {
            self.nodes.put_back(freed);
        }
        match self.nodes.take(request.reservation.scopes.pool_name(), pods) {
            Ok(taken) => Ok((taken, freed)),
            Err(full) => {
                self.undo(&Taken::default(), freed.as_ref());
                Err(full)
            }
        }
    }

    fn undo(&mut self, taken: &Taken, freed: Option<&Taken>) {
        self.nodes.put_back(taken);
        if let Some(freed) = freed {
            self.nodes.take_again(freed);
        }
    }

    fn reserve(&mut self, request: &Request, at: Moment) -> Result<(), Refusal> {
        if request.reservation.is_unplaced() {
            // No other request has its id or its lineage, and none asks for its reservation.
            return self.ledger.charge_unplaced(&request.reservation, at);
        }
        // Only programs have reservations that wait.
        let is_waiting = request.reservation.holder.is_external()
            && self.ledger.reservation(request.id()).is_some_and(|reservation| reservation.state == State::Waiting);
        let reserved = match &request.replaces {
            Some(from) => self.ledger.transfer(from, &request.reservation, at)?,
            None if is_waiting => self.ledger.admit(request.id(), at)?,
            None => self.ledger.reserve(&request.reservation, at)?,
        };
        // An id is reserved once: one whose reservation has ended is not granted again.
        if reserved.state.is_charged() {
            Ok(())
        } else {
            let id = reserved.id().clone();
            Err(Refusal::WrongState { id, from: Some(reserved.state), to: State::Locked })
        }
    }

    fn obstacle(&self, request: &Request, at: Moment, nodes: Option<NodesFull>) -> Obstacle {
        let amounts = match self.replaced(request) {
            Some(old) => self.ledger.shortages_of_transfer(old, &request.reservation, at.now_ms),
            None => self.ledger.shortages(&request.reservation, at.now_ms),
        };
        match amounts {
            Ok(amounts) => Obstacle::Short(Shortages { amounts, nodes }),
            Err(refusal) => Obstacle::Refused(refusal),
        }
    }

    /// The reservation that the request replaces.
    fn replaced(&self, request: &Request) -> Option<&model::ledger::Reservation> {
        let from = request.replaces.as_deref()?;
        self.ledger.reservation(from).map(AsRef::as_ref)
    }
}

fn has_guarantee(tenant: &Scope) -> bool {
    let guarantees = tenant.guarantees().amount;
    Component::ALL.into_iter().any(|component| guarantees.get(component).is_some())
}

/// The largest part of what no guarantee covers that the tenant holds with `ask` more. Where that is unlimited, the number of its
/// engines and reservations.
fn portion(tenant: &Scope, pool: &Scope, ask: &Amount) -> Share {
    let held = |component| {
        let held = tenant.counter.held.get(component).saturating_add(ask.get(component));
        u128::from(held.max(0).unsigned_abs())
    };
    let portions = Component::ALL.into_iter().filter_map(|component| {
        let Limit::Of(limit) = pool.pool_component(component)?.unguaranteed else { return None };
        let denominator = u128::from(limit.max(0).unsigned_abs());
        let portion = Share::Thousandths { numerator: 1_000 * held(component), denominator };
        Some(if denominator == 0 { Share::Infinite } else { portion })
    });
    let engines = Share::Thousandths { numerator: held(Component::Engines), denominator: 1 };
    portions.max().unwrap_or(engines)
}

#[cfg(test)]
mod tests;
