//! The requests of users.

use super::state::{Alteration, State};
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
}
