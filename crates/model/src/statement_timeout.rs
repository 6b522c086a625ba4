//! The statement timeout: unit property and session setting [`KEY`].
//!
//! The proxy enforces it for every engine type: it is not a property of the engine, so changing it replaces none. If
//! several timeouts apply to a statement (its client's, its session's, its unit's), the shortest one counts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::{ErrorKind, UserError};
use crate::span;

/// The key of the property and of the setting.
pub const KEY: &str = "enginehouse.statement_timeout";
/// The prefix of Enginehouse's own properties, which engines do not receive.
const OURS: &str = "enginehouse.";

/// Parses a timeout such as `30s`; `0s` is no timeout.
pub fn parse(text: &str) -> Result<Option<Duration>, UserError> {
    let timeout = span::parse(text.trim()).map_err(|error| {
        let message = format!("invalid value for \"{KEY}\": {}", error.message);
        UserError { message, ..error }
    })?;
    Ok((!timeout.is_zero()).then_some(timeout))
}

/// The timeout in a unit's properties.
pub fn from_properties(properties: &BTreeMap<String, String>) -> Option<Duration> {
    // Stored values were validated.
    properties.get(KEY).and_then(|text| parse(text).ok().flatten())
}

/// The shorter of two optional timeouts.
pub fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Whether the property is Enginehouse's own.
pub(crate) fn is_ours(key: &str) -> bool {
    key.starts_with(OURS)
}

/// Rejects an unknown or invalid property of Enginehouse's own.
pub(crate) fn check(properties: &BTreeMap<String, String>) -> Result<(), UserError> {
    for (key, value) in properties.iter().filter(|(key, _)| is_ours(key)) {
        if key != KEY {
            return Err(UserError::new(ErrorKind::InvalidValue, format!("unknown property \"{key}\""))
                .detail(format!("Properties that begin with {OURS} are Enginehouse's own."))
                .hint(format!("The only such property is {KEY}.")));
        }
        parse(value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_timeout_is_a_length_of_time_and_zero_is_none() {
        assert_eq!(parse(" 30s ").unwrap(), Some(Duration::from_secs(30)));
        assert_eq!(parse("0s").unwrap(), None);
        let error = parse("soon").unwrap_err();
        assert_eq!(error.sqlstate(), "22023");
        assert!(error.message.contains(KEY), "{error}");
    }

    #[test]
    fn the_shortest_timeout_counts() {
        let (one, two) = (Some(Duration::from_secs(1)), Some(Duration::from_secs(2)));
        assert_eq!(shorter(one, two), one);
        assert_eq!((shorter(None, two), shorter(one, None), shorter(None, None)), (two, one, None));
    }

    #[test]
    fn a_property_of_ours_is_known_and_possible() {
        let unit = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        check(&unit(KEY, "30s")).unwrap();
        check(&unit("spark.x", "soon")).unwrap();
        assert_eq!(check(&unit(KEY, "soon")).unwrap_err().sqlstate(), "22023");
        assert_eq!(check(&unit("enginehouse.statement_timout", "1s")).unwrap_err().sqlstate(), "22023");
        assert_eq!(from_properties(&unit(KEY, "30s")), Some(Duration::from_secs(30)));
    }
}
