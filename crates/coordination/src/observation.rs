//! Everything that a tick reads from ZooKeeper, at once.
//!
//! The reading begins with a sync, so it is not older than the call. It is no snapshot: its parts are read one after
//! the other. That does no harm, because every write that is derived from it is refused if what it saw has moved.

use crate::agents::{self, Agent};
use crate::alter_node::{self, AlterNode};
use crate::drains::{self, DrainNode};
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
    /// Drain facts, by engine.
    pub drains: Vec<DrainNode>,
}

/// Reads everything, after a sync. The session is the lock's: facts get their age from a write that only a master may
/// do.
pub async fn observe(session: &Session) -> Result<Observation, Error> {
    let mut observation = look(session).await?;
    if !observation.drains.is_empty() {
        let now_ms = server_clock_ms(session).await?;
        for fact in &mut observation.drains {
            fact.age_ms = Some((now_ms - fact.ctime_ms).max(0));
        }
    }
    Ok(observation)
}

/// The same without the age of facts: nothing is written, and any master's session may.
pub async fn look(session: &Session) -> Result<Observation, Error> {
    session.sync().await?;
    let (alter, agents, permits, drains) = tokio::try_join!(
        alter_node::read_here(session),
        agents::list(session),
        permits::list(session),
        drains::list(session),
    )?;
    Ok(Observation { alter, agents, permits, drains })
}

/// The server's clock, which stamps facts: the time of a write that changes nothing and wakes nobody.
async fn server_clock_ms(session: &Session) -> Result<i64, Error> {
    session.set(&session.layout().drains(), b"").await.map(|stat| stat.mtime)
}
