//! The engine agents in their pods.

use super::state::{Engine, Phase, Registration, State};
use super::{Action, Engines};

impl Engines {
    pub(super) fn pod_actions(state: &State, actions: &mut Vec<Action>) {
        for (index, engine) in state.engines.iter().enumerate() {
            if matches!(engine.nodes.registration, Registration::Dead(_)) {
                actions.push(Action::RegistrationExpires(index));
            }
            let Some(pod) = engine.pod else { continue };
            match pod.phase {
                Phase::Starting => actions.push(Action::WarmUp(index)),
                Phase::Warm => {
                    actions.extend([Action::ReadPermit(index), Action::BeginDrain(index), Action::Unwanted(index)]);
                }
                Phase::Registering => actions.push(Action::Register(index)),
                Phase::Draining => actions.push(Action::Drained(index)),
                Phase::Ended => {}
            }
        }
    }

    pub(super) fn pod(&self, state: &mut State, action: Action) -> bool {
        let Some(index) = action.engine() else { return false };
        let engine = &mut state.engines[index];
        if action == Action::RegistrationExpires(index) {
            let dead = matches!(engine.nodes.registration, Registration::Dead(_));
            engine.nodes.registration = if dead { Registration::None } else { engine.nodes.registration };
            return dead;
        }
        let is_current = state.slots[engine.slot].is_some_and(|slot| slot.incarnation == engine.incarnation);
        let Engine { nodes, pod: Some(pod), broken, slot, .. } = engine else { return false };
        let ordered = nodes.drain_order == Some(pod.uid);
        let obeys =
            ordered || self.without.order_only && pod.was_registered && nodes.registration == Registration::None;
        let admitted = nodes.permit.is_some_and(|uid| uid == pod.uid || self.without.permit_uid);
        match (action, pod.phase) {
            (Action::WarmUp(_), Phase::Starting) if !*broken => pod.phase = Phase::Warm,
            (Action::ReadPermit(_), Phase::Warm) => {
                if ordered && !self.without.order_before_session
                    || !admitted
                    || nodes.registration != Registration::None
                {
                    return false;
                }
                pod.phase = Phase::Registering;
            }
            (Action::Register(_), Phase::Registering) => {
                pod.phase = Phase::Warm;
                if admitted && nodes.registration == Registration::None {
                    nodes.registration = Registration::Alive(pod.uid);
                    nodes.answered = !self.without.mark;
                    pod.was_registered = true;
                    state.history.down[*slot] &= !is_current;
                }
            }
            (Action::BeginDrain(_), Phase::Warm) if obeys => {
                pod.phase = Phase::Draining;
                state.history.drained_desired |= !ordered && state.is_current(index);
            }
            (Action::Drained(_), Phase::Draining) => engine.end(),
            (Action::Unwanted(_), Phase::Warm) => {
                let permitted = nodes.permit.is_some_and(|uid| uid == pod.uid || uid == 0);
                if pod.was_registered || permitted || ordered {
                    return false;
                }
                engine.end();
            }
            _ => return false,
        }
        true
    }
}
