//! EXPLAIN: all decisions until a steady state, from plans over a simulation of the cluster.
//!
//! The rows are the planner's decisions, so the master executes the same ones if the cluster behaves as assumed: each
//! started engine registers, each drained one exits. The simulation advances only when nothing is left to decide, because
//! engines need longer than a tick.

mod limits;
mod start;

use model::alteration::{AlterationProgress, AlterationRecord, Outcome, RequestId};
use model::change::{Applied, Change, Rules};
use model::demand::DemandKey;
use model::desired::derive;
use model::end::EndOrder;
use model::engine_name::EngineName;
use model::error::UserError;
use model::ledger::{Ledger, Measured};
use model::millis;
use model::name::{PoolName, UnitName};
use model::number::Generation;
use model::slot::{Origin, Replacement, Slot};
use model::snapshot::Snapshot;

use crate::decision::{Action, Decision, Row};
use crate::desired::DesiredState;
use crate::observed::{EngineLoad, ObservedState};
use crate::plan::Plan;
use crate::simulation::Simulation;

pub use start::{ExplainedStart, ScopeRow, Verdict, explain_restart, explain_start};

/// The maximum number of plans of one EXPLAIN.
pub const MAX_ROUNDS: usize = 2_000;
/// The maximum number of decisions of one EXPLAIN; the last row reports a truncation.
pub const MAX_ROWS: usize = 10_000;
/// The maximum number of engines that all plans of one EXPLAIN read: each plan reads every engine.
pub const MAX_LOOKS: usize = 500_000;

/// The limits of one EXPLAIN.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    rounds: usize,
    rows: usize,
    looks: usize,
}

/// All decisions until a steady state, in order, assuming that each started engine becomes ready, and that the sessions that
/// wait for an engine go on waiting. Changes nothing.
///
/// Takes seconds in a large installation: not for a thread that must not block.
pub fn explain(desired: &DesiredState, observed: &ObservedState) -> Vec<Row> {
    explain_within(desired, observed, Bounds { rounds: MAX_ROUNDS, rows: MAX_ROWS, looks: MAX_LOOKS })
}

fn explain_within(desired: &DesiredState, observed: &ObservedState, bounds: Bounds) -> Vec<Row> {
    let mut simulation = Simulation::new(desired.clone(), observed.clone());
    hold_demand(&mut simulation);
    let mut rows: Vec<Row> = Vec::new();
    let mut looks = 0;
    for _ in 0..bounds.rounds {
        looks += simulation.desired.snapshot.engines.len().max(simulation.observed.instances.len());
        if looks > bounds.looks {
            break;
        }
        let plan = simulation.plan();
        if plan.chains.is_empty() {
            if advance(&mut simulation, plan.waits.iter().filter_map(|wait| wait.until_ms).min()) {
                continue;
            }
            return with_queue(rows, &plan);
        }
        let ledger = &simulation.desired.snapshot.ledger;
        for decision in plan.decisions().filter(|decision| is_shown(decision, ledger)) {
            if rows.len() == bounds.rows {
                return truncated(rows);
            }
            rows.push(decision.row(rows.len() as u32 + 1));
        }
        simulation.apply(&plan);
    }
    truncated(rows)
}

/// The sessions that wait go on waiting, however far the simulation advances.
fn hold_demand(simulation: &mut Simulation) {
    let Snapshot { demand, now_ms, .. } = &mut simulation.desired.snapshot;
    for demand in demand.iter_mut().filter(|demand| demand.is_current(*now_ms)) {
        demand.until_ms = i64::MAX;
    }
}

/// Whether the decision has a row: a change of reservations only if one of its scopes has a limit. Without limits every request
/// is granted, and there is nothing to explain.
fn is_shown(decision: &Decision, ledger: &Ledger) -> bool {
    match &decision.action {
        Action::Ledger(change) => ledger.is_limited(&change.scopes),
        _ => true,
    }
}

/// Adds a row for each engine that stays without a reservation, and for sessions that stay without an engine.
fn with_queue(mut rows: Vec<Row>, plan: &Plan) -> Vec<Row> {
    for wait in plan.waits.iter().filter(|wait| wait.is_queued) {
        let slot = wait.slot.as_ref().map(ToString::to_string).unwrap_or_default();
        let (step, engine) = (rows.len() as u32 + 1, wait.engine.to_string());
        rows.push(Row { step, decision: "wait".to_owned(), engine, slot, because: wait.reason.clone() });
    }
    for unmet in plan.unmet.iter().flatten() {
        let sessions = match unmet.sessions {
            1 => "1 session waits".to_owned(),
            sessions => format!("{sessions} sessions wait"),
        };
        let because = format!("{sessions}: {}", unmet.reason);
        let (step, slot) = (rows.len() as u32 + 1, asked(&unmet.key));
        rows.push(Row { step, decision: "wait".to_owned(), engine: String::new(), slot, because });
    }
    rows
}

/// Tenant, pool and unit that the sessions ask for; `*` for any.
fn asked(key: &DemandKey) -> String {
    let pool = key.pool.as_ref().map_or("*", PoolName::as_str);
    let unit = key.unit.as_ref().map_or("*", UnitName::as_str);
    format!("{}/{pool}/{unit}", key.tenant)
}

fn truncated(mut rows: Vec<Row>) -> Vec<Row> {
    let because = format!(
        "more follows and is not shown: at most {MAX_ROWS} decisions of {MAX_ROUNDS} plans that read {MAX_LOOKS} \
         engines in total"
    );
    let step = rows.len() as u32 + 1;
    rows.push(Row { step, decision: "and so on".to_owned(), engine: String::new(), slot: String::new(), because });
    rows
}

/// Advances the simulation to its next event; false if there is none.
fn advance(simulation: &mut Simulation, until_ms: Option<i64>) -> bool {
    let starting = simulation.about_to_register();
    if !starting.is_empty() {
        return starting.iter().filter(|engine| register(simulation, engine)).count() > 0;
    }
    if simulation.exit_drained() > 0 {
        return true;
    }
    let session_timeout = simulation.desired.limits.session_timeout;
    let is_waiting = !simulation.observed.drains.is_empty()
        || simulation.observed.registrations.iter().any(|registration| !registration.unclaimed.is_zero());
    let due = until_ms.map(|until_ms| millis::to_duration((until_ms - simulation.desired.snapshot.now_ms).max(1)));
    let orphaned = simulation.observed.drains.iter().all(|drain| drain.quiet >= session_timeout);
    match due {
        Some(time) => simulation.advance(time),
        None if is_waiting && !orphaned => simulation.advance(session_timeout),
        None => return false,
    }
    true
}

/// Registers an engine. All its seats are free: otherwise it would count as full, and another one would be started for the
/// sessions that wait.
fn register(simulation: &mut Simulation, engine: &EngineName) -> bool {
    let is_registered = simulation.register(engine);
    if is_registered {
        simulation.observed.loads.insert(engine.clone(), EngineLoad { sessions: 0, running: 0 });
    }
    is_registered
}

/// EXPLAIN of CREATE, ALTER or DROP: applies the change to a copy as its transaction would. `replacement` is how the engines
/// that it renews take over from the older ones.
pub fn explain_change(
    before: &DesiredState,
    change: &Change,
    replacement: Replacement,
    rules: &Rules,
    observed: &ObservedState,
) -> Result<Vec<Row>, UserError> {
    match change.apply(&before.snapshot.catalog, rules)? {
        Applied::Nothing { .. } => Ok(Vec::new()),
        Applied::Object { base, after, .. } => {
            let mut simulation = Simulation::new(before.clone(), observed.clone());
            let reference = change.object();
            let generation = Generation(simulation.next_number().get());
            let catalog = simulation.desired.snapshot.catalog.with(&reference, after.as_ref(), generation);
            commit(&mut simulation, catalog, replacement);
            let snapshot = &mut simulation.desired.snapshot;
            snapshot.alterations.push(AlterationRecord {
                id: RequestId::new("explained")?,
                object: Some(reference),
                base_generation: base,
                generation: snapshot.catalog.generation,
                statement: String::new(),
                requested_by: String::new(),
                requested_at_ms: snapshot.now_ms,
                outcome: Outcome::Committed,
                decided_by: String::new(),
                decided_at_ms: snapshot.now_ms,
                progress: Some(AlterationProgress::Converging),
                reason: None,
                finished_at_ms: None,
            });
            Ok(explain(&simulation.desired, &simulation.observed))
        }
    }
}

impl Simulation {
    /// Replaces the catalog and derives the slot rows, in the order in which the transaction of an alteration draws its
    /// numbers: deleted rows, renewed rows, added rows.
    pub fn commit_catalog(&mut self, catalog: model::catalog::Catalog, replacement: Replacement) {
        commit(self, catalog, replacement);
    }

    /// Records measured capacities, as a master does for pools with `CAPACITY NODES`. The others stay as they are.
    pub fn measure(&mut self, capacities: Measured) {
        let snapshot = &mut self.desired.snapshot;
        let mut measured = limits::measured(&snapshot.catalog, &snapshot.ledger);
        measured.extend(capacities);
        limits::set(&mut snapshot.ledger, &snapshot.catalog, &measured);
    }
}

fn commit(simulation: &mut Simulation, after: model::catalog::Catalog, replacement: Replacement) {
    let snapshot = &simulation.desired.snapshot;
    let changes = derive(&snapshot.catalog, &after, &snapshot.slots, &simulation.desired.defaults);
    let measured = limits::measured(&snapshot.catalog, &snapshot.ledger);
    limits::set(&mut simulation.desired.snapshot.ledger, &after, &measured);
    let grace_ms = millis::from_duration(simulation.desired.limits.grace(None));
    simulation.desired.snapshot.catalog = after;
    for (key, EndOrder { reason, .. }) in &changes.delete {
        simulation.delete_slot(key, reason, grace_ms);
    }
    for key in &changes.renew {
        for record in simulation.desired.snapshot.engines.iter_mut().filter(|record| record.slot == *key) {
            record.end_grace_ms.get_or_insert(grace_ms);
        }
        simulation.renew(key, 0, replacement);
        let slot = simulation.desired.snapshot.slots.iter_mut().find(|slot| slot.key == *key);
        if let (Some(slot), Some(owner)) = (slot, changes.owners.get(key)) {
            slot.owner.clone_from(owner);
        }
    }
    for key in &changes.add {
        let incarnation = simulation.next_number();
        let slot = Slot {
            key: key.clone(),
            incarnation,
            origin: Origin::Minimum,
            failures: 0,
            replacement: Replacement::StandIn,
            born: incarnation,
            started_for: None,
            owner: None,
            asked_at_ms: simulation.desired.snapshot.now_ms,
        };
        simulation.desired.snapshot.slots.push(slot.into());
        simulation.issue(key, incarnation);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use model::change::{ObjectPatch, PoolPatch, TenantPatch, UnitPatch};
    use model::{PoolName, TenantName, UnitName};

    use super::*;

    /// A simulation in which a tenant was just given three engines.
    fn three_desired() -> Simulation {
        let mut simulation = Simulation::default();
        simulation.observed.registry_complete = true;
        let (unit, pool) = (UnitName::new("uc_1").unwrap(), PoolName::new("rp_1").unwrap());
        let three = UnitPatch { min_engines: Some(3), ..UnitPatch::default() };
        let offers = PoolPatch { units: Some(vec![unit.clone()]), ..PoolPatch::default() };
        let uses = TenantPatch { pools: Some(vec![pool.clone()]), ..TenantPatch::default() };
        for object in [
            ObjectPatch::ResourceUnit(unit, three),
            ObjectPatch::ResourcePool(pool, offers),
            ObjectPatch::Tenant(TenantName::new("t_1").unwrap(), uses),
        ] {
            let change = Change::Create { if_not_exists: false, object };
            let applied = change.apply(&simulation.desired.snapshot.catalog, &Rules::default()).unwrap();
            let Applied::Object { after, .. } = applied else { panic!("it is new") };
            let generation = Generation(simulation.next_number().get());
            let catalog = simulation.desired.snapshot.catalog.with(&change.object(), after.as_ref(), generation);
            simulation.commit_catalog(catalog, Replacement::StandIn);
        }
        simulation
    }

    #[test]
    fn each_bound_truncates_with_a_last_row() {
        let simulation = three_desired();
        let far = Bounds { rounds: 100, rows: 100, looks: 1_000 };
        let all = explain_within(&simulation.desired, &simulation.observed, far);
        assert_eq!(all.len(), 12, "permit, engine, uid, uid in the permit: {all:?}");
        for (bounds, shown) in [
            (Bounds { rounds: 1, ..far }, 12),
            (Bounds { rows: 5, ..far }, 5),
            (Bounds { looks: 3, ..far }, 12),
            (Bounds { looks: 2, ..far }, 0),
        ] {
            let rows = explain_within(&simulation.desired, &simulation.observed, bounds);
            assert_eq!(rows[..shown], all[..shown], "{bounds:?}");
            assert_eq!((rows.len(), rows[shown].decision.as_str()), (shown + 1, "and so on"), "{bounds:?}");
        }
    }
}
