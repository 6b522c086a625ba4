//! A plan while it is being made.

use std::collections::{BTreeMap, BTreeSet};

use model::engine_name::EngineName;
use model::number::Incarnation;
use model::slot::{Slot, SlotKey};

use crate::census::Engine;
use crate::decision::{Action, Chain, Decision, Stage};
use crate::desired::Desired;
use crate::linked::{Linked, Run, Words};
use crate::observed::Observed;
use crate::plan::Wait;

/// Something that is still to be done about an engine.
pub(crate) struct Undone {
    /// Its slot.
    pub slot: SlotKey,
    /// Its own incarnation, whatever incarnation the slot has by now.
    pub incarnation: Option<Incarnation>,
    /// What is missing.
    pub what: String,
}

/// What has been decided so far.
pub(crate) struct Draft<'a> {
    pub desired: &'a Desired,
    pub observed: &'a Observed,
    pub chains: Vec<Chain>,
    pub waits: Vec<Wait>,
    /// Why each engine is not what it should be: SHOW's column *reason*.
    pub reasons: BTreeMap<EngineName, String>,
    /// What keeps alterations from having converged.
    pub undone: Vec<Undone>,
    /// The names that this plan tells to drain: a name has one drain fact.
    told: BTreeSet<EngineName>,
    run: Run<'a>,
    words: &'a mut Words,
}

impl<'a> Draft<'a> {
    pub fn new(desired: &'a Desired, observed: &'a Observed, words: &'a mut Words) -> Self {
        Self {
            desired,
            observed,
            chains: Vec::new(),
            waits: Vec::new(),
            reasons: BTreeMap::new(),
            undone: Vec::new(),
            told: BTreeSet::new(),
            run: Run::default(),
            words,
        }
    }

    /// What the slot has in common with all others of its (tenant, pool, unit).
    pub fn linked(&mut self, slot: &'a Slot) -> &Linked<'a> {
        self.run.of(self.desired, &slot.key, self.words)
    }

    /// How much has been said so far: the same again means that nothing was said in between.
    pub fn said(&self) -> [usize; 4] {
        [self.chains.len(), self.waits.len(), self.undone.len(), self.reasons.len()]
    }

    /// Adds a chain, if it decides anything.
    pub fn push(&mut self, stage: Stage, decisions: Vec<Decision>) {
        if !decisions.is_empty() {
            self.chains.push(Chain { stage, decisions });
        }
    }

    /// Tells a pod or process of the engine's name to drain, unless another one of that name was told already; answers
    /// whether it was told.
    pub fn drain(&mut self, engine: &Engine<'_>, action: Action, because: &str) -> bool {
        let first = self.told.insert(engine.name.clone());
        if first {
            self.push(Stage::Drain, vec![decide(engine, action, because)]);
        }
        first
    }

    /// Whether this plan tells somebody of that name to drain.
    pub fn is_told(&self, engine: &Engine<'_>) -> bool {
        self.told.contains(&engine.name)
    }

    /// Says why the engine is not what it should be.
    pub fn wait(&mut self, engine: &Engine<'_>, reason: String, until_ms: Option<i64>) {
        self.reasons.insert(engine.name.clone(), reason.clone());
        self.waits.push(Wait { engine: engine.name.clone(), slot: engine.slot.as_deref().cloned(), reason, until_ms });
    }

    /// Says what alterations that reach the engine's slot wait for.
    pub fn undone(&mut self, engine: &Engine<'_>, what: String) {
        if let Some(slot) = engine.slot.as_deref() {
            self.undone.push(Undone { slot: slot.clone(), incarnation: engine.incarnation, what });
        }
    }

    /// An engine that is not touched holds up every alteration that reaches its slot, whichever incarnation it has.
    pub fn left_alone(&mut self, engine: &Engine<'_>, what: String) {
        if let Some(slot) = engine.slot.as_deref() {
            self.undone.push(Undone { slot: slot.clone(), incarnation: None, what });
        }
    }

    /// Whether the orchestrator, asked for the name, has no such uid.
    pub fn vanished(&self, engine: &Engine<'_>, uid: &str) -> bool {
        self.observed.vanished.contains(&(engine.name.clone(), uid.to_owned()))
    }
}

/// A decision about an engine.
pub(crate) fn decide(engine: &Engine<'_>, action: Action, because: impl Into<String>) -> Decision {
    Decision {
        engine: Some(engine.name.clone()),
        slot: engine.slot.as_deref().cloned(),
        because: because.into(),
        action,
    }
}
