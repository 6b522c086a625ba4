//! The engine agents in their pods, the fate of pods, and the requests of users.

use super::state::{Alteration, Call, Engine, Master, Phase, Pod, Registration, Request, State};
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
        let Engine { nodes, pod: Some(pod), broken, .. } = engine else { return false };
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
                }
            }
            (Action::BeginDrain(_), Phase::Warm) if obeys => {
                pod.phase = Phase::Draining;
                state.history.drained_desired |= !ordered && state.is_current(index);
            }
            (Action::Drained(_), Phase::Draining) => end(engine),
            (Action::Unwanted(_), Phase::Warm) => {
                let permitted = nodes.permit.is_some_and(|uid| uid == pod.uid || uid == 0);
                if pod.was_registered || permitted || ordered {
                    return false;
                }
                end(engine);
            }
            _ => return false,
        }
        true
    }

    pub(super) fn request_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, request) in self.requests.iter().enumerate() {
            if state.issued & 1 << index == 0 {
                actions.push(Action::Issue(index, *request));
            }
        }
    }

    /// One transaction each, under the catalog lock: one step.
    pub(super) fn request(state: &mut State, index: usize, request: Request) -> bool {
        state.issued |= 1 << index;
        match request {
            Request::Start => {
                let Some(free) = state.slots.iter().position(Option::is_none) else { return false };
                state.issue(free, false, false);
            }
            Request::Stop(slot) => {
                if state.slots[slot].take().is_none() {
                    return false;
                }
                state.condemn(slot);
            }
            Request::Restart(slot) | Request::Force(slot) => {
                if state.slots[slot].is_none() {
                    return false;
                }
                let forced = matches!(request, Request::Force(_));
                if forced {
                    state.condemn(slot);
                }
                state.issue(slot, forced, false);
            }
            Request::Alter | Request::AlterBroken | Request::Drop => {
                // Refused: it waits and is retried.
                if state.alteration.is_some_and(|row| row.converging) {
                    return false;
                }
                for slot in 0..2 {
                    if request == Request::Drop {
                        state.slots[slot] = None;
                        state.condemn(slot);
                    } else if state.slots[slot].is_some() {
                        state.issue(slot, false, request == Request::AlterBroken);
                    }
                }
                state.alteration = Some(Alteration { generation: state.generation, converging: true });
            }
        }
        true
    }

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
                end(engine);
            }
            Action::Vanish(index) => {
                state.used.vanishings += 1;
                let engine = &mut state.engines[index];
                if engine.pod.is_none() {
                    return false;
                }
                end(engine);
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

/// The process has ended. Its registration exists until its session expires.
fn end(engine: &mut Engine) {
    let Some(pod) = &mut engine.pod else { return };
    pod.phase = Phase::Ended;
    if engine.nodes.registration == Registration::Alive(pod.uid) {
        engine.nodes.registration = Registration::Dead(pod.uid);
    }
}
