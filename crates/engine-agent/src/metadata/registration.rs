//! The agent's ephemeral node: the only place where it is found.

use std::time::Duration;

use async_trait::async_trait;
use coordination::{Rebuild, Session};
use tracing::info;

/// How long an older session's node is waited for before the next try is left to the supervisor.
const HELD_PAUSE: Duration = Duration::from_millis(500);

/// What is registered, anew with each session.
pub(super) struct Registration {
    pub(super) id: String,
    pub(super) address: String,
}

#[async_trait]
impl Rebuild for Registration {
    async fn rebuild(&self, session: &Session) -> Result<Vec<String>, coordination::Error> {
        match coordination::agents::register(session, &self.id, &self.address).await {
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
