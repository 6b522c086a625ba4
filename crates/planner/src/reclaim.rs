//! Reclaim: which idle engines of tenants that borrow must end for the requests that a round of admission left in the
//! queue.
//!
//! A request within its guarantee reclaims from every tenant that borrows what it is short of. Another one reclaims
//! only if its tenant's share, including it, is at most what the victim's is after the loss, so that two tenants do not
//! reclaim from each other in turns. A pool without a limit has no shares, so only guarantees are reclaimed there.
//!
//! Invariants:
//!
//! - What is reclaimed for a request is enough for it, counting engines that drain already; else nothing is.
//! - Two requests do not count on the same engine.
//! - Nothing is reclaimed for a request behind one of its tenant that stays in the queue, unless it is within the guarantee: only
//!   those have their turn before it.
//! - Only idle engines of tenants that borrow are reclaimed, in the pool of the request, and never an external
//!   reservation.
//!
//! A pure function of copies. A reclaimed engine ends only if its agent agrees that it is idle, so a stale choice costs
//! nothing.

mod copy;
mod engine;
mod victims;

use std::collections::{BTreeSet, HashSet};

use model::ledger::{Amounts, Moment, ScopeKey, ScopeKind};

use crate::admit::{Cause, Headroom, Queued, Request};
use copy::Copied;
pub use engine::RunningEngine;
use model::fit::Pods;
use victims::Candidates;

/// What a request needs, as far as reclaim depends on it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Demand<'a> {
    tenant: &'a ScopeKey,
    amounts: &'a Amounts,
    pods: Option<Pods>,
}

impl<'a> Demand<'a> {
    fn of(request: &'a Request) -> Self {
        let reservation = &request.reservation;
        Self { tenant: reservation.scopes.tenant(), amounts: &reservation.amounts, pods: request.pods }
    }
}

/// An engine to retire for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reclaimed<'a> {
    pub engine: &'a RunningEngine,
    pub request: &'a Request,
}

/// The engines to retire. `headroom` is what the round of admission left, `queued` its queue. Engines of the pools in
/// `spared`, those with `RECLAIM 'none'`, are not reclaimed.
pub fn reclaim<'a>(
    headroom: Headroom,
    queued: &[Queued<'a>],
    engines: &'a [RunningEngine],
    spared: &BTreeSet<String>,
    at: Moment,
) -> Vec<Reclaimed<'a>> {
    let mut copy = Copied::new(headroom, at);
    let mut candidates = Candidates::new(&copy, engines, spared);
    if candidates.is_empty() {
        return Vec::new();
    }
    for engine in engines.iter().filter(|engine| engine.is_draining) {
        copy.release(engine);
    }
    let mut reclaimed = Vec::new();
    // For equal requests of one tenant the choice is made once: nothing that was released since was for them.
    let mut hopeless: HashSet<Demand<'_>> = HashSet::new();
    // The tenants of which a request that is before the others in their queue stays there. If an engine ended for one behind
    // it, the slot of that engine could have its turn before both, and take the capacity again.
    let mut blocked: HashSet<&ScopeKey> = HashSet::new();
    for each in queued {
        let tenant = each.request.reservation.scopes.tenant();
        let is_guaranteed = copy.entitlement(each.request).is_guaranteed;
        let mut is_granted = false;
        if let Some(request) = short_of_pool(each) {
            is_granted = copy.grant(request).is_ok();
            let has_turn = is_guaranteed || !blocked.contains(tenant);
            if !is_granted && has_turn && !hopeless.contains(&Demand::of(request)) {
                match candidates.choose(&mut copy, request) {
                    Some(victims) => {
                        reclaimed.extend(victims.into_iter().map(|engine| Reclaimed { engine, request }));
                        is_granted = true;
                    }
                    None => drop(hopeless.insert(Demand::of(request))),
                }
            }
        }
        if !is_granted && !is_guaranteed {
            blocked.insert(tenant);
        }
    }
    reclaimed
}

/// The tenants on pools for which engines were reclaimed that still drain.
pub fn awaiting(headroom: &Headroom, engines: &[RunningEngine]) -> BTreeSet<ScopeKey> {
    let draining = engines.iter().filter(|engine| engine.is_draining);
    let keys = draining.filter_map(|engine| {
        let pool = headroom.ledger.reservation(&engine.id)?.request.scopes.pool_name();
        let name = format!("{}/{pool}", engine.reclaimed_for.as_ref()?);
        Some(ScopeKey { kind: ScopeKind::Tenant, name: name.into() })
    });
    keys.collect()
}

/// The request, if other tenants can release all that it is short of.
fn short_of_pool<'a>(queued: &Queued<'a>) -> Option<&'a Request> {
    match &queued.cause {
        Cause::Short(shortages) if shortages.are_of_pool() => Some(queued.request),
        _ => None,
    }
}
