//! The metadata agents, and the database's side of their transactions.

use super::state::{Agent, Answer, Node, Object, Progress, Row, State, Work};
use super::{Action, Alteration};

impl Alteration {
    pub(super) fn agent_actions(state: &State, agent: usize, actions: &mut Vec<Action>) {
        match state.agents[agent] {
            Agent::Asked => actions.push(Action::Check(agent)),
            Agent::Checked { .. } => actions.push(Action::MakeNode(agent)),
            Agent::NodeHalf { .. } => actions.push(Action::MakeChild(agent)),
            Agent::Waiting => actions.extend([Action::Absent(agent), Action::GiveUp(agent)]),
            Agent::NodeMade { .. } => actions.push(Action::Lock(agent)),
            Agent::Locked { .. } => actions.push(Action::Validate(agent)),
            Agent::Validated(_) => actions.push(Action::Write(agent)),
            Agent::Written(_) => actions.push(Action::Send(agent)),
            Agent::Sent(_) => actions.push(Action::Commit(agent)),
            Agent::Settling => actions.push(Action::Abort(agent)),
            Agent::Done(_) | Agent::Dead => {}
        }
        if state.open[agent].is_some() {
            actions.extend([Action::CommitArrives(agent), Action::RollBack(agent)]);
        }
    }

    pub(super) fn agent(&self, state: &mut State, action: Action) -> bool {
        match (action, action.agent().map(|agent| state.agents[agent])) {
            (Action::Check(agent), Some(Agent::Asked)) => self.check(state, agent),
            (Action::MakeNode(agent), Some(Agent::Checked { old })) => self.make_node(state, agent, old),
            (Action::MakeChild(agent), Some(Agent::NodeHalf { old })) => self.make_child(state, agent, old),
            (Action::Absent(agent), Some(Agent::Waiting)) if state.node.is_none() => {
                state.agents[agent] = Agent::Asked;
            }
            (Action::GiveUp(agent), Some(Agent::Waiting)) => self.refuse(state, agent),
            (Action::Lock(agent), Some(Agent::NodeMade { old, in_node })) => {
                if !self.without.catalog_lock && (0..2).any(|other| Self::holds_catalog(state, other)) {
                    return false;
                }
                state.agents[agent] = Agent::Locked { old, in_node };
            }
            (Action::Validate(agent), Some(Agent::Locked { old, in_node })) => {
                self.validate(state, agent, old, in_node);
            }
            (Action::Write(agent), Some(Agent::Validated(work))) => return self.write(state, agent, work),
            (Action::Send(agent), Some(Agent::Written(work))) => state.agents[agent] = Agent::Sent(work),
            (Action::Commit(agent), Some(Agent::Sent(work))) => {
                self.commit(state, agent, work);
                state.agents[agent] = Agent::Done(Answer::Committed);
            }
            (Action::Abort(agent), Some(Agent::Settling)) => {
                let id = self.workload.statement(agent).id;
                if self.key_is_held(state, id) {
                    return false;
                }
                self.abort(state, id);
                state.agents[agent] = answer(state.db.rows[id]);
            }
            (Action::CommitArrives(agent), _) => {
                let Some(work) = state.open[agent].take() else { return false };
                self.commit(state, agent, work);
            }
            (Action::RollBack(agent), _) => return state.open[agent].take().is_some(),
            _ => return false,
        }
        true
    }

    fn check(&self, state: &mut State, agent: usize) {
        let statement = self.workload.statement(agent);
        if state.db.rows[statement.id] != Row::InDoubt {
            // The transaction finds the row and returns the first answer.
            state.agents[agent] = answer(state.db.rows[statement.id]);
        } else if self.outcome_of(state, agent, state.db.objects[statement.object]).is_none() {
            self.refuse(state, agent);
        } else {
            state.agents[agent] = Agent::Checked { old: state.db.objects[statement.object] };
        }
    }

    fn make_node(&self, state: &mut State, agent: usize, old: Object) {
        let id = self.workload.statement(agent).id;
        state.agents[agent] = match state.node {
            None => {
                let child = (!self.without.atomic_node).then_some(id);
                let maker = child.map(|_| agent);
                state.node = Some(Node { child, second: None, agent: maker, base: old.generation });
                if child.is_none() { Agent::NodeHalf { old } } else { Agent::NodeMade { old, in_node: old.generation } }
            }
            Some(node) if node.stands_for(id) => Agent::NodeMade { old, in_node: node.base },
            Some(_) => Agent::Waiting,
        };
    }

    fn make_child(&self, state: &mut State, agent: usize, old: Object) {
        let id = self.workload.statement(agent).id;
        match &mut state.node {
            Some(node) if node.child.is_none() => {
                (node.child, node.agent) = (Some(id), Some(agent));
                state.agents[agent] = Agent::NodeMade { old, in_node: node.base };
            }
            Some(node) => {
                node.second = Some(id);
                state.agents[agent] = Agent::NodeMade { old, in_node: node.base };
            }
            None => self.refuse(state, agent),
        }
    }

    /// The object after the statement, computed from `old`; `None` if the statement is refused.
    fn outcome_of(&self, state: &State, agent: usize, old: Object) -> Option<Object> {
        let statement = self.workload.statement(agent);
        let objects = &state.db.objects;
        let referred = statement.drops && objects[1].content & 0b10 != 0;
        let missing = !old.exists || statement.refers && !objects[0].exists;
        let content = old.content | 1 << statement.id;
        (!referred && !missing).then_some(Object { exists: !statement.drops, content, ..old })
    }

    fn validate(&self, state: &mut State, agent: usize, old: Object, in_node: u8) {
        let statement = self.workload.statement(agent);
        let row = state.db.rows[statement.id];
        if row != Row::InDoubt {
            state.agents[agent] = answer(row);
            return;
        }
        let now = state.db.objects[statement.object];
        let bit = 1 << statement.id;
        let after = if self.without.reread {
            // What was computed before the node was made.
            Some(Object { exists: !statement.drops, content: old.content | bit, ..old })
        } else {
            self.outcome_of(state, agent, now)
        };
        let moved = !self.without.base && now.generation != old.generation;
        match after {
            Some(after) if !moved => {
                state.agents[agent] = Agent::Validated(Work { after, found: now.generation, in_node });
            }
            _ => self.refuse(state, agent),
        }
    }

    fn write(&self, state: &mut State, agent: usize, work: Work) -> bool {
        let statement = self.workload.statement(agent);
        // Rows that another open transaction has written are locked. There is one only without the catalog lock.
        let other = 1 - agent;
        let writes = matches!(state.agents[other], Agent::Written(_) | Agent::Sent(_)) || state.open[other].is_some();
        if writes && self.workload.statement(other).object == statement.object {
            return false;
        }
        let row = state.db.rows[statement.id];
        let moved = state.db.objects[statement.object].generation != work.found;
        if row != Row::InDoubt {
            state.agents[agent] = answer(row);
        } else if moved && !self.without.base {
            self.refuse(state, agent);
        } else {
            state.agents[agent] = Agent::Written(work);
        }
        true
    }

    /// Makes everything that the transaction wrote visible.
    fn commit(&self, state: &mut State, agent: usize, work: Work) {
        let statement = self.workload.statement(agent);
        let db = &mut state.db;
        db.generation += 1;
        let generation = db.generation;
        let slot = if work.after.exists { generation } else { 0 };
        for row in &mut db.rows {
            if let Row::Committed { object, progress, .. } = row
                && *object == statement.object
                && matches!(progress, Progress::Converging | Progress::Stalled)
                && !self.without.superseding
            {
                *progress = Progress::Superseded;
            }
        }
        state.history.node_has_another_object |= work.in_node != db.objects[statement.object].generation;
        db.objects[statement.object] = Object { generation, slot, ..work.after };
        let progress = Progress::Converging;
        db.rows[statement.id] = Row::Committed { object: statement.object, generation, slot, progress };
        state.history.applied[statement.id] += 1;
        let has_node = state.node.is_some_and(|node| node.stands_for(statement.id));
        state.history.committed_without_node |= !has_node && !state.history.by_hand;
    }

    /// The insert that races with a commit.
    pub(super) fn abort(&self, state: &mut State, id: usize) {
        if state.db.rows[id] == Row::InDoubt || self.without.abort_loses {
            state.db.rows[id] = Row::Aborted;
        }
    }

    /// Whether an open transaction has inserted the row of the id: another insert waits for it.
    pub(super) fn key_is_held(&self, state: &State, id: usize) -> bool {
        (0..2).any(|agent| {
            let inserted = matches!(state.agents[agent], Agent::Written(_) | Agent::Sent(_));
            self.workload.statement(agent).id == id && (inserted || state.open[agent].is_some())
        })
    }

    fn holds_catalog(state: &State, agent: usize) -> bool {
        let inside = matches!(
            state.agents[agent],
            Agent::Locked { .. } | Agent::Validated(_) | Agent::Written(_) | Agent::Sent(_)
        );
        inside || state.open[agent].is_some()
    }

    /// The attempt failed or its outcome is unknown: the id is settled before the client has an answer.
    pub(super) fn refuse(&self, state: &mut State, agent: usize) {
        let done = Agent::Done(Answer::Nothing);
        state.agents[agent] = if self.without.abort_before_answer { done } else { Agent::Settling };
    }
}

fn answer(row: Row) -> Agent {
    Agent::Done(if row.is_committed() { Answer::Committed } else { Answer::Nothing })
}
