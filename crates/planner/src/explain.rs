//! EXPLAIN: every decision until nothing is left to do, by playing the plan in a copy of the world.
//!
//! The rows are the decisions themselves, so they are those that the master executes when the world behaves as
//! assumed: each started engine gets ready, each drained one exits. The world moves only when there is nothing left to
//! decide, because what engines do takes longer than a tick.

use model::alteration::{AlterationRecord, Outcome, Progress, RequestId};
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

/// Every decision until nothing is left to do, in order, taking each started engine for ready. Changes nothing.
pub fn explain(desired: &Desired, observed: &Observed) -> Vec<Row> {
    let mut world = World::new(desired.clone(), observed.clone());
    let mut rows: Vec<Row> = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let plan = world.plan();
        if plan.chains.is_empty() {
            if move_on(&mut world, plan.waits.iter().filter_map(|wait| wait.until_ms).min()) {
                continue;
            }
            return rows;
        }
        for decision in plan.decisions() {
            if rows.len() == MAX_ROWS {
                return cut_off(rows);
            }
            rows.push(decision.row(rows.len() as u32 + 1));
        }
        world.apply(&plan);
    }
    cut_off(rows)
}

fn cut_off(mut rows: Vec<Row>) -> Vec<Row> {
    let because = format!("more than {MAX_ROWS} decisions or {MAX_ROUNDS} plans follow; the rest is not shown");
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
                progress: Some(Progress::Converging),
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
