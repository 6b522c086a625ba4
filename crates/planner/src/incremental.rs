//! The incremental planner: a plan costs what has changed, not what exists.
//!
//! In nearly every tick nearly every engine is as desired and unchanged. A plan is a function of the inputs of each engine,
//! so the result for an engine holds until one of its inputs changes. The inputs are compared item by item with those of
//! the last plan ([`IncrementalPlanner::compare`]), and only some engines are planned again ([`IncrementalPlanner::plan`]):
//!
//! - those with a changed slot, row, reservation, permit, registration, drain order or instance;
//! - those that were not *steady*: they had decisions or waits, or time alone may cause some;
//! - the current engine of the slot of each of these, because a stand-in depends on it.
//!
//! Everything is planned again if an input of all engines has changed (the objects of the catalog, defaults, limits, labels of
//! nodes), or if too many engines would be in scope. The counter of the catalog alone, quotas, the scopes of the ledger and the
//! capacity of nodes are no such input: only engines that are to be created depend on them, and those are never steady.
//!
//! Invariant: the plan equals the one that [`plan`](crate::plan()) makes of the same input. The state kept here is only a
//! cache: losing it costs one full plan.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::RandomState;
use model::engine_labels::EngineLabels;
use model::engine_name::EngineName;
use model::ledger::{Ledger, Reservation};
use model::number::Incarnation;
use model::observation::ObservedEngine;
use model::shared::Shared;
use model::slot::{Slot, SlotKey};

use crate::desired::DesiredState;
use crate::diff::{Diff, diff};
use crate::link_cache::LabelCache;
use crate::name_set::NameSet;
use crate::observed::{EngineLoad, ObservedState};
use crate::plan::{self, Plan, Probe};
use crate::scope::Scope;

/// At most one in so many engines is planned incrementally; with more, all are planned again.
const MAX_SHARE: usize = 2;
/// So few engines are always planned incrementally.
const ALWAYS_FEW: usize = 64;

/// The cache of the last plan's inputs and results.
#[derive(Debug, Default)]
pub struct IncrementalPlanner {
    labels: LabelCache,
    last: Option<Last>,
    /// Counts the kept plans.
    kept: u64,
}

#[derive(Debug)]
struct Last {
    desired: DesiredState,
    observed: ObservedState,
    outcome: Outcome,
}

/// The results of a plan other than its decisions.
#[derive(Debug)]
struct Outcome {
    index: Arc<Index>,
    unsteady: NameSet,
    /// In the order of names.
    rows: Vec<Arc<ObservedEngine>>,
}

/// The slots of a snapshot.
#[derive(Debug)]
struct Index {
    /// The name of each slot's current engine, in the order of the list.
    current: Vec<EngineName>,
    /// Positions in the list, in the order of keys.
    by_key: Vec<usize>,
}

/// The inputs of a plan, with their difference from those of the last one.
#[derive(Debug)]
pub struct Delta {
    desired: DesiredState,
    observed: ObservedState,
    changes: Option<Changes>,
    /// The planner's counter when it was compared.
    compared_with: u64,
    outcome: Option<Outcome>,
}

#[derive(Debug)]
struct Changes {
    scope: Scope,
    index: Arc<Index>,
    /// Engines of which only the load has changed.
    loads: Vec<(EngineName, Option<EngineLoad>)>,
}

impl Delta {
    /// The desired state of a [plan without engines](crate::plan_without_engines).
    pub fn without_engines(desired: DesiredState) -> Self {
        Self { desired, observed: ObservedState::default(), changes: None, compared_with: 0, outcome: None }
    }

    /// The desired state.
    pub fn desired(&self) -> &DesiredState {
        &self.desired
    }

    /// The observed state.
    pub fn observed(&self) -> &ObservedState {
        &self.observed
    }

    /// Its inputs, to be compared again after an update.
    pub fn into_parts(self) -> (DesiredState, ObservedState) {
        (self.desired, self.observed)
    }

    /// The lookups to make before planning: see [`probes`](crate::probes).
    pub fn probes(&self) -> Vec<Probe> {
        // A steady engine is listed under its recorded uid and has no drain order: it needs no probe.
        plan::probes_in_scope(&self.desired, &self.observed, self.changes.as_ref().map(|changes| &changes.scope))
    }
}

impl IncrementalPlanner {
    /// Compares the inputs with those of the last plan.
    pub fn compare(&self, desired: DesiredState, observed: ObservedState) -> Delta {
        let changes = self.last.as_ref().and_then(|last| last.changes(&desired, &observed));
        Delta { desired, observed, changes, compared_with: self.kept, outcome: None }
    }

    /// The plan: equal to [`plan`](crate::plan()) of the same inputs.
    pub fn plan(&mut self, delta: &mut Delta) -> Plan {
        let (desired, observed) = (&delta.desired, &delta.observed);
        self.labels.trim(desired);
        let changes = delta.changes.as_ref().filter(|_| delta.compared_with == self.kept);
        let mut planned = plan::make(desired, observed, &mut self.labels, changes.map(|changes| &changes.scope));
        let mut index = None;
        if let (Some(changes), Some(last)) = (changes, &self.last) {
            planned.plan.rows = last.outcome.rows_with(&changes.scope.names, planned.plan.rows, &changes.loads);
            index = Some(Arc::clone(&changes.index));
        }
        let index = index.unwrap_or_else(|| Arc::new(Index::new(&desired.snapshot.slots, planned.current)));
        delta.outcome = Some(Outcome { index, unsteady: planned.unsteady, rows: planned.plan.rows.clone() });
        planned.plan
    }

    /// Keeps the inputs and results of a plan as the base of the next one.
    pub fn keep(&mut self, delta: Delta) {
        let Delta { desired, observed, outcome, .. } = delta;
        self.kept += 1;
        self.last = outcome.map(|outcome| Last { desired, observed, outcome });
    }
}

impl Last {
    /// `None` if everything must be planned again.
    fn changes(&self, desired: &DesiredState, observed: &ObservedState) -> Option<Changes> {
        let most = ALWAYS_FEW.max(desired.snapshot.slots.len() / MAX_SHARE);
        if !self.has_same_globals(desired, observed) || self.outcome.unsteady.len() > most {
            return None;
        }
        let mut names = self.outcome.unsteady.clone();
        let (before, now) = (&self.desired.snapshot, &desired.snapshot);
        add_changed(&before.engines, &now.engines, |record| record.incarnation, |record| &record.name, &mut names);
        add_changed_reservations(&before.ledger, &now.ledger, &mut names);
        add_changed(
            &self.observed.permits,
            &observed.permits,
            |permit| &permit.engine,
            |permit| &permit.engine,
            &mut names,
        );
        add_changed(
            &self.observed.registrations,
            &observed.registrations,
            |registration| &registration.engine,
            |registration| &registration.engine,
            &mut names,
        );
        add_changed(&self.observed.drains, &observed.drains, |drain| &drain.engine, |drain| &drain.engine, &mut names);
        add_changed(
            &self.observed.instances,
            &observed.instances,
            |instance| &instance.uid,
            |instance| &instance.name,
            &mut names,
        );
        let index = self.index(desired, &mut names);
        let scope = scope_of(desired, observed, &index, names);
        if scope.names.len() > most {
            return None;
        }
        let mut loads = self.changed_loads(observed);
        loads.retain(|(name, _)| !scope.names.contains(name));
        Some(Changes { scope, index, loads })
    }

    /// Whether the inputs of all engines are unchanged.
    fn has_same_globals(&self, desired: &DesiredState, observed: &ObservedState) -> bool {
        let (before, now) = (&self.desired.snapshot.catalog, &desired.snapshot.catalog);
        (&before.units, &before.pools, &before.tenants) == (&now.units, &now.pools, &now.tenants)
            && self.desired.defaults == desired.defaults
            && self.desired.limits == desired.limits
            && self.desired.cluster == desired.cluster
            && self.observed.nodes == observed.nodes
    }

    /// The index of the slots now. Adds the old and the new current engine of each changed slot to `names`.
    fn index(&self, desired: &DesiredState, names: &mut NameSet) -> Arc<Index> {
        let (before, now) = (&self.desired.snapshot.slots, &desired.snapshot.slots);
        let was_current = &self.outcome.index.current;
        let (mut is_current, mut moved, mut fresh) = (Vec::new(), before.len() != now.len(), Vec::new());
        diff(
            before,
            now,
            |slot| &slot.key,
            |item| match item {
                Diff::Same(was, is) => moved |= was != is,
                Diff::Changed(was, is) => {
                    moved |= was != is;
                    names.insert(&was_current[was]);
                    fresh.push(is);
                }
                Diff::Gone(was) => {
                    names.insert(&was_current[was]);
                    moved = true;
                }
                Diff::New(is) => {
                    fresh.push(is);
                    moved = true;
                }
            },
        );
        if !moved && fresh.is_empty() {
            return Arc::clone(&self.outcome.index);
        }
        is_current.resize(now.len(), None);
        diff(
            before,
            now,
            |slot| &slot.key,
            |item| {
                if let Diff::Same(was, is) = item {
                    is_current[is] = Some(was_current[was].clone());
                }
            },
        );
        for (is, name) in fresh.iter().zip(current_engines(desired, &fresh)) {
            names.insert(&name);
            is_current[*is] = Some(name);
        }
        let by_key = if moved { in_order(now) } else { self.outcome.index.by_key.clone() };
        Arc::new(Index { current: is_current.into_iter().flatten().collect(), by_key })
    }

    fn changed_loads(&self, observed: &ObservedState) -> Vec<(EngineName, Option<EngineLoad>)> {
        let mut changed = Vec::new();
        if Shared::is_same(&self.observed.loads, &observed.loads) {
            return changed;
        }
        let mut before = self.observed.loads.iter().peekable();
        for (name, load) in observed.loads.iter() {
            while let Some((gone, _)) = before.next_if(|(engine, _)| *engine < name) {
                changed.push((gone.clone(), None));
            }
            if before.next_if(|(engine, _)| *engine == name).is_none_or(|(_, last)| last != load) {
                changed.push((name.clone(), Some(*load)));
            }
        }
        changed.extend(before.map(|(gone, _)| (gone.clone(), None)));
        changed
    }
}

impl Outcome {
    /// The rows of all engines: new ones for those in scope, the others unchanged except for their load.
    fn rows_with(
        &self,
        scope: &NameSet,
        new: Vec<Arc<ObservedEngine>>,
        loads: &[(EngineName, Option<EngineLoad>)],
    ) -> Vec<Arc<ObservedEngine>> {
        let mut rows = Vec::with_capacity(self.rows.len() + new.len());
        let (mut rest, mut new) = (&self.rows[..], new.into_iter().peekable());
        for name in scope.sorted() {
            let (unchanged, others) = rest.split_at(rest.partition_point(|row| row.name < *name));
            rows.extend_from_slice(unchanged);
            rest = others.split_first().filter(|(row, _)| row.name == *name).map_or(others, |(_, others)| others);
            rows.extend(new.next_if(|row| row.name == *name));
        }
        rows.extend_from_slice(rest);
        for (name, load) in loads {
            // An unknown engine has no row.
            if let Ok(at) = rows.binary_search_by(|row| row.name.cmp(name)) {
                let row = Arc::make_mut(&mut rows[at]);
                (row.sessions, row.running) = (load.map(|load| load.sessions), load.map(|load| load.running));
            }
        }
        rows
    }
}

impl Index {
    /// From the names of the current engines in the order of the slots' keys.
    fn new(slots: &[Shared<Slot>], current_by_key: Vec<EngineName>) -> Self {
        let by_key = in_order(slots);
        let mut current = vec![None; slots.len()];
        for (at, name) in by_key.iter().zip(current_by_key) {
            current[*at] = Some(name);
        }
        Self { current: current.into_iter().flatten().collect(), by_key }
    }

    fn find(&self, slots: &[Shared<Slot>], key: &SlotKey) -> Option<usize> {
        let at = self.by_key.binary_search_by(|at| slots[*at].key.cmp(key)).ok()?;
        Some(self.by_key[at])
    }
}

/// The scope of these engines and the current engines of their slots.
fn scope_of(desired: &DesiredState, observed: &ObservedState, index: &Index, mut names: NameSet) -> Scope {
    if names.is_empty() {
        return Scope::default();
    }
    let slots = &desired.snapshot.slots;
    let (mut positions, mut recorded) = (Vec::new(), HashSet::<&EngineName, RandomState>::default());
    for record in desired.snapshot.engines.iter().filter(|record| names.contains(&record.name)) {
        recorded.insert(&record.name);
        positions.extend(index.find(slots, &record.slot));
    }
    // The slot of an engine without a row is known only from its labels.
    let others = observed.instances.iter().filter(|instance| names.contains(&instance.name));
    for instance in others.filter(|instance| !recorded.contains(&instance.name)) {
        let slot = EngineLabels::decode(&instance.labels).ok().map(|labels| labels.slot);
        positions.extend(slot.and_then(|key| index.find(slots, &key)));
    }
    for at in positions {
        names.insert(&index.current[at]);
    }
    let slots = (0..slots.len()).filter(|at| names.contains(&index.current[*at])).collect();
    Scope { names, slots }
}

/// Adds the names of all added, removed and changed items.
fn add_changed<'a, T: PartialEq, K: Eq + Hash>(
    before: &'a [T],
    now: &'a [T],
    key: impl Fn(&'a T) -> K,
    name: impl Fn(&'a T) -> &'a EngineName,
    names: &mut NameSet,
) {
    diff(before, now, key, |item| match item {
        Diff::Same(..) => {}
        Diff::Changed(was, is) => {
            names.insert(name(&before[was]));
            names.insert(name(&now[is]));
        }
        Diff::Gone(was) => names.insert(name(&before[was])),
        Diff::New(is) => names.insert(name(&now[is])),
    });
}

/// Adds the engines of all added, removed and changed reservations.
fn add_changed_reservations(before: &Ledger, now: &Ledger, names: &mut NameSet) {
    let mut add = |reservation: &Reservation| {
        // The id of an external reservation is no engine's.
        if let (false, Ok(name)) = (reservation.request.holder.is_external(), EngineName::new(&**reservation.id())) {
            names.insert(&name);
        }
    };
    let mut before = before.reservations().peekable();
    for reservation in now.reservations() {
        // Snapshots may share what has not changed.
        if before.next_if(|old| Arc::ptr_eq(old, reservation)).is_some() {
            continue;
        }
        while let Some(gone) = before.next_if(|old| old.id() < reservation.id()) {
            add(gone);
        }
        if before.next_if(|old| old.id() == reservation.id()).is_none_or(|old| differ(old, reservation)) {
            add(reservation);
        }
    }
    before.for_each(|gone| add(gone));
}

/// Whether two versions of a reservation differ. What was requested under an id never changes.
fn differ(old: &Reservation, new: &Reservation) -> bool {
    let mutable = |reservation: &Reservation| (reservation.state, reservation.deadline_ms, reservation.amounts);
    mutable(old) != mutable(new) || old.uid != new.uid
}

fn in_order(slots: &[Shared<Slot>]) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..slots.len()).collect();
    positions.sort_by(|one, other| slots[*one].key.cmp(&slots[*other].key));
    positions
}

/// The names of the current engines of a few slots: the issued one, else the one that will be issued.
fn current_engines(desired: &DesiredState, positions: &[usize]) -> Vec<EngineName> {
    let slots = &desired.snapshot.slots;
    let mut by_incarnation: Vec<(Incarnation, usize)> =
        positions.iter().enumerate().map(|(at, position)| (slots[*position].incarnation, at)).collect();
    by_incarnation.sort_unstable();
    let mut issued = vec![None; positions.len()];
    for record in &desired.snapshot.engines {
        let first = by_incarnation.partition_point(|(incarnation, _)| *incarnation < record.incarnation);
        for (_, at) in by_incarnation[first..].iter().take_while(|(number, _)| *number == record.incarnation) {
            if slots[positions[*at]].key == record.slot {
                issued[*at] = Some(record.name.clone());
            }
        }
    }
    let named = positions.iter().zip(issued).map(|(position, name)| name.unwrap_or_else(|| slots[*position].engine()));
    named.collect()
}
