//! What is kept from one plan to the next, so that the next one costs what has changed and not what there is.
//!
//! In nearly every tick nearly every engine is as it was and as it should be. A plan is a function of what is known of each
//! engine, so what was worked out for an engine holds for as long as nothing that it came from is different. What is read is
//! therefore compared with what the last plan was made from, item by item ([`Memo::compare`]), and only a part of the engines
//! is planned for ([`Memo::plan`]):
//!
//! - those of which anything differs: slot, row, permit, registration, drain fact, pod;
//! - those that were not *settled*: there was something to do or to wait for, or time alone may change what is to be done;
//! - the present engine of the slot of each of these, because a stand-in goes by it.
//!
//! Everything is planned for when what holds for all engines has changed (catalog, defaults, limits, labels of nodes), and
//! when the part would not be a small one.
//!
//! Invariant: the plan is the one that [`plan`](crate::plan()) makes of the same input. Nothing hangs on a memo but time, and
//! whoever lost it plans for everything once.

use std::hash::Hash;
use std::sync::Arc;

use model::engine_name::EngineName;
use model::labels::EngineLabels;
use model::number::Incarnation;
use model::observation::ObservedEngine;
use model::slot::{Slot, SlotKey};

use crate::alignment::{Item, align};
use crate::desired::Desired;
use crate::linked::Words;
use crate::names::Names;
use crate::observed::{Observed, Status};
use crate::plan::{self, Plan, Question};

/// Of how many engines a part is planned for at most: one of so many.
const PART: usize = 8;
/// A part of so few is always small enough.
const SMALL: usize = 64;

/// What the last plan was made from, and what it came to.
#[derive(Debug, Default)]
pub struct Memo {
    words: Words,
    last: Option<Last>,
    /// How often something was kept.
    kept: u64,
}

#[derive(Debug)]
struct Last {
    desired: Desired,
    observed: Observed,
    outcome: Outcome,
}

/// What a plan came to, besides its decisions.
#[derive(Debug)]
struct Outcome {
    index: Arc<Index>,
    unsettled: Names,
    /// In the order of names.
    rows: Vec<Arc<ObservedEngine>>,
}

/// The slots of a snapshot.
#[derive(Debug)]
struct Index {
    /// Of each the name of its present engine, in the order of the list.
    present: Vec<EngineName>,
    /// Their places in the list, in the order of keys.
    by_key: Vec<usize>,
}

/// What is desired and what is observed, and how that differs from what the last plan was made from.
#[derive(Debug)]
pub struct Compared {
    desired: Desired,
    observed: Observed,
    differing: Option<Differing>,
    /// When the memo was, that it was compared with.
    kept: u64,
    outcome: Option<Outcome>,
}

#[derive(Debug)]
struct Differing {
    part: Part,
    index: Arc<Index>,
    /// Engines of which nothing is new but what their agents say of their load.
    loads: Vec<(EngineName, Option<Status>)>,
}

/// The engines that are to be planned for.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub names: Names,
    /// The slots whose present engines are among them: their places in the snapshot's list.
    pub slots: Vec<usize>,
}

impl Compared {
    /// The desired state.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// The observed state.
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// What it was made of: to be compared anew after something was learned.
    pub fn into_parts(self) -> (Desired, Observed) {
        (self.desired, self.observed)
    }

    /// What is to be asked before a plan: see [`questions`](crate::questions).
    pub fn questions(&self) -> Vec<Question> {
        // A settled engine is in the list of pods under its recorded uid, and has no drain fact.
        plan::questions_of(&self.desired, &self.observed, self.differing.as_ref().map(|it| &it.part))
    }
}

impl Memo {
    /// Compares what was read with what the last plan was made from.
    pub fn compare(&self, desired: Desired, observed: Observed) -> Compared {
        let differing = self.last.as_ref().and_then(|last| last.differing(&desired, &observed));
        Compared { desired, observed, differing, kept: self.kept, outcome: None }
    }

    /// What to do now: what [`plan`](crate::plan()) says to the same input.
    pub fn plan(&mut self, compared: &mut Compared) -> Plan {
        let (desired, observed) = (&compared.desired, &compared.observed);
        self.words.trim(desired);
        let differing = compared.differing.as_ref().filter(|_| compared.kept == self.kept);
        let mut made = plan::make(desired, observed, &mut self.words, differing.map(|it| &it.part));
        let mut index = None;
        if let (Some(differing), Some(last)) = (differing, &self.last) {
            made.plan.report = last.outcome.rows_with(&differing.part.names, made.plan.report, &differing.loads);
            index = Some(Arc::clone(&differing.index));
        }
        let index = index.unwrap_or_else(|| Arc::new(Index::of(&desired.snapshot.slots, made.present)));
        compared.outcome = Some(Outcome { index, unsettled: made.unsettled, rows: made.plan.report.clone() });
        made.plan
    }

    /// Takes in what was planned for: the next plan is made from how it differs from this.
    pub fn keep(&mut self, compared: Compared) {
        let Compared { desired, observed, outcome, .. } = compared;
        self.kept += 1;
        self.last = outcome.map(|outcome| Last { desired, observed, outcome });
    }
}

impl Last {
    /// `None` if everything is to be planned for.
    fn differing(&self, desired: &Desired, observed: &Observed) -> Option<Differing> {
        let most = SMALL.max(desired.snapshot.slots.len() / PART);
        if !self.is_of_same_ground(desired, observed) || self.outcome.unsettled.len() > most {
            return None;
        }
        let mut names = self.outcome.unsettled.clone();
        let (before, now) = (&self.desired.snapshot, &desired.snapshot);
        changed(&before.engines, &now.engines, |it| it.incarnation, |it| &it.name, &mut names);
        changed(&self.observed.permits, &observed.permits, |it| &it.engine, |it| &it.engine, &mut names);
        changed(&self.observed.lives, &observed.lives, |it| &it.engine, |it| &it.engine, &mut names);
        changed(&self.observed.facts, &observed.facts, |it| &it.engine, |it| &it.engine, &mut names);
        changed(&self.observed.pods, &observed.pods, |it| &it.uid, |it| &it.name, &mut names);
        let index = self.index(desired, &mut names);
        let part = Part::of(desired, observed, &index, names);
        if part.names.len() > most {
            return None;
        }
        let mut loads = self.changed_loads(observed);
        loads.retain(|(name, _)| !part.names.contains(name));
        Some(Differing { part, index, loads })
    }

    /// Whether everything is as it was that holds for many engines.
    fn is_of_same_ground(&self, desired: &Desired, observed: &Observed) -> bool {
        self.desired.snapshot.catalog == desired.snapshot.catalog
            && self.desired.defaults == desired.defaults
            && self.desired.limits == desired.limits
            && self.desired.cluster == desired.cluster
            && self.observed.nodes == observed.nodes
    }

    /// The index of the slots as they are now. The engines that a slot which differs had and has are among the names then.
    fn index(&self, desired: &Desired, names: &mut Names) -> Arc<Index> {
        let (before, now) = (&self.desired.snapshot.slots, &desired.snapshot.slots);
        let was_present = &self.outcome.index.present;
        let (mut is_present, mut moved, mut fresh) = (Vec::new(), before.len() != now.len(), Vec::new());
        align(
            before,
            now,
            |it| &it.key,
            |item| match item {
                Item::Same(was, is) => moved |= was != is,
                Item::Changed(was, is) => {
                    moved |= was != is;
                    names.insert(&was_present[was]);
                    fresh.push(is);
                }
                Item::Gone(was) => {
                    names.insert(&was_present[was]);
                    moved = true;
                }
                Item::New(is) => {
                    fresh.push(is);
                    moved = true;
                }
            },
        );
        if !moved && fresh.is_empty() {
            return Arc::clone(&self.outcome.index);
        }
        is_present.resize(now.len(), None);
        align(
            before,
            now,
            |it| &it.key,
            |item| {
                if let Item::Same(was, is) = item {
                    is_present[is] = Some(was_present[was].clone());
                }
            },
        );
        for (is, name) in fresh.iter().zip(present_engines(desired, &fresh)) {
            names.insert(&name);
            is_present[*is] = Some(name);
        }
        let by_key = if moved { in_order(now) } else { self.outcome.index.by_key.clone() };
        Arc::new(Index { present: is_present.into_iter().flatten().collect(), by_key })
    }

    fn changed_loads(&self, observed: &Observed) -> Vec<(EngineName, Option<Status>)> {
        let mut changed = Vec::new();
        let mut before = self.observed.status.iter().peekable();
        for (name, said) in &observed.status {
            while let Some((gone, _)) = before.next_if(|(it, _)| *it < name) {
                changed.push((gone.clone(), None));
            }
            if before.next_if(|(it, _)| *it == name).is_none_or(|(_, it)| it != said) {
                changed.push((name.clone(), Some(*said)));
            }
        }
        changed.extend(before.map(|(gone, _)| (gone.clone(), None)));
        changed
    }
}

impl Outcome {
    /// The rows of all engines, from new ones of a part and the others as they were but for their load.
    fn rows_with(
        &self,
        part: &Names,
        new: Vec<Arc<ObservedEngine>>,
        loads: &[(EngineName, Option<Status>)],
    ) -> Vec<Arc<ObservedEngine>> {
        let mut rows = Vec::with_capacity(self.rows.len() + new.len());
        let (mut rest, mut new) = (&self.rows[..], new.into_iter().peekable());
        for name in part.sorted() {
            let (as_they_were, others) = rest.split_at(rest.partition_point(|row| row.name < *name));
            rows.extend_from_slice(as_they_were);
            rest = others.split_first().filter(|(row, _)| row.name == *name).map_or(others, |(_, others)| others);
            rows.extend(new.next_if(|row| row.name == *name));
        }
        rows.extend_from_slice(rest);
        for (name, load) in loads {
            // Who is no engine has no row.
            if let Ok(at) = rows.binary_search_by(|row| row.name.cmp(name)) {
                let row = Arc::make_mut(&mut rows[at]);
                (row.sessions, row.running) = (load.map(|it| it.sessions), load.map(|it| it.running));
            }
        }
        rows
    }
}

impl Index {
    /// From the names of the present engines in the order of the slots' keys.
    fn of(slots: &[Slot], present_by_key: Vec<EngineName>) -> Self {
        let by_key = in_order(slots);
        let mut present = vec![None; slots.len()];
        for (at, name) in by_key.iter().zip(present_by_key) {
            present[*at] = Some(name);
        }
        Self { present: present.into_iter().flatten().collect(), by_key }
    }

    fn find(&self, slots: &[Slot], key: &SlotKey) -> Option<usize> {
        let at = self.by_key.binary_search_by(|at| slots[*at].key.cmp(key)).ok()?;
        Some(self.by_key[at])
    }
}

impl Part {
    /// The engines of these names, with the present engines of their slots.
    fn of(desired: &Desired, observed: &Observed, index: &Index, mut names: Names) -> Self {
        if names.is_empty() {
            return Self::default();
        }
        let slots = &desired.snapshot.slots;
        let recorded = desired.snapshot.engines.iter().filter(|it| names.contains(&it.name));
        let mut places: Vec<usize> = recorded.filter_map(|it| index.find(slots, &it.slot)).collect();
        // Of an engine that the table does not know only its labels say whose it is.
        for pod in observed.pods.iter().filter(|it| names.contains(&it.name)) {
            let slot = EngineLabels::decode(&pod.labels).ok().map(|labels| labels.slot);
            places.extend(slot.and_then(|key| index.find(slots, &key)));
        }
        for at in places {
            names.insert(&index.present[at]);
        }
        let slots = (0..slots.len()).filter(|at| names.contains(&index.present[*at])).collect();
        Self { names, slots }
    }
}

/// The names of everything that came, went or changed.
fn changed<'a, T: PartialEq, K: Eq + Hash>(
    before: &'a [T],
    now: &'a [T],
    key: impl Fn(&'a T) -> K,
    name: impl Fn(&'a T) -> &'a EngineName,
    names: &mut Names,
) {
    align(before, now, key, |item| match item {
        Item::Same(..) => {}
        Item::Changed(was, is) => {
            names.insert(name(&before[was]));
            names.insert(name(&now[is]));
        }
        Item::Gone(was) => names.insert(name(&before[was])),
        Item::New(is) => names.insert(name(&now[is])),
    });
}

fn in_order(slots: &[Slot]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..slots.len()).collect();
    places.sort_by(|one, other| slots[*one].key.cmp(&slots[*other].key));
    places
}

/// The names of the present engines of a few slots: the one that was issued under its incarnation, else the one that will be.
fn present_engines(desired: &Desired, places: &[usize]) -> Vec<EngineName> {
    let slots = &desired.snapshot.slots;
    let mut wanted: Vec<(Incarnation, usize)> =
        places.iter().enumerate().map(|(at, place)| (slots[*place].incarnation, at)).collect();
    wanted.sort_unstable();
    let mut issued = vec![None; places.len()];
    for record in &desired.snapshot.engines {
        let first = wanted.partition_point(|(incarnation, _)| *incarnation < record.incarnation);
        for (_, at) in wanted[first..].iter().take_while(|(incarnation, _)| *incarnation == record.incarnation) {
            if slots[places[*at]].key == record.slot {
                issued[*at] = Some(record.name.clone());
            }
        }
    }
    let named = places.iter().zip(issued).map(|(place, name)| name.unwrap_or_else(|| slots[*place].engine()));
    named.collect()
}
