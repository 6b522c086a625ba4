//! The formulas of one component of a tenant's quota on a pool, and of the pool.

use super::limit::Limit;
use crate::error::{ErrorKind, UserError};

/// The guarantee of a component, how far its tenant may exceed it, and how much of it others may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guarantee {
    pub amount: i64,
    /// What the tenant may hold above its guarantee.
    pub borrow: Limit,
    /// What others may use of the guarantee while the tenant does not.
    pub lend: Limit,
}

/// A component of a tenant on a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantComponent {
    /// `None` for a tenant without a quota, and for a component that its guarantee does not name.
    pub guarantee: Option<Guarantee>,
    pub held: i64,
}

impl TenantComponent {
    /// The most that the tenant may hold. Without a guarantee only the unguaranteed capacity limits it.
    pub fn limit(&self) -> Limit {
        self.guarantee.map_or(Limit::Unlimited, |guarantee| guarantee.borrow.plus(guarantee.amount))
    }

    /// What is reserved for the tenant even while it is not used.
    pub fn exclusive(&self) -> i64 {
        match self.guarantee {
            Some(Guarantee { amount, lend: Limit::Of(lend), .. }) => amount.saturating_sub(lend).max(0),
            _ => 0,
        }
    }

    /// What the tenant holds outside of its exclusive part.
    pub fn shared_held(&self) -> i64 {
        self.held.saturating_sub(self.exclusive()).max(0)
    }
}

/// A component of a pool, summed over its tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolComponent {
    /// What no guarantee covers.
    pub unguaranteed: Limit,
    /// What tenants without a guarantee hold.
    pub unguaranteed_held: i64,
    /// What several tenants can use.
    pub shared: Limit,
    /// What tenants hold outside of their exclusive parts.
    pub shared_held: i64,
}

impl PoolComponent {
    /// From the nominal capacity without the protected part, and all tenants of the pool. Sums outside of 64 bits are an error.
    pub fn new<'a>(capacity: Limit, tenants: impl IntoIterator<Item = &'a TenantComponent>) -> Result<Self, UserError> {
        let (mut guaranteed, mut lent, mut unguaranteed_held, mut shared_held) = (0i128, 0i128, 0i128, 0i128);
        for tenant in tenants {
            let guarantee = tenant.guarantee.map_or(0, |guarantee| guarantee.amount);
            guaranteed += i128::from(guarantee);
            lent += i128::from(guarantee) - i128::from(tenant.exclusive());
            shared_held += i128::from(tenant.shared_held());
            if tenant.guarantee.is_none() {
                unguaranteed_held += i128::from(tenant.held);
            }
        }
        let of = |sum: i128| {
            i64::try_from(sum).map_err(|_| {
                UserError::new(ErrorKind::DataException, "bigint out of range")
                    .detail("A sum over the tenants of a resource pool is too large.")
                    .with_sqlstate("22003")
            })
        };
        let (unguaranteed, shared) = match capacity {
            Limit::Unlimited => (Limit::Unlimited, Limit::Unlimited),
            Limit::Of(capacity) => {
                let unguaranteed = (i128::from(capacity) - guaranteed).max(0);
                (Limit::Of(of(unguaranteed)?), Limit::Of(of(unguaranteed + lent)?))
            }
        };
        Ok(Self { unguaranteed, unguaranteed_held: of(unguaranteed_held)?, shared, shared_held: of(shared_held)? })
    }

    /// The largest amount that this tenant of the pool can be granted now. If it is negative, limits were lowered below what
    /// is held: nothing is granted, and nothing ends for that reason.
    pub fn headroom(&self, tenant: &TenantComponent) -> Limit {
        let (held, exclusive) = (tenant.held, tenant.exclusive());
        let shared = self.shared.minus(self.shared_held).min(tenant.limit().minus(held.max(exclusive)));
        // What is exclusive is granted also while others hold more than what is shared.
        let headroom = if held < exclusive { shared.max(Limit::Of(0)).plus(exclusive - held) } else { shared };
        match tenant.guarantee {
            Some(_) => headroom,
            None => headroom.min(self.unguaranteed.minus(self.unguaranteed_held)),
        }
    }
}
