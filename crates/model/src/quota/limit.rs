//! Limits: an amount, or unlimited.

use serde::{Deserialize, Serialize};

/// An upper bound of one component. An amount may be negative: what is left below a limit that was lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    Of(i64),
    Unlimited,
}

impl Limit {
    /// Whether this amount is within the limit.
    pub const fn allows(self, amount: i64) -> bool {
        match self {
            Self::Of(limit) => amount <= limit,
            Self::Unlimited => true,
        }
    }

    /// The same with the amount changed. A result outside of 64 bits is cut to them, and so is above or below every amount.
    pub(super) fn map(self, of: impl FnOnce(i64) -> i64) -> Self {
        match self {
            Self::Of(limit) => Self::Of(of(limit)),
            Self::Unlimited => Self::Unlimited,
        }
    }

    pub(super) fn plus(self, amount: i64) -> Self {
        self.map(|limit| limit.saturating_add(amount))
    }

    pub(super) fn minus(self, amount: i64) -> Self {
        self.map(|limit| limit.saturating_sub(amount))
    }
}

/// The limit of a pool: its capacity without the protected part. Both are in requests.
pub fn pool_limit(capacity: Limit, protected: i64) -> Limit {
    capacity.minus(protected)
}

/// The CPU of a pool in nominal units, rounded down: `limit` × overcommit / 100. Memory and engines have no overcommit.
pub fn nominal_capacity(limit: Limit, overcommit_percent: u32) -> Limit {
    limit.map(|limit| {
        let nominal = (i128::from(limit) * i128::from(overcommit_percent)).div_euclid(100);
        i64::try_from(nominal).unwrap_or(if nominal < 0 { i64::MIN } else { i64::MAX })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overcommit_scales_and_rounds_down() {
        assert_eq!(nominal_capacity(Limit::Of(22_000), 200), Limit::Of(44_000));
        assert_eq!(nominal_capacity(Limit::Of(333), 110), Limit::Of(366));
        assert_eq!(nominal_capacity(Limit::Of(-333), 110), Limit::Of(-367));
        assert_eq!(nominal_capacity(Limit::Of(i64::MAX), 200), Limit::Of(i64::MAX));
        assert_eq!(nominal_capacity(Limit::Unlimited, 200), Limit::Unlimited);
    }

    #[test]
    fn unlimited_is_above_every_amount() {
        assert!(Limit::Unlimited > Limit::Of(i64::MAX));
        assert!(Limit::Unlimited.allows(i64::MAX));
        assert!(Limit::Of(5).allows(5) && !Limit::Of(5).allows(6));
    }
}
