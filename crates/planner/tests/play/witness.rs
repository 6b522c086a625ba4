//! Judging plans: what no plan may decide in the world that it was made for.

use std::collections::{BTreeMap, BTreeSet};

use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::slot::Link;
use model::snapshot::EngineRecord;
use planner::{Action, Plan, Pod, World};

use super::Play;

/// What a run has to remember to see whether a plan may be.
#[derive(Debug, Default)]
pub struct Witness {
    recorded: BTreeSet<EngineName>,
    registered: BTreeSet<String>,
}

impl Witness {
    pub fn look(&mut self, play: &Play) {
        let with_uid = play.world.desired.snapshot.engines.iter().filter(|record| record.uid.is_some());
        self.recorded.extend(with_uid.map(|record| record.name.clone()));
        self.registered.extend(play.world.observed.lives.iter().filter_map(|live| live.uid.clone()));
    }

    /// Checks every decision of a plan against the world that it was made for.
    pub fn judge(&self, play: &Play, plan: &Plan) {
        let observed = &play.world.observed;
        let mut told = BTreeSet::new();
        for decision in plan.decisions() {
            let Some(engine) = &decision.engine else { continue };
            match &decision.action {
                Action::CreateEngine(_) => {
                    assert!(!self.recorded.contains(engine), "{engine} is made a second time");
                }
                Action::DeleteEngine { uid, .. } => {
                    let pod = observed.pods.iter().find(|pod| pod.uid == *uid).unwrap();
                    let fact = observed.facts.iter().any(|fact| fact.uid.as_ref() == Some(uid));
                    assert!(pod.phase == Phase::Ended || fact, "{engine} runs and is deleted without its fact");
                    assert!(pod.phase != Phase::Terminating, "{engine} is deleted twice");
                }
                Action::Drain { uid, .. } => {
                    assert!(told.insert(engine), "{engine} is told to drain twice by one plan");
                    assert!(observed.facts.iter().all(|fact| fact.engine != *engine), "{engine} has a fact already");
                    self.judge_drain(play, engine, uid);
                }
                _ => {}
            }
        }
    }

    /// An engine that ever served and whose slot lives on may only be drained when a newer one is registered.
    fn judge_drain(&self, play: &Play, engine: &EngineName, uid: &str) {
        let snapshot = &play.world.desired.snapshot;
        let Some(record) = snapshot.engines.iter().find(|it| it.name == *engine && it.uid.as_deref() == Some(uid))
        else {
            return;
        };
        let Some(slot) = snapshot.slots.iter().find(|slot| slot.key == record.slot) else { return };
        let there = play.world.observed.pods.iter().any(|pod| pod.uid == uid);
        let served = self.registered.contains(uid);
        if record.end_reason.is_some() || slot.forced || !served || !there {
            return;
        }
        let newer_is_registered = snapshot.engines.iter().any(|other| {
            let live = play.world.observed.lives.iter().find(|live| live.engine == other.name);
            other.slot == record.slot
                && other.incarnation > record.incarnation
                && other.end_reason.is_none()
                && live.is_some_and(|live| live.uid.is_some() && live.uid == other.uid)
        });
        assert!(newer_is_registered, "{engine} is drained before its replacement is registered");
    }
}

/// At most `surge` slots of a link that have a stand-in have a present engine that was begun and is not ready; more only
/// if there were more before the plan, which then begins none.
///
/// What happens beside the plans may raise the number: a deposed master's late create begins an engine without a turn, a
/// registration that is lost makes a ready one unready. So the judge compares before and after, and takes for begun and
/// for a stand-in whatever may be one: the wider, the less a plan can hide behind it.
pub fn judge_surge(witness: &Witness, play: &Play, before: &Play) {
    let (was, is) = (witness.replacements(before), witness.replacements(play));
    for (link, count) in is {
        let before = was.get(&link).copied().unwrap_or_default();
        assert!(count <= play.world.desired.limits.surge.max(before), "{count} slots of {link:?} are replaced at once");
    }
}

impl Witness {
    /// By link, the slots with a stand-in and a present engine that was begun and is not ready.
    fn replacements(&self, play: &Play) -> BTreeMap<Link, u32> {
        let mut counts: BTreeMap<Link, u32> = BTreeMap::new();
        let snapshot = &play.world.desired.snapshot;
        for slot in snapshot.slots.iter().filter(|slot| !slot.forced) {
            let present = slot.engine();
            let older = snapshot.engines.iter().filter(|it| it.slot == slot.key && it.name != present);
            let stands_in = older.clone().any(|record| self.stands_in(play, record));
            if stands_in && is_begun(play, &present) && !is_ready(play, &present) {
                *counts.entry(slot.key.link()).or_default() += 1;
            }
        }
        counts
    }

    /// Whether the engine lives, registered once, and nobody has condemned it. It need not be registered now: a lost
    /// session makes nobody surplus. A registration whose pod is gone stands in for nobody.
    fn stands_in(&self, play: &Play, record: &EngineRecord) -> bool {
        let observed = &play.world.observed;
        let is_it = |pod: &&Pod| pod.name == record.name && record.uid.as_ref().is_none_or(|uid| *uid == pod.uid);
        record.end_reason.is_none()
            && observed.pods.iter().filter(is_it).any(|pod| {
                let told = observed.facts.iter().any(|fact| fact.uid.as_ref() == Some(&pod.uid));
                pod.is_alive() && !told && self.registered.contains(&pod.uid)
            })
    }
}

/// Whether anything was made of the engine: its permit, a pod, a record.
fn is_begun(play: &Play, engine: &EngineName) -> bool {
    let World { desired, observed, .. } = &play.world;
    observed.permits.iter().any(|it| it.engine == *engine)
        || observed.pods.iter().any(|it| it.name == *engine)
        || desired.snapshot.engines.iter().any(|it| it.name == *engine && it.uid.is_some())
}

/// Whether the engine is registered, lives and stays.
fn is_ready(play: &Play, engine: &EngineName) -> bool {
    let World { desired, observed, .. } = &play.world;
    let live = observed.lives.iter().find(|live| live.engine == *engine).and_then(|live| live.uid.as_ref());
    let lives = observed.pods.iter().any(|pod| pod.is_alive() && Some(&pod.uid) == live);
    let told = observed.facts.iter().any(|fact| fact.uid.as_ref() == live);
    let stays = |it: &EngineRecord| it.end_reason.is_none() && it.ended_at_ms.is_none() && it.uid.as_ref() == live;
    lives && !told && desired.snapshot.engines.iter().any(|it| it.name == *engine && stays(it))
}
