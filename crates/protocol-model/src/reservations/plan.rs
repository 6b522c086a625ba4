//! The plan, as `crates/planner` computes it: which reservations are adopted, confirmed and ended, and which engines are
//! created, kept and deleted.

use super::Reservations;
use super::state::{Decision, Effect, Instance, Phase, Reservation, State};

const LEDGER: u8 = 0;
/// The leading reservations of all creates, before the creates.
pub(super) const RESERVE: u8 = 1;
pub(super) const CREATE: u8 = 2;
const KEEP: u8 = 3;
const RENEW: u8 = 4;
const DELETE: u8 = 5;
const CLEAR: u8 = 6;
const COUNT: u8 = 7;
/// In a variant: after the creates.
const LATE_LEDGER: u8 = CREATE;

impl Reservations {
    /// The decisions in order, from a list of instances and what is read now; missing instances are probed.
    pub(super) fn plan(&self, state: &State, listed: &[Option<Instance>]) -> Vec<Decision> {
        let removed = self.without;
        let mut decisions = Vec::new();
        let (mut asked, mut adopts) = (Vec::new(), false);
        let turns = self.turns(state, listed);
        for engine in 0..state.engines.len() {
            let seen = listed.get(engine).copied().flatten();
            let mut push = |stage, effect| decisions.push(Decision { stage, engine, effect });
            self.ledger(state, engine, listed, &mut push, &mut adopts);
            if state.is_current(engine) {
                let waits = state.in_place[state.engines[engine].slot] && self.has_older(state, engine, listed);
                if self.current(state, engine, seen, &mut push) && !waits {
                    asked.push(engine);
                }
            } else {
                let has_turn = turns[state.engines[engine].slot];
                self.superseded(state, engine, has_turn, listed, &mut push);
            }
        }
        let admits = !adopts || removed.adopt_before_admit || removed.adopting_admits_nothing;
        let mut held = self.held(state);
        for engine in asked {
            let again = state.engines[engine].reservation.is_some();
            let predecessor = self.predecessor(state, engine, listed).filter(|_| !removed.transferred);
            let charged_with_slot = removed.pool_for_both && Self::slot_is_charged(state, engine);
            let fits = predecessor.is_some() || held < self.pool.capacity;
            if again || charged_with_slot || admits && fits {
                held += u8::from(!again && !charged_with_slot && predecessor.is_none());
                let create = [Effect::CreateEngine, Effect::RecordUid { uid: 0 }];
                let chain = create.map(|effect| Decision { stage: CREATE, engine, effect });
                if removed.reserved_first {
                    decisions.extend(chain);
                    decisions.push(Decision { stage: CREATE, engine, effect: Effect::Reserve });
                } else {
                    let effect = predecessor.map_or(Effect::Reserve, |from| Effect::Transfer { from });
                    decisions.push(Decision { stage: RESERVE, engine, effect });
                    decisions.extend(chain);
                }
            }
        }
        if state.holder.and_then(|holder| holder.reservation).is_some_and(Reservation::is_overdue) {
            decisions.push(Decision { stage: LEDGER, engine: 0, effect: Effect::Expire });
        }
        if !adopts && state.counted != state.epoch {
            decisions.push(Decision { stage: COUNT, engine: 0, effect: Effect::Count });
        }
        decisions.sort_by_key(|decision| decision.stage);
        decisions
    }

    /// Adopt, confirm and end.
    fn ledger(
        &self,
        state: &State,
        index: usize,
        listed: &[Option<Instance>],
        push: &mut impl FnMut(u8, Effect),
        adopts: &mut bool,
    ) {
        let seen = listed.get(index).copied().flatten();
        let removed = self.without;
        let engine = &state.engines[index];
        let record = engine.record;
        let counts = |instance: &Instance| instance.is_alive() || !removed.terminating_is_charged;
        let seen = seen.filter(counts);
        if let Some(instance) = seen
            && !record.ended
            && !engine.is_charged()
        {
            *adopts = true;
            let stage = if removed.adopt_before_admit { LATE_LEDGER } else { LEDGER };
            push(stage, Effect::Adopt { uid: instance.uid });
        }
        let Some(reservation) = engine.reservation.filter(|reservation| reservation.is_charged()) else { return };
        let registered = seen.is_some_and(|seen| seen.phase == Phase::Registered && seen.uid == record.uid);
        if registered && matches!(reservation, Reservation::Locked { .. }) {
            push(LEDGER, Effect::Confirm { uid: record.uid });
        }
        let early = removed.charge_until_gone && (record.condemned || reservation.is_overdue() && !registered);
        let at_deadline = removed.renewed_before_end
            && reservation.is_overdue()
            && seen.is_none()
            && record.uid == 0
            && engine.instance.is_none();
        let is_gone = self.is_gone(state, index, seen) && !self.keeps(state, index, listed);
        if early || at_deadline {
            push(LEDGER, Effect::End);
        } else if is_gone && removed.end_is_repeated {
            if !record.ended {
                // After the end of the engine, which follows in the plan.
                push(CLEAR + 1, Effect::End);
            }
        } else if is_gone && !(removed.all_charged_are_planned && record.ended) {
            push(LEDGER, Effect::End);
        }
    }

    /// Whether nothing is left of an engine that was created, or that will never be.
    fn is_gone(&self, state: &State, index: usize, seen: Option<Instance>) -> bool {
        let record = state.engines[index].record;
        let vanished = record.uid != 0 && !self.is_there(state, index);
        seen.is_none() && (vanished || record.ended || record.uid == 0 && !state.is_current(index))
    }

    /// Whether the charge of an engine that is gone stays for the next engine of its slot.
    fn keeps(&self, state: &State, index: usize, listed: &[Option<Instance>]) -> bool {
        let engine = &state.engines[index];
        let Some(current) = state.slots[engine.slot].filter(|_| state.in_place[engine.slot]) else { return false };
        let is_kept =
            if current == index { !engine.confirmed } else { self.predecessor(state, current, listed) == Some(index) };
        is_kept && !self.without.transferred
    }

    /// The older engine whose charge passes to the current one, which has none: preferably one that still exists.
    fn predecessor(&self, state: &State, current: usize, listed: &[Option<Instance>]) -> Option<usize> {
        let slot = state.engines[current].slot;
        if !state.in_place[slot] || state.engines[current].is_charged() {
            return None;
        }
        let of_slot = (0..state.engines.len()).filter(|other| *other != current && state.engines[*other].slot == slot);
        let charged = of_slot.filter(|other| state.engines[*other].is_charged());
        let exists = |other: usize| !self.is_gone(state, other, listed.get(other).copied().flatten());
        charged.max_by_key(|other| (exists(*other), *other))
    }

    /// Whether an older engine of the slot has an instance, or may have one.
    fn has_older(&self, state: &State, current: usize, listed: &[Option<Instance>]) -> bool {
        let slot = state.engines[current].slot;
        let mut others =
            (0..state.engines.len()).filter(|other| *other != current && state.engines[*other].slot == slot);
        others.any(|other| {
            let seen = listed.get(other).copied().flatten();
            let seen = seen.filter(|seen| seen.is_alive() || !self.without.older_is_gone);
            let may_exist = !self.is_gone(state, other, seen) && !self.without.older_is_gone;
            seen.is_some() || may_exist
        })
    }

    /// Which slots have their turn to be replaced in place: one that is down has it until an engine of it has registered.
    fn turns(&self, state: &State, listed: &[Option<Instance>]) -> [bool; 2] {
        let is_registered = |index: usize| {
            let seen = listed.get(index).copied().flatten();
            seen.is_some_and(|seen| seen.phase == Phase::Registered && seen.uid == state.engines[index].record.uid)
        };
        let mut turns = [false; 2];
        let mut is_free = true;
        let mut waiting = Vec::new();
        for (slot, current) in state.slots.iter().enumerate() {
            let current = current.filter(|current| state.in_place[slot] && !is_registered(*current));
            let Some(current) = current else { continue };
            let of_slot = || (0..state.engines.len()).filter(|index| state.engines[*index].slot == slot);
            let serves = |index: &usize| {
                let record = state.engines[*index].record;
                *index != current && is_registered(*index) && !record.condemned && !record.ended
            };
            let engine = &state.engines[current];
            let is_charged = of_slot().any(|index| state.engines[index].is_charged());
            let has_begun = engine.is_charged() || engine.record.uid != 0;
            if of_slot().any(|index| serves(&index)) && !has_begun {
                waiting.push(slot);
            } else if of_slot().any(|index| serves(&index)) {
                (turns[slot], is_free) = (true, false);
            } else if !engine.confirmed && is_charged {
                is_free = false;
            }
        }
        for slot in waiting {
            if is_free || self.without.turns {
                (turns[slot], is_free) = (true, false);
            }
        }
        turns
    }

    /// The probe of the recorded uid.
    fn is_there(&self, state: &State, index: usize) -> bool {
        let engine = &state.engines[index];
        engine.instance.is_some_and(|instance| {
            instance.uid == engine.record.uid && (instance.is_alive() || !self.without.terminating_is_charged)
        })
    }

    /// The current engine of a slot; returns whether it is to be created.
    fn current(&self, state: &State, index: usize, seen: Option<Instance>, push: &mut impl FnMut(u8, Effect)) -> bool {
        let engine = &state.engines[index];
        let record = engine.record;
        let overdue = engine.reservation.is_some_and(Reservation::is_overdue);
        let registered = seen.is_some_and(|seen| seen.phase == Phase::Registered && seen.uid == record.uid);
        if record.ended || overdue && !registered {
            push(RENEW, Effect::DrawIncarnation);
            return false;
        }
        match seen {
            None if record.uid == 0 => {
                let has_ended = engine.reservation == Some(Reservation::Ended);
                if has_ended && !self.without.ended_renews {
                    push(RENEW, Effect::DrawIncarnation);
                    return false;
                }
                true
            }
            None => {
                if !self.is_there(state, index) {
                    push(CLEAR, Effect::RecordEnd);
                }
                false
            }
            Some(instance) if instance.is_alive() => {
                if record.uid == 0 {
                    push(KEEP, Effect::RecordUid { uid: instance.uid });
                } else if record.uid != instance.uid {
                    push(DELETE, Effect::DeleteEngine { uid: instance.uid });
                }
                false
            }
            Some(_) => false,
        }
    }

    /// An engine that is no slot's current one: it stands in, or it ends.
    fn superseded(
        &self,
        state: &State,
        index: usize,
        has_turn: bool,
        listed: &[Option<Instance>],
        push: &mut impl FnMut(u8, Effect),
    ) {
        let seen = listed.get(index).copied().flatten();
        let engine = &state.engines[index];
        let record = engine.record;
        match seen.filter(|seen| seen.is_alive() || !self.without.terminating_is_charged) {
            None if !record.ended && (record.uid == 0 || !self.is_there(state, index)) => {
                push(CLEAR, Effect::RecordEnd);
            }
            Some(instance) if instance.is_alive() => {
                let replaced = state.slots[engine.slot].is_none_or(|current| {
                    let newer = listed.get(current).copied().flatten();
                    newer.is_some_and(|newer| {
                        newer.phase == Phase::Registered && newer.uid == state.engines[current].record.uid
                    })
                });
                let served = instance.phase == Phase::Registered && instance.uid == record.uid;
                if replaced || !served || record.condemned || record.ended {
                    push(DELETE, Effect::DeleteEngine { uid: instance.uid });
                } else if has_turn {
                    push(DELETE, Effect::Drain);
                }
            }
            _ => {}
        }
    }
}
