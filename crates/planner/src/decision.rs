//! Decisions: one effect each, with its precondition and its reason.
//!
//! The executor adds its epoch and its lease. A decision whose precondition no longer holds is rejected where it takes
//! effect (by uid, incarnation, generation or a node's version). Nothing is retried: the next tick plans again.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use model::alteration::RequestId;
use model::charge::Charge;
use model::configuration::Configuration;
use model::end::EndClass;
use model::engine_labels::EngineLabels;
use model::engine_name::EngineName;
use model::ledger::{Change, ScopedChange};
use model::name::TenantName;
use model::number::Incarnation;
use model::owner::Owner;
use model::scaling::{LinkScale, SlotRemoval};
use model::slot::{Link, Replacement, SlotKey};
use serde::{Deserialize, Serialize};

/// One effect and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The engine that it concerns; `None` for an alteration and for the slots of a link.
    pub engine: Option<EngineName>,
    /// The engine's slot, if known.
    pub slot: Option<SlotKey>,
    /// For people: lower case, no full stop.
    pub reason: String,
    pub action: Action,
}

/// The effect of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Create the permit; with a uid for an engine that already runs.
    CreatePermit {
        uid: Option<String>,
        /// The sessions that the engine may have; `None`: as many as its agent accepts.
        sessions: Option<u32>,
        /// Whose sessions the engine serves; `None` if the tenant shares it.
        owner: Option<Owner>,
    },
    /// Create the instance, unless one with this name and matching labels exists. Returns the uid that the later decisions
    /// of the chain need.
    CreateEngine(Box<DesiredEngine>),
    /// Record the uid in table `engine`: once, never changed.
    RecordUid {
        /// `None`: the uid that the create of this chain returned.
        uid: Option<String>,
        /// The hash of the configuration that it was created from.
        config: String,
    },
    /// Write the uid into the permit, so that the engine may register.
    WritePermitUid {
        /// `None`: the uid that the create of this chain returned.
        uid: Option<String>,
        /// Of a permit that this chain created.
        sessions: Option<u32>,
        /// Of a permit that this chain created.
        owner: Option<Owner>,
    },
    /// Write the number of sessions into the permit, which the agent follows.
    WritePermitSessions { sessions: Option<u32> },
    /// Draw a new incarnation for the slot, unless its incarnation is no longer the observed one.
    DrawIncarnation {
        observed: Incarnation,
        /// The slot's new count of failures.
        failures: u32,
        /// How the new engine takes over from older ones.
        replacement: Replacement,
        /// How the engine of the observed incarnation ends; `None` if it has ended or is superseded.
        ends: Option<EndClass>,
    },
    /// Record that the engine will never run again.
    RecordEnd {
        /// How it ended.
        reason: String,
        /// Has no effect on an engine that was condemned with a word.
        class: EndClass,
        /// The last lines of its log, if it failed.
        log_tail: Option<String>,
    },
    /// Write the drain order and remove registration and permit, in one multi.
    Drain {
        uid: String,
        /// How long the engine may keep running.
        grace: Duration,
        /// Whether permit and registration belong to this engine and are removed with it.
        withdraw: bool,
        /// The newer engine of a superseded one; the multi checks its registration.
        successor: Option<EngineName>,
        /// The namespace of its instance, if it has one.
        namespace: Option<String>,
    },
    /// Delete the instance with this uid.
    DeleteEngine {
        uid: String,
        /// The time that it has to close its files.
        grace: Duration,
    },
    /// Delete the permit with everything below it.
    DeletePermit,
    /// Remove the drain order.
    RemoveDrainOrder,
    /// Change a reservation of the ledger. Always the first decision of its chain: those of a stage are written in batches, in
    /// the order of the plan, before the rest of the chains is run.
    Ledger(Box<ScopedChange>),
    /// Ask the agent of an idle engine to accept no more sessions, then give its slot a new incarnation that condemns the engine.
    Retire {
        uid: String,
        /// The incarnation that the decision was derived from.
        observed: Incarnation,
        /// The tenant that the capacity is reclaimed for.
        reclaimed_for: TenantName,
    },
    /// Add and remove slots of a link that follow demand.
    Scale(Box<Scaling>),
    /// Record the progress of an alteration.
    Finish { id: RequestId, transition: Transition },
}

/// The slots that a link gains and loses, of which some are removed only if the agents of their engines agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scaling {
    /// Without the slots that are released.
    pub slots: LinkScale,
    pub release: Vec<Release>,
}

/// A slot that is removed if the agent of its idle engine agrees to retire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    pub engine: EngineName,
    /// The instance that is asked.
    pub uid: String,
    pub slot: SlotRemoval,
}

/// The next progress of a converging or stalled alteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// Every affected engine has been created or condemned accordingly.
    Converged,
    /// Its deadline has passed; the decision has the reason.
    Stalled,
    /// A newer committed alteration of its object replaced it.
    Superseded,
}

/// The input of a create: labels, configuration, charge and nodes of one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredEngine {
    pub labels: EngineLabels,
    pub configuration: Configuration,
    /// What its instance requests.
    pub charge: Charge,
    /// The nodes that it may run on; `None` means any.
    pub nodes: Option<Vec<String>>,
    /// Labels that its node must also have.
    pub node_selector: BTreeMap<String, String>,
    /// The user that it runs as, where the configuration says so: that of its slot. `None` if the slot names no single user.
    pub user: Option<String>,
}

/// The execution order of chains: create before drain, drain before delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Reservations that are adopted, confirmed or ended: they precede every grant.
    Ledger,
    /// Missing engines.
    Create,
    /// Slots that follow demand.
    Scale,
    /// Uids and permits of engines that stay.
    Keep,
    /// Slots that need another engine.
    Renew,
    /// Engines to terminate.
    Drain,
    /// Leftovers of ended engines.
    Clear,
    /// Alterations.
    Finish,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ledger => "ledger",
            Self::Create => "create",
            Self::Scale => "scale",
            Self::Keep => "keep",
            Self::Renew => "renew",
            Self::Drain => "drain",
            Self::Clear => "clear",
            Self::Finish => "finish",
        })
    }
}

/// An engine that differs from its desired state, and why nothing is done about it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    pub engine: EngineName,
    /// Its slot, if known.
    pub slot: Option<SlotKey>,
    /// What it waits for: lower case, no full stop.
    pub reason: String,
    /// Until when, by the database's clock, if known.
    pub until_ms: Option<i64>,
    /// Whether it waits for a reservation that was not granted.
    pub is_queued: bool,
}

/// Decisions about one engine or one alteration, in order: each needs the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    pub stage: Stage,
    /// Never empty.
    pub decisions: Vec<Decision>,
}

impl Scaling {
    /// Whether it removes nothing.
    pub fn is_only_added(&self) -> bool {
        self.slots.remove.is_empty() && self.release.is_empty()
    }
}

impl Decision {
    /// Its name in EXPLAIN and in the log.
    pub fn verb(&self) -> &'static str {
        match &self.action {
            Action::CreatePermit { .. } => "create permit",
            Action::CreateEngine(_) => "create engine",
            Action::RecordUid { .. } => "record uid",
            Action::WritePermitUid { .. } => "write uid into permit",
            Action::WritePermitSessions { .. } => "write sessions into permit",
            Action::DrawIncarnation { .. } => "draw incarnation",
            Action::RecordEnd { .. } => "record end",
            Action::Drain { .. } => "drain engine",
            Action::DeleteEngine { .. } => "delete engine",
            Action::DeletePermit => "delete permit",
            Action::RemoveDrainOrder => "remove drain order",
            Action::Ledger(change) => match change.change {
                Change::Reserve(_) => "reserve",
                Change::Enqueue { .. } => "enqueue",
                Change::Admit { .. } => "admit",
                Change::Adopt { .. } => "adopt",
                Change::Transfer { .. } => "transfer reservation",
                Change::Confirm(_) => "confirm reservation",
                Change::Renew { .. } => "renew reservation",
                Change::Release(_) | Change::End(_) | Change::Expire { .. } => "end reservation",
                Change::Cancel { .. } => "cancel reservation",
            },
            Action::Retire { .. } => "retire engine",
            Action::Scale(_) => "scale",
            Action::Finish { .. } => "finish alteration",
        }
    }

    /// Its slot; of a change of slots their link, and empty without both.
    fn slots_named(&self) -> String {
        match (&self.slot, &self.action) {
            (Some(slot), _) => slot.to_string(),
            (None, Action::Scale(scaling)) => {
                let Link { tenant, pool, unit } = &scaling.slots.link;
                format!("{tenant}/{pool}/{unit}")
            }
            (None, _) => String::new(),
        }
    }

    /// The decision as a row of EXPLAIN.
    pub fn row(&self, step: u32) -> Row {
        Row {
            step,
            decision: self.verb().to_owned(),
            engine: self.engine.as_ref().map(ToString::to_string).unwrap_or_default(),
            slot: self.slots_named(),
            because: self.reason.clone(),
        }
    }
}

/// One row of EXPLAIN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Counts from 1.
    pub step: u32,
    pub decision: String,
    /// Empty for an alteration, and where slots are added or removed.
    pub engine: String,
    /// Where slots are added or removed, tenant, pool and unit. Empty if unknown.
    pub slot: String,
    pub because: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.step, self.decision)?;
        for field in [&self.engine, &self.slot] {
            if !field.is_empty() {
                write!(f, " {field}")?;
            }
        }
        write!(f, ": {}", self.because)
    }
}
