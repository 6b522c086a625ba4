//! The request of an engine that has no slot yet, and the users that such requests are charged to.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::fit::Pods;
use model::ledger::{self, Ledger, ScopeKey, principals};
use model::number::Incarnation;
use model::slot::{Origin, Replacement, Slot, SlotKey, StartedFor};

use crate::desired::DesiredState;
use crate::engine_request;

/// The first ordinal of requests for engines that have no slot yet: no slot has it.
pub(super) const UNPLACED: u32 = 1 << 30;

/// The request of an engine of the link that has no slot yet.
pub(super) fn request_of(
    desired: &DesiredState,
    key: &SlotKey,
    started_for: Option<&StartedFor>,
) -> Option<(Arc<ledger::Request>, Pods)> {
    let slot = started_for.map(|started_for| Slot {
        key: key.clone(),
        incarnation: Incarnation(0),
        origin: Origin::Demand,
        failures: 0,
        replacement: Replacement::StandIn,
        born: Incarnation(0),
        started_for: Some(started_for.clone()),
        owner: None,
        asked_at_ms: desired.snapshot.now_ms,
    });
    engine_request::of_engine(desired, key, Incarnation(0), slot.as_ref())
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
