//! Ctrl-C in the SQL client: the first one asks the running statement to end, the next one ends the program.
//!
//! A wish to stop is remembered until it is cleared, so that one that comes between two statements of a script stops
//! the script too.

use std::process::exit;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::output::print_error;

/// The exit status of a program that Ctrl-C ended.
pub const EXIT_STATUS: u8 = 130;

/// Whether somebody wants what runs to stop.
pub struct Interrupts {
    wanted: Option<watch::Sender<bool>>,
}

impl Interrupts {
    /// Nobody can interrupt: somebody else looks after Ctrl-C.
    pub const fn none() -> Self {
        Self { wanted: None }
    }

    /// From now on Ctrl-C is ours.
    pub fn listen() -> anyhow::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be caught")?;
        let wanted = watch::Sender::new(false);
        let asked = wanted.clone();
        tokio::spawn(async move {
            while interrupt.recv().await.is_some() {
                if asked.send_replace(true) {
                    print_error("interrupted twice: ending at once");
                    #[allow(clippy::disallowed_methods, reason = "the second signal asks for exactly that")]
                    exit(i32::from(EXIT_STATUS));
                }
            }
        });
        Ok(Self { wanted: Some(wanted) })
    }

    /// Ends when somebody wants to stop, at once if he has said so already.
    pub async fn next(&self) {
        match &self.wanted {
            // An error means that the sender is gone, and it is ours.
            Some(wanted) => drop(wanted.subscribe().wait_for(|is_wanted| *is_wanted).await),
            None => std::future::pending().await,
        }
    }

    /// Whether somebody wants to stop.
    pub fn is_wanted(&self) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| *wanted.borrow())
    }

    /// What was wanted is done.
    pub fn clear(&self) {
        if let Some(wanted) = &self.wanted {
            wanted.send_replace(false);
        }
    }
}
