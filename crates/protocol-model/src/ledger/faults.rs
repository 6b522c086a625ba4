//! Faults, each kind as often as the limits allow, and the late COMMITs that follow from them.

use super::state::{MASTER, Progress, State};
use super::{Action, Ledger};

impl Ledger {
    pub(super) fn fault_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let (limits, used) = (self.limits, state.used);
        for job in 0..self.jobs.len() {
            if used.broken < limits.broken {
                actions.push(Action::Break(job));
            }
            if used.lost_replies < limits.lost_replies {
                actions.push(Action::LoseReply(job));
            }
            if state.orphans[job].is_some() {
                actions.extend([Action::CommitArrives(job), Action::RollBack(job)]);
            }
        }
        if used.depositions < limits.depositions {
            actions.push(Action::Raise);
        }
    }

    pub(super) fn fault(&self, state: &mut State, action: Action) -> bool {
        match action {
            Action::Raise => {
                if state.open().any(|(_, transaction)| transaction.locks & MASTER != 0) {
                    return false;
                }
                state.used.depositions += 1;
                state.data.epoch += 1;
            }
            Action::Break(job) => {
                state.used.broken += 1;
                if !matches!(state.progress[job], Progress::Running { .. }) {
                    return false;
                }
                state.progress[job] = Progress::Idle;
            }
            Action::LoseReply(job) => {
                state.used.lost_replies += 1;
                return self.orphan(state, job);
            }
            Action::CommitArrives(job) => {
                let Some(orphan) = state.orphans[job].take() else { return false };
                self.commit(state, job, orphan.part, &orphan.transaction);
            }
            Action::RollBack(job) => return state.orphans[job].take().is_some(),
            _ => return false,
        }
        true
    }
}
