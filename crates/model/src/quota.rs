//! Quotas: the limits of tenants, users and creators as objects of the catalog, and the formulas of what a tenant may
//! still be granted on a resource pool, one component (CPU, memory, engines) at a time.
//!
//! Amounts are from 0 to [`MAX_AMOUNT`](crate::resource::MAX_AMOUNT), in nominal units: the sizes of engines before
//! `CPU_OVERCOMMIT` divides their CPU. The pool itself is charged requests and has a limit in requests
//! ([`pool_limit`]), which is checked as well.
//!
//! | term | meaning |
//! | --- | --- |
//! | guarantee | what a tenant receives even if others must end engines for it |
//! | exclusive | the part of the guarantee that is reserved while the tenant does not use it: guarantee − lend limit |
//! | unguaranteed | the capacity that no guarantee covers, for tenants without one |
//! | shared | what several tenants can use: the unguaranteed capacity, and the lent parts of the guarantees |
//!
//! Granting at most [`PoolComponent::headroom`] keeps these invariants, whatever was held before: the tenant holds at most its
//! limit; tenants without a guarantee hold at most the unguaranteed capacity; and what tenants hold outside of their
//! exclusive parts does not exceed what is shared, if it grows. So what is exclusive is never used by another tenant. Only
//! the limit of the pool can refuse it: guarantees may exceed the capacity, and requests are rounded up for each container.
//!
//! A caller with stale amounts computes a stale headroom: the conditions of the write that charges the grant decide.

mod amount;
mod capacity;
mod component;
mod limit;
mod share;
mod spec;

pub use amount::{Count, CpuAmount, DeclaredAmount, MemoryAmount};
pub use capacity::{Capacity, Reclaim};
pub use component::{Guarantee, PoolComponent, TenantComponent};
pub use limit::{Limit, nominal_capacity, pool_limit};
pub use share::Share;
pub use spec::{
    DEFAULT_WEIGHT, MAX_QUOTAS, MAX_WEIGHT, Principal, PrincipalQuota, QuotaScope, QuotaSpec, QuotaSubject,
    TenantQuota, TransferLimit,
};
