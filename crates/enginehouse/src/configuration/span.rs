//! Durations in the configuration: `"10s"`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A duration, written as in the control language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(pub Duration);

impl Span {
    /// Whole seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl TryFrom<String> for Span {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        model::span::parse(&text).map(Self).map_err(|error| error.text())
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        model::span::print(span.0)
    }
}
