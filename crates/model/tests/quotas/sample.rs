//! Tenants and pools to test with.

use model::quota::{Guarantee, Limit, PoolComponent, TenantComponent};

pub const UNLIMITED: Limit = Limit::Unlimited;
pub const NONE: Limit = Limit::Of(0);

/// CPU of a tenant, in cores.
pub fn tenant(guarantee: i64, held: i64, borrow: Limit, lend: Limit) -> TenantComponent {
    TenantComponent { guarantee: Some(Guarantee { amount: guarantee, borrow, lend }), held }
}

pub fn without_quota(held: i64) -> TenantComponent {
    TenantComponent { guarantee: None, held }
}

pub fn pool(capacity: i64, tenants: &[TenantComponent]) -> PoolComponent {
    PoolComponent::new(Limit::Of(capacity), tenants).unwrap()
}
