//! A client's connection with its session.

use std::time::Duration;

use anyhow::Context as _;
use hs2::{Auth, Client, ClientOptions, Session};

use super::url::Target;

/// How long closing may take.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// An open session.
pub struct Connection {
    /// The session.
    pub session: Session,
    /// Where it is, for messages.
    pub address: String,
}

impl Connection {
    /// Connects and opens a session.
    pub async fn open(target: &Target, user: &str, password: &str) -> anyhow::Result<Self> {
        let auth = if target.plain_thrift { Auth::None } else { Auth::user(user, password) };
        let options = ClientOptions::new(target.address.clone(), auth);
        let client = Client::connect(&options)
            .await
            .map_err(|error| anyhow::anyhow!("{error}"))
            .with_context(|| format!("can't reach a server at {}", target.address))?;
        let session = Session::open_as(client, Some((user, password)), &target.configuration)
            .await
            .map_err(|error| anyhow::anyhow!("{}", error.user_error()))
            .context("the server refused the session")?;
        Ok(Self { session, address: target.address.clone() })
    }

    /// Closes session and connection; a server that does not answer is left.
    pub async fn close(self) {
        let _ = tokio::time::timeout(CLOSE_DEADLINE, self.session.close()).await;
    }
}
