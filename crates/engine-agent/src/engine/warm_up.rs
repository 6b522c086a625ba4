//! The warm-up: an engine is ready when it has executed a query, not when its port is open. The first query after a start
//! can take seconds.

use hs2::{Auth, Client, ClientError, ClientOptions, Session};
use parking_lot::Mutex;
use tracing::debug;

use super::runtime::Backend;
use super::settings::{CONNECT_DEADLINE, Settings, WARM_UP_DEADLINE, WARM_UP_PAUSE};

const QUERY: &str = "SELECT 1";
/// The user of the warm-up session.
const USER: &str = "enginehouse";

/// The warm-up of one engine, with the failure of the last attempt.
#[derive(Default)]
pub(super) struct WarmUp {
    failure: Mutex<Option<String>>,
}

impl WarmUp {
    /// Repeats the query until it succeeds. The caller has the deadline.
    pub(super) async fn succeeded(&self, settings: &Settings, backend: &Backend) {
        while let Err(error) = query(backend).await {
            debug!(engine = %settings.engine, %error, "warm-up query failed");
            *self.failure.lock() = Some(error.to_string());
            tokio::time::sleep(WARM_UP_PAUSE).await;
        }
    }

    /// Why the last attempt failed; for the error of a start that timed out.
    pub(super) fn last_failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }
}

async fn query(backend: &Backend) -> Result<(), ClientError> {
    let mut options = ClientOptions::new(backend.address.clone(), Auth::user(USER, backend.key.0.clone()));
    options.connect_deadline = CONNECT_DEADLINE;
    options.call_deadline = WARM_UP_DEADLINE;
    let mut session = Session::open(Client::connect(&options).await?, &[]).await?;
    session.run_in_one_call(QUERY).await?;
    session.close().await
}
