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
        for engine in 0..state.engines.len() {
            let seen = listed.get(engine).copied().flatten();
            let mut push = |stage, effect| decisions.push(Decision { stage, engine, effect });
            self.ledger(state, engine, seen, &mut push, &mut adopts);
            if state.is_current(engine) {
                if self.current(state, engine, seen, &mut push) {
                    asked.push(engine);
                }
            } else {
                self.superseded(state, engine, seen, listed, &mut push);
            }
        }
        let admits = !adopts || removed.adopt_before_admit || removed.adopting_admits_nothing;
        let mut held = self.held(state);
        for engine in asked {
            let again = state.engines[engine].reservation.is_some();
            let charged_with_slot = removed.pool_for_both && Self::slot_is_charged(state, engine);
            if again || charged_with_slot || admits && held < self.pool.capacity {
                held += u8::from(!again && !charged_with_slot);
                let create = [Effect::CreateEngine, Effect::RecordUid { uid: 0 }];
                let chain = create.map(|effect| Decision { stage: CREATE, engine, effect });
                if removed.reserved_first {
                    decisions.extend(chain);
                    decisions.push(Decision { stage: CREATE, engine, effect: Effect::Reserve });
                } else {
                    decisions.push(Decision { stage: RESERVE, engine, effect: Effect::Reserve });
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
        seen: Option<Instance>,
        push: &mut impl FnMut(u8, Effect),
        adopts: &mut bool,
    ) {
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
        let vanished = record.uid != 0 && !self.is_there(state, index);
        let is_gone = seen.is_none() && (vanished || record.ended || record.uid == 0 && !state.is_current(index));
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
        seen: Option<Instance>,
        listed: &[Option<Instance>],
        push: &mut impl FnMut(u8, Effect),
    ) {
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
                }
            }
            _ => {}
        }
    }
}
