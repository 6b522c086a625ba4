//! The nodes of ZooKeeper in memory: permits with registrations and marks, drain orders, the alter node, metadata agents, and
//! the master's lock.
//!
//! Each method is one multi of crate `coordination`, with the same checks: it changes everything or nothing. A caller whose
//! lock is gone changes nothing; one whose reading is outdated gets [`Failure::Moved`].

use std::collections::BTreeMap;

use coordination::alter_node::Alteration;
use coordination::{
    Agent, AlterChild, AlterNode, DrainOrder, DrainOrderNode, Observation, Permit, PermitNode, Registration,
    RegistrationNode,
};
use master::Failure;
use model::alteration::RequestId;
use model::engine_name::EngineName;
use model::shared::Shared;

use crate::mutant::Mutant;

/// The nodes.
#[derive(Debug, Default)]
pub struct Nodes {
    pub permits: BTreeMap<EngineName, Shared<PermitNode>>,
    pub drains: BTreeMap<EngineName, DrainOrderNode>,
    pub alter: Option<AlterNode>,
    pub agents: Vec<Agent>,
    /// The session that holds the master's lock.
    pub lock: Option<u64>,
    pub mutant: Option<Mutant>,
}

impl Nodes {
    pub fn observe(&self) -> Observation {
        Observation {
            alter: self.alter.clone(),
            agents: self.agents.clone(),
            permits: self.permits.values().cloned().collect(),
            drains: self.drains.values().cloned().collect(),
            ..Observation::default()
        }
    }

    pub fn permit(&self, engine: &EngineName) -> Option<&Permit> {
        self.permits.get(engine)?.content.as_ref().ok()
    }

    pub fn registration(&self, engine: &EngineName) -> Option<&Registration> {
        self.permits.get(engine)?.registration.as_ref()?.content.as_ref().ok()
    }

    fn check(&self, lock: u64) -> Result<(), Failure> {
        if self.lock == Some(lock) { Ok(()) } else { Err(Failure::Lost("the lock is gone".to_owned())) }
    }

    pub fn create_permit(&mut self, lock: u64, engine: &EngineName, permit: Permit) -> Result<(), Failure> {
        self.check(lock)?;
        if self.permits.contains_key(engine) {
            return Err(moved(format!("{engine} has a permit")));
        }
        let answered = permit.uid.is_some();
        let node = PermitNode {
            engine: engine.clone(),
            content: Ok(permit),
            version: 0,
            ctime_ms: 0,
            registration: None,
            answered,
            strays: 0,
            left_behind: false,
        };
        self.permits.insert(engine.clone(), node.into());
        Ok(())
    }

    /// Changes a permit that has the version that was seen; `None`: any.
    pub fn change_permit(
        &mut self,
        lock: u64,
        engine: &EngineName,
        seen: Option<i32>,
        change: impl FnOnce(&mut Permit),
    ) -> Result<(), Failure> {
        self.check(lock)?;
        let node = self.permits.get_mut(engine).filter(|node| seen.is_none_or(|seen| seen == node.version));
        let node = node.ok_or_else(|| moved(format!("the permit of {engine} has changed")))?;
        if let Ok(permit) = &mut node.content {
            change(permit);
        }
        node.version += 1;
        Ok(())
    }

    /// Writes a drain order and withdraws the permit as it was seen.
    pub fn drain(
        &mut self,
        lock: u64,
        engine: &EngineName,
        seen: Option<&PermitNode>,
        successor: Option<&EngineName>,
        order: DrainOrder,
    ) -> Result<(), Failure> {
        self.check(lock)?;
        if self.drains.contains_key(engine) {
            return Err(moved(format!("{engine} has a drain order")));
        }
        let successor = successor.filter(|_| self.mutant != Some(Mutant::SuccessorUnchecked));
        if let Some(successor) = successor.filter(|successor| self.registration(successor).is_none()) {
            return Err(moved(format!("{successor} is not registered")));
        }
        let order = DrainOrderNode { engine: engine.clone(), content: Ok(order), ctime_ms: 0 };
        if self.mutant == Some(Mutant::DrainInCalls) {
            self.drains.insert(engine.clone(), order.clone());
        }
        if self.mutant == Some(Mutant::DrainIsExpiry) {
            self.expire(engine);
        } else if let Some(seen) = seen {
            self.withdraw(seen)?;
        }
        self.drains.insert(engine.clone(), order);
        Ok(())
    }

    /// Deletes a permit with what was seen below it.
    fn withdraw(&mut self, seen: &PermitNode) -> Result<(), Failure> {
        let node = self.permits.get(&seen.engine);
        let below = |node: &PermitNode| (node.registration.is_some(), node.answered);
        if node.map(|node| below(node)) != Some(below(seen)) {
            return Err(moved(format!("below the permit of {} is not what was seen", seen.engine)));
        }
        self.permits.remove(&seen.engine);
        Ok(())
    }

    pub fn delete_permit(&mut self, lock: u64, seen: &PermitNode) -> Result<(), Failure> {
        self.check(lock)?;
        self.withdraw(seen)
    }

    pub fn remove_drain(&mut self, lock: u64, engine: &EngineName) -> Result<(), Failure> {
        self.check(lock)?;
        self.drains.remove(engine).map(drop).ok_or_else(|| moved(format!("{engine} has no drain order")))
    }

    /// Registers a metadata agent in place of the one there.
    pub fn set_agent(&mut self, at: usize, session: u64) {
        let agent = Agent {
            id: format!("agent-{session}"),
            address: "agent:1".to_owned(),
            keys: Vec::new(),
            tls: None,
            session: session.cast_signed(),
        };
        if at < self.agents.len() {
            self.agents[at] = agent;
        } else {
            self.agents.push(agent);
        }
    }

    /// Creates the alter node for the alteration of an agent; returns whether there was none.
    pub fn create_alter(&mut self, alteration: Alteration, agent: usize) -> bool {
        if self.alter.is_some() {
            return false;
        }
        let session = self.agents.get(agent).map(|agent| agent.session);
        let child = AlterChild { id: alteration.id.clone(), agent: Some(alteration.agent.clone()), session };
        self.alter =
            Some(AlterNode { content: Ok(alteration), ctime_ms: 0, children: vec![child], strays: Vec::new() });
        true
    }

    /// Creates the alter node without an alteration, as only a human does.
    pub fn leave_debris(&mut self) {
        let debris = || AlterNode {
            content: Err("it is empty".to_owned()),
            ctime_ms: 0,
            children: Vec::new(),
            strays: Vec::new(),
        };
        self.alter.get_or_insert_with(debris);
    }

    pub fn has_alter_node(&self, id: &RequestId) -> bool {
        self.alter.as_ref().is_some_and(|node| node.children.iter().any(|child| child.id == *id))
    }

    /// Deletes the alter node with the alteration that was seen there.
    pub fn delete_alter(&mut self, lock: u64, seen: &AlterNode) -> Result<(), Failure> {
        self.check(lock)?;
        if seen.is_debris() && self.mutant == Some(Mutant::DebrisStays) {
            return Ok(());
        }
        let is_there = self.alter.as_ref().is_some_and(|node| {
            let ids = |node: &AlterNode| node.children.iter().map(|child| child.id.clone()).collect::<Vec<_>>();
            ids(node) == ids(seen) || self.mutant == Some(Mutant::DeletedByPath)
        });
        if !is_there {
            return Err(moved("the alter node is not what was seen".to_owned()));
        }
        self.alter = None;
        Ok(())
    }

    /// Registers an engine below a permit of its uid; returns whether there is one.
    pub fn register(&mut self, engine: &EngineName, uid: &str) -> bool {
        let mutant = self.mutant;
        let Some(node) = self.permits.get_mut(engine) else { return false };
        let is_admitted = node.uid() == Some(uid) || mutant == Some(Mutant::PermitAdmitsAnyUid);
        if !is_admitted || node.registration.is_some() {
            return false;
        }
        let owner = node.content.as_ref().ok().and_then(|permit| permit.owner.clone());
        let registration = Registration {
            // No client connects.
            address: String::new(),
            capacity: 1,
            config: String::new(),
            version: String::new(),
            uid: uid.to_owned(),
            catalog: None,
            owner,
            keys: Vec::new(),
            tls: None,
        };
        node.registration = Some(RegistrationNode { content: Ok(registration), session: 1, ctime_ms: 0 });
        node.answered |= mutant != Some(Mutant::NoMark);
        true
    }

    /// The session of an engine has expired.
    pub fn expire(&mut self, engine: &EngineName) {
        if let Some(node) = self.permits.get_mut(engine) {
            node.registration = None;
        }
    }
}

fn moved(reason: String) -> Failure {
    Failure::Moved(reason)
}
