//! Lengths of time as people write them: `500ms`, `30s`, `5m`, `2h`, `1d`.

use std::time::Duration;

use crate::error::{ErrorKind, UserError};

/// The longest length of time that a statement or a configuration may name.
pub const MAX_SPAN: Duration = Duration::from_hours(366 * 24);

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a length of time: a whole number and one unit (`ms`, `s`, `m`, `h`, `d`).
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
            UserError::new(ErrorKind::InvalidValue, format!("invalid length of time \"{text}\""))
                .detail("it is a whole number with a unit, at most 366d")
                .hint("write 500ms, 30s, 5m, 2h or 1d")
        })
}

/// Prints a length of time as the largest whole unit; what is shorter than a millisecond is cut off.
pub fn print(span: Duration) -> String {
    let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    if ms == 0 {
        return "0s".to_owned();
    }
    let (unit, factor) = UNITS.iter().find(|(_, factor)| ms.is_multiple_of(*factor)).unwrap_or(&("ms", 1));
    format!("{}{unit}", ms / factor)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn lengths_of_time_are_read_and_printed_alike() {
        for text in ["500ms", "30s", "5m", "2h", "1d", "0s"] {
            assert_eq!(print(parse(text).unwrap()), text);
        }
        assert_eq!(print(parse("60s").unwrap()), "1m");
        for text in ["", "5", "m", "5 m", "-5m", "5M", "99999999999999999999d", "367d", "5mm"] {
            assert_eq!(parse(text).unwrap_err().sqlstate(), "22023", "{text}");
        }
    }
}
