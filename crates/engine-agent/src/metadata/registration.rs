//! The registration of a metadata agent: its ephemeral node, by which proxies and masters find it.

use std::time::Duration;

use async_trait::async_trait;
use coordination::agents::AgentRegistration;
use coordination::{Identity, Logins, Rebuild, Session};
use keys::{Current, MetadataAgentKeys};
use tracing::info;

/// The pause before the next attempt while an older session's node still exists.
const HELD_PAUSE: Duration = Duration::from_millis(500);

/// Registers the agent with each new session.
pub(super) struct Registration {
    pub(super) id: String,
    pub(super) address: String,
    pub(super) keys: Current<MetadataAgentKeys>,
    pub(super) offers_tls: bool,
}

/// The ZooKeeper identity of metadata agents with these keys.
pub fn identity(keys: &Current<MetadataAgentKeys>) -> Identity {
    Identity::changing(keys.map(|keys| Logins::metadata_agent(keys.zookeeper_passwords(), &keys.digests())))
}

#[async_trait]
impl Rebuild for Registration {
    async fn rebuild(&self, session: &Session) -> Result<Vec<String>, coordination::Error> {
        let keys = self.keys.get();
        let accepted = keys.callers().accepted();
        let tls = keys.tls().filter(|_| self.offers_tls).map(|(generation, _)| generation);
        let registration = AgentRegistration { address: &self.address, keys: &accepted, tls };
        match coordination::agents::register(session, &self.id, registration).await {
            Ok(path) => {
                info!(id = self.id, address = self.address, "registered");
                Ok(vec![path])
            }
            Err(error @ coordination::Error::StillHeld { .. }) => {
                tokio::time::sleep(HELD_PAUSE).await;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }
}
