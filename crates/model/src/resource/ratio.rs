//! Ratios: decimals of at most six digits after the point, read without a float.

use std::str::FromStr;

use super::error;
use crate::error::UserError;

/// The number of digits after the point.
const DIGITS: usize = 6;

/// A decimal of at least 0, exact to a millionth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    millionths: i64,
}

impl Ratio {
    /// The denominator of [`Ratio::millionths`].
    pub(super) const UNIT: i64 = 1_000_000;

    pub(super) const fn millionths(self) -> i64 {
        self.millionths
    }
}

impl FromStr for Ratio {
    type Err = UserError;

    fn from_str(text: &str) -> Result<Self, UserError> {
        millionths(text).map(|millionths| Self { millionths }).ok_or_else(|| error::invalid_ratio(text))
    }
}

fn millionths(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if fraction.len() > DIGITS {
        return None;
    }
    let scale = 10i64.pow((DIGITS - fraction.len()) as u32);
    digits(whole)?.checked_mul(Ratio::UNIT)?.checked_add(digits(fraction)? * scale)
}

/// A number of decimal digits only, without a sign.
pub(super) fn digits(text: &str) -> Option<i64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) { None } else { text.parse().ok() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_ratio_has_at_most_six_digits_after_the_point() {
        let read = |text: &str| text.parse::<Ratio>().unwrap().millionths();
        assert_eq!(read("0"), 0);
        assert_eq!(read("1"), 1_000_000);
        assert_eq!(read("0.5"), 500_000);
        assert_eq!(read("0.000001"), 1);
        assert_eq!(read("12.340000"), 12_340_000);
        assert_eq!(read("9223372036854.775807"), i64::MAX);
        let invalid = ["", ".", "1.", ".5", "-1", "+1", "1e3", "0.0000001", "1.2.3", " 1", "9223372036854.775808"];
        for text in invalid {
            assert_eq!(text.parse::<Ratio>().unwrap_err().sqlstate(), "22023", "{text}");
        }
    }
}
