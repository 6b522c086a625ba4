//! EXPLAIN: every decision until nothing is left to do, by playing the plan in a copy of the world.
//!
//! The rows are the decisions themselves, so they are those that the master executes when the world behaves as
//! assumed: each started engine gets ready, each drained one exits. The world moves only when there is nothing left to
//! decide, because what engines do takes longer than a tick.

use model::alteration::{AlterationProgress, AlterationRecord, Outcome, RequestId};
use model::change::{Applied, Change, Rules};
use model::desired::derive;
use model::error::UserError;
use model::number::Generation;
use model::slot::{Origin, Slot};

use crate::decision::Row;
use crate::desired::Desired;
use crate::observed::Observed;
use crate::simulate::World;

/// How many plans EXPLAIN makes at most.
pub const MAX_ROUNDS: usize = 2_000;
/// How many decisions EXPLAIN prints at most; the last row says that there are more.
pub const MAX_ROWS: usize = 10_000;
/// How many engines the plans of one EXPLAIN look at, all plans together: one plan looks at every engine that there is.
pub const MAX_LOOKS: usize = 500_000;

/// How far EXPLAIN goes.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    rounds: usize,
    rows: usize,
    looks: usize,
}

/// Every decision until nothing is left to do, in order, taking each started engine for ready. Changes nothing.
///
/// It computes for seconds where there is much: not for a thread on which others wait.
pub fn explain(desired: &Desired, observed: &Observed) -> Vec<Row> {
    explain_within(desired, observed, Bounds { rounds: MAX_ROUNDS, rows: MAX_ROWS, looks: MAX_LOOKS })
}

fn explain_within(desired: &Desired, observed: &Observed, bounds: Bounds) -> Vec<Row> {
    let mut world = World::new(desired.clone(), observed.clone());
    let mut rows: Vec<Row> = Vec::new();
    let mut looks = 0;
    for _ in 0..bounds.rounds {
        looks += world.desired.snapshot.engines.len().max(world.observed.pods.len());
        if looks > bounds.looks {
            break;
        }
        let plan = world.plan();
        if plan.chains.is_empty() {
            if move_on(&mut world, plan.waits.iter().filter_map(|wait| wait.until_ms).min()) {
                continue;
            }
            return rows;
        }
        for decision in plan.decisions() {
            if rows.len() == bounds.rows {
                return cut_off(rows);
            }
            rows.push(decision.row(rows.len() as u32 + 1));
        }
        world.apply(&plan);
    }
    cut_off(rows)
}

fn cut_off(mut rows: Vec<Row>) -> Vec<Row> {
    let because = format!(
        "more follows and is not shown: at most {MAX_ROWS} decisions of {MAX_ROUNDS} plans that look at {MAX_LOOKS} \
         engines in all"
    );
    let step = rows.len() as u32 + 1;
    rows.push(Row { step, decision: "and so on".to_owned(), engine: String::new(), slot: String::new(), because });
    rows
}

/// Lets the world make its next move; false when it would only stand still.
fn move_on(world: &mut World, until_ms: Option<i64>) -> bool {
    let starting = world.about_to_register();
    if !starting.is_empty() {
        return starting.iter().filter(|engine| world.register(engine)).count() > 0;
    }
    if world.exit_drained() > 0 {
        return true;
    }
    let session_ms = world.desired.limits.session_timeout_ms;
    let unsettled = !world.observed.facts.is_empty() || world.observed.lives.iter().any(|it| it.unclaimed_ms > 0);
    let due_ms = until_ms.map(|until| (until - world.desired.snapshot.now_ms).max(1) as u64);
    let orphaned = world.observed.facts.iter().all(|fact| fact.quiet_ms >= session_ms);
    match due_ms {
        Some(ms) => world.pass(ms),
        None if unsettled && !orphaned => world.pass(session_ms),
        None => return false,
    }
    true
}

/// What EXPLAIN CREATE, ALTER or DROP answers: the change is applied to a copy as its transaction would apply it.
pub fn explain_change(
    before: &Desired,
    change: &Change,
    rules: &Rules,
    observed: &Observed,
) -> Result<Vec<Row>, UserError> {
    match change.apply(&before.snapshot.catalog, rules)? {
        Applied::Nothing { .. } => Ok(Vec::new()),
        Applied::Object { base, after, .. } => {
            let mut world = World::new(before.clone(), observed.clone());
            let reference = change.object();
            let generation = Generation(world.next_number().get());
            let catalog = world.desired.snapshot.catalog.with(&reference, after.as_ref(), generation);
            commit(&mut world, catalog);
            let snapshot = &mut world.desired.snapshot;
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
            Ok(explain(&world.desired, &world.observed))
        }
    }
}

impl World {
    /// Puts a new catalog in place of the old one, with the slot rows that follow, in the order in which the
    /// transaction of an alteration draws its numbers: rows that go, rows that are renewed, rows that come.
    pub fn commit_catalog(&mut self, catalog: model::catalog::Catalog) {
        commit(self, catalog);
    }
}

fn commit(world: &mut World, after: model::catalog::Catalog) {
    let snapshot = &world.desired.snapshot;
    let changes = derive(&snapshot.catalog, &after, &snapshot.slots, &world.desired.defaults);
    let grace_ms = world.desired.limits.grace_ms(None);
    world.desired.snapshot.catalog = after;
    for (key, reason) in &changes.delete {
        world.delete_slot(key, reason, grace_ms);
    }
    for key in &changes.renew {
        for record in world.desired.snapshot.engines.iter_mut().filter(|record| record.slot == *key) {
            record.end_grace_ms.get_or_insert(grace_ms);
        }
        world.renew(key, 0, false);
    }
    for key in &changes.add {
        let incarnation = world.next_number();
        let slot = Slot { key: key.clone(), incarnation, origin: Origin::Minimum, failures: 0, forced: false };
        world.desired.snapshot.slots.push(slot);
        world.issue(key, incarnation);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use model::change::{ObjectPatch, PoolPatch, TenantPatch, UnitPatch};
    use model::{PoolName, TenantName, UnitName};

    use super::*;

    /// A world in which a tenant has just got three engines.
    fn wanted() -> World {
        let mut world = World::default();
        world.observed.registry_settled = true;
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
            let applied = change.apply(&world.desired.snapshot.catalog, &Rules::default()).unwrap();
            let Applied::Object { after, .. } = applied else { panic!("it is new") };
            let generation = Generation(world.next_number().get());
            let catalog = world.desired.snapshot.catalog.with(&change.object(), after.as_ref(), generation);
            world.commit_catalog(catalog);
        }
        world
    }

    #[test]
    fn each_bound_ends_it_and_the_last_row_says_that_there_is_more() {
        let world = wanted();
        let far = Bounds { rounds: 100, rows: 100, looks: 1_000 };
        let all = explain_within(&world.desired, &world.observed, far);
        assert_eq!(all.len(), 12, "permit, engine, uid, uid in the permit: {all:?}");
        for (bounds, shown) in [
            (Bounds { rounds: 1, ..far }, 12),
            (Bounds { rows: 5, ..far }, 5),
            (Bounds { looks: 3, ..far }, 12),
            (Bounds { looks: 2, ..far }, 0),
        ] {
            let rows = explain_within(&world.desired, &world.observed, bounds);
            assert_eq!(rows[..shown], all[..shown], "{bounds:?}");
            assert_eq!((rows.len(), rows[shown].decision.as_str()), (shown + 1, "and so on"), "{bounds:?}");
        }
    }
}
