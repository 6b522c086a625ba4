//! The tick memory: state cached between the ticks of one term.
//!
//! It has durations, and what plans share of the permits that were read last; nothing that a successor needs. A master that loses it
//! waits longer and decides nothing wrong.

mod claims;
mod seen_permit;

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use claims::Claims;
use coordination::{Observation as Coordination, PermitNode};
use foldhash::fast::RandomState;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::millis;
use model::observation::{MAX_NODES, ObservedNode};
use model::shared::Shared;
use planner::{
    DrainOrder, EngineLoad, Instance, ObservedScaling, ObservedState, Permit, Registration, UnreadyNode, Unregistered,
};
use seen_permit::SeenPermit;

/// What a term remembers.
#[derive(Debug, Default)]
pub(crate) struct TickMemory {
    /// The permits of the last observation, in its order.
    permits: Vec<SeenPermit>,
    unclaimed: BTreeMap<(EngineName, Option<String>), Duration>,
    quiet: BTreeMap<(EngineName, String), Duration>,
    /// When each drain order was first observed.
    ordered: BTreeMap<(EngineName, Option<String>), Duration>,
    /// Running engines without a registration, by uid.
    unregistered: HashMap<String, Silence, RandomState>,
    /// Since when nodes have not been ready, or have been absent, by name.
    unready: HashMap<String, Duration, RandomState>,
    /// Whether too many nodes had failed in the last observation.
    is_suspended: bool,
    /// When that was last so, or first no longer.
    suspended: Option<Duration>,
    registry_complete_from: Duration,
}

impl TickMemory {
    /// The memory of a master with a new session.
    pub fn new(registry_complete_from: Duration) -> Self {
        Self { registry_complete_from, ..Self::default() }
    }

    /// Distrusts the registry: a missing engine may have lost its session together with the master.
    pub fn distrust_registry(&mut self, registry_complete_from: Duration) {
        self.registry_complete_from = registry_complete_from;
        self.quiet.clear();
        self.unclaimed.clear();
        self.unregistered.clear();
    }

    /// Converts an observation into the input of a plan, with the age of everything that is missing.
    pub fn observe(
        &mut self,
        now: Duration,
        coordination: &Coordination,
        instances: &[Shared<Instance>],
        nodes: Option<&[ObservedNode]>,
        loads: &Shared<BTreeMap<EngineName, EngineLoad>>,
    ) -> ObservedState {
        let registrations = self.registrations(now, coordination, instances);
        let mut permits: Vec<Shared<Permit>> =
            self.permits.iter().filter_map(|seen| seen.permit.as_ref()).cloned().collect();
        permits.extend(unread_permits(coordination, instances));
        let mut observed = ObservedState {
            permits,
            drains: self.drains(now, coordination, instances, &registrations),
            unregistered: self.unregistered(now, instances, loads),
            registrations,
            instances: instances.to_vec(),
            nodes: BTreeMap::new(),
            unready: self.unready(now, instances, nodes.unwrap_or_default()),
            since_suspended: None,
            vanished: BTreeSet::new(),
            create_failures: BTreeMap::new(),
            loads: loads.clone(),
            capacity: Vec::new(),
            scaling: ObservedScaling::default(),
            registry_complete: now >= self.registry_complete_from,
        };
        let is_suspended = planner::suspends_failed_nodes(&observed);
        if std::mem::replace(&mut self.is_suspended, is_suspended) || is_suspended {
            self.suspended = Some(now);
        }
        observed.since_suspended = self.suspended.map(|at| now.saturating_sub(at));
        observed
    }

    /// The registrations. What is read again unchanged is what it was in the last observation.
    fn registrations(
        &mut self,
        now: Duration,
        coordination: &Coordination,
        instances: &[Shared<Instance>],
    ) -> Vec<Shared<Registration>> {
        let mut claims = Claims::new(instances);
        let (mut unclaimed, mut registrations) = (BTreeMap::new(), Vec::with_capacity(coordination.permits.len()));
        self.read(&coordination.permits);
        for seen in &mut self.permits {
            if let Some(registration) = &mut seen.registration {
                let mut unclaimed_for = Duration::ZERO;
                if !claims.has(&registration.engine, registration.uid.as_deref()) {
                    let key = (registration.engine.clone(), registration.uid.clone());
                    let since = self.unclaimed.get(&key).copied().unwrap_or(now);
                    unclaimed_for = now.saturating_sub(since);
                    unclaimed.insert(key, since);
                }
                if registration.unclaimed != unclaimed_for {
                    registration.unclaimed = unclaimed_for;
                }
                registrations.push(registration.clone());
            }
        }
        self.unclaimed = unclaimed;
        registrations
    }

    /// Reads the permits. What a plan has of one is made again only if that has changed.
    fn read(&mut self, permits: &[Shared<PermitNode>]) {
        let is_same = |(seen, node): (&SeenPermit, &Shared<PermitNode>)| seen.is_of(node);
        if self.permits.len() == permits.len() && self.permits.iter().zip(permits).all(is_same) {
            return;
        }
        let mut known = std::mem::take(&mut self.permits).into_iter().peekable();
        self.permits.reserve(permits.len());
        for node in permits {
            // Both are in the order of names.
            while known.next_if(|seen| !seen.is_of(node) && seen.node.engine < node.engine).is_some() {}
            self.permits.push(known.next_if(|seen| seen.is_of(node)).unwrap_or_else(|| SeenPermit::new(node)));
        }
    }

    /// Running engines that are not registered below the permit with their uid. Time counts only while the registry is
    /// complete: after an outage of ZooKeeper every engine has to register again.
    fn unregistered(
        &mut self,
        now: Duration,
        instances: &[Shared<Instance>],
        loads: &BTreeMap<EngineName, EngineLoad>,
    ) -> BTreeMap<EngineName, Unregistered> {
        let known = std::mem::take(&mut self.unregistered);
        let missing = self.permits.iter().filter(|seen| !seen.is_ready).filter_map(|seen| seen.permit.as_ref());
        let missing: HashSet<&str, RandomState> = missing.filter_map(|permit| permit.uid.as_deref()).collect();
        if missing.is_empty() || now < self.registry_complete_from {
            return BTreeMap::new();
        }
        let running = instances
            .iter()
            .filter(|instance| instance.phase == Phase::Running && missing.contains(instance.uid.as_str()));
        let mut found = BTreeMap::new();
        for instance in running {
            let mut silence = known.get(&instance.uid).copied().unwrap_or(Silence { unregistered: now, silent: None });
            silence.silent = if loads.contains_key(&instance.name) { None } else { silence.silent.or(Some(now)) };
            self.unregistered.insert(instance.uid.clone(), silence);
            let age = |since: Duration| now.saturating_sub(since);
            let (lasted, silent) = (age(silence.unregistered), silence.silent.map(age));
            found.insert(instance.name.clone(), Unregistered { uid: instance.uid.clone(), lasted, silent });
        }
        found
    }

    /// The nodes that are not ready, and those of instances that are not listed. Without any listed node nothing is known of them:
    /// the orchestrator has none, or they could not be read.
    fn unready(
        &mut self,
        now: Duration,
        instances: &[Shared<Instance>],
        nodes: &[ObservedNode],
    ) -> BTreeMap<String, UnreadyNode> {
        let known = std::mem::take(&mut self.unready);
        if nodes.is_empty() {
            return BTreeMap::new();
        }
        let listed: HashSet<&str, RandomState> = nodes.iter().map(|node| node.name.as_str()).collect();
        let unready = nodes.iter().filter(|node| !node.ready).map(|node| (node.name.as_str(), false));
        // Above the limit of kept nodes, one that is not listed may exist.
        let on_nodes = instances.iter().filter(|_| listed.len() < MAX_NODES);
        let on_nodes = on_nodes.filter_map(|instance| instance.node.as_deref());
        let absent = on_nodes.filter(|node| !listed.contains(node)).map(|node| (node, true));
        let mut found = BTreeMap::new();
        for (node, is_absent) in unready.chain(absent) {
            let since = known.get(node).copied().unwrap_or(now);
            self.unready.insert(node.to_owned(), since);
            found.insert(node.to_owned(), UnreadyNode { lasted: now.saturating_sub(since), is_absent });
        }
        found
    }

    fn drains(
        &mut self,
        now: Duration,
        coordination: &Coordination,
        instances: &[Shared<Instance>],
        registrations: &[Shared<Registration>],
    ) -> Vec<DrainOrder> {
        if coordination.drains.is_empty() && coordination.unread.drains.is_empty() {
            self.quiet.clear();
            self.ordered.clear();
            return Vec::new();
        }
        let mut claims = Claims::new(instances);
        let registered = LazyCell::new(|| {
            let uids = registrations.iter().filter_map(|live| live.uid.as_deref());
            uids.collect::<HashSet<&str, RandomState>>()
        });
        let mut quiet = BTreeMap::new();
        let mut ordered = BTreeMap::new();
        let mut drains = Vec::new();
        for node in &coordination.drains {
            let content = node.content.as_ref().ok();
            let uid = content.and_then(|drain| drain.uid.clone());
            let key = (node.engine.clone(), uid.clone());
            let since = self.ordered.get(&key).copied().unwrap_or(now);
            ordered.insert(key, since);
            let mut quiet_for = Duration::ZERO;
            // It may be registered below a permit that was not read.
            let mut unseen = |uid: &&String| {
                !claims.has(&node.engine, Some(uid))
                    && !registered.contains(uid.as_str())
                    && !coordination.unread.permits.contains(&node.engine)
            };
            if let Some(uid) = uid.as_ref().filter(|uid| unseen(uid)) {
                let key = (node.engine.clone(), uid.clone());
                let since = self.quiet.get(&key).copied().unwrap_or(now);
                quiet_for = now.saturating_sub(since);
                quiet.insert(key, since);
            }
            drains.push(DrainOrder {
                engine: node.engine.clone(),
                uid,
                grace: millis::to_duration(content.map_or(0, |drain| drain.grace_ms)),
                reason: content.map_or_else(String::new, |drain| drain.reason.clone()),
                age: now.saturating_sub(since),
                quiet: quiet_for,
                namespace: content.and_then(|drain| drain.namespace.clone()),
            });
        }
        drains.extend(unread_drains(coordination, instances));
        (self.quiet, self.ordered) = (quiet, ordered);
        drains
    }
}

/// Since when an engine has been unregistered, and since when its agent has also been silent.
#[derive(Debug, Clone, Copy)]
struct Silence {
    unregistered: Duration,
    silent: Option<Duration>,
}

/// Permits of which only the name was read. A running engine is assumed to have its own; one without an instance is deleted
/// once it is read.
fn unread_permits<'a>(
    coordination: &'a Coordination,
    instances: &'a [Shared<Instance>],
) -> impl Iterator<Item = Shared<Permit>> + 'a {
    let uids = uids_by_name(&coordination.unread.permits, instances);
    coordination.unread.permits.iter().map(move |engine| {
        let uid = uids.get(engine).map(|uid| (*uid).to_owned());
        Permit { engine: engine.clone(), uid, readable: true, answered: true, sessions: None, owner: None }.into()
    })
}

/// Drain orders of which only the name was read: a running engine is assumed to drain, and is not deleted for it.
fn unread_drains<'a>(
    coordination: &'a Coordination,
    instances: &'a [Shared<Instance>],
) -> impl Iterator<Item = DrainOrder> + 'a {
    uids_by_name(&coordination.unread.drains, instances).into_iter().map(|(engine, uid)| DrainOrder {
        engine: engine.clone(),
        uid: Some(uid.to_owned()),
        grace: Duration::MAX,
        reason: "its drain order was not read: there are too many".to_owned(),
        age: Duration::ZERO,
        quiet: Duration::ZERO,
        namespace: None,
    })
}

fn uids_by_name<'a>(
    names: &BTreeSet<EngineName>,
    instances: &'a [Shared<Instance>],
) -> BTreeMap<&'a EngineName, &'a str> {
    if names.is_empty() {
        return BTreeMap::new();
    }
    let named = instances.iter().filter(|instance| names.contains(&instance.name));
    named.map(|instance| (&instance.name, instance.uid.as_str())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_leftover_permit_is_no_input_of_a_plan() {
        let node = |name: &str, left_behind: bool| {
            Shared::from(PermitNode {
                engine: EngineName::new(name).unwrap(),
                content: Err("unreadable".to_owned()),
                version: 1,
                ctime_ms: 5,
                registration: None,
                answered: false,
                strays: 1,
                left_behind,
            })
        };
        let coordination =
            Coordination { permits: vec![node("e-1", true), node("e-2", false)], ..Coordination::default() };
        let mut memory = TickMemory::new(Duration::ZERO);
        let loads = Shared::default();
        let observed = memory.observe(Duration::ZERO, &coordination, &[], None, &loads);
        let planned: Vec<&str> = observed.permits.iter().map(|permit| permit.engine.as_str()).collect();
        assert_eq!(planned, ["e-2"]);
    }

    fn node(name: &str, ready: bool) -> ObservedNode {
        ObservedNode { name: name.to_owned(), ready, open: ready, ..ObservedNode::default() }
    }

    fn on_node(node: &str) -> Shared<Instance> {
        let instance = Instance {
            name: EngineName::new("e-1").unwrap(),
            uid: "u-1".to_owned(),
            labels: std::sync::Arc::default(),
            phase: Phase::Running,
            incomplete: false,
            generation: None,
            node: Some(node.to_owned()),
            reason: None,
            started_at_ms: None,
            log_tail: None,
            pods: None,
            details: std::sync::Arc::default(),
            fault: None,
        };
        instance.into()
    }

    fn lasted(unready: &BTreeMap<String, UnreadyNode>) -> Vec<(&str, u64, bool)> {
        unready.iter().map(|(name, node)| (name.as_str(), node.lasted.as_secs(), node.is_absent)).collect()
    }

    #[test]
    fn a_node_is_unready_from_when_it_was_first_seen_so_until_it_returns() {
        let mut memory = TickMemory::new(Duration::ZERO);
        let instances = [on_node("n-1")];
        let mut at = |secs: u64, nodes: &[ObservedNode]| {
            lasted(&memory.unready(Duration::from_secs(secs), &instances, nodes))
                .into_iter()
                .map(|(name, lasted, is_absent)| (name.to_owned(), lasted, is_absent))
                .collect::<Vec<_>>()
        };
        let others = [node("n-2", true)];
        let unready = [node("n-1", false), node("n-2", true)];
        assert_eq!(at(1, &unready), [("n-1".to_owned(), 0, false)]);
        assert_eq!(at(5, &unready), [("n-1".to_owned(), 4, false)]);
        assert_eq!(at(6, &others), [("n-1".to_owned(), 5, true)], "an absent node was not ready before");
        assert_eq!(at(7, &[node("n-1", true)]), []);
        assert_eq!(at(8, &unready), [("n-1".to_owned(), 0, false)], "the time starts again");
        assert_eq!(at(9, &[]), [], "nothing is known without any node");
        assert_eq!(at(10, &unready), [("n-1".to_owned(), 0, false)]);
    }

    #[test]
    fn above_the_limit_of_kept_nodes_none_is_absent() {
        let nodes: Vec<ObservedNode> = (0..MAX_NODES).map(|number| node(&format!("m-{number}"), true)).collect();
        let mut memory = TickMemory::new(Duration::ZERO);
        assert!(memory.unready(Duration::ZERO, &[on_node("n-1")], &nodes).is_empty());
        let absent = memory.unready(Duration::ZERO, &[on_node("n-1")], &nodes[1..]);
        assert_eq!(lasted(&absent), [("n-1", 0, true)]);
    }

    #[test]
    fn what_is_read_again_unchanged_is_shared_with_the_last_input() {
        let node = |name: &str, uid: &str| {
            let permit = coordination::Permit {
                tenant: model::TenantName::new("t_1").unwrap(),
                pool: model::PoolName::new("rp_1").unwrap(),
                unit: model::UnitName::new("uc_1").unwrap(),
                uid: Some(uid.to_owned()),
                sessions: None,
                owner: None,
            };
            let live = coordination::Registration {
                address: "127.0.0.1:1".to_owned(),
                capacity: 1,
                config: String::new(),
                version: String::new(),
                uid: uid.to_owned(),
                catalog: None,
                owner: None,
                keys: Vec::new(),
                tls: None,
            };
            let registration = coordination::RegistrationNode { content: Ok(live), session: 1, ctime_ms: 0 };
            Shared::from(PermitNode {
                engine: EngineName::new(name).unwrap(),
                content: Ok(permit),
                version: 0,
                ctime_ms: 0,
                registration: Some(registration),
                answered: true,
                strays: 0,
                left_behind: false,
            })
        };
        let mut memory = TickMemory::new(Duration::ZERO);
        let mut read = |secs: u64, permits: &[&Shared<PermitNode>], instances: &[Shared<Instance>]| {
            let permits = permits.iter().copied().cloned().collect();
            let coordination = Coordination { permits, ..Coordination::default() };
            memory.observe(Duration::from_secs(secs), &coordination, instances, None, &Shared::default())
        };
        let [one, two] = [("e-1", "u-1"), ("e-2", "u-2")].map(|(name, uid)| node(name, uid));
        let there = [on_node("n-1")];
        let first = read(1, &[&one, &two], &there);
        assert_eq!(first.registrations[0].unclaimed, Duration::ZERO);
        let later = read(3, &[&one, &two], &there);
        assert!(Shared::is_same(&first.permits[1], &later.permits[1]));
        assert!(Shared::is_same(&first.registrations[0], &later.registrations[0]));
        let unclaimed = |observed: &ObservedState| observed.registrations[1].unclaimed.as_secs();
        assert_eq!((unclaimed(&first), unclaimed(&later)), (0, 2), "no list has its uid, and that is counted");
        let changed = node("e-1", "u-1");
        let last = read(4, &[&changed], &[]);
        assert!(!Shared::is_same(&last.permits[0], &first.permits[0]) && last.permits[0] == first.permits[0]);
        assert_eq!(last.registrations.len(), 1);
    }
}
