//! The requests of users.

use super::state::{Alteration, Replacement, State};
use super::{Action, Engines, Request};

impl Engines {
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
                state.issue(free, Replacement::StandIn, false);
            }
            Request::Stop(slot) => {
                if state.slots[slot].take().is_none() {
                    return false;
                }
                state.condemn(slot);
            }
            Request::Restart(slot) | Request::Force(slot) | Request::InPlace(slot) => {
                if state.slots[slot].is_none() {
                    return false;
                }
                let replacement = match request {
                    Request::Force(_) => Replacement::Force,
                    Request::InPlace(_) => Replacement::InPlace,
                    _ => Replacement::StandIn,
                };
                if replacement == Replacement::Force {
                    state.condemn(slot);
                }
                state.issue(slot, replacement, false);
            }
            Request::Alter
            | Request::AlterBroken
            | Request::AlterInPlace
            | Request::AlterBrokenInPlace
            | Request::Drop => {
                // Refused: it waits and is retried.
                if state.alteration.is_some_and(|row| row.converging) {
                    return false;
                }
                let in_place = matches!(request, Request::AlterInPlace | Request::AlterBrokenInPlace);
                let replacement = if in_place { Replacement::InPlace } else { Replacement::StandIn };
                let broken = matches!(request, Request::AlterBroken | Request::AlterBrokenInPlace);
                for slot in 0..2 {
                    if request == Request::Drop {
                        state.slots[slot] = None;
                        state.condemn(slot);
                    } else if state.slots[slot].is_some() {
                        state.issue(slot, replacement, broken);
                    }
                }
                state.alteration = Some(Alteration { generation: state.generation, converging: true });
            }
        }
        true
    }
}
