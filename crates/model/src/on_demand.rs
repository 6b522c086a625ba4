//! Engines on demand: the limits and defaults of a unit's options for them.
//!
//! The options are no part of an engine's configuration, so a change replaces no engine. A decision that relies on
//! outdated ones is harmless: the transaction that writes it reads the unit again.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, UserError};
use crate::span;

/// The most sessions of one engine: the limit of its agent, and of `SESSIONS_PER_ENGINE`.
pub const MAX_SESSIONS_PER_ENGINE: u32 = 2_000;
/// The shortest idle timeout.
pub const MIN_IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// When an idle engine on demand is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum IdleTimeout {
    Never,
    /// At least [`MIN_IDLE_TIMEOUT`].
    After(Duration),
}

impl IdleTimeout {
    /// The idle time after which an engine is released, if it is.
    pub const fn duration(self) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::After(duration) => Some(duration),
        }
    }
}

impl fmt::Display for IdleTimeout {
    /// `5m` or `never`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.pad("never"),
            Self::After(duration) => f.pad(&span::print(*duration)),
        }
    }
}

impl FromStr for IdleTimeout {
    type Err = UserError;

    /// Parses a duration, or `never` in any case.
    fn from_str(text: &str) -> Result<Self, UserError> {
        if text.eq_ignore_ascii_case("never") {
            return Ok(Self::Never);
        }
        let invalid = || UserError::new(ErrorKind::InvalidValue, format!("invalid idle timeout \"{text}\""));
        match span::parse(text) {
            Ok(duration) if duration >= MIN_IDLE_TIMEOUT => Ok(Self::After(duration)),
            Ok(_) => Err(invalid()
                .detail(format!("An idle timeout is at least {}.", span::print(MIN_IDLE_TIMEOUT)))
                .hint("Write 30s, 5m, 2h, 1d or NEVER.")),
            Err(_) => Err(invalid()
                .detail("An idle timeout is a whole number with a unit, at most 3650d, or NEVER.")
                .hint("Write 30s, 5m, 2h, 1d or NEVER.")),
        }
    }
}

impl TryFrom<String> for IdleTimeout {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map_err(|error: UserError| error.text())
    }
}

impl From<IdleTimeout> for String {
    fn from(timeout: IdleTimeout) -> Self {
        timeout.to_string()
    }
}

/// The installation's defaults for units that leave them open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OnDemandDefaults {
    /// Whether sessions that wait start engines.
    pub start_on_demand: bool,
    pub idle_timeout: IdleTimeout,
}

impl Default for OnDemandDefaults {
    fn default() -> Self {
        Self { start_on_demand: true, idle_timeout: IdleTimeout::After(Duration::from_mins(5)) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_idle_timeout_is_never_or_at_least_a_second() {
        let after = |secs| IdleTimeout::After(Duration::from_secs(secs));
        for (text, timeout, printed) in [
            ("never", IdleTimeout::Never, "never"),
            ("Never", IdleTimeout::Never, "never"),
            ("1s", after(1), "1s"),
            ("1000ms", after(1), "1s"),
            ("1500ms", IdleTimeout::After(Duration::from_millis(1_500)), "1500ms"),
            ("60s", after(60), "1m"),
            ("3650d", after(3_650 * 86_400), "3650d"),
        ] {
            assert_eq!(text.parse::<IdleTimeout>().unwrap(), timeout, "{text}");
            assert_eq!(timeout.to_string(), printed);
            let json = serde_json::to_string(&timeout).unwrap();
            assert_eq!(json, format!("\"{printed}\""));
            assert_eq!(serde_json::from_str::<IdleTimeout>(&json).unwrap(), timeout);
        }
        for text in ["", "0s", "999ms", "5", "NEVER ", "-5m", "3651d", "off"] {
            let error = text.parse::<IdleTimeout>().unwrap_err();
            assert_eq!(error.sqlstate(), "22023", "{text}");
            assert!(error.detail.is_some() && error.hint.is_some(), "{error}");
            serde_json::from_value::<IdleTimeout>(text.into()).unwrap_err();
        }
        assert_eq!((IdleTimeout::Never.duration(), after(2).duration()), (None, Some(Duration::from_secs(2))));
    }
}
