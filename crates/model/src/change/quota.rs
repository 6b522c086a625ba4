//! Resource quotas: options, defaults, validation.
//!
//! A quota has exactly one subject, which is set by CREATE and never changes: what the scope holds belongs to the
//! subject.

use serde::{Deserialize, Serialize};

use super::amounts::{check_custom, refuse_custom};
use super::{Setting, check_comment, shown};
use crate::alteration::{ObjectKind, ObjectRef};
use crate::catalog::Catalog;
use crate::error::{ErrorKind, UserError};
use crate::name::{PoolName, QuotaName, TenantName};
use crate::quota::{
    DEFAULT_WEIGHT, DeclaredAmount, MAX_QUOTAS, MAX_WEIGHT, Principal, PrincipalQuota, QuotaScope, QuotaSpec,
    QuotaSubject, TenantQuota, TransferLimit,
};
use crate::resource::{Component, MAX_AMOUNT};
use crate::user_name::{MAX_USER_NAME_BYTES, is_user_name};

/// The options of a quota that a statement names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QuotaPatch {
    /// `TENANT`
    pub tenant: Option<TenantName>,
    /// `POOL`
    pub pool: Option<PoolName>,
    /// `USER`
    pub user: Option<Principal>,
    /// `CREATOR`
    pub creator: Option<Principal>,
    /// `GUARANTEE`
    pub guarantee: Setting<DeclaredAmount>,
    /// `BORROW_LIMIT`
    pub borrow_limit: Setting<TransferLimit>,
    /// `LEND_LIMIT`
    pub lend_limit: Setting<TransferLimit>,
    /// `WEIGHT`
    pub weight: Setting<u32>,
    /// `LIMIT`
    pub limit: Setting<DeclaredAmount>,
    /// `COMMENT`
    pub comment: Setting<String>,
}

impl QuotaPatch {
    pub(super) fn create(&self, name: &QuotaName) -> Result<QuotaSpec, UserError> {
        let unlimited = DeclaredAmount::default;
        let scope = match self.subject(name)? {
            QuotaSubject::Tenant(tenant, pool) => QuotaScope::Tenant(TenantQuota {
                tenant,
                pool,
                guarantee: unlimited(),
                borrow_limit: DEFAULT_BORROW_LIMIT,
                lend_limit: DEFAULT_LEND_LIMIT,
                weight: DEFAULT_WEIGHT,
            }),
            QuotaSubject::User(name) => QuotaScope::User(PrincipalQuota { name, limit: unlimited() }),
            QuotaSubject::Creator(name) => QuotaScope::Creator(PrincipalQuota { name, limit: unlimited() }),
        };
        self.onto(name, QuotaSpec { scope, comment: None })
    }

    /// The spec after an ALTER: options that are not named stay.
    pub(super) fn alter(&self, name: &QuotaName, before: &QuotaSpec) -> Result<QuotaSpec, UserError> {
        let same = match &before.scope {
            QuotaScope::Tenant(quota) => {
                self.user.is_none()
                    && self.creator.is_none()
                    && self.tenant.as_ref().is_none_or(|tenant| *tenant == quota.tenant)
                    && self.pool.as_ref().is_none_or(|pool| *pool == quota.pool)
            }
            QuotaScope::User(quota) => {
                self.names_no_tenant()
                    && self.creator.is_none()
                    && self.user.as_ref().is_none_or(|user| *user == quota.name)
            }
            QuotaScope::Creator(quota) => {
                self.names_no_tenant()
                    && self.user.is_none()
                    && self.creator.as_ref().is_none_or(|creator| *creator == quota.name)
            }
        };
        if !same {
            let message = format!("cannot alter the subject of resource quota \"{name}\"");
            return Err(UserError::new(ErrorKind::NotSupported, message)
                .detail(format!("It is the quota of {}.", before.subject()))
                .hint("Create another quota, or drop this one first."));
        }
        self.onto(name, before.clone())
    }

    fn names_no_tenant(&self) -> bool {
        self.tenant.is_none() && self.pool.is_none()
    }

    /// The one subject that the options name.
    fn subject(&self, name: &QuotaName) -> Result<QuotaSubject, UserError> {
        let refused = |what: &str, detail: &str| {
            UserError::new(ErrorKind::InvalidValue, format!("resource quota \"{name}\" {what}"))
                .detail(detail)
                .hint("Write TENANT t_1, POOL rp_1, or USER 'alice', or CREATOR 'IDE'.")
        };
        match (&self.tenant, &self.pool, &self.user, &self.creator) {
            (Some(tenant), Some(pool), None, None) => Ok(QuotaSubject::Tenant(tenant.clone(), pool.clone())),
            (None, None, Some(user), None) => Ok(QuotaSubject::User(user.clone())),
            (None, None, None, Some(creator)) => Ok(QuotaSubject::Creator(creator.clone())),
            (None, None, None, None) => Err(refused(
                "has no subject",
                "A quota is for a tenant on a resource pool, for a user, or for a creator.",
            )),
            (Some(_), None, None, None) => {
                Err(refused("has no POOL", "The quota of a tenant is for one resource pool."))
            }
            (None, Some(_), None, None) => Err(refused(
                "has no TENANT",
                "A quota is for a tenant on the pool; the limit of a pool is its CAPACITY.",
            )),
            _ => Err(refused(
                "has more than one subject",
                "A quota is for one tenant on a pool, one user, or one creator.",
            )),
        }
    }

    fn onto(&self, name: &QuotaName, mut spec: QuotaSpec) -> Result<QuotaSpec, UserError> {
        let for_tenants = [
            ("GUARANTEE", self.guarantee != Setting::Keep),
            ("BORROW_LIMIT", self.borrow_limit != Setting::Keep),
            ("LEND_LIMIT", self.lend_limit != Setting::Keep),
            ("WEIGHT", self.weight != Setting::Keep),
        ];
        let of_others: &[(&'static str, bool)] = match spec.scope {
            QuotaScope::Tenant(_) => &[("LIMIT", self.limit != Setting::Keep)],
            QuotaScope::User(_) | QuotaScope::Creator(_) => &for_tenants,
        };
        if let Some((option, _)) = of_others.iter().find(|(_, named)| *named) {
            return Err(other_subject(name, &spec, option));
        }
        match &mut spec.scope {
            QuotaScope::Tenant(quota) => {
                apply(&self.guarantee, &mut quota.guarantee, DeclaredAmount::default());
                apply(&self.borrow_limit, &mut quota.borrow_limit, DEFAULT_BORROW_LIMIT);
                apply(&self.lend_limit, &mut quota.lend_limit, DEFAULT_LEND_LIMIT);
                apply(&self.weight, &mut quota.weight, DEFAULT_WEIGHT);
            }
            QuotaScope::User(quota) | QuotaScope::Creator(quota) => {
                apply(&self.limit, &mut quota.limit, DeclaredAmount::default());
            }
        }
        self.comment.onto(&mut spec.comment);
        Ok(spec)
    }
}

/// Hard partitioning: a tenant receives its guarantee and no more, and others may use what it does not.
const DEFAULT_BORROW_LIMIT: TransferLimit = TransferLimit::None;
const DEFAULT_LEND_LIMIT: TransferLimit = TransferLimit::Unlimited;

fn apply<T: Clone>(setting: &Setting<T>, target: &mut T, default: T) {
    match setting {
        Setting::Keep => {}
        Setting::Reset => *target = default,
        Setting::Set(value) => target.clone_from(value),
    }
}

fn other_subject(name: &QuotaName, spec: &QuotaSpec, option: &str) -> UserError {
    let options = match spec.scope {
        QuotaScope::Tenant(_) => "GUARANTEE, BORROW_LIMIT, LEND_LIMIT and WEIGHT",
        QuotaScope::User(_) | QuotaScope::Creator(_) => "LIMIT",
    };
    UserError::new(ErrorKind::InvalidValue, format!("option {option} does not apply to resource quota \"{name}\""))
        .detail(format!("It is the quota of {}.", spec.subject()))
        .hint(format!("Use {options}."))
}

pub(super) fn validate(name: &QuotaName, spec: &QuotaSpec, catalog: &Catalog) -> Result<(), UserError> {
    let object = format!("resource quota \"{name}\"");
    if catalog.quotas.len() >= MAX_QUOTAS && !catalog.quotas.contains_key(name) {
        return Err(UserError::new(ErrorKind::ProgramLimit, "too many resource quotas")
            .detail(format!("The limit is {MAX_QUOTAS}."))
            .hint("Use USER DEFAULT or CREATOR DEFAULT for many users or creators with the same limits."));
    }
    check_comment(&object, spec.comment.as_ref())?;
    match &spec.scope {
        QuotaScope::Tenant(quota) => check_tenant_quota(&object, name, quota, catalog)?,
        QuotaScope::User(quota) => {
            check_principal("user", &object, &quota.name)?;
            check_custom(&format!("LIMIT of {object}"), &quota.limit)?;
        }
        QuotaScope::Creator(quota) => {
            check_principal("creator", &object, &quota.name)?;
            check_custom(&format!("LIMIT of {object}"), &quota.limit)?;
        }
    }
    let subject = spec.subject();
    match catalog.quota_of(&subject).filter(|(first, _)| *first != name) {
        None => Ok(()),
        Some((first, _)) => {
            Err(UserError::new(ErrorKind::DuplicateObject, format!("a resource quota of {subject} already exists"))
                .detail(format!("It is resource quota \"{first}\"."))
                .hint(format!("Use ALTER RESOURCE QUOTA {first} to change it.")))
        }
    }
}

fn check_tenant_quota(object: &str, name: &QuotaName, quota: &TenantQuota, catalog: &Catalog) -> Result<(), UserError> {
    if !catalog.tenants.contains_key(&quota.tenant) {
        return Err(undefined(ObjectKind::Tenant, quota.tenant.as_str(), object));
    }
    if !catalog.pools.contains_key(&quota.pool) {
        return Err(undefined(ObjectKind::ResourcePool, quota.pool.as_str(), object));
    }
    refuse_custom(&format!("GUARANTEE of {object}"), &quota.guarantee)?;
    for (option, limit) in [("BORROW_LIMIT", &quota.borrow_limit), ("LEND_LIMIT", &quota.lend_limit)] {
        if let TransferLimit::Amount(amount) = limit {
            refuse_custom(&format!("{option} of {object}"), amount)?;
        }
    }
    if quota.weight > MAX_WEIGHT {
        return Err(UserError::new(ErrorKind::InvalidValue, format!("invalid WEIGHT {} of {object}", quota.weight))
            .detail(format!("It is a whole number from 0 to {MAX_WEIGHT}.")));
    }
    check_sum(name, quota, catalog)
}

fn undefined(kind: ObjectKind, name: &str, object: &str) -> UserError {
    ObjectRef { kind, name: name.to_owned() }
        .undefined()
        .detail(format!("It is the subject of {object}."))
        .hint(format!("Use CREATE {} {name} first.", kind.keywords()))
}

/// The guarantees of a pool have a sum that an amount can hold.
fn check_sum(name: &QuotaName, quota: &TenantQuota, catalog: &Catalog) -> Result<(), UserError> {
    let others =
        catalog.quotas.iter().filter(|(other, _)| *other != name).filter_map(|(_, other)| other.spec.of_tenant());
    let of_pool: Vec<&TenantQuota> =
        others.filter(|other| other.pool == quota.pool).chain(std::iter::once(quota)).collect();
    let too_large = Component::ALL.into_iter().find(|component| {
        let amounts = of_pool.iter().filter_map(|quota| quota.guarantee.get(*component)).map(i128::from);
        amounts.sum::<i128>() > i128::from(MAX_AMOUNT)
    });
    match too_large {
        None => Ok(()),
        Some(component) => {
            let message = format!("guarantees on resource pool \"{}\" are too large", quota.pool);
            let largest = component.shown(MAX_AMOUNT);
            Err(UserError::new(ErrorKind::ProgramLimit, message)
                .detail(format!("The limit of their sum is {largest}.")))
        }
    }
}

fn check_principal(what: &str, object: &str, name: &Principal) -> Result<(), UserError> {
    let Principal::Named(name) = name else { return Ok(()) };
    if is_user_name(name) && !name.trim().is_empty() {
        return Ok(());
    }
    let error = UserError::new(ErrorKind::InvalidValue, format!("invalid {what} name \"{}\" of {object}", shown(name)))
        .detail(format!(
            "A {what} name has 1 to {MAX_USER_NAME_BYTES} bytes, is not blank, has no control characters and does not \
             begin with @."
        ));
    Err(if what == "user" && name.starts_with('@') {
        error.hint("A quota is for one user; groups have none.")
    } else {
        error
    })
}
