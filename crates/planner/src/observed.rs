//! The observed state: the input of a plan that describes what runs.
//!
//! Ages are durations on the observer's monotonic clock, so no clock is read here and no two machines' clocks are
//! compared. Everything was observed before the snapshot was read, except the answers to [`probes`](crate::probes).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::catalog::Catalog;
use model::demand::ScalingGroup;
use model::end::StartFault;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::labels::LabelMap;
use model::millis;
use model::number::Generation;
use model::observation::{ObservedEngine, ObservedNode};
use model::observed_pods::ObservedPods;
use model::owner::Owner;
use model::shared::Shared;
use model::slot::Link;
use model::snapshot::Snapshot;
use model::table_catalog::{self, TableCatalog};

use model::fit::NodeCapacity;

use crate::limits::NODE_ALONE;

/// The observed state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedState {
    /// Every pod or process with this installation's labels, and those found by name.
    pub instances: Vec<Shared<Instance>>,
    /// The labels of each known node.
    pub nodes: BTreeMap<String, LabelMap>,
    /// The nodes that are not ready, and those of instances that the orchestrator no longer has. Empty where engines do not run on
    /// nodes, or if the nodes could not be read. Not compared between ticks: only engines that are not registered depend on them,
    /// and those are never steady.
    pub unready: BTreeMap<String, UnreadyNode>,
    /// The time since the observer first found again that not too many nodes had failed; `None` if too many never had. What was
    /// observed before is no evidence.
    pub since_suspended: Option<Duration>,
    pub permits: Vec<Shared<Permit>>,
    pub registrations: Vec<Shared<Registration>>,
    pub drains: Vec<DrainOrder>,
    /// Names with a uid that a lookup by name did not find at the orchestrator.
    pub vanished: BTreeSet<(EngineName, String)>,
    /// Failed creates since the start of this master's term.
    pub create_failures: BTreeMap<EngineName, CreateFailure>,
    /// The load that engine agents reported; silent ones are missing.
    pub loads: Shared<BTreeMap<EngineName, EngineLoad>>,
    /// The nodes with what they can take; empty where engines do not run on nodes. Not compared between ticks: only requests
    /// that wait depend on it, and those are planned in each.
    pub capacity: Vec<NodeCapacity>,
    /// Engines that run under their permit without a registration. Empty while the registry may be incomplete.
    pub unregistered: BTreeMap<EngineName, Unregistered>,
    /// What scaling depends on and no decision about a single engine. Not compared between ticks.
    pub scaling: ObservedScaling,
    /// Whether the registry is known to be complete: false for one session timeout after the observer's own session was
    /// rebuilt.
    pub registry_complete: bool,
}

/// What an agent reported of its engine's sessions, apart from their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineUse {
    /// For how long no session has been open; zero while one is.
    pub idle_for: Duration,
    /// Whether its agent has agreed to retire, and opens no sessions now.
    pub is_retiring: bool,
    /// Whether a session has been open since it was started.
    pub was_used: bool,
    /// The sessions whose state cannot be replayed at another engine: for SHOW only. `None` if the agent does not report it.
    pub stateful: Option<u32>,
}

/// What the master has observed of demand and of the use of engines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedScaling {
    /// By engine, what its agent last answered. An agent that does not know the call to retire reports nothing.
    pub uses: Shared<BTreeMap<EngineName, EngineUse>>,
    /// The most sessions that were assigned to each group within `cancel_after`; `None` while this master has not observed
    /// that long.
    pub recent_demand: Option<BTreeMap<ScalingGroup, u64>>,
    /// The links of which an idle engine was released within the cooldown.
    pub released: BTreeSet<Link>,
}

/// A pod or process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    pub name: EngineName,
    /// The orchestrator's id: never used twice.
    pub uid: String,
    /// Its labels as the orchestrator keeps them.
    pub labels: Arc<LabelMap>,
    pub phase: Phase,
    /// Whether its creation was interrupted: it does not start until its create is sent again.
    pub incomplete: bool,
    /// The generation of the plan that created it, from its annotation.
    pub generation: Option<Generation>,
    /// The machine that it runs on, once known.
    pub node: Option<String>,
    /// Why it is not ready, or how it ended.
    pub reason: Option<String>,
    /// What prevents it from running, if that is known.
    pub fault: Option<StartFault>,
    /// When it was started, in milliseconds since 1970.
    pub started_at_ms: Option<i64>,
    /// The last lines of its log, if it failed.
    pub log_tail: Option<String>,
    /// What its pods request and where they are; `None` if it has no pods, or in a report, which lacks them.
    pub pods: Option<Arc<ObservedPods>>,
    /// Further details of the orchestrator. Reported, never decided upon.
    pub details: Arc<BTreeMap<String, String>>,
}

impl Instance {
    /// Whether it serves or may yet: neither ended nor being deleted.
    pub fn is_alive(&self) -> bool {
        self.phase < Phase::Terminating
    }
}

/// A permit: an engine may register below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    pub engine: EngineName,
    /// The only uid that may register; `None` until it is known, and if the node is unreadable.
    pub uid: Option<String>,
    /// Whether the node's content could be decoded.
    pub readable: bool,
    /// Whether the mark of a first registration exists below it, or may exist.
    pub answered: bool,
    /// The sessions that it allows, where `Some(None)` are as many as the agent accepts; `None` if that is not known.
    pub sessions: Option<Option<u32>>,
    /// The owner that it names, where `Some(None)` is the tenant; `None` if that is not known.
    pub owner: Option<Option<Owner>>,
}

/// A registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    pub engine: EngineName,
    /// The uid that registered; `None` if the node is unreadable.
    pub uid: Option<String>,
    /// The engine's address: `host:port`.
    pub address: String,
    /// The hash of the configuration that it runs with.
    pub config: String,
    /// Which catalog its tables are in, if it states that.
    pub catalog: Option<TableCatalog>,
    /// For how long no list of instances has contained its uid; 0 while one does.
    pub unclaimed: Duration,
}

/// A drain order for one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainOrder {
    pub engine: EngineName,
    /// The instance; `None` if the node is unreadable.
    pub uid: Option<String>,
    /// How long the engine may keep running.
    pub grace: Duration,
    /// Why it is terminated.
    pub reason: String,
    /// For how long the observer has seen the order, by its own clock: the order may be older.
    pub age: Duration,
    /// For how long neither an instance nor a registration of its uid has been seen; 0 while there is one.
    pub quiet: Duration,
    /// The namespace of its instance, if known.
    pub namespace: Option<String>,
}

/// An engine that runs and is not registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unregistered {
    /// The instance.
    pub uid: String,
    /// For how long it has been unregistered.
    pub lasted: Duration,
    /// For how long its agent has also not answered; `None` while it answers. An agent without a known address cannot be
    /// polled and counts as silent.
    pub silent: Option<Duration>,
}

/// A node that is not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnreadyNode {
    /// For how long it has not been ready, by the observer's own clock: it may be longer.
    pub lasted: Duration,
    /// Whether the orchestrator no longer has it.
    pub is_absent: bool,
}

/// A failed create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateFailure {
    /// The orchestrator's error.
    pub reason: String,
    /// The number of failures in a row, from 1.
    pub failures: u32,
    /// The time until the next attempt; zero if it is due.
    pub retry_in: Duration,
    /// Whether the same create may succeed later, without any change by hand.
    pub is_retryable: bool,
}

/// The load that an engine agent reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineLoad {
    /// Open sessions.
    pub sessions: u32,
    /// Running statements.
    pub running: u32,
}

impl ObservedState {
    /// Sets the known nodes. They matter only to pools that select nodes by label.
    pub fn set_nodes(&mut self, catalog: &Catalog, nodes: &[ObservedNode]) {
        self.nodes.clear();
        if catalog.pools.values().any(|pool| !pool.spec.node_selector.is_empty()) {
            self.nodes.extend(nodes.iter().map(|node| (node.name.clone(), node.labels.clone())));
        }
    }

    /// Whether a lookup by name did not find this uid.
    pub(crate) fn has_vanished(&self, engine: &EngineName, uid: &str) -> bool {
        self.vanished.contains(&(engine.clone(), uid.to_owned()))
    }

    /// The master's last report as an observation: the input of EXPLAIN, which does not query the orchestrator.
    ///
    /// A permit is assumed wherever the master would keep one, because permits are not part of the report. Nor are nodes that are not
    /// ready: those are assumed on which the master has found an engine unreachable.
    pub fn from_report(rows: &[ObservedEngine], snapshot: &Snapshot) -> Self {
        let mut observed = Self { registry_complete: true, ..Self::default() };
        for row in rows {
            let Some(uid) = row.uid.clone() else { continue };
            let instance = Instance {
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
                fault: None,
                pods: None,
                details: row.details.clone(),
            };
            if row.draining {
                observed.drains.push(reported_drain(row, &uid, snapshot));
            } else if instance.is_alive() {
                let (engine, uid, answered) = (row.name.clone(), Some(uid.clone()), row.answered);
                let permit = Permit { engine, uid, readable: true, answered, sessions: None, owner: None };
                observed.permits.push(permit.into());
            }
            if row.registered {
                let registration = Registration {
                    engine: row.name.clone(),
                    uid: Some(uid),
                    address: row.address.clone().unwrap_or_default(),
                    config: row.labels.get(model::labels::CONFIG).cloned().unwrap_or_default(),
                    catalog: row.details.contains_key(table_catalog::DETAIL).then_some(TableCatalog::Own),
                    unclaimed: Duration::ZERO,
                };
                observed.registrations.push(registration.into());
            }
            if let Some(node) = failed_node(row, snapshot) {
                observed.unready.insert(node.clone(), UnreadyNode { lasted: NODE_ALONE, is_absent: false });
            }
            if let (Some(sessions), Some(running)) = (row.sessions, row.running) {
                observed.loads.insert(row.name.clone(), EngineLoad { sessions, running });
            }
            observed.instances.push(instance.into());
        }
        observed
    }
}

/// The node of an engine that the master has found unreachable: its charge has ended, although it is listed.
fn failed_node<'a>(row: &'a ObservedEngine, snapshot: &Snapshot) -> Option<&'a String> {
    let is_listed = !row.registered && row.phase != Phase::Ended;
    row.node.as_ref().filter(|_| is_listed && snapshot.is_uncharged(row.name.as_str()))
}

fn reported_drain(row: &ObservedEngine, uid: &str, snapshot: &Snapshot) -> DrainOrder {
    let record = snapshot.engines.iter().find(|record| record.name == row.name);
    DrainOrder {
        engine: row.name.clone(),
        uid: Some(uid.to_owned()),
        grace: millis::to_duration(record.and_then(|record| record.end_grace_ms).unwrap_or_default()),
        reason: row.reason.clone().unwrap_or_default(),
        age: Duration::ZERO,
        quiet: Duration::ZERO,
        namespace: None,
    }
}
