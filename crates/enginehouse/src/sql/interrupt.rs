//! Ctrl-C in the SQL client: the first one cancels the running statement, the next one exits.
//!
//! A request is kept until it is cleared, so that Ctrl-C between two statements stops a script too.

use std::process::exit;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::output::print_error;

/// The exit status after Ctrl-C.
pub const EXIT_STATUS: u8 = 130;

/// The state of interrupts.
pub struct Interrupts {
    requested: Option<watch::Sender<bool>>,
}

impl Interrupts {
    /// Without interrupts: the caller handles Ctrl-C.
    pub const fn none() -> Self {
        Self { requested: None }
    }

    /// Starts to handle Ctrl-C.
    pub fn listen() -> anyhow::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot catch SIGINT")?;
        let requested = watch::Sender::new(false);
        let request = requested.clone();
        tokio::spawn(async move {
            while interrupt.recv().await.is_some() {
                if request.send_replace(true) {
                    print_error("interrupted twice; exiting");
                    #[allow(clippy::disallowed_methods, reason = "the second signal asks for exactly that")]
                    exit(i32::from(EXIT_STATUS));
                }
            }
        });
        Ok(Self { requested: Some(requested) })
    }

    /// Returns at the next interrupt, immediately if there was one.
    pub async fn next(&self) {
        match &self.requested {
            // Never an error: this struct owns the sender.
            Some(requested) => drop(requested.subscribe().wait_for(|is_interrupted| *is_interrupted).await),
            None => std::future::pending().await,
        }
    }

    /// Whether there was an interrupt.
    pub fn is_interrupted(&self) -> bool {
        self.requested.as_ref().is_some_and(|requested| *requested.borrow())
    }

    /// Clears the interrupt.
    pub fn clear(&self) {
        if let Some(requested) = &self.requested {
            requested.send_replace(false);
        }
    }
}
