//! The staleness notice: text for users about a lost connection to ZooKeeper.
//!
//! A proxy without ZooKeeper uses what it last read there. SHOW output reports that, with the age of the data; a statement that
//! waits for an engine reports that new engines are not visible to this proxy. Informational only: no decision uses it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use coordination::{RegistrySnapshot, SessionState};
use model::clock::SharedClock;
use model::span;
use tokio::sync::watch;

/// Consecutive readings of the registry that may be late before ZooKeeper counts as unresponsive although connected.
const LATE_READINGS: u32 = 3;

/// The state of the connection to ZooKeeper, and the age of the registry.
pub(crate) struct ZooKeeperStatus {
    /// When the connection was lost, by the clock that counts suspension.
    lost_since: watch::Receiver<Option<Duration>>,
    registered: watch::Receiver<Arc<RegistrySnapshot>>,
    /// The greatest age of the registry while ZooKeeper responds.
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
        tokio::spawn(track(states, sender, clock.clone()));
        let late = zookeeper.reread * LATE_READINGS + zookeeper.request_timeout;
        Self { lost_since, registered, late, clock }
    }

    /// The lost connection and the age of the registry, as a clause; `None` while ZooKeeper responds.
    pub(crate) fn staleness(&self) -> Option<String> {
        let now = self.clock.boottime();
        let lost = self.lost_since.borrow().map(|since| now.saturating_sub(since));
        let age = self.registered.borrow().read_at.map(|at| now.saturating_sub(at));
        describe(lost, age, self.late)
    }

    /// The same as the detail of an error.
    pub(crate) fn staleness_detail(&self) -> Option<String> {
        Some(format!("{}.", self.staleness()?.replacen("this", "This", 1)))
    }

    /// The warning in the log of a control statement.
    pub(crate) fn warning(&self) -> Option<String> {
        Some(format!("warning: {}; new engines are not visible until ZooKeeper is back", self.staleness()?))
    }

    /// A note for a statement that waits for an engine. It has no age in it: a line that repeats the last one of an
    /// operation's log is not written.
    pub(crate) fn waiting_hint(&self) -> Option<&'static str> {
        self.staleness().map(|_| "this proxy has lost ZooKeeper and cannot see engines that became ready since")
    }
}

fn describe(lost: Option<Duration>, age: Option<Duration>, late: Duration) -> Option<String> {
    let mut text = match (lost, age) {
        (Some(lost), _) => format!("this proxy has had no connection to ZooKeeper for {}", span::age(lost)),
        (None, Some(age)) if age > late => "this proxy receives no replies from ZooKeeper".to_owned(),
        (None, _) => return None,
    };
    let _ = match age {
        Some(age) => write!(text, ", and knows the engines that were registered {} ago", span::age(age)),
        None => write!(text, ", and has never read the registered engines"),
    };
    Some(text)
}

/// Records when the connection is lost and restored.
async fn track(
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
    fn the_notice_has_the_time_of_the_loss_and_the_age_of_the_registry() {
        let (s, late) = (Duration::from_secs, Duration::from_secs(11));
        assert_eq!(describe(None, Some(s(11)), late), None);
        assert_eq!(describe(None, None, late), None, "nothing was read yet");
        assert_eq!(
            describe(Some(s(12)), Some(s(14)), late).as_deref(),
            Some(
                "this proxy has had no connection to ZooKeeper for 12 s, and knows the engines that were registered 14 \
                 s ago"
            )
        );
        assert_eq!(
            describe(Some(s(12)), None, late).as_deref(),
            Some("this proxy has had no connection to ZooKeeper for 12 s, and has never read the registered engines")
        );
        assert!(describe(None, Some(s(12)), late).is_some_and(|text| text.contains("no replies from ZooKeeper")));
    }

    #[tokio::test]
    async fn the_time_counts_from_the_loss_not_from_the_last_state_change() {
        let clock = model::clock::ManualClock::at(0);
        let shared: SharedClock = clock.clone();
        let (states, state) = watch::channel(SessionState::Connected);
        let (sender, mut lost_since) = watch::channel(None);
        tokio::spawn(track(state, sender, Arc::clone(&shared)));
        clock.advance(Duration::from_secs(5));
        states.send_replace(SessionState::Suspended);
        assert!(lost_since.wait_for(Option::is_some).await.is_ok_and(|since| *since == Some(shared.boottime())));
        let lost = *lost_since.borrow();
        clock.advance(Duration::from_secs(5));
        states.send_replace(SessionState::Expired);
        tokio::task::yield_now().await;
        assert_eq!(*lost_since.borrow(), lost);
        states.send_replace(SessionState::Connected);
        assert!(lost_since.wait_for(Option::is_none).await.is_ok());
    }
}
