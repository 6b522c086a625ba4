//! Shares: how much a tenant borrows in relation to what can be borrowed, as exact fractions.
//!
//! Among the requests that would borrow, the one with the smallest share is admitted first. Shares are compared without
//! rounding, so the order never depends on the size of the amounts.

use std::cmp::Ordering;

use super::component::{PoolComponent, TenantComponent};
use super::limit::Limit;

/// A share in thousandths, or infinite.
#[derive(Debug, Clone, Copy)]
pub enum Share {
    Thousandths {
        numerator: u128,
        /// Never 0.
        denominator: u128,
    },
    /// Something is borrowed, and the weight or what is shared is 0.
    Infinite,
}

impl Share {
    pub const ZERO: Self = Self::Thousandths { numerator: 0, denominator: 1 };

    /// The share of a tenant of this weight that holds `ask` more, or less: the largest of its components, each with its pool's
    /// and the amount. A component without a guarantee does not count, because nothing of it is borrowed.
    pub fn new<'a>(
        components: impl IntoIterator<Item = (&'a PoolComponent, &'a TenantComponent, i64)>,
        weight: u32,
    ) -> Self {
        let shares = components.into_iter().filter_map(|(pool, tenant, ask)| {
            let guarantee = tenant.guarantee?;
            let borrowed = i128::from(tenant.held) + i128::from(ask) - i128::from(guarantee.amount);
            Some(Self::of_component(borrowed.max(0).unsigned_abs(), pool.shared, weight))
        });
        shares.max().unwrap_or(Self::ZERO)
    }

    fn of_component(borrowed: u128, shared: Limit, weight: u32) -> Self {
        match shared {
            _ if borrowed == 0 => Self::ZERO,
            Limit::Unlimited if weight > 0 => Self::ZERO,
            Limit::Of(shared) if weight > 0 && shared > 0 => Self::Thousandths {
                numerator: 1_000 * borrowed,
                denominator: u128::from(shared.unsigned_abs()) * u128::from(weight),
            },
            _ => Self::Infinite,
        }
    }

    pub const fn is_finite(&self) -> bool {
        matches!(self, Self::Thousandths { .. })
    }
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (
                Self::Thousandths { numerator, denominator },
                Self::Thousandths { numerator: other_numerator, denominator: other_denominator },
            ) => compare((*numerator, *denominator), (*other_numerator, *other_denominator)),
            _ => other.is_finite().cmp(&self.is_finite()),
        }
    }
}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Share {}

/// Compares two fractions exactly. Cross products can exceed 128 bits (borrowed × shared × weight); if one does, the fractions
/// are compared digit by digit as continued fractions.
fn compare(mut left: (u128, u128), mut right: (u128, u128)) -> Ordering {
    if left.1 == right.1 {
        return left.0.cmp(&right.0);
    }
    loop {
        if let (Some(one), Some(other)) = (left.0.checked_mul(right.1), right.0.checked_mul(left.1)) {
            return one.cmp(&other);
        }
        let wholes = (left.0 / left.1).cmp(&(right.0 / right.1));
        // The fractional parts, whose reciprocals have the opposite order.
        let (one, other) = (left.0 % left.1, right.0 % right.1);
        if wholes.is_ne() {
            return wholes;
        }
        if one == 0 || other == 0 {
            return one.cmp(&other);
        }
        (left, right) = ((right.1, other), (left.1, one));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn fraction(numerator: u128, denominator: u128) -> Share {
        Share::Thousandths { numerator, denominator }
    }

    #[test]
    fn equal_fractions_are_equal_and_infinite_is_above_all() {
        assert_eq!(fraction(125, 1), fraction(250, 2));
        assert!(fraction(1, 3) < fraction(334, 1_000) && fraction(1, 3) > fraction(333, 1_000));
        assert!(Share::Infinite > fraction(u128::MAX, 1));
        assert_eq!(Share::Infinite, Share::Infinite);
        assert_eq!(Share::ZERO, fraction(0, 7));
    }

    #[test]
    fn fractions_whose_cross_products_overflow_are_compared_exactly() {
        let near = u128::MAX / 2;
        assert!(fraction(near, near + 1) < fraction(near + 1, near + 2));
        assert!(fraction(near + 1, near) > fraction(near + 2, near + 1));
        assert!(fraction(3 * (near / 4), near) < fraction(near, near + 1));
        assert!(fraction(near, near) < fraction(near + 9, near + 1));
        assert!(fraction(near + 9, near + 1) > fraction(near, near));
        let (one, other) = (near / 7, near / 9);
        assert_eq!(fraction(3 * one, 2 * one), fraction(3 * other, 2 * other));
        assert!(fraction(3 * one + 1, 2 * one) > fraction(3 * other, 2 * other));
        assert_eq!(fraction(u128::MAX, 3), fraction(u128::MAX / 3, 1));
    }
}
