//! Termination signals: SIGTERM and SIGINT request a shutdown. SIGXFSZ is ignored, and SIGHUP ends no role.
//!
//! The first two are blocked before the process has a second thread, so every thread has them blocked, and one thread waits for them.
//! A blocked signal stays pending until it is waited for, so none is lost, however early it arrives. A handler that is
//! installed while other threads run would lose a signal that arrives between its installation and the first subscription,
//! and the process would never end. Child processes inherit the blocked signals, because the standard library does not reset
//! the mask. An engine agent unblocks them for its child (`run_child`), and a master starts only engine agents, which block
//! both again first.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::output::print_error;

/// The same signal within this time is one request: `timeout(1)` and supervisors signal a process and its group.
const SAME_REQUEST: Duration = Duration::from_millis(200);
/// The exit status after a second signal.
const SECOND_SIGNAL_STATUS: i32 = 130;

/// A token that is cancelled by the first SIGTERM or SIGINT. A second one exits at once, unless it is the same within
/// [`SAME_REQUEST`].
///
/// To be called before the runtime is created: an existing thread would receive the signal, and the process would die.
pub fn requested() -> anyhow::Result<CancellationToken> {
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    signals.thread_block().context("cannot block SIGTERM and SIGINT")?;
    let token = CancellationToken::new();
    let stop = token.clone();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            if let Err(error) = listen(signals, &stop) {
                print_error(&format!("cannot wait for signals: {error}; shutting down"));
                stop.cancel();
            }
        })
        .context("could not start the thread that waits for signals")?;
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
                print_error("second signal received: exiting without cleaning up");
                #[allow(clippy::disallowed_methods, reason = "the second signal asks for exactly that")]
                std::process::exit(SECOND_SIGNAL_STATUS);
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// A graceful shutdown.
    First,
    /// A repetition of the first request.
    Same,
    /// An immediate exit.
    Second,
}

/// The first signal and the time of its arrival.
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

/// Makes writes beyond the file size limit of this process (`ulimit -f`) fail, as on a full disk, instead of killing the
/// process.
pub fn survive_file_size_limit() -> anyhow::Result<()> {
    // The handler stays installed without a listener.
    drop(signal(SignalKind::from_raw(Signal::SIGXFSZ as i32)).context("cannot catch SIGXFSZ")?);
    Ok(())
}

/// Keeps SIGHUP from ending this process: proxies with TLS read their certificate again, and for all others it means nothing.
pub fn survive_hang_up() -> anyhow::Result<()> {
    // The handler stays installed without a listener. An ignored signal would be ignored by the programs of engines as well.
    drop(signal(SignalKind::hangup()).context("cannot catch SIGHUP")?);
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
