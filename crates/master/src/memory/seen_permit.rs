//! A permit as the tick memory keeps it: what a plan has of it is made once, and shared by all ticks until the permit changes.

use std::time::Duration;

use coordination::PermitNode;
use model::shared::Shared;
use planner::{Permit, Registration};

/// A permit as it was read, and what a plan has of it.
#[derive(Debug)]
pub(super) struct SeenPermit {
    pub node: Shared<PermitNode>,
    /// `None` of a leftover permit: it admits no engine and we cannot delete it.
    pub permit: Option<Shared<Permit>>,
    pub registration: Option<Shared<Registration>>,
    /// Whether its engine is registered there with the permit's own uid.
    pub is_ready: bool,
}

impl SeenPermit {
    pub fn new(node: &Shared<PermitNode>) -> Self {
        let permit = (!node.left_behind).then(|| permit(node).into());
        let registration = registration(node).map(Shared::from);
        Self { node: node.clone(), permit, registration, is_ready: node.ready().is_some() }
    }

    pub fn is_of(&self, node: &Shared<PermitNode>) -> bool {
        Shared::is_same(&self.node, node)
    }
}

fn permit(node: &PermitNode) -> Permit {
    let (engine, uid) = (node.engine.clone(), node.uid().map(str::to_owned));
    let content = node.content.as_ref().ok();
    let (sessions, owner) = (content.map(|permit| permit.sessions), content.map(|permit| permit.owner.clone()));
    Permit { engine, uid, readable: node.content.is_ok(), answered: node.answered, sessions, owner }
}

fn registration(node: &PermitNode) -> Option<Registration> {
    let content = node.registration.as_ref()?.content.as_ref().ok();
    Some(Registration {
        engine: node.engine.clone(),
        uid: content.map(|live| live.uid.clone()),
        address: content.map(|live| live.address.clone()).unwrap_or_default(),
        config: content.map(|live| live.config.clone()).unwrap_or_default(),
        catalog: content.and_then(|live| live.catalog),
        unclaimed: Duration::ZERO,
    })
}
