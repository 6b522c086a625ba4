//! What runs: the observation that a plan starts from, in the words of this crate.
//!
//! Ages are lengths of time that the observer measured on its own monotonic clock, so that no clock is read here and none is
//! compared with another machine's. Everything was observed before the snapshot was read, except the answers
//! to [`questions`](crate::questions), which come after it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::catalog::Catalog;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::labels::LabelMap;
use model::number::Generation;
use model::observation::{ObservedEngine, ObservedNode};
use model::snapshot::Snapshot;
use model::table_catalog::{self, TableCatalog};

/// The observed state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    /// Every pod or process with this installation's labels, and those that were found by name.
    pub pods: Vec<Pod>,
    /// The labels of each node that is known.
    pub nodes: BTreeMap<String, LabelMap>,
    /// Every permit.
    pub permits: Vec<Permit>,
    /// Every registration.
    pub lives: Vec<Live>,
    /// Every drain fact.
    pub facts: Vec<Fact>,
    /// Names with a uid that the orchestrator, asked for the name, does not have.
    pub vanished: BTreeSet<(EngineName, String)>,
    /// Creates that failed, since this master began.
    pub troubles: BTreeMap<EngineName, Trouble>,
    /// What engine agents answered; those that did not answer are missing.
    pub status: BTreeMap<EngineName, Status>,
    /// Engines that run under their permit and are not registered. Empty while the registry is not believed.
    pub unregistered: BTreeMap<EngineName, Unregistered>,
    /// Whether the registry can be believed to be complete: false for one session timeout after the observer's own
    /// session was rebuilt.
    pub registry_settled: bool,
}

/// A pod or process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: EngineName,
    /// The orchestrator's id: never used twice.
    pub uid: String,
    /// Its labels as the orchestrator keeps them.
    pub labels: Arc<LabelMap>,
    /// What the orchestrator sees.
    pub phase: Phase,
    /// Whether its making was cut off: it does not start until a create for it is sent again.
    pub incomplete: bool,
    /// The generation of the plan that created it, from its annotation.
    pub generation: Option<Generation>,
    /// The machine that it runs on, once known.
    pub node: Option<String>,
    /// Why it is not ready, or how it ended.
    pub reason: Option<String>,
    /// When it was started, in milliseconds since 1970.
    pub started_at_ms: Option<i64>,
    /// The last lines of its log, when it failed.
    pub log_tail: Option<String>,
    /// What else the orchestrator knows of it. Reported, never decided upon.
    pub details: Arc<BTreeMap<String, String>>,
}

impl Pod {
    /// Whether it can serve or may yet: neither ended nor being deleted.
    pub fn is_alive(&self) -> bool {
        self.phase < Phase::Terminating
    }
}

/// A permit: an engine may register below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    /// Whose.
    pub engine: EngineName,
    /// The only uid that may register; `None` until it is known, and if the node can't be read.
    pub uid: Option<String>,
    /// Whether the node's content makes sense.
    pub readable: bool,
    /// Whether the mark stands below it: an engine registered there once, or nobody can know.
    pub answered: bool,
}

/// A registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// Whose.
    pub engine: EngineName,
    /// The uid that registered; `None` if the node can't be read.
    pub uid: Option<String>,
    /// Where it can be reached: `host:port`.
    pub address: String,
    /// The hash of the configuration that it runs with.
    pub config: String,
    /// Whether its tables are its own, if it states that.
    pub catalog: Option<TableCatalog>,
    /// For how long no list of pods has had its uid; 0 while there is one.
    pub unclaimed_ms: u64,
}

/// A drain fact: this very engine is to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Whose.
    pub engine: EngineName,
    /// The pod or process; `None` if the node can't be read.
    pub uid: Option<String>,
    /// How long it may go on.
    pub grace_ms: i64,
    /// Why it ends.
    pub reason: String,
    /// For how long the observer has seen it, by its own clock: it may be older.
    pub age_ms: i64,
    /// For how long neither a pod nor a registration of its uid has been seen; 0 while there is one.
    pub quiet_ms: u64,
    /// The namespace of its pod, if it is known.
    pub namespace: Option<String>,
}

/// An engine that runs and is not registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unregistered {
    /// The pod or process.
    pub uid: String,
    /// For how long it has been so.
    pub for_ms: u64,
    /// For how long its agent has given no answer either; `None` while it answers. An agent whose address is not known can't
    /// be asked, and counts as silent.
    pub silent_ms: Option<u64>,
}

/// A create that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What the orchestrator said.
    pub reason: String,
    /// How often in a row, from 1.
    pub failures: u32,
    /// How long ago the last try was.
    pub age_ms: i64,
}

/// What an engine agent says of its load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Open sessions.
    pub sessions: u32,
    /// Running statements.
    pub running: u32,
}

impl Observed {
    /// Takes in which nodes there are. Only a pool that chooses them by their labels needs to know.
    pub fn know_nodes(&mut self, catalog: &Catalog, nodes: &[ObservedNode]) {
        self.nodes.clear();
        if catalog.pools.values().any(|pool| !pool.spec.node_selector.is_empty()) {
            self.nodes.extend(nodes.iter().map(|node| (node.name.clone(), node.labels.clone())));
        }
    }

    /// What the master last reported, as an observation: the input of EXPLAIN, where nobody asks the orchestrator.
    ///
    /// A permit is taken for there wherever the master would keep one, because it is not part of the report.
    pub fn from_report(rows: &[ObservedEngine], snapshot: &Snapshot) -> Self {
        let mut observed = Self { registry_settled: true, ..Self::default() };
        for row in rows {
            let Some(uid) = row.uid.clone() else { continue };
            let pod = Pod {
                name: row.name.clone(),
                uid: uid.clone(),
                labels: row.labels.clone(),
                phase: row.phase,
                incomplete: false,
                generation: None,
                node: row.node.clone(),
                reason: None,
                started_at_ms: row.started_at_ms,
                log_tail: row.log_tail.clone(),
                details: row.details.clone(),
            };
            if row.draining {
                observed.facts.push(reported_fact(row, &uid, snapshot));
            } else if pod.is_alive() {
                let (engine, uid, answered) = (row.name.clone(), Some(uid.clone()), row.answered);
                observed.permits.push(Permit { engine, uid, readable: true, answered });
            }
            if row.registered {
                observed.lives.push(Live {
                    engine: row.name.clone(),
                    uid: Some(uid),
                    address: row.address.clone().unwrap_or_default(),
                    config: row.labels.get(model::labels::CONFIG).cloned().unwrap_or_default(),
                    catalog: row.details.contains_key(table_catalog::DETAIL).then_some(TableCatalog::Own),
                    unclaimed_ms: 0,
                });
            }
            observed.pods.push(pod);
        }
        observed
    }
}

fn reported_fact(row: &ObservedEngine, uid: &str, snapshot: &Snapshot) -> Fact {
    let record = snapshot.engines.iter().find(|record| record.name == row.name);
    Fact {
        engine: row.name.clone(),
        uid: Some(uid.to_owned()),
        grace_ms: record.and_then(|record| record.end_grace_ms).unwrap_or_default(),
        reason: row.reason.clone().unwrap_or_default(),
        age_ms: 0,
        quiet_ms: 0,
        namespace: None,
    }
}
