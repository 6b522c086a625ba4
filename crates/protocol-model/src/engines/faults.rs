//! Faults, each kind as often as the limits allow, and the late calls that follow from them.

use super::state::{Call, Engine, Master, Pod, Registration, State};
use super::{Action, Engines};

impl Engines {
    pub(super) fn fault_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let (limits, used) = (self.limits, state.used);
        for index in 0..state.engines.len() {
            if used.expiries < limits.expiries {
                actions.push(Action::Expire(index));
            }
            if used.deaths < limits.deaths {
                actions.push(Action::Die(index));
            }
            if used.vanishings < limits.vanishings {
                actions.push(Action::Vanish(index));
            }
            if used.hand_deletions < limits.hand_deletions {
                actions.push(Action::DeletePermitByHand(index));
            }
            if used.relabelings < limits.relabelings {
                actions.push(Action::Relabel(index));
            }
        }
        if used.depositions < limits.depositions {
            actions.extend([Action::Depose(false), Action::Depose(true)]);
        }
        if used.losses < limits.losses {
            actions.push(Action::LoseZooKeeper);
        }
        if self.without.timer {
            actions.push(Action::MissWatch);
        }
        if state.late.is_some() {
            actions.extend([Action::LateCall, Action::LateCallLost]);
        }
    }

    pub(super) fn fault(&self, state: &mut State, action: Action) -> bool {
        match action {
            Action::Expire(index) => {
                state.used.expiries += 1;
                let registration = &mut state.engines[index].nodes.registration;
                if !matches!(registration, Registration::Alive(_)) {
                    return false;
                }
                *registration = Registration::None;
            }
            Action::Die(index) => {
                state.used.deaths += 1;
                let engine = &mut state.engines[index];
                if !engine.pod.is_some_and(Pod::is_alive) {
                    return false;
                }
                engine.end();
            }
            Action::Vanish(index) => {
                state.used.vanishings += 1;
                let engine = &mut state.engines[index];
                if engine.pod.is_none() {
                    return false;
                }
                engine.end();
                engine.pod = None;
            }
            Action::DeletePermitByHand(index) => {
                state.used.hand_deletions += 1;
                let nodes = &mut state.engines[index].nodes;
                let there = nodes.permit.is_some();
                nodes.withdraw();
                return there;
            }
            Action::Relabel(index) => {
                state.used.relabelings += 1;
                let Some(pod) = &mut state.engines[index].pod else { return false };
                return pod.is_alive() && !std::mem::replace(&mut pod.relabeled, true);
            }
            Action::LoseZooKeeper => {
                state.used.losses += 1;
                for engine in &mut state.engines {
                    engine.nodes = Engine::issued(0, 0).nodes;
                }
                state.master = Master::Vacant;
            }
            Action::Depose(with_call) => {
                state.used.depositions += 1;
                let call = self.call(state);
                if state.master == Master::Vacant || with_call && (call.is_none() || state.late.is_some()) {
                    return false;
                }
                state.master = Master::Vacant;
                state.late = if with_call { call } else { state.late };
            }
            Action::MissWatch => return std::mem::replace(&mut state.woken, false),
            Action::LateCallLost => return state.late.take().is_some(),
            Action::LateCall => match state.late.take() {
                Some(Call::Raise(read)) => state.epoch += u8::from(state.epoch == read),
                Some(Call::Effect { decision, epoch, generation, made }) => {
                    let _ = self.effect(state, decision, (epoch, generation, made), false);
                }
                None => return false,
            },
            _ => return false,
        }
        true
    }
}
