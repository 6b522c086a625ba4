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
    /// The generation of the key that it proves in TLS; `None` if it does not offer TLS.
    pub tls: Option<KeyGeneration>,
    /// The session that owns the node.
    pub session: i64,
}

#[derive(Default, Serialize, Deserialize)]
struct AgentDocument {
    address: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    keys: Vec<KeyGeneration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls: Option<KeyGeneration>,
}

/// What an agent registers.
#[derive(Debug, Clone, Copy)]
pub struct AgentRegistration<'a> {
    /// `host:port`
    pub address: &'a str,
    /// The generations of keys that it accepts callers with.
    pub keys: &'a [KeyGeneration],
    /// The generation of the key that it proves in TLS; `None` if it does not offer TLS.
    pub tls: Option<KeyGeneration>,
}

impl<'a> AgentRegistration<'a> {
    /// An agent that does not offer TLS.
    pub const fn plain(address: &'a str, keys: &'a [KeyGeneration]) -> Self {
        Self { address, keys, tls: None }
    }
}

/// Validates the id of an agent: 1 to 64 of `A-Z a-z 0-9 _ -`.
pub fn check_id(id: &str) -> Result<(), UserError> {
    model::alteration::RequestId::new(id)
        .map(drop)
        .map_err(|_| UserError::new(ErrorKind::InvalidName, format!("invalid id \"{id}\" of a metadata agent")))
}

/// Registers an agent, or changes its node, and returns the path of it. Idempotent within a session. [`Error::StillHeld`]: an earlier session
/// still owns the node; retry.
pub async fn register(session: &Session, id: &str, agent: AgentRegistration<'_>) -> Result<String, Error> {
    let path = session.layout().agent(id);
    check_id(id).map_err(|error| Error::Refused { path: path.clone(), cause: error.message.into() })?;
    let AgentRegistration { address, keys, tls } = agent;
    let data = document::write(&path, &AgentDocument { address: address.to_owned(), keys: keys.to_vec(), tls })?;
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
    let AgentDocument { address, keys, tls } = document::read(&data).unwrap_or_default();
    Ok(Some(Agent { id, address, keys, tls, session: stat.ephemeral_owner }))
}
