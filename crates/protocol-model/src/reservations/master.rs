//! The holder of the lock: raise the epoch, then in each tick list, read, plan and execute; and the ledger's side of its
//! calls. A change of the ledger is one step here: the other model has its statements.

use super::plan::{CREATE, RESERVE};
use super::state::{Call, Decision, Effect, Instance, Master, Phase, Reservation, State, Tick};
use super::{Action, Reservations};

impl Reservations {
    pub(super) fn master_actions(state: &State, actions: &mut Vec<Action>) {
        actions.push(match &state.master {
            Master::Vacant => Action::RaiseEpoch,
            Master::Acting(Tick::Idle) => Action::List,
            Master::Acting(Tick::Listed(_)) => Action::Plan,
            Master::Acting(Tick::Planned { decisions, .. }) => {
                let Some(decision) = decisions.first() else { return };
                Action::from_effect(decision.effect, decision.engine)
            }
        });
    }

    pub(super) fn master(&self, state: &mut State, action: Action) -> bool {
        let tick = match (action, std::mem::replace(&mut state.master, Master::Vacant)) {
            (Action::RaiseEpoch, Master::Vacant) => {
                state.epoch += 1;
                Tick::Idle
            }
            (Action::List, Master::Acting(Tick::Idle)) => {
                Tick::Listed(state.engines.iter().map(|engine| engine.instance).collect())
            }
            (Action::Plan, Master::Acting(Tick::Listed(listed))) => planned(0, self.plan(state, &listed)),
            (_, Master::Acting(Tick::Planned { made, mut decisions })) => {
                if decisions.is_empty() {
                    return false;
                }
                let decision = decisions.remove(0);
                match self.effect(state, decision, made, false) {
                    Some(made) => planned(made, decisions),
                    None => planned(0, without_chain(decision, decisions)),
                }
            }
            _ => return false,
        };
        state.master = Master::Acting(tick);
        true
    }

    /// What the pool holds.
    pub(super) fn held(&self, state: &State) -> u8 {
        let engines = 0..state.engines.len();
        let charged = engines.filter(|index| {
            let engine = &state.engines[*index];
            let is_first = !state.engines[..*index].iter().any(|other| other.is_charged() && other.slot == engine.slot);
            engine.is_charged() && (is_first || !self.without.pool_for_both)
        });
        charged.count() as u8 + u8::from(state.holder_is_charged())
    }

    pub(super) fn slot_is_charged(state: &State, engine: usize) -> bool {
        let slot = state.engines[engine].slot;
        state.engines.iter().any(|other| other.slot == slot && other.is_charged())
    }

    /// Executes a decision: the uid for the rest of the chain, or `None` if it failed.
    pub(super) fn effect(&self, state: &mut State, decision: Decision, made: u8, late: bool) -> Option<u8> {
        let index = decision.engine;
        match decision.effect {
            Effect::Reserve => return self.reserve(state, index).then_some(made),
            Effect::Transfer { from } => return Self::transfer(state, index, from).then_some(made),
            Effect::Drain => {
                let engine = &mut state.engines[index];
                engine.record.condemned = true;
                let (slot, was_there) = (engine.slot, engine.instance.is_some_and(Instance::is_alive));
                state.down[slot] |= was_there && state.in_place[slot];
                return Some(made);
            }
            Effect::DrawIncarnation => {
                if !state.is_current(index) {
                    return None;
                }
                let engine = &state.engines[index];
                let (slot, confirmed) = (engine.slot, engine.confirmed);
                state.in_place[slot] &= !confirmed && !self.without.in_place_is_kept;
                state.issue(slot);
                return Some(made);
            }
            Effect::Expire => {
                let reservation = state.holder.as_mut().and_then(|holder| holder.reservation.as_mut());
                if let Some(reservation) = reservation.filter(|reservation| reservation.is_overdue()) {
                    *reservation = Reservation::Ended;
                }
                return Some(made);
            }
            Effect::Count => {
                state.counted = state.epoch;
                return Some(made);
            }
            _ => {}
        }
        let engine = &mut state.engines[index];
        match decision.effect {
            Effect::Adopt { uid } => {
                if !engine.is_charged() {
                    engine.reservation = Some(Reservation::Used(uid));
                    engine.confirmed = true;
                }
                if let Some(instance) = &mut engine.instance {
                    instance.reserved = !instance.late;
                }
            }
            Effect::Confirm { uid } => match engine.reservation? {
                Reservation::Locked { .. } => {
                    engine.reservation = Some(Reservation::Used(uid));
                    engine.confirmed = true;
                }
                Reservation::Used(user) if user == uid => {}
                Reservation::Used(_) | Reservation::Ended => return None,
            },
            Effect::End => {
                if engine.is_charged() {
                    engine.reservation = Some(Reservation::Ended);
                }
            }
            Effect::CreateEngine => {
                if let Some(instance) = engine.instance {
                    return instance.is_alive().then_some(instance.uid);
                }
                engine.last_uid += 1;
                let uid = engine.last_uid;
                engine.instance = Some(Instance { uid, phase: Phase::Starting, late, reserved: !late });
                return Some(uid);
            }
            Effect::RecordUid { uid } => {
                let uid = if uid == 0 { made } else { uid };
                if engine.record.uid != 0 && engine.record.uid != uid {
                    return None;
                }
                engine.record.uid = uid;
            }
            Effect::DeleteEngine { uid } => {
                if let Some(instance) = engine.instance.as_mut().filter(|instance| instance.uid == uid) {
                    instance.phase = Phase::Terminating;
                }
            }
            Effect::RecordEnd => engine.record.ended = true,
            Effect::Reserve
            | Effect::Transfer { .. }
            | Effect::Drain
            | Effect::DrawIncarnation
            | Effect::Expire
            | Effect::Count => return None,
        }
        Some(made)
    }

    /// Grants, or returns the reservation that the name has.
    fn reserve(&self, state: &mut State, index: usize) -> bool {
        if let Some(existing) = state.engines[index].reservation {
            return existing.is_charged();
        }
        let with_slot = self.without.pool_for_both && Self::slot_is_charged(state, index);
        if !with_slot && self.held(state) >= self.pool.capacity {
            return false;
        }
        state.engines[index].reservation = Some(Reservation::Locked { overdue: false });
        true
    }

    /// Ends one charge of the slot and makes the other, or returns the reservation that the name has.
    fn transfer(state: &mut State, index: usize, from: usize) -> bool {
        if let Some(existing) = state.engines[index].reservation {
            return existing.is_charged();
        }
        if !state.engines[from].is_charged() {
            return false;
        }
        state.engines[from].reservation = Some(Reservation::Ended);
        state.engines[index].reservation = Some(Reservation::Locked { overdue: false });
        true
    }

    /// The current call of the acting master.
    pub(super) fn call(state: &State) -> Option<Call> {
        let Master::Acting(Tick::Planned { made, decisions }) = &state.master else { return None };
        Some(Call { decision: *decisions.first()?, made: *made, epoch: state.epoch })
    }

    /// The acting master goes on without its current call.
    pub(super) fn give_up(state: &mut State) -> bool {
        let Some(call) = Self::call(state).filter(|_| state.late.is_none()) else { return false };
        if let Master::Acting(Tick::Planned { decisions, .. }) = &mut state.master {
            let rest = decisions.split_off(1);
            state.master = Master::Acting(planned(0, without_chain(call.decision, rest)));
        }
        state.late = Some(call);
        true
    }

    /// A late call arrives. Those that write to the database are compared with the epoch in their transaction.
    pub(super) fn arrive(&self, state: &mut State) -> bool {
        let Some(Call { decision, made, epoch }) = state.late.take() else { return false };
        let is_outside = matches!(decision.effect, Effect::CreateEngine | Effect::DeleteEngine { .. });
        if is_outside || epoch == state.epoch {
            let _ = self.effect(state, decision, made, true);
        }
        true
    }
}

fn planned(made: u8, decisions: Vec<Decision>) -> Tick {
    if decisions.is_empty() { Tick::Idle } else { Tick::Planned { made, decisions } }
}

/// The decisions that remain when one has failed: its chain stops, others continue.
fn without_chain(failed: Decision, mut rest: Vec<Decision>) -> Vec<Decision> {
    rest.retain(|other| {
        let in_chain = other.stage == failed.stage || failed.stage == RESERVE && other.stage == CREATE;
        other.engine != failed.engine || !in_chain
    });
    rest
}
