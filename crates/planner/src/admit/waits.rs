//! The rules by which a request waits for another one although it might fit.
//!
//! - Within a tenant a request may pass one that is short of its user, creator or tenant scope, for as long as patience
//!   lasts. After that, requests that the scope is charged for wait behind it, so that a large engine is not starved by
//!   small ones.
//! - Within a pool, requests that would borrow wait while one within its guarantee is short of shared amounts, pool
//!   amounts or nodes and of nothing else. They also wait while engines that were reclaimed for a tenant drain: they
//!   end one after the other, and a request that took the part that is free would cause the next reclaim, without end.
//!
//! Nothing else makes a request wait for one of another tenant.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use model::ledger::{ScopeKey, ScopeKind, Shortage};
use model::millis;
use model::resource::Amount;

use super::headroom::{Entitlement, Shortages};
use super::request::Request;

/// A request that others wait for.
#[derive(Debug, Clone)]
struct Blocker<'a> {
    request: &'a Request,
    shortage: Shortage,
}

/// The requests that others wait for, so far.
#[derive(Debug)]
pub(super) struct Waits<'a, 'r> {
    now_ms: i64,
    patience_ms: i64,
    /// The tenants on pools for which engines that were reclaimed drain.
    awaiting: &'r BTreeSet<ScopeKey>,
    /// By tenant and scope: the first request whose patience has ended.
    siblings: HashMap<(&'a str, &'a ScopeKey), Blocker<'a>>,
    /// By pool: the first request that those which would borrow wait for.
    pools: HashMap<&'a str, &'a Request>,
}

impl<'a, 'r> Waits<'a, 'r> {
    pub fn new(now_ms: i64, patience: Duration, awaiting: &'r BTreeSet<ScopeKey>) -> Self {
        let patience_ms = millis::from_duration(patience);
        Self { now_ms, patience_ms, awaiting, siblings: HashMap::new(), pools: HashMap::new() }
    }

    /// The earlier request of its tenant that this one waits behind, with what that one is short of.
    pub fn behind(&self, request: &'a Request, raise: &Amount) -> Option<(&'a Request, Shortage)> {
        if self.siblings.is_empty() || !raise.any_more(&Amount::ZERO) {
            return None;
        }
        let scopes = &request.reservation.scopes;
        let blocker = scopes.policy().find_map(|key| self.siblings.get(&(scopes.tenant_name(), key)))?;
        Some((blocker.request, blocker.shortage.clone()))
    }

    /// The request that those which would borrow in this one's pool wait for.
    pub fn borrowers_wait_for(&self, request: &Request) -> Option<&'a Request> {
        self.pools.get(request.reservation.scopes.pool_name()).copied()
    }

    /// Records that the request was set aside.
    pub fn set_aside(&mut self, request: &'a Request, entitlement: &Entitlement, shortages: &Shortages) {
        let scopes = &request.reservation.scopes;
        if shortages.are_of_pool() && (entitlement.is_guaranteed || self.awaiting.contains(scopes.tenant())) {
            self.pools.entry(scopes.pool_name()).or_insert(request);
        }
        if request.waited_ms(self.now_ms) < self.patience_ms {
            return;
        }
        for shortage in shortages.amounts.iter().filter(|shortage| shortage.scope.kind != ScopeKind::Pool) {
            if let Some(key) = scopes.policy().find(|key| **key == shortage.scope) {
                let blocker = || Blocker { request, shortage: shortage.clone() };
                self.siblings.entry((scopes.tenant_name(), key)).or_insert_with(blocker);
            }
        }
    }
}
