//! What a master remembers from one tick to the next.
//!
//! Only lengths of time, failures of its own calls and what it has reported: nothing that a successor could not do
//! without. A master that forgets all of it waits longer, and decides nothing wrong.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use coordination::Observation as Coordinated;
use model::alteration::RequestId;
use model::capacity::nodes_in_two_pools;
use model::catalog::Catalog;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::name::PoolName;
use model::observation::{ClusterWarnings, ObservedEngine, ObservedNode, Publication};
use model::snapshot::Snapshot;
use planner::{DrainOrder, EngineLoad, Instance, ObservedState, Permit, Registration, Unregistered};

use crate::create_backoff::CreateBackoff;
use crate::node_reporter::NodeReporter;

/// The memory of one term.
#[derive(Debug, Default)]
pub(crate) struct TickMemory {
    alterations: BTreeMap<RequestId, Duration>,
    unclaimed: BTreeMap<(EngineName, Option<String>), Duration>,
    quiet: BTreeMap<(EngineName, String), Duration>,
    /// When each drain fact was first seen.
    ordered: BTreeMap<(EngineName, Option<String>), Duration>,
    /// By uid, engines that run and are not registered.
    unregistered: HashMap<String, Silence>,
    /// Creates that failed.
    pub create_backoff: CreateBackoff,
    /// By uid, where an engine was registered: one that drains is registered no more and can still be asked.
    addresses: HashMap<String, String>,
    /// In the order of names.
    reported: Option<(Vec<Arc<ObservedEngine>>, ClusterWarnings)>,
    /// What was told of nodes.
    pub nodes: NodeReporter,
    shared: BTreeSet<String>,
    unreadable: BTreeSet<String>,
    settled_from: Duration,
}

impl TickMemory {
    /// The memory of a master whose session is new: the registry is believed from `settled_from` on.
    pub fn new(settled_from: Duration) -> Self {
        Self { settled_from, ..Self::default() }
    }

    /// The session was away: who is missing in the registry may only have been away with us.
    pub fn distrust_registry(&mut self, settled_from: Duration) {
        self.settled_from = settled_from;
        self.quiet.clear();
        self.unclaimed.clear();
        self.unregistered.clear();
    }

    /// When the alteration was first seen. Others are forgotten: there is one at most.
    pub fn first_seen(&mut self, ids: &[RequestId], now: Duration) -> Duration {
        self.alterations.retain(|id, _| ids.contains(id));
        ids.iter().map(|id| *self.alterations.entry(id.clone()).or_insert(now)).min().unwrap_or(now)
    }

    /// Names that can't be read and were not the last time: worth a line in the log.
    pub fn newly_unreadable<'a>(&mut self, unreadable: &'a [(String, String)]) -> Vec<&'a (String, String)> {
        let new = unreadable.iter().filter(|(name, _)| !self.unreadable.contains(name)).collect();
        self.unreadable = unreadable.iter().map(|(name, _)| name.clone()).collect();
        new
    }

    /// Nodes that labels give to two pools and did not the last time: worth a line in the log.
    pub fn newly_shared(&mut self, catalog: &Catalog, nodes: &[ObservedNode]) -> Vec<(String, PoolName, PoolName)> {
        let found = nodes_in_two_pools(catalog, nodes);
        let new = found.iter().filter(|(node, ..)| !self.shared.contains(*node));
        let new = new.map(|(node, one, other)| ((*node).to_owned(), (*one).clone(), (*other).clone())).collect();
        self.shared = found.into_iter().map(|(node, ..)| node.to_owned()).collect();
        new
    }

    /// Turns what was read into the input of a plan, and remembers since when what is missing has been missing.
    pub fn observe(
        &mut self,
        now: Duration,
        coordinated: &Coordinated,
        instances: &[Instance],
        status: &BTreeMap<EngineName, EngineLoad>,
        snapshot: &Snapshot,
    ) -> ObservedState {
        let registrations = self.registrations(now, coordinated, instances);
        self.create_backoff.only(&snapshot.slots);
        // Skip leftover permits: they admit no engine and we cannot delete them.
        let mut permits: Vec<Permit> = coordinated.permits.iter().filter(|it| !it.left_behind).map(permit).collect();
        permits.extend(unread_permits(coordinated, instances));
        ObservedState {
            permits,
            drains: self.drains(now, coordinated, instances, &registrations),
            unregistered: self.unregistered(now, coordinated, instances, status),
            registrations,
            instances: instances.to_vec(),
            nodes: BTreeMap::new(),
            vanished: BTreeSet::new(),
            create_failures: self.create_backoff.troubles(now),
            loads: status.clone(),
            registry_complete: now >= self.settled_from,
        }
    }

    fn registrations(&mut self, now: Duration, coordinated: &Coordinated, instances: &[Instance]) -> Vec<Registration> {
        let uids = uids(instances);
        let mut unclaimed = BTreeMap::new();
        let mut registrations = Vec::new();
        for permit in &coordinated.permits {
            let Some(node) = &permit.registration else { continue };
            let content = node.content.as_ref().ok();
            let uid = content.map(|live| live.uid.clone());
            let claimed = uid.as_ref().is_some_and(|uid| uids.contains(uid.as_str()));
            let mut unclaimed_ms = 0;
            if !claimed {
                let key = (permit.engine.clone(), uid.clone());
                let since = self.unclaimed.get(&key).copied().unwrap_or(now);
                unclaimed_ms = now.saturating_sub(since).as_millis() as u64;
                unclaimed.insert(key, since);
            }
            registrations.push(Registration {
                engine: permit.engine.clone(),
                uid,
                address: content.map(|live| live.address.clone()).unwrap_or_default(),
                config: content.map(|live| live.config.clone()).unwrap_or_default(),
                catalog: content.and_then(|live| live.catalog),
                unclaimed_ms,
            });
        }
        self.unclaimed = unclaimed;
        registrations
    }

    /// Engines that run under a permit of their uid and are not registered below it. Time counts only while the registry is
    /// believed: after an outage of ZooKeeper every engine has to register again.
    fn unregistered(
        &mut self,
        now: Duration,
        coordinated: &Coordinated,
        instances: &[Instance],
        status: &BTreeMap<EngineName, EngineLoad>,
    ) -> BTreeMap<EngineName, Unregistered> {
        let known = std::mem::take(&mut self.unregistered);
        let missing = coordinated.permits.iter().filter(|it| it.ready().is_none() && !it.left_behind);
        let missing: HashSet<&str> = missing.filter_map(coordination::PermitNode::uid).collect();
        if missing.is_empty() || now < self.settled_from {
            return BTreeMap::new();
        }
        let running = instances
            .iter()
            .filter(|instance| instance.phase == Phase::Running && missing.contains(instance.uid.as_str()));
        let mut found = BTreeMap::new();
        for instance in running {
            let mut silence = known.get(&instance.uid).copied().unwrap_or(Silence { unregistered: now, silent: None });
            silence.silent = if status.contains_key(&instance.name) { None } else { silence.silent.or(Some(now)) };
            self.unregistered.insert(instance.uid.clone(), silence);
            let ms = |since: Duration| now.saturating_sub(since).as_millis() as u64;
            let (for_ms, silent_ms) = (ms(silence.unregistered), silence.silent.map(ms));
            found.insert(instance.name.clone(), Unregistered { uid: instance.uid.clone(), for_ms, silent_ms });
        }
        found
    }

    fn drains(
        &mut self,
        now: Duration,
        coordinated: &Coordinated,
        instances: &[Instance],
        registrations: &[Registration],
    ) -> Vec<DrainOrder> {
        if coordinated.drains.is_empty() && coordinated.unread.drains.is_empty() {
            self.quiet.clear();
            self.ordered.clear();
            return Vec::new();
        }
        let mut seen_uids = uids(instances);
        seen_uids.extend(registrations.iter().filter_map(|live| live.uid.as_deref()));
        let mut quiet = BTreeMap::new();
        let mut ordered = BTreeMap::new();
        let mut drains = Vec::new();
        for node in &coordinated.drains {
            let content = node.content.as_ref().ok();
            let uid = content.and_then(|drain| drain.uid.clone());
            let key = (node.engine.clone(), uid.clone());
            let since = self.ordered.get(&key).copied().unwrap_or(now);
            ordered.insert(key, since);
            let mut quiet_ms = 0;
            // Below a permit that was not read it may be registered.
            let unseen =
                |uid: &&String| !seen_uids.contains(uid.as_str()) && !coordinated.unread.permits.contains(&node.engine);
            if let Some(uid) = uid.as_ref().filter(unseen) {
                let key = (node.engine.clone(), uid.clone());
                let since = self.quiet.get(&key).copied().unwrap_or(now);
                quiet_ms = now.saturating_sub(since).as_millis() as u64;
                quiet.insert(key, since);
            }
            drains.push(DrainOrder {
                engine: node.engine.clone(),
                uid,
                grace_ms: content.map_or(0, |drain| drain.grace_ms),
                reason: content.map_or_else(String::new, |drain| drain.reason.clone()),
                age_ms: i64::try_from(now.saturating_sub(since).as_millis()).unwrap_or(i64::MAX),
                quiet_ms,
                namespace: content.and_then(|drain| drain.namespace.clone()),
            });
        }
        drains.extend(unread_facts(coordinated, instances));
        (self.quiet, self.ordered) = (quiet, ordered);
        drains
    }

    /// Where the engines that live can be asked for their load.
    pub fn reachable(&mut self, observed: &ObservedState) -> BTreeMap<EngineName, String> {
        for live in observed.registrations.iter().filter(|live| !live.address.is_empty()) {
            if let Some(uid) = live.uid.as_ref().filter(|uid| self.addresses.get(*uid) != Some(&live.address)) {
                self.addresses.insert(uid.clone(), live.address.clone());
            }
        }
        let alive: HashSet<&str> = observed
            .instances
            .iter()
            .filter(|instance| instance.is_alive())
            .map(|instance| instance.uid.as_str())
            .collect();
        self.addresses.retain(|uid, _| alive.contains(uid.as_str()));
        let instances = observed
            .instances
            .iter()
            .filter_map(|instance| Some((instance.name.clone(), self.addresses.get(&instance.uid)?.clone())));
        instances.collect()
    }

    /// What SHOW is to know and does not yet: everything the first time, then what changed. The rows are in the order of
    /// names, each name once, as a plan's are.
    pub fn report(
        &self,
        rows: &[Arc<ObservedEngine>],
        waits_for: Option<String>,
        around: &ClusterWarnings,
    ) -> Publication {
        let mut report = Publication { waits_for, ..Publication::default() };
        match &self.reported {
            None => {
                report.complete = true;
                report.engines = rows.iter().map(|row| ObservedEngine::clone(row)).collect();
                report.cluster_warnings = Some(around.clone());
            }
            Some((reported, cluster_warnings)) => {
                report.cluster_warnings = (cluster_warnings != around).then(|| around.clone());
                let mut before = reported.iter().peekable();
                for row in rows {
                    while let Some(gone) = before.next_if(|it| it.name < row.name) {
                        report.gone.push(gone.name.clone());
                    }
                    if before.next_if(|it| it.name == row.name) != Some(row) {
                        report.engines.push(ObservedEngine::clone(row));
                    }
                }
                report.gone.extend(before.map(|it| it.name.clone()));
            }
        }
        report
    }

    /// The report was written; if it may not have been, the next one is complete.
    pub fn reported(&mut self, written: Option<(Vec<Arc<ObservedEngine>>, &ClusterWarnings)>) {
        self.reported = written.map(|(rows, around)| (rows, around.clone()));
    }
}

/// Takes rows out of a report that has more than fit into one transaction's time: what is to be written before it.
pub(crate) fn parts_of(report: &mut Publication, rows: usize) -> Vec<Publication> {
    let mut parts = Vec::new();
    while report.engines.len() > rows.max(1) {
        let rest = report.engines.split_off(rows.max(1));
        let engines = std::mem::replace(&mut report.engines, rest);
        if report.complete {
            report.kept.extend(engines.iter().map(|it| it.name.clone()));
        }
        parts.push(Publication { engines, part: true, after_tick_ms: report.after_tick_ms, ..Publication::default() });
    }
    parts
}

/// Since when an engine has run without being registered, and since when its agent has given no answer.
#[derive(Debug, Clone, Copy)]
struct Silence {
    unregistered: Duration,
    silent: Option<Duration>,
}

/// Permits of which only the names are known. An engine that runs is taken to have its own; one without a pod is deleted when
/// it has been read.
fn unread_permits<'a>(coordinated: &'a Coordinated, instances: &'a [Instance]) -> impl Iterator<Item = Permit> + 'a {
    let uids = uids_by_name(&coordinated.unread.permits, instances);
    coordinated.unread.permits.iter().map(move |engine| {
        let uid = uids.get(engine).map(|uid| (*uid).to_owned());
        Permit { engine: engine.clone(), uid, readable: true, answered: true }
    })
}

/// Drain facts of which only the names are known: an engine that runs is taken to drain, and is not deleted for it.
fn unread_facts<'a>(coordinated: &'a Coordinated, instances: &'a [Instance]) -> impl Iterator<Item = DrainOrder> + 'a {
    uids_by_name(&coordinated.unread.drains, instances).into_iter().map(|(engine, uid)| DrainOrder {
        engine: engine.clone(),
        uid: Some(uid.to_owned()),
        grace_ms: i64::MAX,
        reason: "its drain fact is one of too many to be read".to_owned(),
        age_ms: 0,
        quiet_ms: 0,
        namespace: None,
    })
}

fn uids_by_name<'a>(names: &BTreeSet<EngineName>, instances: &'a [Instance]) -> BTreeMap<&'a EngineName, &'a str> {
    if names.is_empty() {
        return BTreeMap::new();
    }
    let named = instances.iter().filter(|instance| names.contains(&instance.name));
    named.map(|instance| (&instance.name, instance.uid.as_str())).collect()
}

fn permit(node: &coordination::PermitNode) -> Permit {
    let (engine, uid) = (node.engine.clone(), node.uid().map(str::to_owned));
    Permit { engine, uid, readable: node.content.is_ok(), answered: node.answered }
}

fn uids(instances: &[Instance]) -> HashSet<&str> {
    instances.iter().map(|instance| instance.uid.as_str()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use coordination::PermitNode;
    use model::catalog::{PoolSpec, Versioned};
    use model::number::Generation;

    use super::*;

    fn node(name: &str) -> ObservedNode {
        let labels = [("zone".to_owned(), "a".to_owned())].into();
        ObservedNode { name: name.to_owned(), labels, ..ObservedNode::default() }
    }

    fn row(name: &str, reason: Option<&str>) -> Arc<ObservedEngine> {
        Arc::new(ObservedEngine {
            name: EngineName::new(name).unwrap(),
            uid: None,
            phase: Phase::Running,
            reason: reason.map(str::to_owned),
            node: None,
            address: None,
            registered: true,
            answered: true,
            draining: false,
            sessions: None,
            running: None,
            started_at_ms: None,
            log_tail: None,
            labels: Arc::default(),
            details: Arc::default(),
        })
    }

    #[test]
    fn a_report_holds_what_is_new_what_changed_and_what_is_gone() {
        let mut memory = TickMemory::default();
        let around = ClusterWarnings::default();
        let told = |memory: &TickMemory, rows: &[Arc<ObservedEngine>]| {
            let report = memory.report(rows, None, &around);
            let names = |it: &[EngineName]| it.iter().map(EngineName::as_str).collect::<Vec<_>>().join(" ");
            let changed: Vec<EngineName> = report.engines.iter().map(|it| it.name.clone()).collect();
            (report.complete, names(&changed), names(&report.gone))
        };
        let first = vec![row("b", None), row("d", None), row("f", None)];
        assert_eq!(told(&memory, &first), (true, "b d f".to_owned(), String::new()));
        memory.reported(Some((first.clone(), &around)));
        assert_eq!(told(&memory, &first), (false, String::new(), String::new()));
        let second = vec![row("a", None), row("d", Some("it drains")), row("e", None), row("f", None), row("g", None)];
        assert_eq!(told(&memory, &second), (false, "a d e g".to_owned(), "b".to_owned()));
        memory.reported(Some((second, &around)));
        assert_eq!(told(&memory, &[]), (false, String::new(), "a d e f g".to_owned()));
        memory.reported(None);
        assert!(told(&memory, &first).0, "nobody knows what is written there");
    }

    #[test]
    fn a_node_in_two_pools_is_told_once_and_again_when_it_comes_back() {
        let mut catalog = Catalog::default();
        for (name, disk) in [("rp_1", false), ("rp_2", true)] {
            let mut node_selector = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
            if disk {
                node_selector = BTreeMap::from([("disk".to_owned(), "ssd".to_owned())]);
            }
            let spec = PoolSpec { node_selector, ..PoolSpec::default() };
            catalog.pools.insert(PoolName::new(name).unwrap(), Versioned { spec, generation: Generation(1) });
        }
        let mut both = node("node-1");
        both.labels.insert("disk".to_owned(), "ssd".to_owned());
        let mut memory = TickMemory::default();
        let mut told = |nodes: &[ObservedNode]| {
            let new = memory.newly_shared(&catalog, nodes);
            new.into_iter().map(|(node, one, other)| format!("{node} {one} {other}")).collect::<Vec<_>>()
        };
        assert_eq!(told(&[both.clone(), node("node-2")]), ["node-1 rp_1 rp_2"]);
        assert!(told(&[both.clone(), node("node-2")]).is_empty());
        assert!(told(&[node("node-1")]).is_empty());
        assert_eq!(told(&[both]).len(), 1);
    }

    #[test]
    fn a_permit_that_was_left_behind_is_planned_for_no_more() {
        let node = |name: &str, left_behind: bool| PermitNode {
            engine: EngineName::new(name).unwrap(),
            content: Err("nobody can read it".to_owned()),
            version: 1,
            ctime_ms: 5,
            registration: None,
            answered: false,
            strays: 1,
            left_behind,
        };
        let coordinated =
            Coordinated { permits: vec![node("e-1", true), node("e-2", false)], ..Coordinated::default() };
        let mut memory = TickMemory::new(Duration::ZERO);
        let (statuses, snapshot) = (BTreeMap::new(), Snapshot::default());
        let observed = memory.observe(Duration::ZERO, &coordinated, &[], &statuses, &snapshot);
        let planned: Vec<&str> = observed.permits.iter().map(|permit| permit.engine.as_str()).collect();
        assert_eq!(planned, ["e-2"]);
    }
}
