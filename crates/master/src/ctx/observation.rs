//! What a tick observes: ZooKeeper's nodes, the orchestrator's instances, and the loads of engines.

use std::collections::BTreeMap;

use coordination::Observation as Coordination;
use model::engine_name::EngineName;
use model::observation::{ClusterWarnings, ForeignEngine, ObservedNode};
use orchestrator::{Listing, ObservedInstance};
use planner::{EngineLoad, EngineUse, Instance};

use super::Failure;

/// The observation of one tick.
#[derive(Debug)]
pub struct Observation {
    /// Alter node, agents, permits, registrations and drain orders.
    pub coordination: Coordination,
    /// A failure of the orchestrator does not prevent a tick.
    pub instances: Result<InstanceList, Failure>,
    /// The last known loads; engines that did not answer are missing.
    pub loads: BTreeMap<EngineName, EngineLoad>,
    /// For how long engines had been idle when they last answered, as far as their agents report it.
    pub uses: BTreeMap<EngineName, EngineUse>,
}

/// The orchestrator's list.
#[derive(Debug, Clone, Default)]
pub struct InstanceList {
    pub instances: Vec<Instance>,
    /// Names of unreadable instances with the reason: neither present nor vanished.
    pub unreadable: Vec<(String, String)>,
    /// The nodes; empty if the orchestrator knows none, `None` if they could not be read.
    pub nodes: Option<Vec<ObservedNode>>,
    pub warnings: ClusterWarnings,
}

impl InstanceList {
    pub fn new(listing: Listing, nodes: Option<Vec<ObservedNode>>) -> Self {
        let foreign = listing.foreign.into_iter().map(|foreign| ForeignEngine {
            namespace: foreign.namespace,
            name: foreign.name,
            uid: foreign.uid,
            reason: foreign.reason,
        });
        Self {
            nodes,
            warnings: ClusterWarnings::new(foreign.collect(), &listing.missing_permissions),
            instances: listing.engines.into_iter().map(instance).collect(),
            unreadable: listing.unreadable.into_iter().map(|unreadable| (unreadable.name, unreadable.reason)).collect(),
        }
    }
}

pub(super) fn instance(observed: ObservedInstance) -> Instance {
    let generation = observed.generation();
    Instance {
        name: observed.name,
        uid: observed.uid,
        labels: observed.labels,
        phase: observed.phase,
        incomplete: observed.incomplete,
        generation,
        node: observed.node,
        reason: observed.reason,
        started_at_ms: observed.started_at_ms,
        log_tail: observed.log_tail,
        fault: observed.fault,
        pods: observed.pods,
        details: observed.details,
    }
}
