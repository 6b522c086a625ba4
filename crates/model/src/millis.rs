//! Durations as whole milliseconds: on the wire, in rows and in configuration.
//!
//! `#[serde(with = "model::millis")]` is for a field of type [`Duration`], `model::millis::option` for an optional one, which
//! also needs `#[serde(default)]` if its key may be missing.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// The whole milliseconds of a duration, at most [`i64::MAX`].
pub fn from_duration(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// As [`from_duration`], rounded up: a wait of this duration is over after so many milliseconds.
pub fn ceil(duration: Duration) -> i64 {
    from_duration(duration.saturating_add(Duration::from_nanos(999_999)))
}

/// The duration of so many milliseconds; a negative number is zero.
pub fn to_duration(ms: i64) -> Duration {
    Duration::from_millis(ms.max(0).unsigned_abs())
}

pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i64(from_duration(*duration))
}

/// Rejects a negative number.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_millis)
}

/// An optional duration as whole milliseconds.
pub mod option {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde::Serialize;

    use super::*;

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Waits {
        #[serde(rename = "tick_ms", with = "crate::millis")]
        tick: Duration,
        #[serde(rename = "pause_ms", default, with = "crate::millis::option")]
        pause: Option<Duration>,
    }

    #[test]
    fn durations_are_integers_of_milliseconds() {
        let pause = Some(Duration::from_micros(1_999));
        let text = serde_json::to_string(&Waits { tick: Duration::from_secs(2), pause }).unwrap();
        assert_eq!(text, r#"{"tick_ms":2000,"pause_ms":1}"#);
        let read = |text: &str| serde_json::from_str::<Waits>(text);
        let pause = Some(Duration::from_millis(1));
        assert_eq!(read(&text).unwrap(), Waits { tick: Duration::from_secs(2), pause });
        for without in [r#"{"tick_ms":0}"#, r#"{"tick_ms":0,"pause_ms":null}"#] {
            assert_eq!(read(without).unwrap(), Waits { tick: Duration::ZERO, pause: None });
        }
        read(r#"{"tick_ms":-1}"#).unwrap_err();
        read(r#"{"tick_ms":0,"pause_ms":-1}"#).unwrap_err();
    }

    #[test]
    fn conversions_saturate() {
        assert_eq!((from_duration(Duration::MAX), to_duration(-5)), (i64::MAX, Duration::ZERO));
        assert_eq!([0, 1, 1_000, 1_001].map(|us| ceil(Duration::from_micros(us))), [0, 1, 1, 2]);
        assert_eq!(to_duration(from_duration(Duration::from_millis(7))), Duration::from_millis(7));
    }
}
