//! Everything that a tick reads from ZooKeeper, at once.
//!
//! The reading begins with a sync, so it is not older than the call. It is no snapshot: its parts are read one after
//! the other. That does no harm, because every write that is derived from it is refused if what it saw has moved.

use std::collections::BTreeSet;

use model::EngineName;

use crate::agents::{self, Agent};
use crate::alter_node::{self, AlterNode};
use crate::drains::{self, DrainOrderNode};
use crate::error::Error;
use crate::permits::{self, PermitNode};
use crate::session::Session;

/// What ZooKeeper holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Observation {
    /// The alteration on its way.
    pub alter: Option<AlterNode>,
    /// The metadata agents, by id.
    pub agents: Vec<Agent>,
    /// Permits and registrations, by engine.
    pub permits: Vec<PermitNode>,
    /// Drain orders, by engine.
    pub drains: Vec<DrainOrderNode>,
    /// Engines whose permit or drain fact is there and was not read, because there are more than
    /// [`MAX_CHILDREN`](crate::MAX_CHILDREN).
    pub unread: Unread,
}

/// What is there and was not read: only its names are known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unread {
    /// Engines with a permit.
    pub permits: BTreeSet<EngineName>,
    /// Engines with a drain fact.
    pub drains: BTreeSet<EngineName>,
}

impl Unread {
    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.permits.is_empty() && self.drains.is_empty()
    }
}

/// Reads everything, after a sync. Nothing is written. A list that is too long is read in part and hides nothing else: the
/// names of the rest are in [`Observation::unread`].
pub async fn observe(session: &Session) -> Result<Observation, Error> {
    session.sync().await?;
    // The agents after the alter node: an agent that registers and makes a node in between must not look gone.
    let altering = async {
        let alter = alter_node::read_here(session).await?;
        Ok::<_, Error>((alter, agents::list(session).await?))
    };
    let ((alter, agents), (permits, more_permits), (drains, more_drains)) =
        tokio::try_join!(altering, permits::list_in_part(session), drains::list_in_part(session))?;
    Ok(Observation { alter, agents, permits, drains, unread: Unread { permits: more_permits, drains: more_drains } })
}
