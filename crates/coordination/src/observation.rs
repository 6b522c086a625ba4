//! The observation: everything that a tick reads from ZooKeeper.
//!
//! It begins with a sync, so it is not older than the call. It is not a snapshot, because its parts are read one after the
//! other. That is harmless: a write that is derived from it fails if one of its preconditions no longer holds.

use std::collections::BTreeSet;

use model::EngineName;
use model::shared::Shared;

use crate::agents::{self, Agent};
use crate::alter_node::{self, AlterNode};
use crate::drains::{self, DrainOrderNode};
use crate::error::Error;
use crate::permits::{self, PermitCache, PermitNode};
use crate::session::Session;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Observation {
    /// The alter node of the alteration in flight.
    pub alter: Option<AlterNode>,
    /// The metadata agents, by id.
    pub agents: Vec<Agent>,
    /// Permits and registrations, by engine.
    pub permits: Vec<Shared<PermitNode>>,
    /// Drain orders, by engine.
    pub drains: Vec<DrainOrderNode>,
    /// Engines whose permit or drain order exists but was not read, because there are more than
    /// [`MAX_CHILDREN`](crate::MAX_CHILDREN).
    pub unread: Unread,
}

/// The names of existing nodes that were not read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unread {
    /// Engines with a permit.
    pub permits: BTreeSet<EngineName>,
    /// Engines with a drain order.
    pub drains: BTreeSet<EngineName>,
}

impl Unread {
    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.permits.is_empty() && self.drains.is_empty()
    }
}

/// Reads everything once.
pub async fn observe(session: &Session) -> Result<Observation, Error> {
    Observer::default().observe(session).await
}

/// One that reads everything again and again on one session. Permits that have not changed since its last observation are not
/// read again ([`crate::permits`]).
#[derive(Debug, Default)]
pub struct Observer {
    permits: PermitCache,
}

impl Observer {
    /// Reads everything, after a sync. A list that is too long is read in part; the names of the rest are in
    /// [`Observation::unread`].
    pub async fn observe(&self, session: &Session) -> Result<Observation, Error> {
        session.sync().await?;
        // The agents after the alter node: an agent that registers and creates a node in between must not seem to be gone.
        let altering = async {
            let alter = alter_node::read_here(session).await?;
            Ok::<_, Error>((alter, agents::list(session).await?))
        };
        let ((alter, agents), (permits, more_permits), (drains, more_drains)) =
            tokio::try_join!(altering, permits::list_in_part(session, &self.permits), drains::list_in_part(session))?;
        Ok(Observation {
            alter,
            agents,
            permits,
            drains,
            unread: Unread { permits: more_permits, drains: more_drains },
        })
    }
}
