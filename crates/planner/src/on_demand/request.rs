//! The requests of engines that have no slot yet, and the users that such requests are charged to.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use model::fit::Pods;
use model::ledger::{self, Amounts, Holder, Ledger, ScopeKey, Scopes, lineage_of, principals};
use model::number::Incarnation;
use model::slot::{Link, SlotKey, StartedFor};

use crate::desired::DesiredState;
use crate::engine_request;

/// The first ordinal of requests for engines that have no slot yet: no slot has it.
pub(super) const UNPLACED: u32 = 1 << 30;

/// What the requests of all engines of a link that have no slot yet have in common, if they are started for the same user.
#[derive(Debug, Clone)]
pub(super) struct UnplacedEngine {
    key: SlotKey,
    scopes: Scopes,
    pub amounts: Amounts,
    ttl_ms: Option<i64>,
    pub pods: Pods,
}

impl UnplacedEngine {
    /// Of engines that are charged to their tenant only. `None` if the catalog has no such unit or pool, or if the charge is larger
    /// than any reservation.
    pub fn new(desired: &DesiredState, link: &Link) -> Option<Self> {
        let charge = engine_request::charge(desired, &link.pool, &link.unit)?;
        let amounts = Amounts::of_engine(&charge)?;
        let scopes = Scopes::new(&link.tenant, &link.pool, None, None);
        let ttl_ms = engine_request::ttl_ms(desired, &scopes);
        let Link { tenant, pool, unit } = link.clone();
        let key = SlotKey { tenant, pool, unit, ordinal: UNPLACED };
        Some(Self { key, scopes, amounts, ttl_ms, pods: Pods::from(&charge) })
    }

    /// The same, also charged to a user.
    pub fn started_for(&self, desired: &DesiredState, StartedFor { user, creator }: &StartedFor) -> Self {
        let scopes = Scopes::new(&self.key.tenant, &self.key.pool, Some(user), Some(creator));
        let ttl_ms = engine_request::ttl_ms(desired, &scopes);
        Self { scopes, ttl_ms, ..self.clone() }
    }

    /// Their requests, with these ordinals.
    pub fn requests(&self, ordinals: Range<u32>) -> impl Iterator<Item = Arc<ledger::Request>> {
        let mut key = self.key.clone();
        ordinals.map(move |ordinal| {
            key.ordinal = ordinal;
            Arc::new(ledger::Request {
                id: key.engine(Incarnation::UNDRAWN).into(),
                holder: Holder::Engine { unit: key.unit.clone(), incarnation: Incarnation::UNDRAWN },
                lineage: lineage_of(&key, Incarnation::UNDRAWN, None),
                scopes: self.scopes.clone(),
                amounts: self.amounts,
                asked: None,
                ttl_ms: self.ttl_ms,
            })
        })
    }
}

/// Adds the scopes of waiting users and their client applications that the ledger does not have yet. They are inserted with the
/// first slot that is charged to them.
pub(crate) fn put_users(desired: &DesiredState, ledger: &mut Ledger) {
    let now_ms = desired.snapshot.now_ms;
    let current = desired.snapshot.demand.iter().filter(|demand| demand.is_current(now_ms));
    let of_users = current.filter_map(|demand| Some((demand.key.user.as_ref()?, &demand.key.creator)));
    let keys: BTreeSet<ScopeKey> =
        of_users.flat_map(|(user, creator)| [ScopeKey::user(user), ScopeKey::creator(creator)]).collect();
    let missing: Vec<ScopeKey> = keys.into_iter().filter(|key| ledger.scope(key).is_none()).collect();
    if missing.is_empty() {
        return;
    }
    for (key, scope) in principals(&desired.snapshot.catalog, missing) {
        ledger.put_scope(key, scope);
    }
}

#[cfg(test)]
mod tests;
