//! What happens outside of the master: requests, instances, the external holder, and faults.

use super::state::{Holder, Instance, Master, Phase, Program, Reservation, State};
use super::{Action, Request, Reservations};

impl Reservations {
    pub(super) fn request_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, request) in self.requests.iter().enumerate() {
            if state.issued & 1 << index == 0 {
                actions.push(Action::Issue(index, *request));
            }
        }
    }

    /// Steps of instances and of the external holder.
    pub(super) fn outside_actions(state: &State, actions: &mut Vec<Action>) {
        for index in 0..state.engines.len() {
            match state.engines[index].instance.map(|instance| instance.phase) {
                Some(Phase::Starting) => actions.push(Action::Register(index)),
                Some(Phase::Terminating) => actions.push(Action::Gone(index)),
                Some(Phase::Registered) | None => {}
            }
        }
        if let Some(holder) = state.holder {
            actions.push(Action::Hold);
            for (program, phase) in holder.programs.iter().enumerate() {
                actions.extend(match phase {
                    Program::Idle => Some(Action::ConfirmProgram(program)),
                    Program::Running => Some(Action::Release(program)),
                    Program::Done => None,
                });
            }
        }
    }

    pub(super) fn fault_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let (limits, used) = (self.limits, state.used);
        for index in 0..state.engines.len() {
            if used.vanishings < limits.vanishings {
                actions.push(Action::Vanish(index));
            }
            if used.deadlines < limits.deadlines {
                actions.push(Action::Deadline(index));
            }
        }
        if used.deadlines < limits.deadlines {
            actions.push(Action::HolderDeadline);
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

    /// One transaction each, under the catalog lock: one step.
    pub(super) fn request(state: &mut State, index: usize, request: Request) -> bool {
        state.issued |= 1 << index;
        match request {
            Request::Start => {
                let Some(free) = state.slots.iter().position(Option::is_none) else { return false };
                state.issue(free);
                state.in_place[free] = false;
            }
            Request::Stop(slot) => {
                if state.slots[slot].take().is_none() {
                    return false;
                }
                (state.in_place[slot], state.down[slot]) = (false, false);
                let of_slot = state.engines.iter_mut().filter(|engine| engine.slot == slot && !engine.record.ended);
                of_slot.for_each(|engine| engine.record.condemned = true);
            }
            Request::Restart(slot) | Request::InPlace(slot) => {
                if state.slots[slot].is_none() {
                    return false;
                }
                state.issue(slot);
                state.in_place[slot] = matches!(request, Request::InPlace(_));
            }
            Request::Hold => {
                state.holder = Some(Holder { reservation: None, programs: [Program::Idle; 2] });
            }
        }
        true
    }

    pub(super) fn outside(&self, state: &mut State, action: Action) -> bool {
        match action {
            Action::Register(index) => {
                let engine = &mut state.engines[index];
                let recorded = engine.record.uid;
                let permitted =
                    |instance: &&mut Instance| instance.uid == recorded && instance.phase == Phase::Starting;
                let Some(instance) = engine.instance.as_mut().filter(permitted) else { return false };
                instance.phase = Phase::Registered;
                state.down[engine.slot] = false;
            }
            Action::Gone(index) => {
                let instance = &mut state.engines[index].instance;
                return instance.take_if(|instance| !instance.is_alive()).is_some();
            }
            Action::Hold => {
                let is_counted = state.counted == state.epoch || self.without.counted_before_grants;
                let fits = self.held(state) < self.pool.capacity;
                let Some(holder) = state.holder.as_mut() else { return false };
                if holder.reservation.is_some() || !is_counted || !fits {
                    return false;
                }
                holder.reservation = Some(Reservation::Locked { overdue: false });
            }
            Action::ConfirmProgram(program) => {
                let Some(holder) = state.holder.as_mut() else { return false };
                let Some(reservation) = holder.reservation else { return false };
                let uid = program as u8;
                let is_confirmed = match reservation {
                    Reservation::Locked { overdue } => !overdue || self.without.confirm_state,
                    Reservation::Used(user) => user == uid || self.without.confirm_uid,
                    Reservation::Ended => self.without.confirm_state,
                };
                if is_confirmed && matches!(reservation, Reservation::Locked { .. }) {
                    holder.reservation = Some(Reservation::Used(uid));
                }
                // A program that is not confirmed does not run.
                holder.programs[program] = if is_confirmed { Program::Running } else { Program::Done };
            }
            Action::Release(program) => {
                let Some(holder) = state.holder.as_mut() else { return false };
                holder.programs[program] = Program::Done;
                if holder.reservation == Some(Reservation::Used(program as u8)) {
                    holder.reservation = Some(Reservation::Ended);
                }
            }
            Action::Vanish(index) => {
                state.used.vanishings += 1;
                return state.engines[index].instance.take().is_some();
            }
            Action::Deadline(index) => {
                state.used.deadlines += 1;
                return pass_deadline(state.engines[index].reservation.as_mut());
            }
            Action::HolderDeadline => {
                state.used.deadlines += 1;
                return pass_deadline(state.holder.as_mut().and_then(|holder| holder.reservation.as_mut()));
            }
            Action::Depose(with_call) => {
                state.used.depositions += 1;
                let call = Self::call(state);
                if state.master == Master::Vacant || with_call && (call.is_none() || state.late.is_some()) {
                    return false;
                }
                state.master = Master::Vacant;
                state.late = if with_call { call } else { state.late };
            }
            Action::GiveUp => {
                state.used.given_up += 1;
                return Self::give_up(state);
            }
            Action::LateCall => return self.arrive(state),
            Action::LateCallLost => return state.late.take().is_some(),
            _ => return false,
        }
        true
    }
}

fn pass_deadline(reservation: Option<&mut Reservation>) -> bool {
    let Some(reservation) = reservation.filter(|reservation| **reservation == Reservation::Locked { overdue: false })
    else {
        return false;
    };
    *reservation = Reservation::Locked { overdue: true };
    true
}
