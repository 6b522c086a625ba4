//! The scripted behaviour of the engines of the fake.

use std::time::Duration;

/// How an engine ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct End {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The reason that it leaves, if any.
    pub reason: Option<String>,
    pub log_tail: Option<String>,
}

impl End {
    pub fn code(code: i32) -> Self {
        Self { code: Some(code), ..Self::default() }
    }

    pub fn signal(signal: i32) -> Self {
        Self { signal: Some(signal), ..Self::default() }
    }

    /// Adds a reason, which is also the last line of its log.
    #[must_use]
    pub fn with_reason(mut self, reason: &str) -> Self {
        self.reason = Some(reason.to_owned());
        self.log_tail = Some(reason.to_owned());
        self
    }
}

/// What an engine does once it is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behaviour {
    /// How long it stays pending.
    pub starts_after: Duration,
    /// How long it takes to end when it is asked to; `None`: it has to be killed.
    pub obeys_after: Option<Duration>,
    /// When, counted from its start, and how it ends by itself. If set for all engines: a crash loop.
    pub ends: Option<(Duration, End)>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self { starts_after: Duration::ZERO, obeys_after: Some(Duration::ZERO), ends: None }
    }
}

impl Behaviour {
    /// It has to be killed.
    pub fn stubborn() -> Self {
        Self { obeys_after: None, ..Self::default() }
    }

    pub fn ending(after: Duration, end: End) -> Self {
        Self { ends: Some((after, end)), ..Self::default() }
    }
}
