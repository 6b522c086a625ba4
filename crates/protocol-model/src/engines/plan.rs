//! The plan, as `crates/planner` makes it: what each engine is to the desired state, and what follows.
//!
//! Times are over as soon as they may be: a back-off, a dead session's time, a fact's quiet time. The grace of a
//! drain is over or not, as the step says. A registration without a pod in all lists for a whole session timeout
//! does not occur here, because lists are not late.

use super::Engines;
use super::state::{Decision, Effect, Engine, Live, Nodes, Phase, Pod, Record, Seen, Slot, Snap, State};

const CREATE: u8 = 0;
const KEEP: u8 = 1;
const RENEW: u8 = 2;
const DRAIN: u8 = 3;
const CLEAR: u8 = 4;
const FINISH: u8 = 5;

/// One name with what is known of it.
struct Known {
    slot: usize,
    incarnation: u8,
    record: Record,
    nodes: Nodes,
    /// The pod of the recorded uid, or of the name while none is recorded.
    pod: Option<Pod>,
    stray: Option<Pod>,
    /// The orchestrator, asked for the recorded or drained uid, has none such.
    vanished: bool,
    left_alone: bool,
}

impl Known {
    fn alive(&self) -> Option<Pod> {
        self.pod.filter(|pod| pod.is_alive())
    }

    fn is_ready(&self) -> bool {
        let staying = !self.record.condemned && !self.record.ended;
        let registered = |pod: Pod| self.nodes.live.uid() == Some(pod.uid) && self.nodes.fact != Some(pod.uid);
        staying && self.alive().is_some_and(registered)
    }

    fn uid(&self) -> Option<u8> {
        (self.record.uid != 0).then_some(self.record.uid).or(self.pod.map(|pod| pod.uid))
    }

    fn has_live(&self) -> bool {
        self.nodes.live != Live::None
    }
}

enum Standing {
    LeftAlone,
    Present(Slot),
    StandIn,
    Condemned { newer: Option<usize> },
    Over,
}

impl Engines {
    /// What is to be done, in order.
    pub(super) fn plan(&self, state: &State, seen: &Seen, grace_over: bool) -> (u8, Vec<Decision>) {
        let snap = seen.early.clone().unwrap_or_else(|| state.snapshot());
        let known = self.take(state, seen, &snap);
        let standings: Vec<Standing> = (0..known.len()).map(|it| self.standing(&known, it, &snap)).collect();
        let waiting = waiting_for_turn(&known, &standings, &snap);
        let mut decisions = Vec::new();
        for (engine, it) in known.iter().enumerate() {
            let mut push = |stage, effects: Vec<Effect>| {
                decisions.extend(effects.into_iter().map(|effect| Decision { stage, engine, effect }));
            };
            match &standings[engine] {
                Standing::LeftAlone => continue,
                Standing::Present(slot) => self.present(it, *slot, waiting[it.slot], &mut push),
                Standing::StandIn => push(KEEP, it.alive().map(|pod| keep(it, pod)).unwrap_or_default()),
                Standing::Condemned { newer } => {
                    if let Some(pod) = it.alive() {
                        end_pod(it, pod, *newer, true, grace_over, &mut push);
                    }
                }
                Standing::Over => push(CLEAR, over(it)),
            }
            if let Some(pod) = it.stray {
                let owns_permit = it.nodes.permit == Some(pod.uid);
                if pod.is_alive() {
                    end_pod(it, pod, None, owns_permit, grace_over, &mut push);
                } else {
                    push(CLEAR, vec![Effect::DeleteEngine { uid: pod.uid }]);
                }
            }
            push(CLEAR, settled_fact(it));
        }
        let undone = (0..known.len()).any(|it| self.is_undone(&known, &standings, waiting, it, &snap));
        let converging = snap.alteration.is_some_and(|it| it.converging && it.generation <= snap.generation);
        if converging && (!undone || self.without.converged_means) {
            decisions.push(Decision { stage: FINISH, engine: 0, effect: Effect::Finish });
        }
        if self.without.fact_before_delete {
            for decision in &mut decisions {
                if let Effect::Drain { uid, .. } = decision.effect {
                    decision.effect = Effect::DeleteEngine { uid };
                }
            }
        }
        if self.without.one_multi {
            decisions = decisions.into_iter().flat_map(in_calls_of_their_own).collect();
        }
        decisions.sort_by_key(|decision| decision.stage);
        (snap.generation, decisions)
    }

    /// Everything that is known of each name. Asks the orchestrator for the uids that are missed.
    fn take(&self, state: &State, seen: &Seen, snap: &Snap) -> Vec<Known> {
        let (Some(pods), Some(nodes)) = (&seen.pods, &seen.nodes) else { return Vec::new() };
        let count = pods.len().max(nodes.len()).max(snap.records.len());
        let known = (0..count).map(|it| {
            let engine = &state.engines[it];
            // A name that was issued after the look has nothing there, one issued after the snapshot no row.
            let unknown = Engine::issued(engine.slot, engine.incarnation);
            let row = snap.records.get(it).copied().unwrap_or(unknown.record);
            let nodes = nodes.get(it).copied().unwrap_or(unknown.nodes);
            let mut pod = pods.get(it).copied().flatten();
            let missed = |uid: u8| pod.is_none_or(|pod| pod.uid != uid);
            let recorded = (row.uid != 0 && !row.ended).then_some(row.uid).filter(|uid| missed(*uid));
            let drained = nodes.fact.filter(|uid| missed(*uid));
            let asked = recorded.or(drained);
            let found = asked.and_then(|uid| engine.pod.filter(|pod| pod.uid == uid));
            pod = found.or(pod);
            let is_it = pod.is_some_and(|pod| row.uid == 0 || pod.uid == row.uid);
            let newer = pod.is_some_and(|pod| pod.generation > snap.generation);
            Known {
                slot: engine.slot,
                incarnation: engine.incarnation,
                record: row,
                nodes,
                pod: pod.filter(|_| is_it),
                stray: pod.filter(|_| !is_it),
                vanished: asked.is_some() && found.is_none(),
                left_alone: newer && !self.without.newer_left_alone,
            }
        });
        known.collect()
    }

    fn standing(&self, known: &[Known], engine: usize, snap: &Snap) -> Standing {
        let it = &known[engine];
        if it.left_alone {
            return Standing::LeftAlone;
        }
        let slot = snap.slots[it.slot];
        if let Some(slot) = slot.filter(|slot| slot.incarnation == it.incarnation) {
            return Standing::Present(slot);
        }
        let Some(pod) = it.alive() else { return Standing::Over };
        let condemned = Standing::Condemned { newer: None };
        if it.nodes.fact == Some(pod.uid) || it.record.condemned {
            return condemned;
        }
        let Some(slot) = slot else { return condemned };
        // Without a permit nobody knows: it may have registered below one that is lost.
        let never_ran = if self.without.mark {
            pod.phase == Phase::Starting && !it.has_live()
        } else {
            it.nodes.permit.is_some() && !it.nodes.answered && !it.has_live()
        };
        let unregistered = self.without.absence_ends_nothing && !it.has_live();
        if slot.forced || never_ran || unregistered {
            return condemned;
        }
        let ready = (0..known.len()).filter(|other| {
            let other = &known[*other];
            other.slot == it.slot && other.incarnation > it.incarnation && other.is_ready() && !other.left_alone
        });
        let newest = ready.max_by_key(|other| known[*other].incarnation);
        newest.map_or(Standing::StandIn, |newer| Standing::Condemned { newer: Some(newer) })
    }

    /// Whether the alteration still waits for this engine. One that was issued after it belongs to somebody else.
    fn is_undone(
        &self,
        known: &[Known],
        standings: &[Standing],
        waiting: [bool; 2],
        engine: usize,
        snap: &Snap,
    ) -> bool {
        let it = &known[engine];
        if snap.alteration.is_some_and(|row| it.incarnation > row.generation) {
            return false;
        }
        let stray_runs = it.stray.is_some_and(|pod| pod.is_alive() && it.nodes.fact != Some(pod.uid));
        let undone = match &standings[engine] {
            Standing::Present(_) => match it.pod {
                _ if it.record.condemned => true,
                _ if it.record.ended => false,
                None => it.record.uid == 0 && !waiting[it.slot],
                Some(pod) if pod.is_alive() => {
                    let late = self.without.no_readiness && !it.is_ready();
                    it.record.uid == 0 || pod.relabeled || it.nodes.fact == Some(pod.uid) || late
                }
                Some(_) => false,
            },
            Standing::Condemned { .. } => it.alive().is_some_and(|pod| it.nodes.fact != Some(pod.uid)),
            _ => false,
        };
        undone || stray_runs
    }

    fn present(&self, it: &Known, slot: Slot, waits: bool, push: &mut impl FnMut(u8, Vec<Effect>)) {
        let draw = Effect::DrawIncarnation { observed: slot.incarnation };
        let fact = match it.uid() {
            Some(uid) => it.nodes.fact == Some(uid),
            None => it.nodes.fact.is_some(),
        };
        if it.record.condemned || fact {
            return push(RENEW, vec![draw]);
        }
        if it.record.ended {
            push(
                CLEAR,
                match it.pod {
                    Some(pod) if !pod.is_alive() => clear(it, pod),
                    Some(_) => Vec::new(),
                    None => withdraw_dead(it),
                },
            );
            return push(RENEW, vec![draw]);
        }
        match it.pod {
            None if it.record.uid == 0 && waits => {}
            None if it.record.uid == 0 => {
                let mut chain = Vec::new();
                if it.nodes.permit.is_none() {
                    chain.push(Effect::CreatePermit { uid: 0 });
                }
                chain.push(Effect::CreateEngine);
                chain.extend([Effect::RecordUid { uid: 0 }, Effect::WritePermitUid { uid: 0 }]);
                push(CREATE, chain);
            }
            None if it.vanished => {
                let mut chain = vec![Effect::RecordEnd];
                chain.extend(withdraw_dead(it));
                push(CLEAR, chain);
            }
            None => {}
            Some(pod) if pod.is_alive() => {
                let mut chain = keep(it, pod);
                let absent = self.without.absence_ends_nothing && pod.was_registered && !it.has_live();
                if pod.relabeled || absent {
                    chain.retain(|effect| matches!(effect, Effect::RecordUid { .. }));
                    chain.push(draw);
                    return push(RENEW, chain);
                }
                push(KEEP, chain);
            }
            Some(pod) => {
                let mut chain = Vec::new();
                if it.record.uid == 0 {
                    chain.push(Effect::RecordUid { uid: pod.uid });
                }
                chain.push(Effect::RecordEnd);
                chain.extend(clear(it, pod));
                push(CLEAR, chain);
            }
        }
    }
}

/// What an engine that stays needs: its uid recorded, and a permit with it.
fn keep(it: &Known, pod: Pod) -> Vec<Effect> {
    let mut chain = Vec::new();
    if it.record.uid == 0 {
        chain.push(Effect::RecordUid { uid: pod.uid });
    }
    match it.nodes.permit {
        None => chain.push(Effect::CreatePermit { uid: pod.uid }),
        Some(uid) if uid != pod.uid => chain.push(Effect::WritePermitUid { uid: pod.uid }),
        Some(_) => {}
    }
    chain
}

fn end_pod(
    it: &Known,
    pod: Pod,
    newer: Option<usize>,
    withdraw: bool,
    grace_over: bool,
    push: &mut impl FnMut(u8, Vec<Effect>),
) {
    let Some(fact) = it.nodes.fact else {
        let permit = (withdraw && it.nodes.permit.is_some()).then(|| it.nodes.below());
        return push(DRAIN, vec![Effect::Drain { uid: pod.uid, newer, permit }]);
    };
    if fact != pod.uid {
        return;
    }
    let mut chain = Vec::new();
    if withdraw && it.nodes.permit.is_some() {
        chain.push(Effect::DeletePermit(it.nodes.below()));
    }
    if grace_over {
        chain.push(Effect::DeleteEngine { uid: pod.uid });
    }
    push(CLEAR, chain);
}

/// A drain without the one multi: first the fact, then registration and permit.
fn in_calls_of_their_own(decision: Decision) -> Vec<Decision> {
    match decision.effect {
        Effect::Drain { permit: Some(below), .. } => {
            vec![decision, Decision { effect: Effect::Withdraw(below), ..decision }]
        }
        _ => vec![decision],
    }
}

/// No slot's present engine, and nothing of it runs.
fn over(it: &Known) -> Vec<Effect> {
    let mut chain = Vec::new();
    if it.pod.is_none() && it.record.uid != 0 && !it.record.ended && !it.vanished {
        return chain;
    }
    if !it.record.ended {
        chain.push(Effect::RecordEnd);
    }
    match it.pod {
        Some(pod) => chain.extend(clear(it, pod)),
        None => chain.extend(withdraw_dead(it)),
    }
    chain
}

fn clear(it: &Known, pod: Pod) -> Vec<Effect> {
    let mut chain = vec![Effect::DeleteEngine { uid: pod.uid }];
    if it.nodes.permit.is_some() {
        chain.push(Effect::DeletePermit(it.nodes.below()));
    }
    chain
}

fn withdraw_dead(it: &Known) -> Vec<Effect> {
    let alone = it.nodes.permit.is_some() && !it.has_live();
    if alone { vec![Effect::DeletePermit(it.nodes.below())] } else { Vec::new() }
}

/// The drain fact of an engine that is gone.
fn settled_fact(it: &Known) -> Vec<Effect> {
    let Some(uid) = it.nodes.fact else { return Vec::new() };
    let there = [it.pod, it.stray].into_iter().flatten().any(|pod| pod.uid == uid);
    let registered = it.nodes.live.uid() == Some(uid);
    if there || registered { Vec::new() } else { vec![Effect::RemoveFact] }
}

/// By ordinal: the slots that have a stand-in and no engine yet, while another is being replaced.
fn waiting_for_turn(known: &[Known], standings: &[Standing], snap: &Snap) -> [bool; 2] {
    let stands_in = |slot: usize| {
        known.iter().zip(standings).any(|(it, standing)| it.slot == slot && matches!(standing, Standing::StandIn))
    };
    let (mut left, mut waiting) = (1_u8, [false; 2]);
    let mut candidates = Vec::new();
    for (ordinal, slot) in snap.slots.iter().enumerate() {
        let Some(slot) = slot.filter(|_| stands_in(ordinal)) else { continue };
        let Some(present) = known.iter().find(|it| it.slot == ordinal && it.incarnation == slot.incarnation) else {
            continue;
        };
        if slot.forced || present.is_ready() {
            continue;
        }
        if present.uid().is_some() || present.nodes.permit.is_some() {
            left = left.saturating_sub(1);
        } else {
            candidates.push(ordinal);
        }
    }
    for ordinal in candidates {
        if left > 0 { left -= 1 } else { waiting[ordinal] = true }
    }
    waiting
}
