//! Faults, each kind as often as the limits allow, and the late calls that follow from them.

use super::master::create;
use super::state::{Agent, Call, Master, Plan, State, Tick};
use super::{Action, Alteration};

impl Alteration {
    pub(super) fn fault_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let (limits, used) = (self.limits, state.used);
        for agent in 0..2 {
            let alive = !matches!(state.agents[agent], Agent::Dead | Agent::Done(_));
            if alive && used.crashes < limits.crashes {
                actions.push(Action::Crash(agent));
            }
            if alive && used.agent_expiries < limits.agent_expiries {
                actions.push(Action::AgentExpires(agent));
            }
            if used.unknown_commits < limits.unknown_commits {
                actions.push(Action::UnknownCommit(agent));
            }
        }
        if used.depositions < limits.depositions {
            actions.extend([Action::Depose(false), Action::Depose(true)]);
        }
        if used.hand_deletions < limits.hand_deletions {
            actions.extend([Action::DeleteNodeByHand, Action::DeleteChildByHand]);
        }
        if used.refusals < limits.refusals {
            actions.push(Action::RefuseCreates);
        }
        if state.refusing {
            actions.push(Action::CreatesAccepted);
        }
        if state.late.is_some() {
            actions.extend([Action::LateCall, Action::LateCallLost]);
        }
    }

    pub(super) fn fault(&self, state: &mut State, action: Action) -> bool {
        match action {
            Action::Crash(agent) => {
                state.used.crashes += 1;
                // A COMMIT that was sent is in flight; any other transaction ends with its connection.
                if let Agent::Sent(work) = state.agents[agent] {
                    state.open[agent] = Some(work);
                }
                state.agents[agent] = Agent::Dead;
                session_ends(state, agent);
            }
            Action::AgentExpires(agent) => {
                state.used.agent_expiries += 1;
                return session_ends(state, agent);
            }
            Action::UnknownCommit(agent) => {
                let Agent::Sent(work) = state.agents[agent] else { return false };
                state.used.unknown_commits += 1;
                state.open[agent] = Some(work);
                self.refuse(state, agent);
            }
            Action::Depose(with_call) => return Self::depose(state, with_call),
            Action::DeleteNodeByHand => {
                state.used.hand_deletions += 1;
                state.history.by_hand = true;
                return state.node.take().is_some();
            }
            Action::DeleteChildByHand => {
                let Some(node) = &mut state.node else { return false };
                state.used.hand_deletions += 1;
                state.history.by_hand = true;
                node.agent = None;
                return node.child.take().is_some();
            }
            Action::RefuseCreates => {
                state.used.refusals += 1;
                return !std::mem::replace(&mut state.refusing, true);
            }
            Action::CreatesAccepted => state.refusing = false,
            Action::LateCallLost => return state.late.take().is_some(),
            Action::LateCall => {
                let Some(call) = state.late.take() else { return false };
                return self.arrive(state, call);
            }
            _ => return false,
        }
        true
    }

    /// The lock is lost. At most the current call is still in flight, unless it is a multi, which checks the lock.
    fn depose(state: &mut State, with_call: bool) -> bool {
        state.used.depositions += 1;
        let call = match state.master {
            Master::Read(read) => Some(Call::Raise(read)),
            Master::Acting { epoch, tick: Tick::Planned(plan) } => call(&plan, epoch),
            Master::Acting { tick: Tick::Aborting(seen), .. } => {
                seen.node.and_then(|node| node.unsettled(&state.db.rows)).map(Call::Abort)
            }
            Master::Vacant | Master::Won | Master::Acting { .. } => None,
        };
        if state.master == Master::Vacant || with_call && (call.is_none() || state.late.is_some()) {
            return false;
        }
        state.master = Master::Vacant;
        if with_call {
            state.late = call;
        }
        true
    }

    fn arrive(&self, state: &mut State, call: Call) -> bool {
        match call {
            Call::Raise(read) => {
                if state.db.epoch == read {
                    state.db.epoch += 1;
                }
            }
            Call::Abort(id) => {
                if self.key_is_held(state, id) {
                    return false;
                }
                self.abort(state, id);
            }
            Call::Create(object, slot) => {
                if !state.refusing {
                    create(state, object, slot);
                }
            }
            Call::Delete(object, pods) => state.pods[object] &= !pods,
            Call::Finish { id, progress, generation, epoch } => {
                let deposed = state.db.epoch != epoch;
                if !deposed || self.without.epoch_in_transaction {
                    state.history.deposed_wrote |= deposed;
                    self.finish(state, id, progress, generation);
                }
            }
        }
        true
    }
}

/// The session that the alter node names is gone, if the node is the agent's.
fn session_ends(state: &mut State, agent: usize) -> bool {
    match &mut state.node {
        Some(node) if node.agent == Some(agent) => {
            node.agent = None;
            true
        }
        _ => false,
    }
}

/// The call for the next effect of the plan, unless it is a multi.
fn call(plan: &Plan, epoch: u8) -> Option<Call> {
    if let Some(object) = plan.create.iter().position(|slot| *slot != 0) {
        return Some(Call::Create(object, plan.create[object]));
    }
    if let Some(object) = plan.delete.iter().position(|pods| *pods != 0) {
        return Some(Call::Delete(object, plan.delete[object]));
    }
    let id = plan.finish.iter().position(Option::is_some)?;
    Some(Call::Finish { id, progress: plan.finish[id]?, generation: plan.generation, epoch })
}
