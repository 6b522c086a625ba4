//! The ends of engines: one word for each, and whether a start that failed may succeed if it is repeated.
//!
//! A word is a fact of the transaction that condemned the engine or recorded its end, and is never changed after that: a
//! later, stale report of the same end has no effect. Of an engine that ended before its installation knew words there is none.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::engine_name::EngineName;

/// Why an engine ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndWord {
    /// Its process or container exited, or it stopped responding.
    Failed,
    /// It did not register in time.
    StartTimeout,
    /// It was idle for its timeout.
    Idle,
    /// The session that owned it was closed.
    Finished,
    /// STOP, DROP, `MIN_ENGINES` lowered, or a link removed.
    Stopped,
    /// It was deleted from outside: an eviction, a drain of its node, `kubectl delete`.
    Evicted,
    /// The orchestrator no longer has it, and no deletion was observed.
    Vanished,
    /// Replaced by a newer engine of its slot: ALTER, RESTART.
    Superseded,
    /// It gave its capacity back to the tenant that it is guaranteed to.
    Reclaimed,
    /// `MAX_ENGINES` was lowered.
    OverMax,
    /// Cancelled before it was used.
    Unneeded,
    /// Its node died.
    NodeLost,
    /// Its reservation ended before it was created.
    LostReservation,
}

/// The longest word, in bytes.
pub const MAX_END_WORD_BYTES: usize = 16;

impl EndWord {
    pub const ALL: [Self; 13] = [
        Self::Failed,
        Self::StartTimeout,
        Self::Idle,
        Self::Finished,
        Self::Stopped,
        Self::Evicted,
        Self::Vanished,
        Self::Superseded,
        Self::Reclaimed,
        Self::OverMax,
        Self::Unneeded,
        Self::NodeLost,
        Self::LostReservation,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::StartTimeout => "start_timeout",
            Self::Idle => "idle",
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Evicted => "evicted",
            Self::Vanished => "vanished",
            Self::Superseded => "superseded",
            Self::Reclaimed => "reclaimed",
            Self::OverMax => "over_max",
            Self::Unneeded => "unneeded",
            Self::NodeLost => "node_lost",
            Self::LostReservation => "lost_reservation",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|candidate| candidate.as_str() == word)
    }

    /// Whether an engine that ended so before it registered is a start that failed. The others were asked to end.
    pub const fn is_failure(self) -> bool {
        matches!(
            self,
            Self::Failed | Self::StartTimeout | Self::Evicted | Self::Vanished | Self::NodeLost | Self::LostReservation
        )
    }
}

impl fmt::Display for EndWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The end of an engine in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndClass {
    pub word: EndWord,
    /// Of a start that failed, whether the same start may succeed later; else `None`.
    pub retryable: Option<bool>,
}

impl EndClass {
    /// The end of an engine that had registered, or that was asked to end.
    pub const fn of(word: EndWord) -> Self {
        Self { word, retryable: None }
    }

    /// The end of an engine that had not registered. A fault that is not known is retryable.
    pub fn of_start(word: EndWord, fault: Option<StartFault>) -> Self {
        let retryable = fault.is_none_or(StartFault::is_retryable);
        Self { word, retryable: word.is_failure().then_some(retryable) }
    }
}

/// The end of an engine that its slot has given up, before the engine is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    pub class: EndClass,
    /// Lower case, no full stop.
    pub reason: String,
}

/// Why the engines of a slot that goes end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndOrder {
    pub word: EndWord,
    /// Lower case, no full stop.
    pub reason: String,
}

impl EndOrder {
    pub fn new(word: EndWord, reason: impl Into<String>) -> Self {
        Self { word, reason: reason.into() }
    }

    /// The order for one engine of the slot. What was idle, closed or not needed is the current engine: an older one may still be in
    /// use, and ends because it was replaced.
    #[must_use]
    pub fn of_engine(&self, engine: &EngineName, current: &EngineName) -> Self {
        match self.word {
            EndWord::Idle | EndWord::Finished | EndWord::Unneeded if engine != current => {
                Self::new(EndWord::Superseded, format!("replaced by {current}"))
            }
            _ => self.clone(),
        }
    }
}

impl From<String> for EndOrder {
    /// An order of a statement.
    fn from(reason: String) -> Self {
        Self::new(EndWord::Stopped, reason)
    }
}

/// What prevents an engine from running, derived from the facts of its orchestrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StartFault {
    /// The image does not exist, its name is invalid, or the registry refuses access to it.
    Image,
    /// An object that its pod names is missing, or its configuration is invalid.
    Configuration,
    /// It used more memory than its unit allows.
    OutOfMemory,
    /// The registry of its image cannot be reached or is overloaded.
    Registry,
    /// No node has what it requests.
    Unschedulable,
    /// Its node evicted, preempted or rejected it, or was shut down.
    Evicted,
    /// A signal from outside ended it.
    Killed,
    /// It exited by itself.
    Exited,
}

/// The exit code of an engine agent whose configuration is invalid: `EX_CONFIG` of `sysexits.h`.
pub const EXIT_CONFIGURATION: u8 = 78;

/// The offset of exit codes of programs that a signal ended.
const SIGNAL_BASE: i32 = 128;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

impl StartFault {
    /// Whether the same start may succeed later without any change by hand.
    pub const fn is_retryable(self) -> bool {
        !matches!(self, Self::Image | Self::Configuration | Self::OutOfMemory)
    }

    /// The fault of a process that ended by an exit code or a signal; `None` if neither is known, or it succeeded.
    pub const fn of_exit(code: Option<i32>, signal: Option<i32>) -> Option<Self> {
        const CONFIGURATION: i32 = EXIT_CONFIGURATION as i32;
        const KILLED: i32 = SIGNAL_BASE + SIGKILL;
        const TERMINATED: i32 = SIGNAL_BASE + SIGTERM;
        match (code, signal) {
            (_, Some(SIGKILL | SIGTERM)) | (Some(KILLED | TERMINATED), _) => Some(Self::Killed),
            (Some(CONFIGURATION), None) => Some(Self::Configuration),
            (Some(0) | None, None) => None,
            _ => Some(Self::Exited),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_as_it_is_written() {
        for word in EndWord::ALL {
            assert_eq!(EndWord::from_word(word.as_str()), Some(word));
            assert_eq!(serde_json::to_value(word).ok(), Some(word.as_str().into()));
            assert!(word.as_str().len() <= MAX_END_WORD_BYTES);
        }
        assert_eq!(EndWord::from_word("ended"), None);
    }

    #[test]
    fn an_exit_is_classified_by_its_code_and_signal() {
        for (code, signal, fault) in [
            (Some(0), None, None),
            (None, None, None),
            (Some(1), None, Some(StartFault::Exited)),
            (Some(78), None, Some(StartFault::Configuration)),
            (Some(143), None, Some(StartFault::Killed)),
            (Some(137), None, Some(StartFault::Killed)),
            (None, Some(15), Some(StartFault::Killed)),
            (None, Some(9), Some(StartFault::Killed)),
            (None, Some(6), Some(StartFault::Exited)),
            (None, Some(11), Some(StartFault::Exited)),
        ] {
            assert_eq!(StartFault::of_exit(code, signal), fault, "{code:?} {signal:?}");
        }
    }

    #[test]
    fn only_a_start_that_failed_is_retryable_or_not() {
        let of = |word, fault| EndClass::of_start(word, fault).retryable;
        assert_eq!(of(EndWord::Failed, None), Some(true));
        assert_eq!(of(EndWord::Failed, Some(StartFault::Exited)), Some(true));
        assert_eq!(of(EndWord::Failed, Some(StartFault::OutOfMemory)), Some(false));
        assert_eq!(of(EndWord::StartTimeout, Some(StartFault::Image)), Some(false));
        assert_eq!(of(EndWord::StartTimeout, Some(StartFault::Registry)), Some(true));
        assert_eq!(of(EndWord::Stopped, Some(StartFault::Image)), None);
        assert_eq!(EndClass::of(EndWord::Failed).retryable, None);
    }
}
