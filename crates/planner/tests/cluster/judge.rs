//! The judge of plans: checks that no plan breaks a rule in the cluster that it was made for.

use std::collections::{BTreeMap, BTreeSet};

use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::shared::Shared;
use model::slot::{Link, Replacement};
use model::snapshot::EngineRecord;
use planner::{Action, Instance, Plan, Simulation};

use super::node_judge::may_be_unreachable;
use super::{Cluster, ledger_judge, succession_judge};

/// The history that the rules depend on.
#[derive(Debug, Clone, Default)]
pub struct Judge {
    recorded: BTreeSet<EngineName>,
    registered: BTreeSet<String>,
}

impl Judge {
    pub fn look(&mut self, cluster: &Cluster) {
        ledger_judge::judge_sums(cluster);
        let with_uid = cluster.simulation.desired.snapshot.engines.iter().filter(|record| record.uid.is_some());
        self.recorded.extend(with_uid.map(|record| record.name.clone()));
        self.registered.extend(
            cluster.simulation.observed.registrations.iter().filter_map(|registration| registration.uid.clone()),
        );
    }

    /// Checks every decision of a plan against the cluster that it was made for.
    pub fn judge(&self, cluster: &Cluster, plan: &Plan) {
        let observed = &cluster.simulation.observed;
        let mut draining = BTreeSet::new();
        for decision in plan.decisions() {
            let Some(engine) = &decision.engine else { continue };
            match &decision.action {
                Action::CreateEngine(_) => {
                    assert!(!self.recorded.contains(engine), "{engine} is created a second time");
                    succession_judge::judge_create(cluster, engine);
                }
                Action::DeleteEngine { uid, .. } => {
                    let instance = observed.instances.iter().find(|instance| instance.uid == *uid).unwrap();
                    let drain = observed.drains.iter().any(|drain| drain.uid.as_ref() == Some(uid));
                    assert!(
                        instance.phase == Phase::Ended || drain,
                        "{engine} runs and is deleted without its drain order"
                    );
                    assert!(instance.phase != Phase::Terminating, "{engine} is deleted twice");
                }
                Action::Drain { uid, .. } => {
                    assert!(draining.insert(engine), "{engine} is drained twice by one plan");
                    assert!(
                        observed.drains.iter().all(|drain| drain.engine != *engine),
                        "{engine} already has a drain order"
                    );
                    self.judge_drain(cluster, plan, engine, uid);
                }
                _ => {}
            }
        }
        ledger_judge::judge_changes(cluster, plan);
    }

    /// An engine that has served and whose slot still exists may be drained only when a newer one is registered, or in its
    /// slot's turn.
    fn judge_drain(&self, cluster: &Cluster, plan: &Plan, engine: &EngineName, uid: &str) {
        let snapshot = &cluster.simulation.desired.snapshot;
        let Some(record) =
            snapshot.engines.iter().find(|record| record.name == *engine && record.uid.as_deref() == Some(uid))
        else {
            return;
        };
        let Some(slot) = snapshot.slots.iter().find(|slot| slot.key == record.slot) else { return };
        let there = cluster.simulation.observed.instances.iter().any(|instance| instance.uid == uid);
        let served = self.registered.contains(uid);
        if record.end_reason.is_some() || slot.replacement == Replacement::Force || !served || !there {
            return;
        }
        let newer_is_registered = snapshot.engines.iter().any(|other| {
            let registration =
                cluster.simulation.observed.registrations.iter().find(|registration| registration.engine == other.name);
            other.slot == record.slot
                && other.incarnation > record.incarnation
                && other.end_reason.is_none()
                && registration.is_some_and(|registration| registration.uid.is_some() && registration.uid == other.uid)
        });
        if slot.replacement == Replacement::InPlace && !newer_is_registered {
            return succession_judge::judge_turn(cluster, plan, slot);
        }
        assert!(newer_is_registered, "{engine} is drained before its replacement is registered");
    }
}

/// At most `surge` slots of a link with a reachable stand-in have a current engine that was begun and is not ready; more only if there
/// were more before the plan, which then begins none.
///
/// Other events may raise the number: a deposed master's late create begins an engine without a turn, a lost registration
/// makes a ready one unready. So the judge compares before and after, and counts as begun or as a stand-in whatever may be
/// one.
pub fn judge_surge(judge: &Judge, cluster: &Cluster, before: &Cluster) {
    let (was, is) = (judge.replacements(before), judge.replacements(cluster));
    for (link, count) in is {
        let before = was.get(&link).copied().unwrap_or_default();
        assert!(
            count <= cluster.simulation.desired.limits.surge.max(before),
            "{count} slots of {link:?} are replaced at once"
        );
    }
}

impl Judge {
    /// By link, the slots with a stand-in and a current engine that was begun and is not ready.
    fn replacements(&self, cluster: &Cluster) -> BTreeMap<Link, u32> {
        let mut counts: BTreeMap<Link, u32> = BTreeMap::new();
        let snapshot = &cluster.simulation.desired.snapshot;
        for slot in snapshot.slots.iter().filter(|slot| slot.replacement == Replacement::StandIn) {
            let current = slot.engine();
            let older = snapshot.engines.iter().filter(|record| record.slot == slot.key && record.name != current);
            let stands_in = older
                .clone()
                .any(|record| self.stands_in(cluster, record) && !may_be_unreachable(cluster, &record.name));
            if stands_in && is_begun(cluster, &current) && !is_ready(cluster, &current) {
                *counts.entry(slot.key.link()).or_default() += 1;
            }
        }
        counts
    }

    /// Whether the engine runs, has registered once, and is not condemned. It need not be registered now: a lost session
    /// makes no engine surplus. A registration without an instance is no stand-in.
    pub fn stands_in(&self, cluster: &Cluster, record: &EngineRecord) -> bool {
        let observed = &cluster.simulation.observed;
        let is_it = |instance: &&Shared<Instance>| {
            instance.name == record.name && record.uid.as_ref().is_none_or(|uid| *uid == instance.uid)
        };
        record.end_reason.is_none()
            && observed.instances.iter().filter(is_it).any(|instance| {
                let draining = observed.drains.iter().any(|drain| drain.uid.as_ref() == Some(&instance.uid));
                instance.is_alive() && !draining && self.registered.contains(&instance.uid)
            })
    }
}

/// Whether any part of the engine was created, its permit, an instance, a recorded uid, or capacity is reserved for it.
fn is_begun(cluster: &Cluster, engine: &EngineName) -> bool {
    let Simulation { desired, observed, .. } = &cluster.simulation;
    let is_reserved = cluster.reservation(engine).is_some_and(|reservation| reservation.state.is_charged());
    is_reserved
        || observed.permits.iter().any(|permit| permit.engine == *engine)
        || observed.instances.iter().any(|instance| instance.name == *engine)
        || desired.snapshot.engines.iter().any(|record| record.name == *engine && record.uid.is_some())
}

/// Whether the engine is registered, runs and stays.
pub fn is_ready(cluster: &Cluster, engine: &EngineName) -> bool {
    let Simulation { desired, observed, .. } = &cluster.simulation;
    let registration = observed
        .registrations
        .iter()
        .find(|registration| registration.engine == *engine)
        .and_then(|registration| registration.uid.as_ref());
    let registrations =
        observed.instances.iter().any(|instance| instance.is_alive() && Some(&instance.uid) == registration);
    let draining = observed.drains.iter().any(|drain| drain.uid.as_ref() == registration);
    let stays = |record: &EngineRecord| {
        record.end_reason.is_none() && record.ended_at_ms.is_none() && record.uid.as_ref() == registration
    };
    registrations && !draining && desired.snapshot.engines.iter().any(|record| record.name == *engine && stays(record))
}
