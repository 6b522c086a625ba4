//! Ready means *answered a query*, not *port open*: the first query after a start can take seconds.

use hs2::{Auth, Client, ClientError, ClientOptions, Session};
use parking_lot::Mutex;
use tracing::debug;

use super::runtime::Backend;
use super::settings::{CONNECT_DEADLINE, Settings, WARM_UP_DEADLINE, WARM_UP_PAUSE};

const QUERY: &str = "SELECT 1";
/// Whose session the warm-up is.
const USER: &str = "enginehouse";

/// The warm-up of one engine, and why its last try failed.
#[derive(Default)]
pub(super) struct WarmUp {
    failure: Mutex<Option<String>>,
}

impl WarmUp {
    /// Asks until the engine answers. The caller has the deadline.
    pub(super) async fn answered(&self, settings: &Settings, backend: &Backend) {
        while let Err(error) = ask(backend).await {
            debug!(engine = %settings.engine, %error, "the engine does not answer yet");
            *self.failure.lock() = Some(error.to_string());
            tokio::time::sleep(WARM_UP_PAUSE).await;
        }
    }

    /// Why the last try failed; for the error of a start that took too long.
    pub(super) fn last_failure(&self) -> Option<String> {
        self.failure.lock().clone()
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
