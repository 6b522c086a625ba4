//! The choice of victims for one request.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::ledger::{Reservation, ScopeKey, Scopes};
use model::quota::Share;

use super::copy::Copied;
use super::engine::RunningEngine;
use crate::admit::{Entitlement, Obstacle, Request, Shortages};

/// An engine that may be reclaimed, with what it is charged.
#[derive(Debug)]
struct Candidate<'a> {
    engine: &'a RunningEngine,
    reservation: Arc<Reservation>,
    /// Whether it was chosen for a request.
    is_chosen: bool,
}

/// The candidates of one tenant on one pool.
#[derive(Debug)]
struct OfTenant<'a> {
    scopes: Scopes,
    /// The newest first.
    engines: Vec<Candidate<'a>>,
}

/// The engines that may be reclaimed.
#[derive(Debug)]
pub(super) struct Candidates<'a> {
    /// By pool, in the order of their tenants.
    pools: BTreeMap<String, Vec<OfTenant<'a>>>,
}

/// A candidate in its pool: the indexes of its tenant and of itself.
type Choice = (usize, usize);

impl<'a> Candidates<'a> {
    pub fn new(copy: &Copied, engines: &'a [RunningEngine], spared: &BTreeSet<String>) -> Self {
        let mut tenants: BTreeMap<ScopeKey, OfTenant<'a>> = BTreeMap::new();
        for engine in engines.iter().filter(|engine| engine.is_idle && !engine.is_draining) {
            let Some(reservation) = copy.reservation(engine) else { continue };
            let scopes = &reservation.request.scopes;
            if !spared.contains(scopes.pool_name()) {
                let tenant = tenants
                    .entry(scopes.tenant().clone())
                    .or_insert_with(|| OfTenant { scopes: scopes.clone(), engines: Vec::new() });
                let reservation = Arc::clone(reservation);
                tenant.engines.push(Candidate { engine, reservation, is_chosen: false });
            }
        }
        let mut pools: BTreeMap<String, Vec<OfTenant<'a>>> = BTreeMap::new();
        for mut tenant in tenants.into_values() {
            tenant.engines.sort_by_key(|candidate| (Reverse(candidate.engine.started_at_ms), &candidate.engine.id));
            pools.entry(tenant.scopes.pool_name().to_owned()).or_default().push(tenant);
        }
        Self { pools }
    }

    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// Ends engines in the copy until the request is granted there. `None`, and nothing is changed, if all that may end
    /// are not enough.
    pub fn choose(&mut self, copy: &mut Copied, request: &Request) -> Option<Vec<&'a RunningEngine>> {
        let tenants = self.pools.get_mut(request.reservation.scopes.pool_name())?;
        let entitlement = copy.entitlement(request);
        let mut chosen: Vec<Choice> = Vec::new();
        let is_granted = loop {
            let shortages = match copy.grant(request) {
                Ok(()) => break true,
                Err(Obstacle::Short(shortages)) if shortages.are_of_pool() => shortages,
                Err(_) => break false,
            };
            let Some(choice) = next(tenants, copy, request, &entitlement, &shortages) else { break false };
            let candidate = &mut tenants[choice.0].engines[choice.1];
            candidate.is_chosen = true;
            copy.release(candidate.engine);
            chosen.push(choice);
        };
        // With the last one the request was granted. Of those before it, on other nodes for example, some may not be
        // needed.
        let kept = |copy: &Copied, candidate: &Candidate<'_>, is_last: bool| {
            !is_granted || (!is_last && copy.has_capacity_for(candidate.engine, &candidate.reservation))
        };
        let mut victims = Vec::new();
        for (from_last, (tenant, engine)) in chosen.iter().copied().rev().enumerate() {
            let candidate = &mut tenants[tenant].engines[engine];
            if kept(copy, candidate, from_last == 0) {
                candidate.is_chosen = false;
                copy.restore(candidate.engine, &candidate.reservation);
            } else {
                victims.push(candidate.engine);
            }
        }
        victims.reverse();
        is_granted.then_some(victims)
    }
}

/// The next engine to end: the newest one that may end, of the tenant with the largest share.
fn next(
    tenants: &[OfTenant<'_>],
    copy: &Copied,
    request: &Request,
    entitlement: &Entitlement,
    shortages: &Shortages,
) -> Option<Choice> {
    let mut best: Option<(Share, Choice)> = None;
    for (at, tenant) in tenants.iter().enumerate() {
        let is_own = tenant.scopes.tenant() == request.reservation.scopes.tenant();
        let share = copy.share(&tenant.scopes);
        if is_own || best.is_some_and(|(most, _)| most >= share) || !copy.borrows(&tenant.scopes, shortages) {
            continue;
        }
        let may_end = |candidate: &Candidate<'_>| {
            !candidate.is_chosen
                && (entitlement.is_guaranteed
                    || (yields_to(entitlement, share, copy.share_without(&candidate.reservation))
                        && copy.keeps_guarantee_without(&candidate.reservation)))
        };
        if let Some(engine) = tenant.engines.iter().position(may_end) {
            best = Some((share, (at, engine)));
        }
    }
    best.map(|(_, choice)| choice)
}

/// Whether a request that is not within a guarantee may reclaim from a tenant with this share, which has `after`
/// without the engine. A share of 0 although something is borrowed is that of a pool without a limit: there tenants
/// would reclaim from each other for ever.
fn yields_to(entitlement: &Entitlement, share: Share, after: Share) -> bool {
    entitlement.share.is_finite() && share > Share::ZERO && entitlement.share <= after
}
