//! Service discovery of the metadata agents: one ephemeral node each.
//!
//! An agent draws a new id at each start, so a node with that id belongs to its session or to an earlier one of the same
//! process. A caller with a stale list fails to connect and tries the next agent.

use model::key_generation::KeyGeneration;
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
    /// The generations of keys that it accepts callers with; empty for an agent of version 0.1.0.
    pub keys: Vec<KeyGeneration>,
    /// The session that owns the node.
    pub session: i64,
}

#[derive(Default, Serialize, Deserialize)]
struct AgentDocument {
    address: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    keys: Vec<KeyGeneration>,
}

/// Validates the id of an agent: 1 to 64 of `A-Z a-z 0-9 _ -`.
pub fn check_id(id: &str) -> Result<(), UserError> {
    model::alteration::RequestId::new(id)
        .map(drop)
        .map_err(|_| UserError::new(ErrorKind::InvalidName, format!("invalid id \"{id}\" of a metadata agent")))
}

/// Registers an agent, or changes its node, and returns the path of it. Idempotent within a session. [`Error::StillHeld`]: an earlier session
/// still owns the node; retry.
pub async fn register(session: &Session, id: &str, address: &str, keys: &[KeyGeneration]) -> Result<String, Error> {
    let path = session.layout().agent(id);
    check_id(id).map_err(|error| Error::Refused { path: path.clone(), cause: error.message.into() })?;
    let data = document::write(&path, &AgentDocument { address: address.to_owned(), keys: keys.to_vec() })?;
    session.create_own(&path, &data, &session.access().metadata_agent()).await?;
    // Its keys may have been replaced since.
    if session.get(&path).await?.is_some_and(|(found, _)| found != data) {
        session.set(&path, &data).await?;
    }
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
    let AgentDocument { address, keys } = document::read(&data).unwrap_or_default();
    Ok(Some(Agent { id, address, keys, session: stat.ephemeral_owner }))
}
