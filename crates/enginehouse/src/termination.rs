//! SIGTERM and SIGINT: the two ways in which a process is asked to end. And SIGXFSZ, which is none.

use anyhow::Context as _;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::say::complain;

/// A token that is cancelled by the first SIGTERM or SIGINT. A second one ends the process at once.
pub fn requested() -> anyhow::Result<CancellationToken> {
    let token = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM can't be caught")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT can't be caught")?;
    let cancelled = token.clone();
    tokio::spawn(async move {
        for first in [true, false] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if first {
                cancelled.cancel();
            } else {
                complain("told to end twice: ending without tidying up");
                #[allow(clippy::disallowed_methods, reason = "somebody asked for exactly that")]
                std::process::exit(130);
            }
        }
    });
    Ok(token)
}

/// From now on a file that reaches the limit of this process (`ulimit -f`) fails the write, as a full disk does, and does
/// not end the process.
pub fn outlive_the_limit_of_files() -> anyhow::Result<()> {
    // It stays caught when nobody listens to it any more.
    drop(signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).context("SIGXFSZ can't be caught")?);
    Ok(())
}
