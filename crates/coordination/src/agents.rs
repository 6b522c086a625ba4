//! Metadata agents: one ephemeral node each, the only place where they are found.
//!
//! An agent makes a new id at each start, so a node of that id is its own or its own dead session's. A caller with a
//! stale list connects to an agent that is gone, and takes the next one.

use model::{ErrorKind, UserError};
use serde::{Deserialize, Serialize};

use crate::document;
use crate::error::Error;
use crate::failpoints;
use crate::session::{Session, read_children};

/// One metadata agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its id.
    pub id: String,
    /// Where it listens: `host:port`.
    pub address: String,
    /// The session that owns its node: alive for as long as the node is there.
    pub session: i64,
}

#[derive(Serialize, Deserialize)]
struct AgentDocument {
    address: String,
}

/// Checks that the text can be an agent's id: 1 to 64 of `A-Z a-z 0-9 _ -`.
pub fn check_id(id: &str) -> Result<(), UserError> {
    model::alteration::RequestId::new(id)
        .map(drop)
        .map_err(|_| UserError::new(ErrorKind::InvalidName, format!("invalid id \"{id}\" of a metadata agent")))
}

/// Registers an agent; answers the node's path. A second call on the same session answers the node that is there.
/// [`Error::StillHeld`]: the node of an older session still stands; ask again.
pub async fn register(session: &Session, id: &str, address: &str) -> Result<String, Error> {
    let path = session.layout().agent(id);
    check_id(id).map_err(|error| Error::Refused { path: path.clone(), reason: error.message })?;
    let data = document::write(&path, &AgentDocument { address: address.to_owned() })?;
    session.create_own(&path, &data, &session.access().read_only()).await?;
    model::failpoint!(failpoints::AGENT_REGISTERED);
    Ok(path)
}

/// The agents that there are, by id. One whose node can't be read is there too, with an empty address.
pub async fn list(session: &Session) -> Result<Vec<Agent>, Error> {
    let Some((mut names, _)) = session.children(&session.layout().agents()).await? else { return Ok(Vec::new()) };
    names.sort();
    read_children(names, |id| read_one(session, id)).await
}

async fn read_one(session: &Session, id: String) -> Result<Option<Agent>, Error> {
    let Some((data, stat)) = session.get(&session.layout().agent(&id)).await? else { return Ok(None) };
    let address = document::read::<AgentDocument>(&data).map(|it| it.address).unwrap_or_default();
    Ok(Some(Agent { id, address, session: stat.ephemeral_owner }))
}
