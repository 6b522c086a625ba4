//! DESCRIBE RESOURCE QUOTA, and how a scope and its amounts are printed.

use model::catalog::Catalog;
use model::change::quota_warnings;
use model::charge::Charge;
use model::configuration::{Configuration, Defaults};
use model::ledger::{Amounts, ScopeKey, ScopeKind};
use model::name::QuotaName;
use model::quota::{DeclaredAmount, Principal, QuotaScope, QuotaSpec, QuotaSubject};
use model::resource::{Amount, Component};
use model::slot::SlotKey;

/// The rows of DESCRIBE RESOURCE QUOTA.
pub(super) fn described(catalog: &Catalog, name: &QuotaName, spec: &QuotaSpec) -> Vec<(&'static str, String)> {
    let mut rows = vec![("resource quota", name.to_string()), ("scope", scope_of(spec))];
    match &spec.scope {
        QuotaScope::Tenant(quota) => rows.extend([
            ("guarantee", guarantee(&quota.guarantee)),
            ("borrow limit", quota.borrow_limit.to_string()),
            ("lend limit", quota.lend_limit.to_string()),
            ("weight", quota.weight.to_string()),
        ]),
        QuotaScope::User(quota) | QuotaScope::Creator(quota) => rows.push(("limit", quota.limit.to_string())),
    }
    rows.push(("comment", spec.comment.clone().unwrap_or_default()));
    rows.extend(quota_warnings(catalog, name, spec).into_iter().map(|warning| ("warning", warning)));
    rows
}

/// `tenant t_1 on pool rp_1`, `user alice`, `all other creators`
pub(super) fn scope_of(spec: &QuotaSpec) -> String {
    match spec.subject() {
        QuotaSubject::Tenant(tenant, pool) => format!("tenant {tenant} on pool {pool}"),
        QuotaSubject::User(Principal::Named(user)) => format!("user {user}"),
        QuotaSubject::Creator(Principal::Named(creator)) => format!("creator {creator}"),
        default @ (QuotaSubject::User(Principal::Default) | QuotaSubject::Creator(Principal::Default)) => {
            default.to_string()
        }
    }
}

/// The same for a scope that holds charges: `pool rp_1`.
pub(super) fn scope(key: &ScopeKey) -> String {
    match (key.kind, key.tenant_and_pool()) {
        (ScopeKind::User, _) => format!("user {}", key.name),
        (ScopeKind::Creator, _) => format!("creator {}", key.name),
        (_, Some((tenant, pool))) => format!("tenant {tenant} on pool {pool}"),
        (ScopeKind::Tenant | ScopeKind::Pool, None) => format!("pool {}", key.name),
    }
}

/// `1 CPU, 1280 MiB, 1 engine`; components of 0 are left out.
pub(super) fn amounts(amount: &Amount) -> String {
    let named = Component::ALL.into_iter().filter(|component| amount.get(*component) != 0);
    let shown: Vec<String> = named.map(|component| component.shown(amount.get(component))).collect();
    if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") }
}

/// What an engine of the slot would be charged; `None` if the catalog has no such unit or pool.
pub(super) fn amounts_of(catalog: &Catalog, slot: &SlotKey, defaults: &Defaults) -> Option<Amounts> {
    let configuration = Configuration::from_slot(catalog, slot, defaults)?;
    Amounts::of_engine(&Charge::new(&configuration, defaults.instances).charged_by(catalog.unit(&slot.unit)?))
}

/// A guarantee of no component is none, not an unlimited one.
fn guarantee(amount: &DeclaredAmount) -> String {
    if amount.is_empty() { "none".to_owned() } else { amount.to_string() }
}
