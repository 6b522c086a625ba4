//! How long an engine has been idle, and its consent to retire.
//!
//! Both are under the lock of the sessions, so a session that is opened, or is being opened, and a consent exclude each other.
//! A consent ends only by time: the master that obtained it has given the slot another engine by then, or it never will, and the
//! engine accepts sessions again.

use std::time::Duration;

use super::settings::RETIRE_CONSENT;

/// The state of one engine. All times are those of the clock that counts suspension.
#[derive(Debug)]
pub(super) struct Idleness {
    /// Calls that are opening a session.
    opening: usize,
    /// When the last session was closed, or the last attempt to open one ended; at first the start of the agent.
    since: Duration,
    /// The end of the consent to retire.
    consent_until: Option<Duration>,
}

impl Idleness {
    pub(super) const fn new(now: Duration) -> Self {
        Self { opening: 0, since: now, consent_until: None }
    }

    /// For how long no session has been open; `None` while one of `sessions` is, or is being opened.
    fn idle(&self, sessions: usize, now: Duration) -> Option<Duration> {
        (sessions == 0 && self.opening == 0).then(|| now.saturating_sub(self.since))
    }

    /// For how long no session has been open; zero while one of `sessions` is, or is being opened.
    pub(super) fn lasted(&self, sessions: usize, now: Duration) -> Duration {
        self.idle(sessions, now).unwrap_or_default()
    }

    /// Whether it opens no sessions, because it agreed to retire.
    pub(super) fn is_retiring(&self, now: Duration) -> bool {
        self.consent_until.is_some_and(|until| now < until)
    }

    /// The calls that are opening a session.
    pub(super) const fn opening(&self) -> usize {
        self.opening
    }

    /// A call begins to open a session.
    pub(super) fn begin_open(&mut self) {
        self.opening += 1;
    }

    /// That call is over, whether or not the session is open.
    pub(super) fn end_open(&mut self, now: Duration) {
        self.opening -= 1;
        self.since = now;
    }

    /// A session was closed.
    pub(super) fn closed(&mut self, now: Duration) {
        self.since = now;
    }

    /// Agrees to open no sessions for [`RETIRE_CONSENT`], if none of `sessions` is open and none was for `idle`. A repeat
    /// begins that time again.
    pub(super) fn retire(&mut self, sessions: usize, idle: Duration, now: Duration) -> bool {
        let agrees = self.idle(sessions, now).is_some_and(|lasted| lasted >= idle);
        if agrees {
            self.consent_until = Some(now + RETIRE_CONSENT);
        }
        agrees
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn idle_time_counts_from_the_start_and_from_the_last_session() {
        let mut idleness = Idleness::new(at(100));
        assert_eq!(idleness.lasted(0, at(107)), at(7));
        idleness.begin_open();
        assert_eq!(idleness.lasted(0, at(108)), at(0), "a session is being opened");
        idleness.end_open(at(109));
        assert_eq!(idleness.lasted(1, at(120)), at(0), "it is open");
        idleness.closed(at(130));
        assert_eq!(idleness.lasted(0, at(131)), at(1));
    }

    #[test]
    fn only_an_idle_engine_agrees_to_retire() {
        let mut idleness = Idleness::new(at(0));
        assert!(!idleness.retire(1, at(0), at(10)), "a session is open");
        idleness.begin_open();
        assert!(!idleness.retire(0, at(0), at(10)), "a session is being opened");
        idleness.end_open(at(10));
        assert!(!idleness.retire(0, at(5), at(14)), "one was opened since");
        assert!(!idleness.is_retiring(at(14)));
        assert!(idleness.retire(0, at(5), at(15)));
    }

    #[test]
    fn a_consent_ends_by_time_and_a_repeat_begins_it_again() {
        let mut idleness = Idleness::new(at(0));
        assert!(idleness.retire(0, at(5), at(10)));
        let end = at(10) + RETIRE_CONSENT;
        assert!(idleness.is_retiring(at(10)) && idleness.is_retiring(end.saturating_sub(at(1))));
        assert!(!idleness.is_retiring(end));
        assert!(idleness.retire(0, at(5), end.saturating_sub(at(1))));
        assert!(idleness.is_retiring(end));
    }
}
