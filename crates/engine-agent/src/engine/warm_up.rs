//! Ready means *answered a query*, not *port open*: the first query after a start can take seconds.

use hs2::{Auth, Client, ClientError, ClientOptions, Session};
use tracing::debug;

use super::EngineAgentError;
use super::runtime::Backend;
use super::settings::{CONNECT_DEADLINE, Settings, WARM_UP_DEADLINE, WARM_UP_PAUSE};

const QUERY: &str = "SELECT 1";
/// Whose session the warm-up is.
const USER: &str = "enginehouse";

/// Asks until the engine answers. The caller has the deadline.
pub(super) async fn answered(settings: &Settings, backend: &Backend) -> Result<(), EngineAgentError> {
    loop {
        match ask(backend).await {
            Ok(()) => return Ok(()),
            Err(error) => debug!(engine = %settings.engine, %error, "the engine does not answer yet"),
        }
        tokio::time::sleep(WARM_UP_PAUSE).await;
    }
}

async fn ask(backend: &Backend) -> Result<(), ClientError> {
    let mut options = ClientOptions::new(backend.address.clone(), Auth::user(USER, backend.key.0.clone()));
    options.connect_deadline = CONNECT_DEADLINE;
    options.call_deadline = WARM_UP_DEADLINE;
    let mut session = Session::open(Client::connect(&options).await?, &[]).await?;
    session.run(QUERY, WARM_UP_DEADLINE).await?;
    session.close().await
}
