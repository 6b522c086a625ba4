//! A connection of the SQL client with its session.

use std::time::Duration;

use anyhow::{Context as _, bail};
use hs2::{Auth, Client, ClientError, ClientOptions, Session};

use super::interrupt::Interrupts;
use super::url::ServerUrl;

/// The deadline of closing.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// An open session.
pub struct Connection {
    pub session: Session,
    /// The interrupts of its statements.
    pub interrupts: Interrupts,
    /// The address, for messages.
    pub address: String,
}

impl Connection {
    /// Connects and opens a session, at first without interrupts.
    pub async fn open(target: &ServerUrl, user: &str, password: &str) -> anyhow::Result<Self> {
        let session = open_session(target, user, password).await?;
        Ok(Self { session, interrupts: Interrupts::none(), address: target.address.clone() })
    }

    /// Whether the connection is unusable.
    pub fn is_broken(&mut self) -> bool {
        self.session.client().is_broken()
    }

    /// Reconnects; settings of the old session are lost.
    pub async fn reopen(&mut self, target: &ServerUrl, user: &str, password: &str) -> anyhow::Result<()> {
        self.session = open_session(target, user, password).await?;
        Ok(())
    }

    /// Closes session and connection, with a deadline.
    pub async fn close(self) {
        let _ = tokio::time::timeout(CLOSE_DEADLINE, self.session.close()).await;
    }
}

async fn open_session(target: &ServerUrl, user: &str, password: &str) -> anyhow::Result<Session> {
    if user.is_empty() {
        bail!("the user name is empty\nHint: Specify the user with -u USER.");
    }
    let auth = if target.plain_thrift { Auth::None } else { Auth::user(user, password) };
    let options = ClientOptions::new(target.address.clone(), auth);
    let client = match Client::connect(&options).await {
        Ok(client) => client,
        Err(ClientError::Unauthenticated(text)) => bail!("{} refused user \"{user}\": {text}", target.address),
        Err(error @ ClientError::Connect { .. }) => bail!("{error}"),
        Err(error) => bail!("{} is not a usable HiveServer2: {error}", target.address),
    };
    Session::open_as(client, Some((user, password)), &target.configuration)
        .await
        .map_err(|error| anyhow::anyhow!("{}", error.user_error()))
        .context("the server refused the session")
}
