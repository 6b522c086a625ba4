//! SHOW QUOTAS and DESCRIBE RESOURCE QUOTA. A user sees the quotas of the own tenants, and the one that applies to the
//! own name; admins, operators and auditors see all.

use ddl::QuotaFilter;
use hs2::SqlType;
use metadata::user_error;
use model::catalog::Catalog;
use model::change::{NOT_ENFORCED, quota_warnings};
use model::error::UserError;
use model::name::QuotaName;
use model::quota::{DeclaredAmount, Principal, QuotaScope, QuotaSpec, QuotaSubject};

use super::visible::visible;
use crate::metadata::answer::{Answer, maybe, number, text};
use crate::metadata::context::Context;

type Listed<'a> = (&'a QuotaName, &'a QuotaSpec);

pub(in crate::metadata) async fn show(
    context: &Context,
    of: &QuotaFilter,
    like: Option<&str>,
) -> Result<Answer, UserError> {
    let catalog = context.store().catalog().await.map_err(|error| error.user_error())?;
    show_in(context, &catalog, Some(of), like)
}

/// The rows of this catalog. A filter with a name that the caller may not see is refused.
pub(super) fn show_in(
    context: &Context,
    catalog: &Catalog,
    of: Option<&QuotaFilter>,
    like: Option<&str>,
) -> Result<Answer, UserError> {
    let mut listed = visible_quotas(context, catalog);
    if let Some(of) = of {
        let applying = applying(context, catalog, of)?;
        listed.retain(|(name, spec)| match (of, spec.of_tenant()) {
            (QuotaFilter::Tenant(tenant), Some(quota)) => quota.tenant == *tenant,
            (QuotaFilter::Pool(pool), Some(quota)) => quota.pool == *pool,
            _ => applying == Some(*name),
        });
    }
    let mut answer = Answer::new(&[
        ("scope", SqlType::String),
        ("quota", SqlType::String),
        ("guarantee", SqlType::String),
        ("borrow_limit", SqlType::String),
        ("lend_limit", SqlType::String),
        ("weight", SqlType::BigInt),
        ("limit", SqlType::String),
        ("comment", SqlType::String),
    ]);
    let matches = |name: &QuotaName| like.is_none_or(|pattern| ddl::like_matches(pattern, name.as_str()));
    listed.retain(|(name, _)| matches(name));
    if !listed.is_empty() {
        context.log.line(format!("warning: {NOT_ENFORCED}"));
    }
    for (name, spec) in listed {
        let mut row = vec![text(scope(spec)), text(name.as_str())];
        row.extend(match &spec.scope {
            QuotaScope::Tenant(quota) => [
                text(guarantee(&quota.guarantee)),
                text(quota.borrow_limit.to_string()),
                text(quota.lend_limit.to_string()),
                number(quota.weight),
                maybe(None::<String>),
            ],
            QuotaScope::User(quota) | QuotaScope::Creator(quota) => [
                maybe(None::<String>),
                maybe(None::<String>),
                maybe(None::<String>),
                maybe(None::<String>),
                text(quota.limit.to_string()),
            ],
        });
        row.push(maybe(spec.comment.clone()));
        answer.row(row);
    }
    Ok(answer)
}

/// The quotas that the caller may see, by name.
fn visible_quotas<'a>(context: &Context, catalog: &'a Catalog) -> Vec<Listed<'a>> {
    let all = catalog.quotas.iter().map(|(name, quota)| (name, &quota.spec));
    if context.subject.may_in_any(context.kind) {
        return all.collect();
    }
    let tenants = visible(context, catalog).tenants;
    let own = of_user(catalog, &context.subject.user);
    all.filter(|(name, spec)| match spec.of_tenant() {
        Some(quota) => tenants.contains(&quota.tenant),
        None => own == Some(*name),
    })
    .collect()
}

/// The quota that applies to a user: its own, else that of DEFAULT.
fn of_user<'a>(catalog: &'a Catalog, user: &str) -> Option<&'a QuotaName> {
    let of = |principal: Principal| catalog.quota_of(&QuotaSubject::User(principal));
    of(Principal::Named(user.to_owned())).or_else(|| of(Principal::Default)).map(|(name, _)| name)
}

fn of_creator<'a>(catalog: &'a Catalog, creator: &str) -> Option<&'a QuotaName> {
    let of = |principal: Principal| catalog.quota_of(&QuotaSubject::Creator(principal));
    of(Principal::Named(creator.to_owned())).or_else(|| of(Principal::Default)).map(|(name, _)| name)
}

/// The quota that applies to the user or creator of a filter. Refuses a name that the caller may not see.
fn applying<'a>(context: &Context, catalog: &'a Catalog, of: &QuotaFilter) -> Result<Option<&'a QuotaName>, UserError> {
    match of {
        QuotaFilter::Tenant(tenant) => {
            context.require_right_in(catalog, tenant)?;
            if catalog.tenants.contains_key(tenant) { Ok(None) } else { Err(user_error::no_tenant(tenant)) }
        }
        QuotaFilter::Pool(pool) if visible(context, catalog).pools.contains(pool) => Ok(None),
        QuotaFilter::Pool(pool) => {
            context.require_right_in_any()?;
            Err(user_error::no_pool(pool))
        }
        QuotaFilter::User(user) => {
            if *user != context.subject.user {
                context.require_right_in_any()?;
            }
            Ok(of_user(catalog, user))
        }
        QuotaFilter::Creator(creator) => {
            context.require_right_in_any()?;
            Ok(of_creator(catalog, creator))
        }
    }
}

/// The rows of DESCRIBE RESOURCE QUOTA.
pub(super) fn described(catalog: &Catalog, name: &QuotaName, spec: &QuotaSpec) -> Vec<(&'static str, String)> {
    let mut rows = vec![("resource quota", name.to_string()), ("scope", scope(spec))];
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
    let warnings = std::iter::once(NOT_ENFORCED.to_owned()).chain(quota_warnings(catalog, name, spec));
    rows.extend(warnings.map(|warning| ("warning", warning)));
    rows
}

/// `tenant t_1 on pool rp_1`, `user alice`, `all other creators`
fn scope(spec: &QuotaSpec) -> String {
    match spec.subject() {
        QuotaSubject::Tenant(tenant, pool) => format!("tenant {tenant} on pool {pool}"),
        QuotaSubject::User(Principal::Named(user)) => format!("user {user}"),
        QuotaSubject::Creator(Principal::Named(creator)) => format!("creator {creator}"),
        default @ (QuotaSubject::User(Principal::Default) | QuotaSubject::Creator(Principal::Default)) => {
            default.to_string()
        }
    }
}

/// A guarantee of no component is none, not an unlimited one.
fn guarantee(amount: &DeclaredAmount) -> String {
    if amount.is_empty() { "none".to_owned() } else { amount.to_string() }
}
