//! SIGTERM and SIGINT: the two ways in which a process is asked to end. And SIGXFSZ, which is none.
//!
//! The two are blocked before the process has a second thread, so that every thread has them blocked, and one thread
//! waits for them. A blocked signal stays pending until somebody waits for it, so none is lost, however early it comes:
//! a handler that is installed while other threads run misses a signal that arrives between its installation and the
//! first listener's subscription, and the process would stay up for good. Programs that are started from here inherit the
//! blocked signals: the standard library resets nothing. An engine agent unblocks them for its child (`run_child`), and a
//! master starts only engine agents, which block both again before anything else.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::output::print_error;

/// The same signal within this time is the same request: `timeout(1)` and supervisors signal a process and its group.
const SAME_REQUEST: Duration = Duration::from_millis(200);
/// The exit status of a process that was told twice to end.
const SECOND_SIGNAL_STATUS: i32 = 130;

/// A token that is cancelled by the first SIGTERM or SIGINT. A second one ends the process at once, unless it is the
/// same within [`SAME_REQUEST`].
///
/// To be called before the runtime is made: a thread that exists already would take the signal and die of it, and the
/// process with it.
pub fn requested() -> anyhow::Result<CancellationToken> {
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    signals.thread_block().context("SIGTERM and SIGINT can't be blocked")?;
    let token = CancellationToken::new();
    let stop = token.clone();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            if let Err(error) = listen(signals, &stop) {
                print_error(&format!("signals can't be waited for any more: {error}; ending"));
                stop.cancel();
            }
        })
        .context("the thread that waits for signals did not start")?;
    Ok(token)
}

fn listen(signals: SigSet, stop: &CancellationToken) -> io::Result<()> {
    let mut requests = Requests::default();
    loop {
        let signal = signals.wait()?;
        match requests.take(signal, Instant::now()) {
            Request::First => stop.cancel(),
            Request::Same => {}
            Request::Second => {
                print_error("told to end twice: ending without tidying up");
                #[allow(clippy::disallowed_methods, reason = "the second signal asks for exactly that")]
                std::process::exit(SECOND_SIGNAL_STATUS);
            }
        }
    }
}

/// What a signal asks for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// An orderly end.
    First,
    /// What the first signal asked for.
    Same,
    /// An end at once.
    Second,
}

/// The first signal, and when it came.
#[derive(Debug, Default)]
struct Requests(Option<(Signal, Instant)>);

impl Requests {
    fn take(&mut self, signal: Signal, now: Instant) -> Request {
        match self.0 {
            None => {
                self.0 = Some((signal, now));
                Request::First
            }
            Some((first, at)) if first == signal && now.duration_since(at) < SAME_REQUEST => Request::Same,
            Some(_) => Request::Second,
        }
    }
}

/// From now on a file that reaches the limit of this process (`ulimit -f`) fails the write, as a full disk does, and does
/// not end the process.
pub fn outlive_the_limit_of_files() -> anyhow::Result<()> {
    // It stays caught when nobody listens to it any more.
    drop(signal(SignalKind::from_raw(Signal::SIGXFSZ as i32)).context("SIGXFSZ can't be caught")?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_signal_sent_to_a_process_and_its_group_is_one_request() {
        let now = Instant::now();
        let within = now + SAME_REQUEST.saturating_sub(Duration::from_millis(1));
        let mut requests = Requests::default();
        assert_eq!(requests.take(Signal::SIGTERM, now), Request::First);
        assert_eq!(requests.take(Signal::SIGTERM, within), Request::Same);
        assert_eq!(requests.take(Signal::SIGINT, within), Request::Second, "another signal is another request");
        assert_eq!(requests.take(Signal::SIGTERM, now + SAME_REQUEST), Request::Second);
    }
}
