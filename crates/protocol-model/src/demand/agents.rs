//! Engines with their agents and nodes: registration, idle time, the consent to retire, the drain, and failures.

use super::state::{Effect, Engine, Life, Master, Node, Phase, Scale, Slot, State, Tick, Why};
use super::{Action, Demand, history};

impl Demand {
    /// Steps of engines and the passing of time, which follow by themselves.
    pub(super) fn engine_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (at, engine) in state.engines.iter().enumerate() {
            let is_cut = state.is_cut(at, self.link);
            if engine.is_alive() && !engine.registered && !engine.ordered && !engine.hung && !is_cut {
                actions.push(Action::Register(at));
            }
            if engine.registered && is_cut {
                actions.push(Action::Expire(at));
            }
            let may_be_released = |slot: &Slot| slot.on_demand || self.without.on_demand_only;
            if engine.life == Life::Running && !engine.idle && state.slot_of(at).is_some_and(may_be_released) {
                actions.push(Action::IdleTimeout(at));
            }
            if engine.consent {
                actions.push(Action::ConsentEnds(at));
            }
            if engine.ordered && engine.is_alive() && !is_cut {
                actions.push(Action::Exit(at));
            }
        }
        if state.node.cut && !state.node.unready {
            actions.push(Action::NodeReported);
        }
        // Otherwise nothing depends on it.
        if !state.lapsed && state.engines.iter().any(|engine| engine.is_alive() && !engine.registered) {
            actions.push(Action::Lapse);
        }
    }

    pub(super) fn fault_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let (limits, used) = (self.limits, state.used);
        for (at, engine) in state.engines.iter().enumerate() {
            if engine.registered && used.expiries < limits.expiries {
                actions.push(Action::Expire(at));
            }
            if engine.registered && !engine.silent && used.silences < limits.silences {
                actions.push(Action::Silence(at));
            }
            if engine.life == Life::Starting && !engine.hung && used.hung < limits.hung {
                actions.push(Action::Hang(at));
            }
        }
        if !state.node.unready && !state.node.cut {
            if used.unready < limits.unready {
                actions.push(Action::NodeReported);
            }
            if used.cuts < limits.cuts {
                actions.push(Action::Cut);
            }
        }
        if state.node.unready || state.node.cut {
            actions.push(Action::NodeReturns);
        }
        if used.depositions < limits.depositions {
            actions.extend([Action::Depose(false), Action::Depose(true)]);
        }
        if used.given_up < limits.given_up {
            actions.push(Action::GiveUp);
        }
        if state.late.is_some() {
            actions.extend([Action::LateCall, Action::LateCallLost]);
        }
    }

    pub(super) fn engine(&self, state: &mut State, action: Action) -> bool {
        match action {
            Action::Register(at) => {
                let is_cut = state.is_cut(at, self.link);
                let engine = &mut state.engines[at];
                let may = engine.is_alive() && !engine.ordered && !engine.hung && !is_cut;
                if !may || engine.registered {
                    return false;
                }
                (engine.life, engine.registered) = (Life::Running, true);
            }
            Action::Expire(at) => {
                let is_cut = state.is_cut(at, self.link);
                let engine = &mut state.engines[at];
                if !engine.registered {
                    return false;
                }
                engine.registered = false;
                state.used.expiries += u8::from(!is_cut);
            }
            // It is longer than a session waits for a free engine, and than an engine drains.
            Action::IdleTimeout(at) => {
                let opens = |phase| match phase {
                    Phase::Waiting | Phase::Leaving(_) => true,
                    Phase::Open(engine) => state.engines[engine].ordered,
                    _ => false,
                };
                let is_waited_for = state.sessions.iter().any(|session| opens(session.phase));
                let taken = state.taken(at);
                let engine = &mut state.engines[at];
                if engine.life != Life::Running || engine.idle || taken > 0 || is_waited_for {
                    return false;
                }
                engine.idle = true;
            }
            Action::ConsentEnds(at) => {
                if !state.engines[at].consent || !self.without.scale_in_time && Self::is_relied_on(state, at) {
                    return false;
                }
                let engine = &mut state.engines[at];
                engine.consent = false;
                engine.overdue |= engine.removed.is_some();
            }
            Action::Exit(at) => {
                let is_cut = state.is_cut(at, self.link);
                if !state.engines[at].ordered || !state.engines[at].is_alive() || is_cut {
                    return false;
                }
                Self::end(state, at);
            }
            Action::NodeReported => {
                if state.node.unready {
                    return false;
                }
                state.node.unready = true;
                state.used.unready += u8::from(!state.node.cut);
            }
            // It is longer than a tick.
            Action::Lapse => {
                let ticks = !matches!(state.master, Master::Vacant | Master::Acting(Tick::Idle, _));
                if state.lapsed || ticks || history::is_sought(state) {
                    return false;
                }
                state.lapsed = true;
            }
            Action::Silence(at) => {
                state.engines[at].silent = true;
                state.used.silences += 1;
            }
            Action::Hang(at) => {
                state.engines[at].hung = true;
                state.used.hung += 1;
            }
            Action::Cut => {
                state.node.cut = true;
                state.used.cuts += 1;
            }
            Action::NodeReturns => state.node = Node::default(),
            _ => return false,
        }
        true
    }

    /// The engine is gone, and its sessions go on with another one.
    pub(super) fn end(state: &mut State, at: usize) {
        for session in &mut state.sessions {
            if session.phase == Phase::Open(at) {
                session.phase = Phase::Waiting;
                state.lapsed = false;
            }
        }
        let engine = &mut state.engines[at];
        state.free += u8::from(engine.charged);
        *engine = Engine { life: Life::Gone, removed: engine.removed, ..Engine::issued(engine.ordinal) };
    }

    /// Whether a slot may still be removed because of the engine's consent.
    fn is_relied_on(state: &State, at: usize) -> bool {
        let removes = |effect: &Effect| matches!(effect, Effect::Scale(Scale { remove: Some((engine, Why::Idle)), .. }) if *engine == at);
        let planned = match &state.master {
            Master::Acting(Tick::Planned(effects), _) => effects.first().is_some_and(removes),
            _ => false,
        };
        planned || state.late.as_ref().is_some_and(|call| removes(&call.effect))
    }

    /// The agent is asked to retire: no session is open, and none was opened since so many had been.
    pub(super) fn agrees(&self, state: &mut State, at: usize, opened: u8) -> bool {
        let (is_cut, taken) = (state.is_cut(at, self.link), state.taken(at));
        let engine = &mut state.engines[at];
        let answers = engine.life == Life::Running && !engine.silent && !is_cut;
        let agrees = answers && taken == 0 && engine.opened == opened;
        engine.consent |= agrees;
        agrees
    }
}
