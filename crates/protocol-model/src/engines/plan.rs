//! The plan, as `crates/planner` computes it: the role of each engine, and the decisions that follow.
//!
//! Durations end as soon as they may: a back-off, the timeout of a dead session, the quiet time of a drain order. Whether the
//! grace of a drain has expired is part of the step. A registration without a pod in all lists for a whole session timeout does
//! not occur here, because lists are not late.

use super::Engines;
use super::state::{Decision, Effect, Engine, Observed, Phase, Pod, Replacement, Slot, Snapshot, State};
use super::turns::{Turns, has_older, waits_in_place};
use super::view::{EngineView, Role};

const CREATE: u8 = 0;
const KEEP: u8 = 1;
const RENEW: u8 = 2;
const DRAIN: u8 = 3;
const CLEAR: u8 = 4;
const FINISH: u8 = 5;

impl Engines {
    /// The decisions in order.
    pub(super) fn plan(&self, state: &State, seen: &Observed, grace_over: bool) -> (u8, Vec<Decision>) {
        let snap = seen.early.clone().unwrap_or_else(|| state.snapshot());
        let known = self.inventory(state, seen, &snap);
        let roles: Vec<Role> = (0..known.len()).map(|engine| self.role(&known, engine, &snap)).collect();
        let turns = self.turns(&known, &roles, &snap);
        let mut decisions = Vec::new();
        for (engine, view) in known.iter().enumerate() {
            let mut push = |stage, effects: Vec<Effect>| {
                decisions.extend(effects.into_iter().map(|effect| Decision { stage, engine, effect }));
            };
            match &roles[engine] {
                Role::Stale => continue,
                Role::Current(slot) => {
                    let is_in_place = slot.replacement == Replacement::InPlace;
                    let has_older = is_in_place && !self.without.older_is_gone && has_older(&known, engine);
                    if is_in_place && view.is_ready() && !view.confirmed {
                        push(CREATE, vec![Effect::Confirm]);
                    }
                    self.current(view, *slot, turns.waiting[view.slot] || has_older, &mut push);
                }
                Role::StandIn if turns.taken[view.slot] => {
                    if let Some(pod) = view.alive() {
                        end_pod(view, pod, (None, true), true, grace_over, &mut push);
                    }
                }
                Role::StandIn => push(KEEP, view.alive().map(|pod| keep(view, pod)).unwrap_or_default()),
                Role::Condemned { newer } => {
                    if let Some(pod) = view.alive() {
                        end_pod(view, pod, (*newer, false), true, grace_over, &mut push);
                    }
                }
                Role::Gone => push(CLEAR, clear_gone(view)),
            }
            if let Some(pod) = view.stray {
                let owns_permit = view.nodes.permit == Some(pod.uid);
                if pod.is_alive() {
                    end_pod(view, pod, (None, false), owns_permit, grace_over, &mut push);
                } else {
                    push(CLEAR, vec![Effect::DeleteEngine { uid: pod.uid }]);
                }
            }
            push(CLEAR, completed_drain_order(view));
        }
        let undone = (0..known.len()).any(|engine| self.is_undone(&known, &roles, turns, engine, &snap));
        let converging = snap.alteration.is_some_and(|row| row.converging && row.generation <= snap.generation);
        if converging && (!undone || self.without.converged_means) {
            decisions.push(Decision { stage: FINISH, engine: 0, effect: Effect::Finish });
        }
        if self.without.drain_order_before_delete {
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

    /// The inventory: joins the inputs by name, and probes missing uids.
    fn inventory(&self, state: &State, seen: &Observed, snap: &Snapshot) -> Vec<EngineView> {
        let (Some(pods), Some(nodes)) = (&seen.pods, &seen.nodes) else { return Vec::new() };
        let count = pods.len().max(nodes.len()).max(snap.records.len());
        let known = (0..count).map(|index| {
            let engine = &state.engines[index];
            // A name issued after the observation has no nodes, one issued after the snapshot no row.
            let unknown = Engine::issued(engine.slot, engine.incarnation);
            let row = snap.records.get(index).copied().unwrap_or(unknown.record);
            let nodes = nodes.get(index).copied().unwrap_or(unknown.nodes);
            let mut pod = pods.get(index).copied().flatten();
            let missed = |uid: u8| pod.is_none_or(|pod| pod.uid != uid);
            let recorded = (row.uid != 0 && !row.ended).then_some(row.uid).filter(|uid| missed(*uid));
            let drained = nodes.drain_order.filter(|uid| missed(*uid));
            let asked = recorded.or(drained);
            let found = asked.and_then(|uid| engine.pod.filter(|pod| pod.uid == uid));
            pod = found.or(pod);
            let matches_row = pod.is_some_and(|pod| row.uid == 0 || pod.uid == row.uid);
            let newer = pod.is_some_and(|pod| pod.generation > snap.generation);
            EngineView {
                slot: engine.slot,
                incarnation: engine.incarnation,
                record: row,
                nodes,
                pod: pod.filter(|_| matches_row),
                stray: pod.filter(|_| !matches_row),
                vanished: asked.is_some() && found.is_none(),
                is_stale: newer && !self.without.newer_is_stale,
                confirmed: snap.confirmed.get(index).copied().unwrap_or(false),
            }
        });
        known.collect()
    }

    fn role(&self, known: &[EngineView], engine: usize, snap: &Snapshot) -> Role {
        let view = &known[engine];
        if view.is_stale {
            return Role::Stale;
        }
        let slot = snap.slots[view.slot];
        if let Some(slot) = slot.filter(|slot| slot.incarnation == view.incarnation) {
            return Role::Current(slot);
        }
        let Some(pod) = view.alive() else { return Role::Gone };
        let condemned = Role::Condemned { newer: None };
        if view.nodes.drain_order == Some(pod.uid) || view.record.condemned {
            return condemned;
        }
        let Some(slot) = slot else { return condemned };
        // Without a permit this is unknown: it may have registered below one that is lost.
        let never_ran = if self.without.mark {
            pod.phase == Phase::Starting && !view.is_registered()
        } else {
            view.nodes.permit.is_some() && !view.nodes.answered && !view.is_registered()
        };
        let unregistered = self.without.absence_ends_nothing && !view.is_registered();
        if slot.replacement == Replacement::Force || never_ran || unregistered {
            return condemned;
        }
        let ready = (0..known.len()).filter(|other| {
            let other = &known[*other];
            other.slot == view.slot && other.incarnation > view.incarnation && other.is_ready() && !other.is_stale
        });
        let newest = ready.max_by_key(|other| known[*other].incarnation);
        newest.map_or(Role::StandIn, |newer| Role::Condemned { newer: Some(newer) })
    }

    /// Whether the alteration still waits for this engine. One that was issued later belongs to another change.
    fn is_undone(&self, known: &[EngineView], roles: &[Role], turns: Turns, engine: usize, snap: &Snapshot) -> bool {
        let view = &known[engine];
        if snap.alteration.is_some_and(|row| view.incarnation > row.generation) {
            return false;
        }
        let stray_runs = view.stray.is_some_and(|pod| pod.is_alive() && view.nodes.drain_order != Some(pod.uid));
        let undone = match &roles[engine] {
            Role::Current(_) => match view.pod {
                _ if view.record.condemned => true,
                _ if view.record.ended => false,
                None => view.record.uid == 0 && !turns.waiting[view.slot] && !waits_in_place(known, engine, snap),
                Some(pod) if pod.is_alive() => {
                    let late = self.without.no_readiness && !view.is_ready();
                    view.record.uid == 0 || pod.relabeled || view.nodes.drain_order == Some(pod.uid) || late
                }
                Some(_) => false,
            },
            Role::Condemned { .. } => view.alive().is_some_and(|pod| view.nodes.drain_order != Some(pod.uid)),
            Role::StandIn if turns.taken[view.slot] => true,
            _ => false,
        };
        undone || stray_runs
    }

    fn current(&self, view: &EngineView, slot: Slot, waits: bool, push: &mut impl FnMut(u8, Vec<Effect>)) {
        let draw = Effect::DrawIncarnation { observed: slot.incarnation };
        let drain_order = match view.uid() {
            Some(uid) => view.nodes.drain_order == Some(uid),
            None => view.nodes.drain_order.is_some(),
        };
        if view.record.condemned || drain_order {
            return push(RENEW, vec![draw]);
        }
        if view.record.ended {
            push(
                CLEAR,
                match view.pod {
                    Some(pod) if !pod.is_alive() => clear(view, pod),
                    Some(_) => Vec::new(),
                    None => withdraw_dead(view),
                },
            );
            return push(RENEW, vec![draw]);
        }
        match view.pod {
            None if view.record.uid == 0 && waits => {}
            None if view.record.uid == 0 => {
                let mut chain = Vec::new();
                if view.nodes.permit.is_none() {
                    chain.push(Effect::CreatePermit { uid: 0 });
                }
                chain.push(Effect::CreateEngine);
                chain.extend([Effect::RecordUid { uid: 0 }, Effect::WritePermitUid { uid: 0 }]);
                push(CREATE, chain);
            }
            None if view.vanished => {
                let mut chain = vec![Effect::RecordEnd];
                chain.extend(withdraw_dead(view));
                push(CLEAR, chain);
            }
            None => {}
            Some(pod) if pod.is_alive() => {
                let mut chain = keep(view, pod);
                let absent = self.without.absence_ends_nothing && pod.was_registered && !view.is_registered();
                if pod.relabeled || absent {
                    chain.retain(|effect| matches!(effect, Effect::RecordUid { .. }));
                    chain.push(draw);
                    return push(RENEW, chain);
                }
                push(KEEP, chain);
            }
            Some(pod) => {
                let mut chain = Vec::new();
                if view.record.uid == 0 {
                    chain.push(Effect::RecordUid { uid: pod.uid });
                }
                chain.push(Effect::RecordEnd);
                chain.extend(clear(view, pod));
                push(CLEAR, chain);
            }
        }
    }
}

/// The needs of an engine that stays: its uid recorded, and a permit with it.
fn keep(view: &EngineView, pod: Pod) -> Vec<Effect> {
    let mut chain = Vec::new();
    if view.record.uid == 0 {
        chain.push(Effect::RecordUid { uid: pod.uid });
    }
    match view.nodes.permit {
        None => chain.push(Effect::CreatePermit { uid: pod.uid }),
        Some(uid) if uid != pod.uid => chain.push(Effect::WritePermitUid { uid: pod.uid }),
        Some(_) => {}
    }
    chain
}

fn end_pod(
    view: &EngineView,
    pod: Pod,
    (newer, in_place): (Option<usize>, bool),
    withdraw: bool,
    grace_over: bool,
    push: &mut impl FnMut(u8, Vec<Effect>),
) {
    let Some(drain_order) = view.nodes.drain_order else {
        let permit = (withdraw && view.nodes.permit.is_some()).then(|| view.nodes.below());
        return push(DRAIN, vec![Effect::Drain { uid: pod.uid, newer, permit, in_place }]);
    };
    if drain_order != pod.uid {
        return;
    }
    let mut chain = Vec::new();
    if withdraw && view.nodes.permit.is_some() {
        chain.push(Effect::DeletePermit(view.nodes.below()));
    }
    if grace_over {
        chain.push(Effect::DeleteEngine { uid: pod.uid });
    }
    push(CLEAR, chain);
}

/// A drain in several calls: first the drain order, then registration and permit.
fn in_calls_of_their_own(decision: Decision) -> Vec<Decision> {
    match decision.effect {
        Effect::Drain { permit: Some(below), .. } => {
            vec![decision, Decision { effect: Effect::Withdraw(below), ..decision }]
        }
        _ => vec![decision],
    }
}

/// An engine that is not current and has no running pod.
fn clear_gone(view: &EngineView) -> Vec<Effect> {
    let mut chain = Vec::new();
    if view.pod.is_none() && view.record.uid != 0 && !view.record.ended && !view.vanished {
        return chain;
    }
    if !view.record.ended {
        chain.push(Effect::RecordEnd);
    }
    match view.pod {
        Some(pod) => chain.extend(clear(view, pod)),
        None => chain.extend(withdraw_dead(view)),
    }
    chain
}

fn clear(view: &EngineView, pod: Pod) -> Vec<Effect> {
    let mut chain = vec![Effect::DeleteEngine { uid: pod.uid }];
    if view.nodes.permit.is_some() {
        chain.push(Effect::DeletePermit(view.nodes.below()));
    }
    chain
}

fn withdraw_dead(view: &EngineView) -> Vec<Effect> {
    let alone = view.nodes.permit.is_some() && !view.is_registered();
    if alone { vec![Effect::DeletePermit(view.nodes.below())] } else { Vec::new() }
}

/// The drain order of an engine that is gone.
fn completed_drain_order(view: &EngineView) -> Vec<Effect> {
    let Some(uid) = view.nodes.drain_order else { return Vec::new() };
    let there = [view.pod, view.stray].into_iter().flatten().any(|pod| pod.uid == uid);
    let registered = view.nodes.registration.uid() == Some(uid);
    if there || registered { Vec::new() } else { vec![Effect::RemoveDrainOrder] }
}
