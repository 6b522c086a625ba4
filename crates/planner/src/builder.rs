//! The plan builder: collects chains, waits and reasons while a plan is being made.

use std::collections::{BTreeMap, BTreeSet};

use model::engine_name::EngineName;
use model::number::Incarnation;
use model::slot::{Slot, SlotKey};

use crate::admit::Request;
use crate::decision::{Action, Chain, Decision, Stage, Wait};
use crate::demand_reported::DemandReported;
use crate::desired::DesiredState;
use crate::inventory::Engine;
use crate::link_cache::{Group, LabelCache, LinkCache};
use crate::observed::ObservedState;
use crate::succession::Successions;
use crate::turns::Turns;
use crate::unreachable::FailedNodes;

/// Work on an engine that keeps alterations from converging.
pub(crate) struct PendingWork {
    pub slot: SlotKey,
    /// The engine's own incarnation, which may be older than the slot's; `None` blocks alterations of any age.
    pub incarnation: Option<Incarnation>,
    /// What is missing.
    pub what: String,
}

/// What follows if a candidate's request is granted.
pub(crate) enum Granted {
    /// The engine is created.
    Create {
        /// The engine that serves until then.
        stand_in: Option<EngineName>,
    },
    /// The older engine of its slot is drained, in the slot's turn.
    Turn {
        /// Whether the older engine is registered.
        is_served: bool,
    },
    /// Nothing yet: the capacity is kept for it while the older engine of its slot ends.
    Keep,
}

/// An engine that needs a reservation, now or when the older engine of its slot is gone.
pub(crate) struct Candidate {
    pub engine: EngineName,
    pub request: Request,
    pub granted: Granted,
    /// Its state if the request is granted.
    pub state: String,
    /// When it may change, by the database's clock.
    pub until_ms: Option<i64>,
}

/// The decisions so far.
pub(crate) struct PlanBuilder<'a> {
    pub desired: &'a DesiredState,
    pub observed: &'a ObservedState,
    pub chains: Vec<Chain>,
    pub waits: Vec<Wait>,
    /// Why each engine differs from its desired state: SHOW's column *reason*.
    pub reasons: BTreeMap<EngineName, String>,
    pub pending: Vec<PendingWork>,
    /// The engines that need a reservation.
    pub candidates: Vec<Candidate>,
    /// Which engines are unreachable.
    pub failed_nodes: FailedNodes<'a>,
    pub successions: Successions<'a>,
    pub turns: Turns,
    /// What is reported of demand.
    pub demand: DemandReported,
    /// The slots whose older engine is drained in their turn.
    pub taking_turn: BTreeSet<SlotKey>,
    /// The names that this plan drains: a name has one drain order.
    draining: BTreeSet<EngineName>,
    groups: LinkCache<'a>,
    labels: &'a mut LabelCache,
}

impl<'a> PlanBuilder<'a> {
    pub fn new(desired: &'a DesiredState, observed: &'a ObservedState, labels: &'a mut LabelCache) -> Self {
        Self {
            desired,
            observed,
            chains: Vec::new(),
            waits: Vec::new(),
            reasons: BTreeMap::new(),
            pending: Vec::new(),
            candidates: Vec::new(),
            failed_nodes: FailedNodes::new(observed, &desired.limits),
            successions: Successions::default(),
            turns: Turns::default(),
            demand: DemandReported::default(),
            taking_turn: BTreeSet::new(),
            draining: BTreeSet::new(),
            groups: LinkCache::default(),
            labels,
        }
    }

    /// What the slot shares with all others of its (tenant, pool, unit).
    pub fn group(&mut self, slot: &'a Slot) -> &Group<'a> {
        self.groups.get(self.desired, &slot.key, self.labels)
    }

    /// The sizes of all lists: equal values mean that nothing was added in between.
    pub fn sizes(&self) -> [usize; 5] {
        [self.chains.len(), self.waits.len(), self.pending.len(), self.reasons.len(), self.candidates.len()]
    }

    /// Adds a chain, unless it is empty.
    pub fn push(&mut self, stage: Stage, decisions: Vec<Decision>) {
        if !decisions.is_empty() {
            self.chains.push(Chain { stage, decisions });
        }
    }

    /// Drains an instance with the engine's name, unless this plan drains another one with that name; returns whether it
    /// does.
    pub fn drain(&mut self, engine: &Engine<'_>, action: Action, reason: &str) -> bool {
        let first = self.draining.insert(engine.name.clone());
        if first {
            self.push(Stage::Drain, vec![decide(engine, action, reason)]);
        }
        first
    }

    /// Whether this plan drains an instance with the engine's name.
    pub fn is_draining(&self, engine: &Engine<'_>) -> bool {
        self.draining.contains(&engine.name)
    }

    /// Adds why the engine differs from its desired state.
    pub fn wait(&mut self, engine: &Engine<'_>, reason: String, until_ms: Option<i64>) {
        self.add_wait(engine, reason, until_ms, false);
    }

    /// Adds why the engine has no reservation, and when that may change without any other event.
    pub fn queue(&mut self, engine: &Engine<'_>, reason: String, until_ms: Option<i64>) {
        self.add_wait(engine, reason, until_ms, true);
    }

    fn add_wait(&mut self, engine: &Engine<'_>, reason: String, until_ms: Option<i64>, is_queued: bool) {
        self.reasons.insert(engine.name.clone(), reason.clone());
        let slot = engine.slot.as_deref().cloned();
        self.waits.push(Wait { engine: engine.name.clone(), slot, reason, until_ms, is_queued });
    }

    /// Adds what is missing of an engine that is being created, for SHOW and for alterations.
    pub fn wait_for_create(&mut self, engine: &Engine<'_>, reason: String, until_ms: Option<i64>) {
        self.add_pending(engine, reason.clone());
        self.wait(engine, reason, until_ms);
    }

    /// Adds what alterations wait for that affect the engine's slot.
    pub fn add_pending(&mut self, engine: &Engine<'_>, what: String) {
        if let Some(slot) = engine.slot.as_deref() {
            self.pending.push(PendingWork { slot: slot.clone(), incarnation: engine.incarnation, what });
        }
    }

    /// Adds what every alteration that affects the engine's slot waits for, whichever incarnation the engine has.
    pub fn block_alterations(&mut self, engine: &Engine<'_>, what: String) {
        if let Some(slot) = engine.slot.as_deref() {
            self.pending.push(PendingWork { slot: slot.clone(), incarnation: None, what });
        }
    }

    /// Whether a lookup by name did not find this uid.
    pub fn has_vanished(&self, engine: &Engine<'_>, uid: &str) -> bool {
        self.observed.has_vanished(&engine.name, uid)
    }
}

/// A decision about an engine.
pub(crate) fn decide(engine: &Engine<'_>, action: Action, reason: impl Into<String>) -> Decision {
    Decision { engine: Some(engine.name.clone()), slot: engine.slot.as_deref().cloned(), reason: reason.into(), action }
}
