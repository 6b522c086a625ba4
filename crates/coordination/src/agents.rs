//! Service discovery of the metadata agents: one ephemeral node each.
//!
//! An agent draws a new id at each start, so a node with that id belongs to its session or to an earlier one of the same
//! process. A caller with a stale list fails to connect and tries the next agent.

use model::{ErrorKind, UserError};
use serde::{Deserialize, Serialize};

use crate::document;
use crate::error::Error;
use crate::failpoints;
use crate::session::{Session, read_children};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    pub id: String,
    /// `host:port`
    pub address: String,
    /// The session that owns the node.
    pub session: i64,
}

#[derive(Serialize, Deserialize)]
struct AgentDocument {
    address: String,
}

/// Validates the id of an agent: 1 to 64 of `A-Z a-z 0-9 _ -`.
pub fn check_id(id: &str) -> Result<(), UserError> {
    model::alteration::RequestId::new(id)
        .map(drop)
        .map_err(|_| UserError::new(ErrorKind::InvalidName, format!("invalid id \"{id}\" of a metadata agent")))
}

/// Registers an agent and returns the path of its node. Idempotent within a session. [`Error::StillHeld`]: an earlier session
/// still owns the node; retry.
pub async fn register(session: &Session, id: &str, address: &str) -> Result<String, Error> {
    let path = session.layout().agent(id);
    check_id(id).map_err(|error| Error::Refused { path: path.clone(), cause: error.message.into() })?;
    let data = document::write(&path, &AgentDocument { address: address.to_owned() })?;
    session.create_own(&path, &data, &session.access().read_only()).await?;
    model::failpoint!(failpoints::AGENT_REGISTERED);
    Ok(path)
}

/// The agents in the order of their ids. One with malformed content is listed with an empty address.
pub async fn list(session: &Session) -> Result<Vec<Agent>, Error> {
    let Some((mut names, _)) = session.children(&session.layout().agents()).await? else { return Ok(Vec::new()) };
    names.sort();
    read_children(names, |id| read_one(session, id)).await
}

async fn read_one(session: &Session, id: String) -> Result<Option<Agent>, Error> {
    let Some((data, stat)) = session.get(&session.layout().agent(&id)).await? else { return Ok(None) };
    let address = document::read::<AgentDocument>(&data).map(|document| document.address).unwrap_or_default();
    Ok(Some(Agent { id, address, session: stat.ephemeral_owner }))
}
