//! What this proxy can't reach now, in words for those who ask it something.
//!
//! A proxy goes on without ZooKeeper by what it last read there. Whoever looks through it is told so, since when, and
//! how old that is; who waits for an engine is told that a new one can't be seen from here. What is said here may be
//! over a moment later: it decides nothing.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use coordination::{RegistrySnapshot, SessionState};
use model::clock::SharedClock;
use model::span;
use tokio::sync::watch;

/// Readings of the registry that may be missing in a row before ZooKeeper counts as silent although it is connected.
const LATE_READINGS: u32 = 3;

/// What is known of the connection to ZooKeeper.
pub(crate) struct ZooKeeperStatus {
    /// Since when there has been no connection, by the clock that counts suspension.
    lost_since: watch::Receiver<Option<Duration>>,
    registered: watch::Receiver<Arc<RegistrySnapshot>>,
    /// How old a reading of the registry is at most while ZooKeeper answers.
    late: Duration,
    clock: SharedClock,
}

impl ZooKeeperStatus {
    /// Follows the state of the session with ZooKeeper until its supervisor ends.
    pub(crate) fn follow(
        states: watch::Receiver<SessionState>,
        registered: watch::Receiver<Arc<RegistrySnapshot>>,
        zookeeper: &coordination::SessionSettings,
        clock: SharedClock,
    ) -> Self {
        let (sender, lost_since) = watch::channel(None);
        tokio::spawn(note(states, sender, clock.clone()));
        let late = zookeeper.reread * LATE_READINGS + zookeeper.request_timeout;
        Self { lost_since, registered, late, clock }
    }

    /// What is missing and how old what is known instead; `None` while ZooKeeper answers.
    pub(crate) fn staleness(&self) -> Option<String> {
        let now = self.clock.boottime();
        let lost = self.lost_since.borrow().map(|since| now.saturating_sub(since));
        let age = self.registered.borrow().read_at.map(|at| now.saturating_sub(at));
        said(lost, age, self.late)
    }

    /// The line of a statement's log about it.
    pub(crate) fn warning(&self) -> Option<String> {
        Some(format!("warning: {}; it learns of other engines when ZooKeeper is back", self.staleness()?))
    }

    /// What a statement has to know that waits for an engine. It says the same as long as it lasts, as a line of a log
    /// that is written at each look must.
    pub(crate) fn waiting_hint(&self) -> Option<&'static str> {
        self.staleness().map(|_| "this proxy has lost ZooKeeper and can't see engines that became ready since")
    }
}

fn said(lost: Option<Duration>, age: Option<Duration>, late: Duration) -> Option<String> {
    let mut text = match (lost, age) {
        (Some(lost), _) => format!("this proxy has had no connection to ZooKeeper for {}", span::age(lost)),
        (None, Some(age)) if age > late => "this proxy gets no answers from ZooKeeper".to_owned(),
        (None, _) => return None,
    };
    let _ = match age {
        Some(age) => write!(text, ", and knows the engines that were registered {} ago", span::age(age)),
        None => write!(text, ", and has never read there which engines are registered"),
    };
    Some(text)
}

/// Notes when the connection is lost, and that it is there again.
async fn note(
    mut states: watch::Receiver<SessionState>,
    lost_since: watch::Sender<Option<Duration>>,
    clock: SharedClock,
) {
    loop {
        let connected = *states.borrow_and_update() == SessionState::Connected;
        lost_since.send_if_modified(|since| {
            let changed = connected == since.is_some();
            if changed {
                *since = (!connected).then(|| clock.boottime());
            }
            changed
        });
        if states.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_since_when_and_how_old_the_view_is() {
        let (s, late) = (Duration::from_secs, Duration::from_secs(11));
        assert_eq!(said(None, Some(s(11)), late), None);
        assert_eq!(said(None, None, late), None, "it has just begun");
        assert_eq!(
            said(Some(s(12)), Some(s(14)), late).as_deref(),
            Some(
                "this proxy has had no connection to ZooKeeper for 12 s, and knows the engines that were registered 14 \
                 s ago"
            )
        );
        assert_eq!(
            said(Some(s(12)), None, late).as_deref(),
            Some(
                "this proxy has had no connection to ZooKeeper for 12 s, and has never read there which engines are \
                 registered"
            )
        );
        assert!(said(None, Some(s(12)), late).is_some_and(|it| it.contains("no answers from ZooKeeper")));
    }

    #[tokio::test]
    async fn the_time_counts_from_the_loss_and_not_from_the_last_change_of_state() {
        let clock = model::clock::ManualClock::at(0);
        let shared: SharedClock = clock.clone();
        let (states, state) = watch::channel(SessionState::Connected);
        let (sender, mut lost_since) = watch::channel(None);
        tokio::spawn(note(state, sender, Arc::clone(&shared)));
        clock.advance(Duration::from_secs(5));
        states.send_replace(SessionState::Suspended);
        assert!(lost_since.wait_for(Option::is_some).await.is_ok_and(|it| *it == Some(shared.boottime())));
        let lost = *lost_since.borrow();
        clock.advance(Duration::from_secs(5));
        states.send_replace(SessionState::Expired);
        tokio::task::yield_now().await;
        assert_eq!(*lost_since.borrow(), lost);
        states.send_replace(SessionState::Connected);
        assert!(lost_since.wait_for(Option::is_none).await.is_ok());
    }
}
