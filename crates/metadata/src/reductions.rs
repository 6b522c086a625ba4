//! Since when what is left of a scope may be negative, from rows that exist for other reasons.
//!
//! What is left falls when the limit is altered or measured again, and when something is charged: by a grant, by an adoption, or
//! by a holder that uses more than it has reserved. While it is negative nothing is granted. So it has been negative at least
//! since the newest of these times, and perhaps for longer. A caller that waits for it to last never reports too early.

use std::collections::BTreeMap;

use model::catalog::Catalog;
use model::ledger::{ScopeKey, ScopeKind};
use model::name::{PoolName, QuotaName, TenantName};
use model::quota::{Principal, QuotaScope, QuotaSpec};

use crate::backend::Mode;
use crate::error::Error;
use crate::ledger_rows;
use crate::ledger_sql as sql;
use crate::read;
use crate::rows;
use crate::store::Store;
use crate::transaction::{Transaction, args};

impl Store {
    /// The newest time, in milliseconds since 1970, at which less may have become left of each scope. Without an entry it is older
    /// than the rows that are kept.
    pub async fn reductions(&self) -> Result<BTreeMap<ScopeKey, i64>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let reductions = reductions(&mut tx).await;
        tx.leave(reductions).await
    }
}

async fn reductions(tx: &mut Transaction) -> Result<BTreeMap<ScopeKey, i64>, Error> {
    let mut newest = BTreeMap::new();
    let mut keys = Vec::new();
    for row in tx.rows(sql::SCOPES, args![]).await? {
        let key = ledger_rows::scope(&row)?.key;
        raise(&mut newest, &key, rows::int_or_none(&row, "measured_at_ms")?);
        keys.push(key);
    }
    for row in tx.rows(sql::CHARGES_NEWEST, args![]).await? {
        let times = [rows::int_or_none(&row, "locked_at_ms")?, rows::int_or_none(&row, "used_at_ms")?];
        let charged_at_ms = times.into_iter().flatten().max();
        let (tenant, pool) = (rows::text(&row, "tenant")?, rows::text(&row, "pool")?);
        let names = TenantName::new(&tenant).ok().zip(PoolName::new(&pool).ok());
        for key in names.iter().flat_map(|(tenant, pool)| [ScopeKey::tenant(tenant, pool), ScopeKey::pool(pool)]) {
            raise(&mut newest, &key, charged_at_ms);
        }
        let (user, creator) = (rows::text(&row, "usr")?, rows::text(&row, "creator")?);
        let user = Some(user).filter(|user| !user.is_empty()).map(|user| ScopeKey::user(&user));
        let creator = Some(creator).filter(|creator| !creator.is_empty()).map(|creator| ScopeKey::creator(&creator));
        for key in user.iter().chain(&creator) {
            raise(&mut newest, key, charged_at_ms);
        }
    }
    let catalog = read::catalog(tx).await?;
    for row in tx.rows(sql::LIMITS_ALTERED, args![]).await? {
        let (kind, name) = (rows::text(&row, "object_kind")?, rows::text(&row, "object_name")?);
        let decided_at_ms = rows::int_or_none(&row, "decided_at_ms")?;
        let is_pool = kind == "resource_pool";
        for key in keys.iter().filter(|key| if is_pool { is_of_pool(key, &name) } else { limits(&catalog, &name, key) })
        {
            raise(&mut newest, key, decided_at_ms);
        }
    }
    Ok(newest)
}

fn raise(newest: &mut BTreeMap<ScopeKey, i64>, key: &ScopeKey, at_ms: Option<i64>) {
    if let Some(at_ms) = at_ms {
        let known = newest.entry(key.clone()).or_insert(at_ms);
        *known = at_ms.max(*known);
    }
}

fn is_of_pool(key: &ScopeKey, pool: &str) -> bool {
    key.kind == ScopeKind::Pool && *key.name == *pool
}

/// Whether the quota may limit the scope. One that was dropped may have limited any.
fn limits(catalog: &Catalog, quota: &str, key: &ScopeKey) -> bool {
    let found = QuotaName::new(quota).ok().and_then(|name| catalog.quotas.get(&name));
    found.is_none_or(|quota| is_subject(&quota.spec, key))
}

fn is_subject(quota: &QuotaSpec, key: &ScopeKey) -> bool {
    let is = |principal: &Principal| match principal {
        Principal::Named(name) => **name == *key.name,
        Principal::Default => true,
    };
    match (&quota.scope, key.kind) {
        (QuotaScope::User(quota), ScopeKind::User) | (QuotaScope::Creator(quota), ScopeKind::Creator) => {
            is(&quota.name)
        }
        (QuotaScope::Tenant(quota), ScopeKind::Tenant) => *key == ScopeKey::tenant(&quota.tenant, &quota.pool),
        // The parts of the pool follow from the guarantees on it.
        (QuotaScope::Tenant(quota), ScopeKind::Pool) => *key.name == *quota.pool.as_str(),
        _ => false,
    }
}
