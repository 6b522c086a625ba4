//! One exchange with a backend: sends a call and relays its reply, unless the backend is lost before the reply begins.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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

/// Sends one call; the reply goes where `decide` says. `lost` resolves when the backend is considered lost; that ends the
/// call unless its reply has begun.
pub(super) async fn exchange(
    connection: &mut Connection,
    message: &Message,
    to: &mut Client,
    deadline: Duration,
    lost: impl Future<Output = String> + Send,
    decide: impl FnOnce(&Reply, &[u8]) -> Decision,
) -> Result<Outcome, Failure> {
    let begun = AtomicBool::new(false);
    let decide = |reply: &Reply, bytes: &[u8]| {
        begun.store(true, Ordering::Relaxed);
        decide(reply, bytes)
    };
    let lost_before_reply = async {
        let reason = lost.await;
        // The client has seen part of the reply: the rest has the relay's own limits.
        if begun.load(Ordering::Relaxed) { pending().await } else { reason }
    };
    let relayed = tokio::select! {
        biased;
        relayed = relay::exchange(connection, message, to, deadline, decide) => relayed,
        reason = lost_before_reply => return Err(Failure::Backend(reason)),
    };
    relayed.map_err(|error| match error {
        RelayError::Broken => Failure::Broken(error.to_string()),
        error if error.client_is_usable() => Failure::Backend(error.to_string()),
        error => Failure::Client(Disconnect::Relay(error)),
    })
}
