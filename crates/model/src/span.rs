//! Durations as text: `500ms`, `30s`, `5m`, `2h`, `1d`.

use std::time::Duration;

use crate::error::{ErrorKind, UserError};

/// The longest duration in a statement or a configuration.
pub const MAX_SPAN: Duration = Duration::from_hours(3_650 * 24);

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses a duration: a whole number and one unit (`ms`, `s`, `m`, `h`, `d`).
pub fn parse(text: &str) -> Result<Duration, UserError> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .and_then(|(_, factor_ms)| number.parse::<u64>().ok()?.checked_mul(*factor_ms))
        .map(Duration::from_millis)
        .filter(|span| *span <= MAX_SPAN)
        .ok_or_else(|| {
            UserError::new(ErrorKind::InvalidValue, format!("invalid duration \"{text}\""))
                .detail("A duration is a whole number with a unit, at most 3650d.")
                .hint("Write 500ms, 30s, 5m, 2h or 1d.")
        })
}

/// Prints a duration in the largest unit that gives a whole number; fractions of a millisecond are cut off.
pub fn print(span: Duration) -> String {
    let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    if ms == 0 {
        return "0s".to_owned();
    }
    let (unit, factor) = UNITS.iter().find(|(_, factor)| ms.is_multiple_of(*factor)).unwrap_or(&("ms", 1));
    format!("{}{unit}", ms / factor)
}

/// Prints an age or elapsed time for people: `340 ms`, `4.2 s`, `14 s`, `3 min 20 s`, `5 min`, `2 h 5 min`, `3 d 4 h`.
/// Smaller units are cut off.
pub fn age(span: Duration) -> String {
    let (ms, s) = (span.as_millis(), span.as_secs());
    let pair = |big: u64, unit: &str, small: u64, part: &str| match s % big / small {
        0 => format!("{} {unit}", s / big),
        rest => format!("{} {unit} {rest} {part}", s / big),
    };
    match s {
        0 if ms < 10 && span.subsec_micros() > 0 => {
            format!("{}.{} ms", span.subsec_millis(), span.subsec_micros() % 1_000 / 100)
        }
        0 => format!("{ms} ms"),
        1..10 => format!("{s}.{} s", ms % 1_000 / 100),
        10..60 => format!("{s} s"),
        60..3_600 => pair(60, "min", 1, "s"),
        3_600..86_400 => pair(3_600, "h", 60, "min"),
        _ => pair(86_400, "d", 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn an_age_is_printed_in_at_most_two_units() {
        let us = Duration::from_micros;
        for (span, text) in [
            (us(0), "0 ms"),
            (us(420), "0.4 ms"),
            (us(9_990), "9.9 ms"),
            (us(340_900), "340 ms"),
            (us(4_290_000), "4.2 s"),
            (us(14_999_999), "14 s"),
            (Duration::from_secs(200), "3 min 20 s"),
            (Duration::from_mins(5), "5 min"),
            (Duration::from_mins(125), "2 h 5 min"),
            (Duration::from_secs(3 * 86_400 + 4 * 3_600 + 59), "3 d 4 h"),
        ] {
            assert_eq!(age(span), text);
        }
    }

    #[test]
    fn lengths_of_time_are_read_and_printed_alike() {
        for text in ["500ms", "30s", "5m", "2h", "1d", "0s"] {
            assert_eq!(print(parse(text).unwrap()), text);
        }
        assert_eq!(print(parse("60s").unwrap()), "1m");
        for text in ["", "5", "m", "5 m", "-5m", "5M", "99999999999999999999d", "3651d", "5mm"] {
            assert_eq!(parse(text).unwrap_err().sqlstate(), "22023", "{text}");
        }
    }
}
