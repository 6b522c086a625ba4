//! One exchange with a backend: sends a call and relays its reply, unless the backend is lost before the reply begins.

use std::pin::Pin;

use hs2::relay::{self, Decision, Outcome, RelayError};
use hs2::scan::Reply;
use hs2::{Client, Connection, Message};

use crate::session::reply::Disconnect;

/// Why an exchange with a backend failed.
pub(super) enum Failure {
    Backend(String),
    /// Nothing was sent: the connection was closed, or an earlier call was given up because its client closed its
    /// connection. This says nothing about the backend.
    Broken(String),
    Client(Disconnect),
}

/// Sends one call; the reply goes where `decide` says. `given_up` completes when the backend is considered lost, or the reply is too
/// late; that ends the call unless its reply has begun.
pub(super) async fn exchange(
    connection: &mut Connection,
    message: &Message,
    to: &mut Client,
    given_up: Pin<&mut (impl Future<Output = RelayError> + Send)>,
    decide: impl FnOnce(&Reply, &[u8]) -> Decision,
) -> Result<Outcome, Failure> {
    let relayed = relay::exchange_unless(connection, message, to, given_up, decide).await;
    relayed.map_err(|error| match error {
        RelayError::Broken => Failure::Broken(error.to_string()),
        error if error.client_is_usable() => Failure::Backend(error.to_string()),
        error => Failure::Client(Disconnect::Relay(error)),
    })
}
