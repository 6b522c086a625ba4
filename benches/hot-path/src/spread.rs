//! Minimum, median and maximum, as every figure of the benchmark is printed.

use std::fmt;

/// The spread of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub minimum: f64,
    pub median: f64,
    pub maximum: f64,
}

impl Spread {
    /// `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (minimum, maximum) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) };
        Some(Self { minimum, median, maximum })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        write!(f, "{:.digits$}, {:.digits$}, {:.digits$}", self.minimum, self.median, self.maximum)
    }
}

/// The value that this part of the sorted values does not exceed, such as 0.99; `None` without values.
pub fn percentile(sorted: &[u64], part: f64) -> Option<u64> {
    let rank = (sorted.len() as f64 * part).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_spread_has_the_middle_of_its_values() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0]).unwrap().to_string(), "1.00, 2.00, 3.00");
        assert_eq!(format!("{:.1}", Spread::of([4.0, 1.0]).unwrap()), "1.0, 2.5, 4.0");
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|part| percentile(&hundred, part).unwrap()), [1, 50, 99, 100]);
        assert_eq!((percentile(&[], 0.5), percentile(&[7], 0.99)), (None, Some(7)));
    }
}
