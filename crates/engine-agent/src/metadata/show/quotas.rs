//! SHOW QUOTAS: one row for each limited or used resource of each scope, with what is held and left.
//!
//! A user sees the scopes of the own tenants and the one of the own name; admins, operators and auditors see all, pools
//! included. A quota without a scope, such as one for all other users, is listed with its limits alone.

use std::collections::{BTreeSet, HashMap};

use ddl::QuotaFilter;
use hs2::{SqlType, Value};
use metadata::user_error;
use model::catalog::Catalog;
use model::error::UserError;
use model::ledger::{Role, ScopeKey, ScopeKind};
use model::name::{PoolName, QuotaName, TenantName};
use model::quota::{Limit, Principal, QuotaScope, QuotaSpec, QuotaSubject, TenantQuota};
use model::resource::Component;

use super::quota::{scope, scope_of};
use super::visible::visible;
use crate::metadata::answer::{Answer, maybe, number, text};
use crate::metadata::context::Context;

const COLUMNS: [(&str, SqlType); 10] = [
    ("scope", SqlType::String),
    ("quota", SqlType::String),
    ("resource", SqlType::String),
    ("guarantee", SqlType::String),
    ("borrow_limit", SqlType::String),
    ("limit", SqlType::String),
    ("locked", SqlType::String),
    ("used", SqlType::String),
    ("left", SqlType::String),
    ("queued", SqlType::BigInt),
];

/// A scope, or a quota that no scope has yet.
struct Listed<'a> {
    scope: Option<&'a metadata::QuotaScope>,
    quota: Option<(&'a QuotaName, &'a QuotaSpec)>,
}

pub(in crate::metadata) async fn show(
    context: &Context,
    of: Option<&QuotaFilter>,
    like: Option<&str>,
) -> Result<Answer, UserError> {
    let catalog = context.store().catalog().await.map_err(|error| error.user_error())?;
    if let Some(of) = of {
        refuse_invisible(context, &catalog, of)?;
    }
    let scopes = context.store().quota_scopes().await.map_err(|error| error.user_error())?;
    let quotas = Quotas::new(&catalog, &scopes);
    let mut listed: Vec<Listed<'_>> =
        scopes.iter().map(|scope| Listed { scope: Some(scope), quota: quotas.of(&scope.key) }).collect();
    let others = catalog.quotas.iter().map(|(name, quota)| (name, &quota.spec));
    let others = others.filter(|(_, spec)| key_of(spec).is_none_or(|key| !quotas.charged.contains(&key)));
    listed.extend(others.map(|quota| Listed { scope: None, quota: Some(quota) }));
    let sees = Sight::new(context, &catalog, &quotas);
    listed.retain(|one| sees.sees(one) && of.is_none_or(|of| quotas.is_meant(one, of)));
    if let Some(pattern) = like {
        listed.retain(|one| one.quota.is_some_and(|(name, _)| ddl::like_matches(pattern, name.as_str())));
    }
    listed.sort_by_cached_key(Listed::order);
    let mut answer = Answer::new(&COLUMNS);
    for row in listed.iter().flat_map(Listed::rows) {
        answer.row(row);
    }
    Ok(answer)
}

/// The quotas by what they are for.
struct Quotas<'a> {
    /// The scopes that exist.
    charged: BTreeSet<&'a ScopeKey>,
    of_users: Option<(&'a QuotaName, &'a QuotaSpec)>,
    of_creators: Option<(&'a QuotaName, &'a QuotaSpec)>,
    by_key: HashMap<ScopeKey, (&'a QuotaName, &'a QuotaSpec)>,
}

impl<'a> Quotas<'a> {
    fn new(catalog: &'a Catalog, scopes: &'a [metadata::QuotaScope]) -> Self {
        let quotas = catalog.quotas.iter().map(|(name, quota)| (name, &quota.spec));
        Self {
            charged: scopes.iter().map(|scope| &scope.key).collect(),
            of_users: catalog.quota_of(&QuotaSubject::User(Principal::Default)),
            of_creators: catalog.quota_of(&QuotaSubject::Creator(Principal::Default)),
            by_key: quotas.filter_map(|quota| Some((key_of(quota.1)?, quota))).collect(),
        }
    }

    /// The quota that applies to a scope: its own, else that of DEFAULT.
    fn of(&self, key: &ScopeKey) -> Option<(&'a QuotaName, &'a QuotaSpec)> {
        let default = match key.kind {
            ScopeKind::User => self.of_users,
            ScopeKind::Creator => self.of_creators,
            ScopeKind::Tenant | ScopeKind::Pool => None,
        };
        self.by_key.get(key).copied().or(default)
    }

    /// Whether the filter names it. A user or creator without a scope is meant by the quota of DEFAULT.
    fn is_meant(&self, one: &Listed<'_>, of: &QuotaFilter) -> bool {
        let principal = |own: ScopeKey, default: QuotaSubject| {
            let is_default = one.scope.is_none() && one.quota.is_some_and(|(_, spec)| spec.subject() == default);
            one.key().as_ref() == Some(&own) || (is_default && !self.charged.contains(&own))
        };
        match of {
            QuotaFilter::Tenant(tenant) => one.tenant().is_some_and(|(of, _)| of == tenant.as_str()),
            QuotaFilter::Pool(pool) => {
                one.tenant().is_some_and(|(_, of)| of == pool.as_str()) || one.key() == Some(ScopeKey::pool(pool))
            }
            QuotaFilter::User(user) => principal(ScopeKey::user(user), QuotaSubject::User(Principal::Default)),
            QuotaFilter::Creator(creator) => {
                principal(ScopeKey::creator(creator), QuotaSubject::Creator(Principal::Default))
            }
        }
    }
}

/// The scope of a quota; `None` if it is for all others.
fn key_of(spec: &QuotaSpec) -> Option<ScopeKey> {
    match spec.subject() {
        QuotaSubject::Tenant(tenant, pool) => Some(ScopeKey::tenant(&tenant, &pool)),
        QuotaSubject::User(Principal::Named(user)) => Some(ScopeKey::user(&user)),
        QuotaSubject::Creator(Principal::Named(creator)) => Some(ScopeKey::creator(&creator)),
        QuotaSubject::User(Principal::Default) | QuotaSubject::Creator(Principal::Default) => None,
    }
}

/// What the caller may see.
struct Sight {
    all: bool,
    tenants: BTreeSet<TenantName>,
    own: ScopeKey,
    /// The quota of all others, if it applies to the own name, which has no scope yet.
    quota: Option<QuotaName>,
}

impl Sight {
    fn new(context: &Context, catalog: &Catalog, quotas: &Quotas<'_>) -> Self {
        let own = ScopeKey::user(&context.subject.user);
        Self {
            all: context.subject.may_in_any(context.kind),
            tenants: visible(context, catalog).tenants,
            quota: quotas.of(&own).filter(|_| !quotas.charged.contains(&own)).map(|(name, _)| name.clone()),
            own,
        }
    }

    fn sees(&self, one: &Listed<'_>) -> bool {
        let of_tenant = || one.tenant().and_then(|(tenant, _)| TenantName::new(tenant).ok());
        self.all
            || of_tenant().is_some_and(|tenant| self.tenants.contains(&tenant))
            || match one.scope {
                Some(scope) => scope.key == self.own,
                None => one.quota.is_some_and(|(name, _)| self.quota.as_ref() == Some(name)),
            }
    }
}

impl Listed<'_> {
    fn key(&self) -> Option<ScopeKey> {
        self.scope.map(|scope| scope.key.clone()).or_else(|| key_of(self.quota?.1))
    }

    /// The tenant and its pool.
    fn tenant(&self) -> Option<(String, String)> {
        let key = self.key()?;
        key.tenant_and_pool().map(|(tenant, pool)| (tenant.to_owned(), pool.to_owned()))
    }

    /// Each pool before its tenants, then users, then creators; those of DEFAULT last.
    fn order(&self) -> (u8, String, String) {
        let key = self.key();
        match (key.as_ref().map(|key| key.kind), self.tenant()) {
            (_, Some((tenant, pool))) => (0, pool, tenant),
            (Some(ScopeKind::User), _) => (1, key.map_or_else(String::new, |key| key.name.to_string()), String::new()),
            (Some(ScopeKind::Creator), _) => {
                (3, key.map_or_else(String::new, |key| key.name.to_string()), String::new())
            }
            (Some(_), _) => (0, key.map_or_else(String::new, |key| key.name.to_string()), String::new()),
            (None, _) => match self.quota.map(|(_, spec)| &spec.scope) {
                Some(QuotaScope::User(_)) => (2, String::new(), String::new()),
                _ => (4, String::new(), String::new()),
            },
        }
    }

    /// A row for each limited or used resource; one without a resource for a quota that limits and holds nothing.
    fn rows(&self) -> Vec<Vec<Value>> {
        let shown = Component::ALL.into_iter().filter_map(|component| self.row(component));
        let mut rows: Vec<Vec<Value>> = shown.chain(self.custom()).collect();
        if rows.is_empty() && self.quota.is_some() {
            let mut row = self.head();
            row.resize(COLUMNS.len(), Value::Null);
            rows.push(row);
        }
        rows
    }

    /// The rows of custom amounts, of which nothing can be held.
    fn custom(&self) -> impl Iterator<Item = Vec<Value>> {
        let limits = match self.quota.map(|(_, spec)| &spec.scope) {
            Some(QuotaScope::User(quota) | QuotaScope::Creator(quota)) => Some(&quota.limit.custom),
            _ => None,
        };
        limits.into_iter().flatten().map(|(name, limit)| {
            let mut row = self.head();
            row.extend([text(name.as_str()), Value::Null, Value::Null, text(limit.to_string())]);
            row.resize(COLUMNS.len(), Value::Null);
            row
        })
    }

    fn head(&self) -> Vec<Value> {
        let name = match (self.scope, self.quota) {
            (Some(of), _) => scope(&of.key),
            (None, Some((_, spec))) => scope_of(spec),
            (None, None) => String::new(),
        };
        vec![text(name), maybe(self.quota.map(|(name, _)| name.as_str()))]
    }

    fn row(&self, component: Component) -> Option<Vec<Value>> {
        let of_tenant = self.quota.and_then(|(_, spec)| spec.of_tenant());
        let guarantee = match (self.scope.map(|scope| scope.scope.role), of_tenant) {
            (Some(Role::Tenant(guarantees)), _) => guarantees.amount.get(component),
            (Some(_), _) | (None, None) => None,
            (None, Some(quota)) => quota.guarantee.get(component),
        };
        let held = self.scope.map(|scope| scope.scope.counter.held.get(component));
        let limit = self.limit(component);
        if limit == Limit::Unlimited && guarantee.is_none() && held.unwrap_or(0) == 0 {
            return None;
        }
        let shown = |amount: i64| component.number(amount);
        let used = self.scope.map(|scope| scope.used.get(component));
        let borrow = guarantee.and_then(|_| Some(borrow_limit(of_tenant?, component)));
        let queued = self.scope.and_then(|scope| match scope.scope.role {
            Role::Pool(row) => Some(row.queued),
            Role::Principal | Role::Tenant(_) => None,
        });
        let left = held.map(|held| match limit {
            Limit::Of(limit) => shown(limit.saturating_sub(held)),
            Limit::Unlimited => UNLIMITED.to_owned(),
        });
        let mut row = self.head();
        row.extend([
            text(component.keyword()),
            maybe(guarantee.map(shown)),
            maybe(borrow),
            text(limit_text(limit, component)),
            maybe(self.scope.map(|scope| shown(scope.locked().get(component)))),
            maybe(used.map(shown)),
            maybe(left),
            queued.map_or(Value::Null, number),
        ]);
        Some(row)
    }

    fn limit(&self, component: Component) -> Limit {
        match (self.scope, self.quota.map(|(_, spec)| &spec.scope)) {
            (Some(scope), _) => scope.scope.counter.limit.get(component),
            (None, Some(QuotaScope::User(quota) | QuotaScope::Creator(quota))) => quota.limit.limit(component),
            (None, Some(QuotaScope::Tenant(quota))) => match quota.guarantee(component) {
                Some(guarantee) => match guarantee.borrow {
                    Limit::Of(borrow) => Limit::Of(guarantee.amount.saturating_add(borrow)),
                    Limit::Unlimited => Limit::Unlimited,
                },
                None => Limit::Unlimited,
            },
            (None, None) => Limit::Unlimited,
        }
    }
}

/// A limit that there is none of.
const UNLIMITED: &str = "unlimited";

fn limit_text(limit: Limit, component: Component) -> String {
    match limit {
        Limit::Of(limit) => component.number(limit),
        Limit::Unlimited => UNLIMITED.to_owned(),
    }
}

fn borrow_limit(quota: &TenantQuota, component: Component) -> String {
    limit_text(quota.borrow_limit.limit(component), component)
}

/// Refuses a filter with a name that the caller may not see, or that does not exist.
fn refuse_invisible(context: &Context, catalog: &Catalog, of: &QuotaFilter) -> Result<(), UserError> {
    match of {
        QuotaFilter::Tenant(tenant) => {
            context.require_right_in(catalog, tenant)?;
            if catalog.tenants.contains_key(tenant) { Ok(()) } else { Err(user_error::no_tenant(tenant)) }
        }
        QuotaFilter::Pool(pool) => refuse_invisible_pool(context, catalog, pool),
        QuotaFilter::User(user) if *user == context.subject.user => Ok(()),
        QuotaFilter::User(_) | QuotaFilter::Creator(_) => context.require_right_in_any(),
    }
}

/// Refuses a pool that the caller may not see, or that does not exist.
pub(super) fn refuse_invisible_pool(context: &Context, catalog: &Catalog, pool: &PoolName) -> Result<(), UserError> {
    if visible(context, catalog).pools.contains(pool) {
        return Ok(());
    }
    context.require_right_in_any()?;
    Err(user_error::no_pool(pool))
}
