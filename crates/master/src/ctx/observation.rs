//! What a tick observes: ZooKeeper's nodes, the orchestrator's instances, and the loads of engines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coordination::Observation as Coordination;
use model::engine_name::EngineName;
use model::labels::NAMESPACE;
use model::observation::{ClusterWarnings, ForeignEngine, ObservedNode};
use model::shared::Shared;
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
    pub loads: Shared<BTreeMap<EngineName, EngineLoad>>,
    /// For how long engines had been idle when they last answered, as far as their agents report it.
    pub uses: Shared<BTreeMap<EngineName, EngineUse>>,
}

/// The orchestrator's list.
#[derive(Debug, Clone, Default)]
pub struct InstanceList {
    pub instances: Vec<Shared<Instance>>,
    /// The namespaces of the instances, from their labels.
    pub namespaces: BTreeSet<Arc<str>>,
    /// Names of unreadable instances with the reason: neither present nor vanished.
    pub unreadable: Vec<(String, String)>,
    /// The nodes; empty if the orchestrator knows none, `None` if they could not be read.
    pub nodes: Option<Vec<ObservedNode>>,
    pub warnings: ClusterWarnings,
}

/// The instances of the last list, as they were listed and as a plan has them.
#[derive(Debug, Default)]
pub struct InstanceCache(Vec<Converted>);

#[derive(Debug)]
struct Converted {
    observed: Shared<ObservedInstance>,
    instance: Shared<Instance>,
    namespace: Option<Arc<str>>,
}

impl Converted {
    fn new(observed: &Shared<ObservedInstance>) -> Self {
        let namespace = observed.labels.get(NAMESPACE).map(|namespace| namespace.as_str().into());
        Self { observed: observed.clone(), instance: instance(observed).into(), namespace }
    }

    fn is_of(&self, observed: &Shared<ObservedInstance>) -> bool {
        Shared::is_same(&self.observed, observed)
    }
}

impl InstanceCache {
    /// The instances of a list, with their namespaces. One that is listed again unchanged is the same as in the last list.
    fn convert(&mut self, listed: &[Shared<ObservedInstance>]) -> (Vec<Shared<Instance>>, BTreeSet<Arc<str>>) {
        let mut last = std::mem::take(&mut self.0).into_iter().peekable();
        let (mut instances, mut namespaces) = (Vec::with_capacity(listed.len()), BTreeSet::new());
        self.0.reserve(listed.len());
        for observed in listed {
            // Both are in the order of names.
            while last.next_if(|was| !was.is_of(observed) && was.observed.name < observed.name).is_some() {}
            let converted = last.next_if(|was| was.is_of(observed)).unwrap_or_else(|| Converted::new(observed));
            instances.push(converted.instance.clone());
            // Most are the one of the instance before.
            let before = self.0.last().and_then(|before| before.namespace.as_ref());
            if converted.namespace.as_ref() != before {
                namespaces.extend(converted.namespace.clone());
            }
            self.0.push(converted);
        }
        (instances, namespaces)
    }
}

impl InstanceList {
    /// From what was listed, with the cache of the last list.
    pub fn new(listing: Listing, nodes: Option<Vec<ObservedNode>>, cache: &mut InstanceCache) -> Self {
        let foreign = listing.foreign.into_iter().map(|foreign| ForeignEngine {
            namespace: foreign.namespace,
            name: foreign.name,
            uid: foreign.uid,
            reason: foreign.reason,
        });
        let (instances, namespaces) = cache.convert(&listing.engines);
        Self {
            nodes,
            warnings: ClusterWarnings::new(foreign.collect(), &listing.missing_permissions),
            instances,
            namespaces,
            unreadable: listing.unreadable.into_iter().map(|unreadable| (unreadable.name, unreadable.reason)).collect(),
        }
    }
}

pub(super) fn instance(observed: &ObservedInstance) -> Instance {
    Instance {
        name: observed.name.clone(),
        uid: observed.uid.clone(),
        labels: observed.labels.clone(),
        phase: observed.phase,
        incomplete: observed.incomplete,
        generation: observed.generation(),
        node: observed.node.clone(),
        reason: observed.reason.clone(),
        started_at_ms: observed.started_at_ms,
        log_tail: observed.log_tail.clone(),
        fault: observed.fault,
        pods: observed.pods.clone(),
        details: observed.details.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::engine_state::Phase;

    use super::*;

    fn observed(name: &str, namespace: &str, phase: Phase) -> Shared<ObservedInstance> {
        let labels = [(NAMESPACE.to_owned(), namespace.to_owned())];
        let observed = ObservedInstance {
            name: EngineName::new(name).unwrap(),
            uid: format!("uid of {name}"),
            labels: Arc::new(labels.into()),
            annotations: Arc::default(),
            phase,
            incomplete: false,
            reason: None,
            fault: None,
            node: None,
            started_at_ms: None,
            exit: None,
            log_tail: None,
            pods: None,
            details: Arc::default(),
        };
        observed.into()
    }

    #[test]
    fn an_instance_that_is_listed_again_unchanged_is_the_same() {
        let mut cache = InstanceCache::default();
        let mut list = |engines: &[&Shared<ObservedInstance>]| {
            let engines = engines.iter().copied().cloned().collect();
            let list = InstanceList::new(Listing { engines, ..Listing::default() }, None, &mut cache);
            let namespaces: Vec<String> = list.namespaces.iter().map(ToString::to_string).collect();
            (list.instances, namespaces.join(" "))
        };
        let [a, b, c] = ["a", "b", "c"].map(|name| observed(name, "one", Phase::Starting));
        let (first, namespaces) = list(&[&a, &b, &c]);
        assert_eq!((first.len(), namespaces.as_str()), (3, "one"));
        let running = observed("b", "two", Phase::Running);
        let (second, namespaces) = list(&[&a, &running, &c]);
        assert_eq!((second[1].phase, namespaces.as_str()), (Phase::Running, "one two"));
        assert!(Shared::is_same(&first[0], &second[0]) && Shared::is_same(&first[2], &second[2]));
        let new = observed("aa", "one", Phase::Pending);
        let (third, namespaces) = list(&[&new, &c]);
        assert_eq!((third[0].name.as_str(), namespaces.as_str()), ("aa", "one"));
        assert!(Shared::is_same(&first[2], &third[1]), "others came and went before it");
        assert_eq!(list(&[]).0, []);
    }
}
