//! The judge of alterations: their outcomes, their node, and when they have converged.

use coordination::AlterNode;
use model::alteration::{AlterationProgress, ObjectKind, ObjectRef, Outcome, RequestId};
use model::number::Generation;
use model::slot::SlotKey;

use crate::state::State;

impl State {
    /// An outcome was committed or reported: there is only one.
    pub fn judge_outcome(&mut self, id: &RequestId, outcome: Outcome) {
        if outcome == Outcome::Committed {
            self.judge.committed_at.entry(id.clone()).or_insert(self.now);
        }
        let first = *self.judge.outcomes.entry(id.clone()).or_insert(outcome);
        if first != outcome {
            self.violated(format!("alteration {id} is {}, and was {} before", outcome.as_str(), first.as_str()));
        }
    }

    /// Checks the open alterations after a commit.
    pub fn judge_alterations(&mut self, id: &RequestId) {
        let open = &self.database.state().alterations;
        let is_open = |object: &ObjectRef| open.iter().filter(|record| record.object.as_ref() == Some(object)).count();
        let twice = open.iter().filter_map(|record| record.object.as_ref()).find(|object| is_open(object) > 1).cloned();
        if let Some(object) = twice {
            self.violated(format!("two alterations of {object} converge"));
        }
        if self.database.outcome(id).is_some_and(|record| record.progress == Some(AlterationProgress::Converged)) {
            self.judge_converged(id);
        }
    }

    /// Checks an alter node that was deleted: its alteration is decided.
    pub fn judge_deleted_node(&mut self, node: Option<&AlterNode>) {
        let mut children = node.into_iter().flat_map(|node| &node.children);
        let is_decided = |id: &RequestId| self.database.outcome(id).is_some() || self.judge.lost.contains(id);
        let undecided = children.find(|child| !is_decided(&child.id)).map(|child| child.id.clone());
        if let Some(id) = undecided {
            self.violated(format!("the node of alteration {id} is deleted, and it is not decided"));
        }
    }

    /// Checks an alteration that has converged: every engine that was condemned by then has its drain order.
    pub fn judge_converged(&mut self, id: &RequestId) {
        let Some(record) = self.database.outcome(id) else { return };
        let (Some(object), Some(at)) = (&record.object, self.judge.committed_at.get(id)) else { return };
        let missing = self.database.state().engines.iter().find(|engine| {
            let condemned = self.judge.condemned_at.get(&engine.name);
            let agent = self.agents.get(&engine.name).filter(|agent| !agent.has_ended);
            affects(object, &engine.slot)
                && Generation(engine.incarnation.get()) <= record.generation
                && condemned.is_some_and(|condemned| condemned <= at)
                && agent.is_some_and(|agent| Some(&agent.uid) == engine.uid.as_ref())
                && self.nodes.registration(&engine.name).is_some()
                && !self.nodes.drains.contains_key(&engine.name)
        });
        if let Some(engine) = missing.map(|engine| engine.name.clone()) {
            self.violated(format!("alteration {id} of {object} has converged, and engine {engine} has no drain order"));
        }
    }

    /// Whether every engine of the objects is registered.
    pub fn is_ready(&self, node: &AlterNode) -> bool {
        let records = node.children.iter().filter_map(|child| self.database.outcome(&child.id));
        let objects: Vec<ObjectRef> = records.filter_map(|record| record.object).collect();
        let mut slots = self.database.state().slots.iter();
        slots.all(|slot| {
            let is_affected = objects.iter().any(|object| affects(object, &slot.key));
            !is_affected || self.nodes.registration(&slot.engine()).is_some()
        })
    }
}

/// Whether slots and engines with this key belong to the object.
fn affects(object: &ObjectRef, key: &SlotKey) -> bool {
    match object.kind {
        ObjectKind::Tenant => key.tenant.as_str() == object.name,
        ObjectKind::ResourcePool => key.pool.as_str() == object.name,
        ObjectKind::ResourceUnit => key.unit.as_str() == object.name,
        ObjectKind::ResourceQuota => false,
    }
}
