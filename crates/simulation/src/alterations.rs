//! Alterations by the metadata agents: check, create the alter node, commit, and abort what has failed.
//!
//! An agent computes the change from the catalog, creates the node unless another alteration has it, and sends COMMIT, which
//! arrives later. An agent that dies leaves its node behind, and its COMMIT arrives or does not. One that gets no reply aborts
//! the id, and reports that nothing has changed only if nothing has.

use std::time::Duration;

use coordination::alter_node::Alteration as NodeContent;
use model::alteration::{Abort, Outcome, RequestId, Source};
use model::change::{Applied, Change, Object};
use model::number::Generation;
use model::slot::Replacement;

use crate::activity::Cause;
use crate::alteration::{AgentFault, Alteration};
use crate::database::Commit;
use crate::event::Event;
use crate::mutant::Mutant;
use crate::state::State;

/// How often an alteration looks again whether the node of another is still there.
const RETRY: Duration = Duration::from_secs(5);
/// For how long an alteration waits for its turn at most: each one before it is decided within the grace of 30 s and acted on by
/// the next tick.
const TURN: Duration = Duration::from_mins(3);
/// How long an agent waits for the reply to its COMMIT.
const REPLY: Duration = Duration::from_millis(50);

impl State {
    /// A statement reaches a metadata agent.
    pub fn alter(&mut self, change: &Change, replacement: Replacement) {
        self.sequence += 1;
        let Ok(id) = RequestId::new(format!("alteration-{}", self.sequence)) else { return };
        let agent = self.rng.index(self.nodes.agents.len());
        let alteration = Alteration {
            change: change.clone(),
            replacement,
            agent,
            begun: self.now,
            computed: None,
            waits: true,
            is_sent: false,
            is_orphan: false,
        };
        self.alterations.insert(id.clone(), alteration);
        self.schedule(Duration::from_millis(2), Event::AlterCheck(id));
    }

    /// The agent reads the catalog and computes the change.
    pub fn check_alteration(&mut self, id: &RequestId) {
        if self.now < self.faults.away_until {
            return self.schedule(RETRY, Event::AlterCheck(id.clone()));
        }
        let Some(alteration) = self.alterations.get_mut(id).filter(|one| one.waits) else { return };
        let begun = alteration.begun;
        if begun + TURN < self.now {
            return self.violated(format!("alteration {id} waits for its turn since {begun:?}"));
        }
        let catalog = &self.database.state().catalog;
        match alteration.change.apply(catalog, &self.database.rules) {
            Ok(Applied::Object { base, after, .. }) => {
                (alteration.computed, alteration.waits) = (Some((base, after)), false);
            }
            Ok(Applied::Nothing { .. }) | Err(_) => return self.abort_alteration(id),
        }
        let pause = match self.faults.agent {
            Some(AgentFault::Pauses { before, .. }) => before,
            _ => self.rng.millis(1, 5),
        };
        self.schedule(pause, Event::AlterNode(id.clone()));
    }

    /// The agent creates the node, or waits until that of another alteration is gone.
    pub fn create_alter_node(&mut self, id: &RequestId) {
        let Some(alteration) = self.alterations.get(id) else { return };
        let (agent, base) = (alteration.agent, alteration.computed.as_ref().map_or(Generation(0), |(base, _)| *base));
        let content = NodeContent {
            id: id.clone(),
            object: alteration.change.object(),
            base_generation: base,
            old: None,
            statement: String::new(),
            by: "admin".to_owned(),
            source: Source::default(),
            agent: self.nodes.agents[agent].id.clone(),
            requested_at_ms: self.database.state().now_ms,
        };
        if !self.nodes.create_alter(content, agent) {
            self.alterations.entry(id.clone()).and_modify(|alteration| alteration.waits = true);
            return self.schedule(RETRY, Event::AlterCheck(id.clone()));
        }
        self.wake();
        let mut is_orphan = false;
        let commits = match self.faults.agent.take() {
            Some(AgentFault::Dies { expires, commits }) => {
                self.activity.agents_died += 1;
                self.schedule(expires, Event::AgentExpires(agent));
                is_orphan = true;
                commits
            }
            Some(AgentFault::NoReply { commits }) => {
                self.schedule(REPLY, Event::AlterAbort(id.clone()));
                Some(commits)
            }
            Some(AgentFault::Pauses { after, .. }) => Some(after),
            None => Some(self.rng.millis(2, 30)),
        };
        if let Some(after) = commits {
            self.schedule(after, Event::AlterCommit(id.clone()));
        } else {
            self.alterations.remove(id);
        }
        if let Some(alteration) = self.alterations.get_mut(id) {
            (alteration.is_sent, alteration.is_orphan) = (true, is_orphan);
        }
    }

    /// The session of an agent expires, and another process takes its place.
    pub fn agent_expires(&mut self, at: usize) {
        self.sequence += 1;
        self.nodes.set_agent(at, self.sequence);
        self.wake();
    }

    /// COMMIT arrives in the database.
    pub fn commit_alteration(&mut self, id: &RequestId) {
        let Some(alteration) = self.alterations.get_mut(id) else { return };
        alteration.is_sent = false;
        let Alteration { change, replacement, computed: Some((base, after)), is_orphan, .. } = alteration.clone()
        else {
            return;
        };
        let expected = match change.apply(&self.database.state().catalog, &self.database.rules) {
            Ok(Applied::Object { after, .. }) => Some(after),
            _ => None,
        };
        let commit = Commit { id, change: &change, replacement, base, after: after.as_ref() };
        if self.database.commit(&commit).is_err() {
            // Without its agent, the connection ends and the transaction is rolled back.
            return if is_orphan { drop(self.alterations.remove(id)) } else { self.abort_alteration(id) };
        }
        self.judge_outcome(id, Outcome::Committed);
        // A restored database has lost that it was aborted, after which its node was deleted.
        if !self.nodes.has_alter_node(id) && !self.judge.lost.contains(id) {
            self.violated(format!("alteration {id} commits without its node"));
        }
        let found = Object::find(&self.database.state().catalog, &change.object());
        let found = found.ok().flatten().map(|(object, _)| object);
        if expected != Some(found) {
            self.violated(format!("alteration {id} of {} overwrites another one", change.object()));
        }
        self.alterations.remove(id);
        self.activity.statements += 1;
        self.statement_committed();
        self.judge_alterations(id);
    }

    /// The agent aborts the id, unless a commit came first, and reports the outcome.
    pub fn abort_alteration(&mut self, id: &RequestId) {
        let Some(alteration) = self.alterations.get(id) else { return };
        let abort = Abort {
            id: id.clone(),
            object: Some(alteration.change.object()),
            base_generation: Generation(0),
            statement: String::new(),
            requested_by: "admin".to_owned(),
            source: Source::default(),
            requested_at_ms: 0,
            decided_by: "agent".to_owned(),
            reason: "the agent got no reply".to_owned(),
        };
        let is_asked = self.mutant != Some(Mutant::AnswerBeforeAbort);
        let outcome = if is_asked { self.database.abort(&abort).outcome } else { Outcome::Aborted };
        self.judge_outcome(id, outcome);
        self.activity.aborted += u64::from(outcome == Outcome::Aborted);
        // A COMMIT that is on its way arrives all the same.
        self.alterations.retain(|one, alteration| one != id || alteration.is_sent);
    }

    /// The node is gone: the alterations that wait for it look again.
    pub fn alter_node_deleted(&mut self) {
        let waiting: Vec<RequestId> =
            self.alterations.iter().filter(|(_, one)| one.waits).map(|(id, _)| id.clone()).collect();
        for id in waiting {
            let after = self.rng.millis(1, 20);
            self.schedule(after, Event::AlterCheck(id));
        }
    }

    /// What follows a statement that has changed the catalog or the slots.
    pub fn statement_committed(&mut self) {
        self.waiting_when_read = None;
        let after = self.rng.millis(1, crate::state::CATALOG_AGE_MS);
        self.schedule(after, Event::CatalogRead);
        self.judge(Cause::Statement);
        self.wake();
    }
}
