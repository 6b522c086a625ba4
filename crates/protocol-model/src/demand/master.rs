//! The holder of the lock: raise the epoch, then in each tick observe, read, poll, plan and execute; and what its calls do.

use super::state::{Call, Effect, Expected, History, Life, Master, Scale, Seen, Slot, State, Tick, Why};
use super::{Action, Demand};

impl Demand {
    pub(super) fn master_actions(state: &State, actions: &mut Vec<Action>) {
        actions.push(match &state.master {
            Master::Vacant => Action::RaiseEpoch,
            Master::Acting(Tick::Idle, _) => Action::Observe,
            Master::Acting(Tick::Observed(_), _) => Action::Snapshot,
            Master::Acting(Tick::Read { polls: true, .. }, _) => Action::Poll,
            Master::Acting(Tick::Read { .. }, _) => Action::Plan,
            Master::Acting(Tick::Planned(effects), _) => {
                let Some(effect) = effects.first() else { return };
                Action::from_effect(*effect)
            }
        });
    }

    pub(super) fn master(&self, state: &mut State, action: Action) -> bool {
        let (tick, history) = match std::mem::replace(&mut state.master, Master::Vacant) {
            Master::Vacant if action == Action::RaiseEpoch => {
                state.epoch += 1;
                state.master = Master::Acting(Tick::Idle, History::default());
                return true;
            }
            Master::Vacant => return false,
            Master::Acting(tick, history) => (tick, history),
        };
        let (tick, history) = match (action, tick) {
            (Action::Observe, Tick::Idle) => (Tick::Observed(self.seen(state)), History::now(state, self)),
            (Action::Snapshot, Tick::Observed(seen)) => {
                let waiting = self.waiting(state);
                let issued = state.engines.len();
                (Tick::Read { seen, slots: state.slots, issued, waiting, polls: waiting > 0 }, history)
            }
            (Action::Poll, Tick::Read { mut seen, slots, issued, waiting, .. }) => {
                let now = self.seen(state);
                for (seen, now) in seen.iter_mut().zip(now).filter(|(seen, _)| seen.engine.registered) {
                    let Seen { engine, taken, .. } = now;
                    seen.taken = taken;
                    (seen.engine.idle, seen.engine.opened) = (engine.idle, engine.opened);
                    (seen.engine.consent, seen.engine.silent) = (engine.consent, engine.silent);
                }
                (Tick::Read { seen, slots, issued, waiting, polls: false }, history)
            }
            (Action::Plan, Tick::Read { seen, slots, issued, waiting, .. }) => {
                let again = waiting > 0 && !self.without.demand_after_loads;
                let waiting = if again { self.waiting(state) } else { waiting };
                let expected = Expected::of(&slots, issued);
                (planned(self.plan(state, &seen, (&slots, expected), waiting)), history)
            }
            (_, Tick::Planned(mut effects)) if effects.first().copied().map(Action::from_effect) == Some(action) => {
                let effect = effects.remove(0);
                let (mut history, cancels) = (history, Self::cancels_created(state, effect, &history));
                if self.effect(state, effect, &mut history) {
                    state.broken.wasted |= cancels;
                } else {
                    without_chain(effect, &mut effects);
                }
                (planned(effects), history)
            }
            _ => return false,
        };
        state.master = Master::Acting(tick, history);
        true
    }

    /// The waiting sessions of all proxies whose lease has not ended.
    fn waiting(&self, state: &State) -> u8 {
        let current = state.sessions.iter().filter(|session| session.row.waits);
        current.filter(|session| session.leased || self.without.lease).count() as u8
    }

    fn seen(&self, state: &State) -> Vec<Seen> {
        let seen = state.engines.iter().enumerate().map(|(at, engine)| Seen {
            engine: *engine,
            taken: state.taken(at),
            unready: state.is_unready(at, self.link),
        });
        seen.collect()
    }

    /// Executes an effect; returns whether it was done.
    pub(super) fn effect(&self, state: &mut State, effect: Effect, history: &mut History) -> bool {
        match effect {
            Effect::Retire { engine, opened } => return self.agrees(state, engine, opened),
            Effect::Scale(scale) => return self.scale(state, scale, history),
            Effect::Reserve(engine) => {
                if state.free == 0 {
                    state.broken.queued = true;
                    return false;
                }
                state.free -= 1;
                state.engines[engine].charged = true;
            }
            Effect::Create(engine) => {
                if state.engines[engine].life == Life::Issued {
                    state.engines[engine].life = Life::Starting;
                }
            }
            Effect::Draw(observed) => {
                let Some(slot) = state.slot_of(observed).copied() else { return false };
                let bit = 1 << observed;
                state.broken.replaced_too_early |= history.registered & bit != 0 || history.ready & bit != 0;
                let ordinal = state.engines[observed].ordinal;
                let engine = state.issue(ordinal);
                state.engines[engine].charged = std::mem::take(&mut state.engines[observed].charged);
                state.slots[ordinal] = Some(Slot { engine, ..slot });
            }
            Effect::Drain(engine) => {
                let drained = &mut state.engines[engine];
                (drained.ordered, drained.registered) = (true, false);
            }
            Effect::Withdraw(engine) => state.engines[engine].consent = false,
        }
        true
    }

    /// The transaction that adds and removes slots.
    fn scale(&self, state: &mut State, scale: Scale, history: &mut History) -> bool {
        let now = state.expected();
        let is_same = (now.count, now.newest) == (scale.expected.count, scale.expected.newest);
        let is_expected = is_same && (self.without.issued || now.issued == scale.expected.issued);
        if !is_expected && !self.without.expected {
            return false;
        }
        if let Some((engine, why)) = scale.remove {
            let Some(slot) = state.slot_of(engine).copied() else { return false };
            let left = now.count - 1;
            if left < state.min && !self.without.minimum {
                return false;
            }
            Self::judge_removal(state, (engine, why, slot), history);
            state.broken.below_min |= left < state.min;
            Self::remove(state, engine, why);
        }
        for _ in 0..scale.add {
            let Some(ordinal) = state.slots.iter().take(self.link.max).position(Option::is_none) else { break };
            if state.free == 0 {
                break;
            }
            state.broken.too_many |= history.short == 0;
            history.added();
            // What was served is no longer missed by any plan.
            if let Some(late) = &mut state.late {
                late.history.added();
            }
            if let Master::Acting(_, acting) = &mut state.master {
                acting.added();
            }
            let engine = state.issue(ordinal);
            if !self.without.one_commit {
                state.free -= 1;
                state.engines[engine].charged = true;
            }
            state.slots[ordinal] = Some(Slot { engine, on_demand: true });
        }
        true
    }

    /// Whether it cancels an engine that was created in the same tick. A late call may meet one that was created after it.
    fn cancels_created(state: &State, effect: Effect, history: &History) -> bool {
        let Effect::Scale(Scale { remove: Some((engine, Why::Unneeded)), .. }) = effect else { return false };
        state.engines[engine].is_alive() && history.created & 1 << engine == 0
    }

    fn judge_removal(state: &mut State, (engine, why, slot): (usize, Why, Slot), history: &History) {
        let is_busy = match why {
            Why::Idle => state.taken(engine) > 0,
            // It may have registered since the plan.
            Why::Unneeded | Why::Queued => history.busy & 1 << engine != 0,
        };
        state.broken.busy_removed |= is_busy;
        state.broken.started_removed |= !slot.on_demand;
        let was_created = history.created & 1 << engine != 0;
        state.broken.sought_cancelled |= why == Why::Unneeded && was_created && history.sought;
    }

    /// As STOP: the slot is gone, and its engines are to end.
    fn remove(state: &mut State, engine: usize, why: Why) {
        let ordinal = state.engines[engine].ordinal;
        state.slots[ordinal] = None;
        for at in 0..state.engines.len() {
            let of_slot = &mut state.engines[at];
            if of_slot.ordinal != ordinal || of_slot.life == Life::Gone || of_slot.removed.is_some() {
                continue;
            }
            of_slot.removed = Some(if at == engine { why } else { Why::Unneeded });
            if of_slot.life == Life::Issued {
                Self::end(state, at);
            }
        }
    }

    /// The current call of the acting master.
    fn call(state: &State) -> Option<Call> {
        let Master::Acting(Tick::Planned(effects), history) = &state.master else { return None };
        // Late creates and drains are in the model of engines.
        let effect = effects.first().copied();
        let effect =
            effect.filter(|effect| !matches!(effect, Effect::Create(_) | Effect::Drain(_) | Effect::Reserve(_)));
        Some(Call { effect: effect?, epoch: state.epoch, history: *history })
    }

    /// The acting master goes on without its current call.
    pub(super) fn give_up(&self, state: &mut State) -> bool {
        let Some(call) = Self::call(state).filter(|_| state.late.is_none()) else { return false };
        state.used.given_up += 1;
        let Master::Acting(Tick::Planned(effects), history) = &mut state.master else { return false };
        let history = *history;
        let mut rest = effects.split_off(1);
        without_chain(call.effect, &mut rest);
        if let Effect::Scale(Scale { remove: Some((engine, Why::Idle)), .. }) = call.effect
            && self.without.consent_ends_by_time
        {
            rest.insert(0, Effect::Withdraw(engine));
        }
        state.master = Master::Acting(planned(rest), history);
        state.late = Some(call);
        true
    }

    /// The master loses the lock; whether its current call is still in flight.
    pub(super) fn depose(state: &mut State, in_flight: bool) -> bool {
        if state.master == Master::Vacant {
            return false;
        }
        if in_flight {
            let Some(call) = Self::call(state).filter(|_| state.late.is_none()) else { return false };
            state.late = Some(call);
        }
        state.used.depositions += 1;
        state.master = Master::Vacant;
        true
    }

    /// A late call arrives. Those that write to the database are compared with the epoch in their transaction.
    pub(super) fn arrive(&self, state: &mut State) -> bool {
        let Some(Call { effect, epoch, mut history }) = state.late.take() else { return false };
        let is_of_agent = matches!(effect, Effect::Retire { .. } | Effect::Withdraw(_));
        if is_of_agent || epoch == state.epoch {
            let _ = self.effect(state, effect, &mut history);
        }
        true
    }
}

fn planned(effects: Vec<Effect>) -> Tick {
    if effects.is_empty() { Tick::Idle } else { Tick::Planned(effects) }
}

/// The effects that remain when one has failed.
fn without_chain(failed: Effect, rest: &mut Vec<Effect>) {
    if matches!(failed, Effect::Retire { .. }) {
        rest.retain(|effect| !matches!(effect, Effect::Scale(_)));
    }
}
