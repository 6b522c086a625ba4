//! A lasting time as text, exact at first and coarse later, so that a reported text changes less and less often.

use std::time::Duration;

use model::span;

/// For people, in whole seconds: `12 s`, `9 min 36 s`.
pub(crate) fn coarse_age(lasted: Duration) -> String {
    span::age(Duration::from_secs(rounded(lasted.as_secs())))
}

/// Rounds down to one of eight values between two powers of two.
fn rounded(seconds: u64) -> u64 {
    let step = (seconds.max(1).ilog2()).saturating_sub(3);
    (seconds >> step) << step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_time_is_exact_at_first_and_coarse_later() {
        let shown: Vec<u64> = [0, 1, 12, 15, 17, 31, 33, 63, 64, 71, 100, 3_600].map(rounded).to_vec();
        assert_eq!(shown, [0, 1, 12, 15, 16, 30, 32, 60, 64, 64, 96, 3_584]);
    }
}
