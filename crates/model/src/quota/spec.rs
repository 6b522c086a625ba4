//! Quotas: the limits of one scope, as an object of the catalog.
//!
//! The scope of a quota is a tenant on a resource pool, a user, or a creator, and each scope has at most one quota. The
//! rules of CREATE, ALTER and DROP are in [`crate::change`], the formulas in [`super`].

use std::fmt;

use serde::{Deserialize, Serialize};

use super::amount::DeclaredAmount;
use super::component::Guarantee;
use super::limit::Limit;
use crate::name::{PoolName, TenantName};
use crate::resource::Component;

/// The most quotas.
pub const MAX_QUOTAS: usize = 10_000;
/// The weight of a quota that sets none.
pub const DEFAULT_WEIGHT: u32 = 1;
/// The highest weight.
pub const MAX_WEIGHT: u32 = 10_000;

/// The limits of one scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaSpec {
    pub scope: QuotaScope,
    pub comment: Option<String>,
}

/// A scope with its limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaScope {
    /// All engines of a tenant in a pool.
    Tenant(TenantQuota),
    /// All engines that are started for a user.
    User(PrincipalQuota),
    /// All engines that are started by a client application.
    Creator(PrincipalQuota),
}

/// The quota of a tenant on a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantQuota {
    pub tenant: TenantName,
    pub pool: PoolName,
    /// What the tenant receives even if others must end engines for it. For a component that is not named, the tenant
    /// is treated as one without a quota.
    pub guarantee: DeclaredAmount,
    /// What the tenant may hold above its guarantee.
    pub borrow_limit: TransferLimit,
    /// What others may use of the guarantee while the tenant does not.
    pub lend_limit: TransferLimit,
    /// Divides the tenant's share: of two tenants that borrow the same, the one with more weight is admitted first.
    pub weight: u32,
}

/// The quota of a user or a creator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrincipalQuota {
    pub name: Principal,
    pub limit: DeclaredAmount,
}

/// The user or creator that a quota is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Principal {
    Named(String),
    /// Each one without a quota of its own.
    Default,
}

/// How much may be borrowed or lent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferLimit {
    None,
    Unlimited,
    /// A component that is not named is unlimited.
    Amount(DeclaredAmount),
}

impl TransferLimit {
    pub fn limit(&self, component: Component) -> Limit {
        match self {
            Self::None => Limit::Of(0),
            Self::Unlimited => Limit::Unlimited,
            Self::Amount(amount) => amount.limit(component),
        }
    }
}

impl fmt::Display for TransferLimit {
    /// `none`, `unlimited`, `10 CPU`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Unlimited => f.write_str("unlimited"),
            Self::Amount(amount) => amount.fmt(f),
        }
    }
}

impl TenantQuota {
    /// The input of the formulas; `None` for a component that the guarantee does not name.
    pub fn guarantee(&self, component: Component) -> Option<Guarantee> {
        let amount = self.guarantee.get(component)?;
        let (borrow, lend) = (self.borrow_limit.limit(component), self.lend_limit.limit(component));
        Some(Guarantee { amount, borrow, lend })
    }
}

/// What a quota is for; at most one quota of the catalog has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaSubject {
    Tenant(TenantName, PoolName),
    User(Principal),
    Creator(Principal),
}

impl QuotaSpec {
    pub fn subject(&self) -> QuotaSubject {
        match &self.scope {
            QuotaScope::Tenant(quota) => QuotaSubject::Tenant(quota.tenant.clone(), quota.pool.clone()),
            QuotaScope::User(quota) => QuotaSubject::User(quota.name.clone()),
            QuotaScope::Creator(quota) => QuotaSubject::Creator(quota.name.clone()),
        }
    }

    /// The quota, if it is a tenant's.
    pub fn of_tenant(&self) -> Option<&TenantQuota> {
        match &self.scope {
            QuotaScope::Tenant(quota) => Some(quota),
            QuotaScope::User(_) | QuotaScope::Creator(_) => None,
        }
    }
}

impl fmt::Display for QuotaSubject {
    /// `tenant "t_1" on resource pool "rp_1"`, `user "alice"`, `all other users`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant(tenant, pool) => write!(f, "tenant \"{tenant}\" on resource pool \"{pool}\""),
            Self::User(Principal::Named(name)) => write!(f, "user \"{name}\""),
            Self::User(Principal::Default) => f.write_str("all other users"),
            Self::Creator(Principal::Named(name)) => write!(f, "creator \"{name}\""),
            Self::Creator(Principal::Default) => f.write_str("all other creators"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_component_without_a_guarantee_has_no_borrow_and_no_lend_limit_either() {
        let amount = |text: &str| serde_json::from_str::<DeclaredAmount>(text).unwrap();
        let quota = TenantQuota {
            tenant: TenantName::new("t_1").unwrap(),
            pool: PoolName::new("rp_1").unwrap(),
            guarantee: amount(r#"{"cpu":"18","engines":5}"#),
            borrow_limit: TransferLimit::Amount(amount(r#"{"cpu":"10"}"#)),
            lend_limit: TransferLimit::None,
            weight: 1,
        };
        let cpu = Guarantee { amount: 18_000, borrow: Limit::Of(10_000), lend: Limit::Of(0) };
        assert_eq!(quota.guarantee(Component::Cpu), Some(cpu));
        let engines = Guarantee { amount: 5, borrow: Limit::Unlimited, lend: Limit::Of(0) };
        assert_eq!(quota.guarantee(Component::Engines), Some(engines));
        assert_eq!(quota.guarantee(Component::Memory), None);
        assert_eq!(TransferLimit::Unlimited.limit(Component::Memory), Limit::Unlimited);
    }

    #[test]
    fn each_scope_has_one_form_in_rows() {
        for row in [
            concat!(
                r#"{"scope":{"tenant":{"tenant":"t_1","pool":"rp_1","guarantee":{"cpu":"18"},"#,
                r#""borrow_limit":"none","lend_limit":{"amount":{"cpu":"5"}},"weight":1}},"comment":null}"#
            ),
            r#"{"scope":{"user":{"name":{"named":"alice"},"limit":{"engines":3}}},"comment":"x"}"#,
            r#"{"scope":{"creator":{"name":"default","limit":{}}},"comment":null}"#,
        ] {
            let spec: QuotaSpec = serde_json::from_str(row).unwrap();
            assert_eq!(serde_json::to_string(&spec).unwrap(), row);
        }
    }
}
