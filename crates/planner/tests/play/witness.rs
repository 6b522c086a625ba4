//! Judging plans: what no plan may decide in the world that it was made for.

use std::collections::{BTreeMap, BTreeSet};

use model::catalog::Link;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use planner::{Action, Plan};

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
                Action::Drain { uid, .. } => self.judge_drain(play, engine, uid),
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

fn is_alive(phase: Phase) -> bool {
    !matches!(phase, Phase::Terminating | Phase::Ended)
}

/// At most `surge` slots of a link have an engine that serves in place of one that was begun and is not ready.
pub fn judge_surge(play: &Play, before: &Play) {
    let slots_in_replacement = |play: &Play| {
        let mut counts: BTreeMap<Link, u32> = BTreeMap::new();
        for slot in play.world.desired.snapshot.slots.iter().filter(|slot| !slot.forced) {
            let present = slot.engine();
            // A deposed master's late create begins an engine too: the plan adopts it, whoever's turn it is.
            let begun = play.world.observed.permits.iter().any(|it| it.engine == present)
                || play.world.observed.pods.iter().any(|it| it.name == present && is_alive(it.phase));
            let ready = play.world.observed.lives.iter().any(|live| live.engine == present);
            // A registration can stand for a while after its pod has vanished: such an engine stands in for nobody.
            let serves = |name: &EngineName| {
                play.world.observed.lives.iter().any(|live| live.engine == *name)
                    && play.world.observed.pods.iter().any(|pod| pod.name == *name && is_alive(pod.phase))
                    && play.world.observed.facts.iter().all(|fact| fact.engine != *name)
            };
            let records = &play.world.desired.snapshot.engines;
            let stand_in = records
                .iter()
                .any(|it| it.slot == slot.key && it.name != present && it.end_reason.is_none() && serves(&it.name));
            if begun && !ready && stand_in {
                *counts.entry(slot.key.link()).or_default() += 1;
            }
        }
        counts
    };
    let (was, is) = (slots_in_replacement(before), slots_in_replacement(play));
    for (link, count) in is {
        let before = was.get(&link).copied().unwrap_or_default();
        assert!(count <= play.world.desired.limits.surge.max(before), "{count} slots of {link:?} are replaced at once");
    }
}
