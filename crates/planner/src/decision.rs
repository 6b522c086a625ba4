//! Decisions: one effect each, with what it was derived from and why.
//!
//! The executor adds its epoch and its lock. A decision whose ground has moved is refused where it takes effect (by
//! uid, incarnation, generation or a node's version) and nothing is retried: the next tick plans anew.

use std::collections::BTreeMap;
use std::fmt;

use model::alteration::RequestId;
use model::configuration::Configuration;
use model::engine_name::EngineName;
use model::labels::EngineLabels;
use model::number::Incarnation;
use model::slot::SlotKey;
use serde::{Deserialize, Serialize};

/// One effect and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The engine that it is about; `None` for an alteration.
    pub engine: Option<EngineName>,
    /// The engine's slot, if that is known.
    pub slot: Option<SlotKey>,
    /// Why, for people: lower case, no full stop.
    pub because: String,
    /// What to do.
    pub action: Action,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Make the permit; with a uid for an engine that runs already.
    CreatePermit {
        /// The engine's uid, once known.
        uid: Option<String>,
    },
    /// Make the pod or process, unless one of that name is there whose labels agree. Its answer is the uid that the
    /// later decisions of the chain need.
    CreateEngine(Box<Launch>),
    /// Record the uid in table `engine`: once, never changed.
    RecordUid {
        /// The uid; `None` is the one that the create of this chain answered.
        uid: Option<String>,
        /// The hash of the configuration that it was made from.
        config: String,
    },
    /// Write the uid into the permit, so that the engine may register.
    WritePermitUid {
        /// The uid; `None` is the one that the create of this chain answered.
        uid: Option<String>,
    },
    /// Give the slot a new incarnation, unless its incarnation is no longer the observed one.
    DrawIncarnation {
        /// The incarnation that was observed.
        observed: Incarnation,
        /// The slot's failures from now on.
        failures: u32,
    },
    /// Record that the engine will not run any more.
    RecordEnd {
        /// How it ended.
        reason: String,
        /// The last lines of its log, when it failed.
        log_tail: Option<String>,
    },
    /// Write the drain fact and take registration and permit away, in one multi.
    Drain {
        /// The pod or process.
        uid: String,
        /// How long it may go on.
        grace_ms: i64,
        /// Whether permit and registration are this engine's and go with it.
        withdraw: bool,
        /// The newer engine whose registration the multi checks, for an engine that was superseded.
        newer: Option<EngineName>,
        /// The namespace of its pod, where there is one.
        namespace: Option<String>,
    },
    /// Delete the pod or process of this uid.
    DeleteEngine {
        /// The pod or process.
        uid: String,
        /// What it gets to close its files.
        grace_ms: i64,
    },
    /// Delete the permit, with what is left below it.
    DeletePermit,
    /// Remove the drain fact.
    RemoveFact,
    /// Say how far an alteration has come.
    Finish {
        /// Which one.
        id: RequestId,
        /// What it becomes.
        progress: Progress,
    },
}

/// What a converging or stalled alteration becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Everything that it reaches has been created or condemned accordingly.
    Converged,
    /// Its deadline has passed; the reason is the decision's.
    Stalled,
    /// A newer committed alteration of its object took over.
    Superseded,
}

/// What an engine is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Its labels.
    pub labels: EngineLabels,
    /// Its configuration.
    pub configuration: Configuration,
    /// The nodes that it may run on; `None` is any.
    pub nodes: Option<Vec<String>>,
    /// Labels that its node must have besides.
    pub node_selector: BTreeMap<String, String>,
}

/// The order in which chains are executed: create before delete, drain before delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Engines that are missing.
    Create,
    /// Engines that stay: uids and permits.
    Keep,
    /// Slots that need another engine.
    Renew,
    /// Engines that are to end.
    Drain,
    /// What is left of engines that ended.
    Clear,
    /// Alterations.
    Finish,
}

/// Decisions about one engine (or one alteration), in order: each needs the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// When it is its turn.
    pub stage: Stage,
    /// What to do, in order; never empty.
    pub decisions: Vec<Decision>,
}

impl Decision {
    /// The words that EXPLAIN and the log use for it.
    pub fn words(&self) -> &'static str {
        match &self.action {
            Action::CreatePermit { .. } => "create permit",
            Action::CreateEngine(_) => "create engine",
            Action::RecordUid { .. } => "record uid",
            Action::WritePermitUid { .. } => "write uid into permit",
            Action::DrawIncarnation { .. } => "draw incarnation",
            Action::RecordEnd { .. } => "record end",
            Action::Drain { .. } => "drain engine",
            Action::DeleteEngine { .. } => "delete engine",
            Action::DeletePermit => "delete permit",
            Action::RemoveFact => "remove drain fact",
            Action::Finish { .. } => "finish alteration",
        }
    }

    /// The decision as a row of EXPLAIN.
    pub fn row(&self, step: u32) -> Row {
        Row {
            step,
            decision: self.words().to_owned(),
            engine: self.engine.as_ref().map(ToString::to_string).unwrap_or_default(),
            slot: self.slot.as_ref().map(ToString::to_string).unwrap_or_default(),
            because: self.because.clone(),
        }
    }
}

/// One row of EXPLAIN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Counts from 1.
    pub step: u32,
    /// What is done.
    pub decision: String,
    /// To which engine; empty for an alteration.
    pub engine: String,
    /// Of which slot; empty where it is not known.
    pub slot: String,
    /// Why.
    pub because: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.step, self.decision)?;
        for part in [&self.engine, &self.slot] {
            if !part.is_empty() {
                write!(f, " {part}")?;
            }
        }
        write!(f, ": {}", self.because)
    }
}
