//! A connection of the SQL client with its session.

use std::time::Duration;

use anyhow::{Context as _, bail};
use hs2::{Auth, Client, ClientError, ClientOptions, ClientTls, Session};

use super::interrupt::Interrupts;
use super::url::ServerUrl;

/// The deadline of closing.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// Where and as whom to connect.
pub struct Login<'a> {
    pub target: &'a ServerUrl,
    /// TLS with the trusted certificates; `None`: without TLS.
    pub tls: Option<ClientTls>,
    /// Empty if the password is a token, which names the user.
    pub user: &'a str,
    pub password: &'a str,
    pub is_token: bool,
}

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
    pub async fn open(login: &Login<'_>) -> anyhow::Result<Self> {
        let session = open_session(login).await?;
        Ok(Self { session, interrupts: Interrupts::none(), address: login.target.address.clone() })
    }

    /// Whether the connection is unusable.
    pub fn is_broken(&mut self) -> bool {
        self.session.client().is_broken()
    }

    /// Reconnects; settings of the old session are lost.
    pub async fn reopen(&mut self, login: &Login<'_>) -> anyhow::Result<()> {
        self.session = open_session(login).await?;
        Ok(())
    }

    /// Closes session and connection, with a deadline.
    pub async fn close(self) {
        let _ = tokio::time::timeout(CLOSE_DEADLINE, self.session.close()).await;
    }
}

async fn open_session(login: &Login<'_>) -> anyhow::Result<Session> {
    let Login { target, tls, user, password, is_token } = login;
    let (user, password) = (*user, *password);
    if user.is_empty() && !is_token {
        bail!("the user name is empty\nHint: Specify the user with -u USER.");
    }
    let auth = if target.plain_thrift { Auth::None } else { Auth::user(user, password) };
    let options = ClientOptions { tls: tls.clone(), ..ClientOptions::new(target.address.clone(), auth) };
    let client = match Client::connect(&options).await {
        Ok(client) => client,
        Err(ClientError::Unauthenticated(text)) if *is_token => bail!("{} refused the token: {text}", target.address),
        Err(ClientError::Unauthenticated(text)) => bail!("{} refused user \"{user}\": {text}", target.address),
        // A hint is the end of a message, after the cause.
        Err(error @ ClientError::Connect { .. }) => bail!("{error}{}", trust_hint(&error)),
        Err(error) => {
            let failed = format!("{} is not a usable HiveServer2", target.address);
            return Err(anyhow::Error::new(error).context(failed));
        }
    };
    Session::open_as(client, Some((user, password)), &target.configuration)
        .await
        .map_err(|error| error.user_error())
        .context("the server refused the session")
}

/// A hint for a certificate that the trusted ones do not verify.
fn trust_hint(error: &ClientError) -> &'static str {
    if error.to_string().contains("invalid peer certificate") {
        "\nHint: Specify the file with the certificate authority of the server with --ca FILE, and its name in the certificate as host."
    } else {
        ""
    }
}
