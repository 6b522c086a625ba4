//! The holder of the lock: raise the epoch, then in each tick observe, snapshot, plan and execute with preconditions.

use super::state::{
    Call, Decision, Effect, Engine, Master, Observed, Phase, Pod, Registration, Replacement, State, Tick,
};
use super::{Action, Engines};

/// How a tick continues.
enum Next {
    Goes(Tick),
    /// The epoch is another's: raise it again, if the lock is still held.
    Deposed,
}

impl Engines {
    pub(super) fn master_actions(state: &State, actions: &mut Vec<Action>) {
        match &state.master {
            Master::Vacant => actions.push(Action::Win),
            Master::Won => actions.push(Action::ReadEpoch),
            Master::Read(_) => actions.push(Action::RaiseEpoch),
            Master::Acting { tick, .. } => match tick {
                Tick::Idle if !state.woken => {}
                Tick::Idle => actions.extend([Action::List, Action::Observe]),
                Tick::Observing(seen) => actions.extend(match (&seen.pods, &seen.nodes) {
                    (None, _) => vec![Action::List],
                    (_, None) => vec![Action::Observe],
                    _ => vec![Action::Snapshot(false), Action::Snapshot(true)],
                }),
                Tick::Planned { decisions, .. } => {
                    actions.extend(
                        decisions.first().map(|decision| Action::from_effect(decision.effect, decision.engine)),
                    );
                }
            },
        }
    }

    pub(super) fn master(&self, state: &mut State, action: Action) -> bool {
        match (action, &state.master) {
            (Action::Win, Master::Vacant) => state.master = Master::Won,
            (Action::ReadEpoch, Master::Won) => state.master = Master::Read(state.epoch),
            (Action::RaiseEpoch, Master::Read(read)) => {
                let read = *read;
                state.master = if state.epoch == read {
                    state.epoch += 1;
                    Master::Acting { epoch: state.epoch, tick: Tick::Idle }
                } else {
                    Master::Won
                };
            }
            (_, Master::Acting { epoch, tick }) => {
                let (epoch, tick) = (*epoch, tick.clone());
                let Some(next) = self.tick(state, action, epoch, tick) else { return false };
                state.master = match next {
                    Next::Goes(tick) => Master::Acting { epoch, tick },
                    Next::Deposed => Master::Won,
                };
            }
            _ => return false,
        }
        true
    }

    /// The tick after the step; `None` if the step is not enabled.
    fn tick(&self, state: &mut State, action: Action, epoch: u8, tick: Tick) -> Option<Next> {
        Some(Next::Goes(match (action, tick) {
            (Action::List | Action::Observe, Tick::Idle) => {
                let early = self.without.order.then(|| state.snapshot());
                Tick::Observing(read(state, action, Observed { early, ..Observed::default() }))
            }
            (Action::List | Action::Observe, Tick::Observing(seen)) => Tick::Observing(read(state, action, seen)),
            (Action::Snapshot(grace_over), Tick::Observing(seen)) => {
                let nodes = seen.nodes.as_ref()?;
                if grace_over && nodes.iter().all(|nodes| nodes.drain_order.is_none()) {
                    return None;
                }
                if state.epoch != epoch {
                    return Some(Next::Deposed);
                }
                let (generation, decisions) = self.plan(state, &seen, grace_over);
                planned(generation, 0, decisions)
            }
            (_, Tick::Planned { generation, made, mut decisions }) => {
                let decision = *decisions.first()?;
                decisions.remove(0);
                match self.effect(state, decision, (epoch, generation, made), true) {
                    Done::Yes(made) => planned(generation, made, decisions),
                    // The chain stops at its first failure; other chains continue.
                    Done::Failed => {
                        decisions.retain(|other| (other.stage, other.engine) != (decision.stage, decision.engine));
                        planned(generation, 0, decisions)
                    }
                    Done::Deposed => return Some(Next::Deposed),
                }
            }
            _ => return None,
        }))
    }

    /// Executes a decision with its preconditions. `holds`: the master holds the lock; otherwise it is a late call, and a multi
    /// fails because it checks the lock.
    pub(super) fn effect(
        &self,
        state: &mut State,
        decision: Decision,
        (epoch, generation, made): (u8, u8, u8),
        holds: bool,
    ) -> Done {
        let index = decision.engine;
        let known = |uid: u8| if uid == 0 { made } else { uid };
        match decision.effect {
            Effect::RecordUid { .. }
            | Effect::DrawIncarnation { .. }
            | Effect::RecordEnd
            | Effect::Confirm
            | Effect::Finish
                if state.epoch != epoch =>
            {
                if holds || !self.without.epoch_in_transaction {
                    return Done::Deposed;
                }
                state.history.deposed_wrote = true;
            }
            _ if !holds && !self.needs_no_lock(decision.effect) => return Done::Failed,
            _ => {}
        }
        if decision.effect == Effect::Finish {
            return finish(state, generation);
        }
        let engine = &mut state.engines[index];
        match decision.effect {
            Effect::CreatePermit { uid } => {
                if engine.nodes.permit.is_some() {
                    return Done::Failed;
                }
                engine.nodes.permit = Some(uid);
                // A running engine may have registered below an earlier permit.
                engine.nodes.answered = uid != 0 && !self.without.mark;
            }
            Effect::CreateEngine => return Done::Yes(create(state, index, generation, holds)),
            Effect::RecordUid { uid } => {
                if engine.record.uid != 0 && engine.record.uid != known(uid) {
                    return Done::Failed;
                }
                engine.record.uid = known(uid);
                engine.was_recorded = true;
            }
            Effect::WritePermitUid { uid } => {
                if engine.nodes.permit.is_none() {
                    return Done::Failed;
                }
                engine.nodes.permit = Some(known(uid));
            }
            Effect::DrawIncarnation { observed } => return self.draw(state, index, observed),
            Effect::Finish => {}
            Effect::RecordEnd => engine.record.ended = true,
            Effect::Confirm => engine.confirmed = true,
            Effect::Drain { .. } => return self.drain(state, decision),
            Effect::Withdraw(below) | Effect::DeletePermit(below) => {
                if engine.nodes.permit.is_none() || engine.nodes.below() != below {
                    return Done::Failed;
                }
                engine.nodes.withdraw();
            }
            Effect::DeleteEngine { uid } => delete(state, index, uid),
            Effect::RemoveDrainOrder => {
                if engine.nodes.drain_order.take().is_none() {
                    return Done::Failed;
                }
            }
        }
        Done::Yes(made)
    }

    fn draw(&self, state: &mut State, index: usize, observed: u8) -> Done {
        let slot = state.engines[index].slot;
        let Some(row) = state.slots[slot] else { return Done::Failed };
        if row.incarnation != observed && !self.without.observed_incarnation {
            return Done::Failed;
        }
        if self.without.names_once {
            // The slot keeps its name, without its record.
            let engine = &mut state.engines[index];
            engine.record = Engine::issued(engine.slot, engine.incarnation).record;
        } else {
            let broken = state
                .engines
                .iter()
                .any(|engine| engine.incarnation == row.incarnation && engine.slot == slot && engine.broken);
            let confirmed = state.engines[index].confirmed;
            let is_kept = row.replacement == Replacement::InPlace && !confirmed && !self.without.stays_in_place;
            let replacement = if is_kept { Replacement::InPlace } else { Replacement::StandIn };
            let down = state.history.down;
            state.issue(slot, replacement, broken);
            // Only a user's request ends that the slot was taken down.
            state.history.down = down;
        }
        Done::Yes(0)
    }

    fn drain(&self, state: &mut State, decision: Decision) -> Done {
        let Effect::Drain { uid, newer, permit, in_place } = decision.effect else { return Done::Failed };
        let newer_there = newer.is_none_or(|newer| state.engines[newer].nodes.registration != Registration::None);
        let engine = &state.engines[decision.engine];
        let as_seen = permit.is_none_or(|below| engine.nodes.permit.is_some() && engine.nodes.below() == below);
        if engine.nodes.drain_order.is_some()
            || !(newer_there || self.without.newer_registration)
            || !(as_seen || self.without.as_seen || self.without.one_multi)
        {
            return Done::Failed;
        }
        note_drain(state, decision.engine, uid, in_place);
        let engine = &mut state.engines[decision.engine];
        engine.nodes.drain_order = Some(uid);
        if let Some(pod) = engine.pod.as_mut().filter(|pod| pod.uid == uid) {
            pod.ordered = true;
        }
        if (permit.is_some() || self.without.as_seen) && !self.without.one_multi {
            let kept = engine.nodes.permit.filter(|_| self.without.order_before_session);
            engine.nodes.withdraw();
            engine.nodes.permit = kept;
        }
        Done::Yes(0)
    }

    /// Whether the effect is no multi, which would check the lock.
    fn needs_no_lock(&self, effect: Effect) -> bool {
        let outside = matches!(effect, Effect::CreateEngine | Effect::DeleteEngine { .. });
        let database = matches!(
            effect,
            Effect::RecordUid { .. }
                | Effect::DrawIncarnation { .. }
                | Effect::RecordEnd
                | Effect::Confirm
                | Effect::Finish
        );
        outside || database || matches!(effect, Effect::Drain { .. }) && self.without.drain_lock
    }

    /// The current call of the acting master, if it can take effect without the lock.
    pub(super) fn call(&self, state: &State) -> Option<Call> {
        match &state.master {
            Master::Read(read) => Some(Call::Raise(*read)),
            Master::Acting { epoch, tick: Tick::Planned { generation, made, decisions } } => {
                let decision = *decisions.first()?;
                let call = Call::Effect { decision, epoch: *epoch, generation: *generation, made: *made };
                self.needs_no_lock(decision.effect).then_some(call)
            }
            _ => None,
        }
    }
}

/// The result of a decision.
pub(super) enum Done {
    /// It took effect; the uid for the rest of the chain.
    Yes(u8),
    Failed,
    Deposed,
}

fn planned(generation: u8, made: u8, decisions: Vec<Decision>) -> Tick {
    if decisions.is_empty() { Tick::Idle } else { Tick::Planned { generation, made, decisions } }
}

fn read(state: &State, action: Action, mut seen: Observed) -> Observed {
    match action {
        Action::List => seen.pods = Some(state.engines.iter().map(|engine| engine.pod).collect()),
        _ => seen.nodes = Some(state.engines.iter().map(|engine| engine.nodes).collect()),
    }
    seen
}

/// Creates the pod and returns its uid. A running pod with the name is a success; one that has ended is replaced.
fn create(state: &mut State, index: usize, generation: u8, holds: bool) -> u8 {
    let engine = &mut state.engines[index];
    if let Some(pod) = engine.pod.filter(|pod| pod.is_alive()) {
        return pod.uid;
    }
    state.history.name_made_again |= holds && engine.was_recorded;
    state.history.created_before_end_of_older |= holds && has_older_in_place(state, index);
    let engine = &mut state.engines[index];
    engine.last_uid += 1;
    let uid = engine.last_uid;
    let phase = Phase::Starting;
    engine.pod = Some(Pod { uid, phase, was_registered: false, generation, relabeled: false, ordered: false });
    uid
}

/// Whether an older instance is left of the slot that the engine takes over in place. One whose uid is not recorded is an
/// orphan: a late create, which may arrive at any time.
fn has_older_in_place(state: &State, index: usize) -> bool {
    let engine = &state.engines[index];
    let is_in_place = state.slots[engine.slot]
        .is_some_and(|slot| slot.replacement == Replacement::InPlace && slot.incarnation == engine.incarnation);
    is_in_place
        && state.engines.iter().any(|other| {
            let is_older = other.slot == engine.slot && other.incarnation < engine.incarnation;
            is_older && other.pod.is_some_and(|pod| pod.uid == other.record.uid)
        })
}

/// The alteration is converged, by a plan whose generation is at least its own.
fn finish(state: &mut State, generation: u8) -> Done {
    let Some(row) = state.alteration.filter(|row| row.converging && row.generation <= generation) else {
        return Done::Failed;
    };
    state.alteration = Some(super::state::Alteration { converging: false, ..row });
    // Every slot that it affected has its engine, or one that served before stands in, or it waits in place for the end of the
    // older one.
    let missing = (0..2).any(|slot| {
        let Some(present) = state.slots[slot].filter(|slot| slot.incarnation <= row.generation) else { return false };
        let stands = |engine: &Engine| {
            engine.incarnation == present.incarnation || !engine.record.condemned && !engine.record.ended
        };
        present.replacement != Replacement::InPlace
            && !state.engines.iter().any(|engine| engine.slot == slot && engine.was_recorded && stands(engine))
    });
    // And every engine that was condemned by then has a drain order.
    let unordered = state.engines.iter().any(|engine| {
        let runs = engine.pod.is_some_and(|pod| pod.is_alive() && !pod.ordered && pod.uid == engine.record.uid);
        runs && engine.condemned_at.is_some_and(|generation| generation <= row.generation)
    });
    state.history.converged_early |= missing || unordered;
    Done::Yes(0)
}

fn delete(state: &mut State, index: usize, uid: u8) {
    let engine = &mut state.engines[index];
    let Some(pod) = engine.pod.filter(|pod| pod.uid == uid) else { return };
    state.history.killed_without_drain_order |= pod.is_alive() && !pod.ordered;
    engine.pod = None;
    if engine.nodes.registration == Registration::Alive(uid) {
        engine.nodes.registration = Registration::Dead(uid);
    }
}

/// Records violations: a serving engine is drained without a replacement, or a desired one is drained. The drain of a turn
/// stays if a later request asks for another replacement.
fn note_drain(state: &mut State, index: usize, uid: u8, in_place: bool) {
    let engine = &state.engines[index];
    let Some(pod) = engine.pod.filter(|pod| pod.uid == uid && pod.is_alive() && engine.record.uid == uid) else {
        return;
    };
    if engine.record.condemned || pod.phase == Phase::Draining {
        return;
    }
    if in_place {
        let slot = engine.slot;
        state.history.both_down |= state.history.down[1 - slot];
        // A request since the plan may have decided otherwise.
        state.history.down[slot] |= state.slots[slot].is_some_and(|row| row.replacement == Replacement::InPlace);
        return;
    }
    let Some(slot) = state.slots[engine.slot] else { return };
    let replaced = state.engines.iter().any(|other| {
        other.slot == engine.slot
            && other.incarnation > engine.incarnation
            && other.nodes.registration != Registration::None
    });
    let present = slot.incarnation == engine.incarnation;
    state.history.drained_desired |= present;
    let unreplaced = !present && slot.replacement != Replacement::Force && !replaced;
    state.history.drained_early |= unreplaced && engine.nodes.registration == Registration::Alive(uid);
    state.history.drained_in_absence |= unreplaced && pod.was_registered;
}
