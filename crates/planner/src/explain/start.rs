//! EXPLAIN START ENGINE and EXPLAIN RESTART ENGINE: what the engine asks of each scope that it is charged to, and the decisions
//! that follow.
//!
//! The verdicts are about the request alone, as if it were the next to be admitted: one that fits everywhere may still wait
//! for requests that come before it. The decisions take the others into account.

use model::fit::{Nodes, Pods};
use model::ledger::{Counter, Holder, Of, Request, Reservation, Role, Scope, ScopeKey};
use model::quota::Limit;
use model::resource::{Amount, Component};
use model::slot::{Replacement, Slot, SlotKey};

use super::explain;
use crate::decision::Row;
use crate::desired::DesiredState;
use crate::engine_request;
use crate::free_nodes;
use crate::inventory::Inventory;
use crate::observed::ObservedState;
use crate::simulation::Simulation;
use crate::succession::Successions;
use crate::unreachable::FailedNodes;

/// Whether a request fits into a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Now.
    Fits,
    /// Once others have released enough.
    Queued,
    /// Not with this limit.
    Never,
}

impl Verdict {
    /// The word in the output of EXPLAIN.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fits => "fits",
            Self::Queued => "queued",
            Self::Never => "never",
        }
    }
}

/// What the engine asks of one limit. Amounts are printed as in errors: `0.5`, `64G`, `3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeRow {
    /// `tenant "t_1" on resource pool "rp_1"`, `shared part of resource pool "rp_1"`
    pub scope: String,
    /// `CPU`, `memory`, `engines` or `nodes`.
    pub resource: &'static str,
    /// What the engine adds to what is held; of nodes, the number of its pods.
    pub asked: String,
    /// Negative if the limit was lowered below what is held; of nodes, how many of the pods find a node now.
    pub left: String,
    /// Empty for nodes.
    pub limit: String,
    pub verdict: Verdict,
}

/// What a statement that requests an engine would do now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExplainedStart {
    /// One row for each limit of the engine's scopes, in the order in which a shortage is reported: pool, tenant, creator,
    /// user, and in each CPU, memory, engines; then one for the nodes of the pool, if they are known. Nothing without limits
    /// and nodes.
    pub scopes: Vec<ScopeRow>,
    /// The decisions until a steady state, and a last row if the engine is queued or can never start.
    pub rows: Vec<Row>,
}

/// EXPLAIN START ENGINE: `slot` is the row that the statement would insert; its incarnation and `born` are drawn here. Changes
/// nothing.
///
/// Users and creators whose rows are not in the snapshot's ledger are taken to hold nothing. Takes as long as
/// [`explain`](super::explain()).
pub fn explain_start(desired: &DesiredState, observed: &ObservedState, slot: Slot) -> ExplainedStart {
    let mut simulation = Simulation::new(desired.clone(), observed.clone());
    let key = slot.key.clone();
    simulation.insert_slot(slot);
    explained(&simulation, &key)
}

/// EXPLAIN RESTART ENGINE of the slot's current engine; `None` if there is no such slot. Changes
/// nothing.
pub fn explain_restart(
    desired: &DesiredState,
    observed: &ObservedState,
    key: &SlotKey,
    replacement: Replacement,
) -> Option<ExplainedStart> {
    let mut simulation = Simulation::new(desired.clone(), observed.clone());
    let grace = desired.limits.grace(None);
    simulation.restart(key, replacement, grace)?;
    Some(explained(&simulation, key))
}

fn explained(simulation: &Simulation, key: &SlotKey) -> ExplainedStart {
    let Simulation { desired, observed, .. } = simulation;
    let scopes = desired.snapshot.slots.iter().find(|slot| slot.key == *key).and_then(|slot| {
        let (request, pods) = engine_request::of_engine(desired, key, slot.incarnation, Some(slot))?;
        let replaced = if slot.replacement == Replacement::InPlace { newest_charged(desired, &request) } else { None };
        let mut rows = scope_rows(desired, &request, replaced);
        let inventory = Inventory::join(desired, observed, None);
        let failed_nodes = FailedNodes::new(observed, &desired.limits);
        let successions = Successions::new(observed, &inventory, &failed_nodes);
        let (mut nodes, freed) = free_nodes::of(desired, observed, &desired.snapshot.ledger, &successions);
        if let Some(freed) = replaced.and_then(|replaced| freed.get(replaced.id())) {
            nodes.put_back(freed);
        }
        rows.extend(node_row(&mut nodes, request.scopes.pool(), &pods));
        Some(rows)
    });
    ExplainedStart { scopes: scopes.unwrap_or_default(), rows: explain(desired, observed) }
}

/// The newest charged reservation of the request's lineage, which passes to it IN PLACE.
fn newest_charged<'a>(desired: &'a DesiredState, request: &Request) -> Option<&'a Reservation> {
    let incarnation = |reservation: &Reservation| match &reservation.request.holder {
        Holder::Engine { incarnation, .. } => Some(*incarnation),
        Holder::External { .. } => None,
    };
    let charged = desired.snapshot.ledger.reservations().map(AsRef::as_ref).filter(|reservation: &&Reservation| {
        reservation.state.is_charged() && reservation.request.lineage == request.lineage
    });
    charged.max_by_key(|reservation| incarnation(reservation))
}

/// `replaced` is the reservation that passes to the request: only the difference is asked for.
fn scope_rows(desired: &DesiredState, request: &Request, replaced: Option<&Reservation>) -> Vec<ScopeRow> {
    let ledger = &desired.snapshot.ledger;
    let (nominal, requests) = (request.amounts.nominal(), request.amounts.requests());
    let raise = replaced.map_or_else(|| ledger.raise(request), |old| ledger.raise_by_transfer(old, request));
    let replaced = replaced.map_or(Amount::ZERO, |old| *old.amounts.requests());
    let tenant = ledger.scope(request.scopes.tenant());
    let guarantees = tenant.map(Scope::guarantees);
    let parts_added = tenant.and_then(|tenant| {
        let after = tenant.guarantees().parts(&tenant.counter.held.checked_add(&raise)?);
        after.checked_sub(&tenant.parts())
    });
    let parts_added = parts_added.unwrap_or_default();
    let mut rows = Vec::new();
    let policy: Vec<&ScopeKey> = request.scopes.policy().collect();
    for key in std::iter::once(request.scopes.pool()).chain(policy.into_iter().rev()) {
        let Some(scope) = ledger.scope(key) else { continue };
        for component in Component::ALL {
            let whole = nominal.get(component);
            match &scope.role {
                Role::Pool(pool) => {
                    let least = requests.get(component);
                    let asked = least.saturating_sub(replaced.get(component)).max(0);
                    rows.extend(row(key, Of::Limit, component, &scope.counter, (asked, least)));
                    let exclusive = guarantees.map_or(0, |guarantees| guarantees.exclusive.get(component));
                    let asked = parts_added.shared.get(component);
                    let never_more = whole.saturating_sub(exclusive);
                    rows.extend(row(key, Of::Shared, component, &pool.shared, (asked, never_more)));
                    if guarantees.is_none_or(|guarantees| guarantees.amount.get(component).is_none()) {
                        let asked = parts_added.unguaranteed.get(component);
                        rows.extend(row(key, Of::Unguaranteed, component, &pool.unguaranteed, (asked, whole)));
                    }
                }
                Role::Principal | Role::Tenant(_) => {
                    rows.extend(row(key, Of::Limit, component, &scope.counter, (raise.get(component), whole)));
                }
            }
        }
    }
    rows
}

/// The row of the nodes of the pool; `None` if they are unknown.
fn node_row(nodes: &mut Nodes, pool: &ScopeKey, pods: &Pods) -> Option<ScopeRow> {
    let name = &*pool.name;
    if !nodes.are_known(name) {
        return None;
    }
    let short = if nodes.oversized(name, pods).is_some() { Verdict::Never } else { Verdict::Queued };
    let (left, verdict) = match nodes.take(name, pods) {
        Ok(_) => (pods.count(), Verdict::Fits),
        Err(full) => (full.left, short),
    };
    Some(ScopeRow {
        scope: format!("nodes of {pool}"),
        resource: "nodes",
        asked: pods.count().to_string(),
        left: left.to_string(),
        limit: String::new(),
        verdict,
    })
}

/// The row of one limit; `None` if there is none. `asked` is what is added now, and `least` what the engine needs of the limit
/// even if nothing else is held.
fn row(
    key: &ScopeKey,
    of: Of,
    component: Component,
    counter: &Counter,
    (asked, least): (i64, i64),
) -> Option<ScopeRow> {
    let (Limit::Of(limit), Some(left)) = (counter.limit.get(component), counter.left(component)) else { return None };
    let verdict = match () {
        () if least > limit => Verdict::Never,
        () if asked > 0 && asked > left => Verdict::Queued,
        () => Verdict::Fits,
    };
    let scope = match of {
        Of::Limit => key.to_string(),
        Of::Shared => format!("shared part of {key}"),
        Of::Unguaranteed => format!("unguaranteed part of {key}"),
    };
    let [asked, left, limit] = [asked, left, limit].map(|amount| component.number(amount));
    Some(ScopeRow { scope, resource: component.noun(), asked, left, limit, verdict })
}
