//! The audit of the ledger: compares what scopes hold with their reservations, and corrects and counts what differs.
//!
//! Scopes are audited in parts, each a transaction that locks them. A transaction that changes a reservation locks all
//! scopes of its holder: under the lock of one of them, its reservations cannot change. What a pool holds of its parts
//! follows from the rows of its tenants, which change only under the lock of the pool.

use std::collections::BTreeSet;

use model::ledger::{Drift, ScopeKey, ScopeKind};
use model::number::Epoch;

use crate::backend::Mode;
use crate::batch::keys;
use crate::error::Error;
use crate::ledger::Loaded;
use crate::ledger_limits::MAX_BATCH_SCOPES;
use crate::ledger_rows;
use crate::ledger_sql as sql;
use crate::master;
use crate::store::Store;
use crate::transaction::{Done, Transaction, args};

impl Store {
    /// Audits every scope; returns the differences, which are corrected. None is expected.
    pub async fn audit_ledger(&self, epoch: Epoch) -> Result<Vec<Drift>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let scopes = all_keys(&mut tx).await;
        let scopes = tx.leave(scopes).await?;
        let mut drifts = Vec::new();
        // Tenants precede pools, whose parts follow from them.
        for kind in ScopeKind::ALL {
            let of_kind: Vec<ScopeKey> = scopes.iter().filter(|key| key.kind == kind).cloned().collect();
            let most = if kind == ScopeKind::Pool { 1 } else { MAX_BATCH_SCOPES };
            for part in of_kind.chunks(most) {
                let found = self.audit_scopes(epoch, kind, &part.iter().cloned().collect()).await?;
                for drift in &found {
                    tracing::error!(%drift, "ledger drift corrected");
                }
                drifts.extend(found);
            }
        }
        Ok(drifts)
    }

    async fn audit_scopes(
        &self,
        epoch: Epoch,
        kind: ScopeKind,
        scopes: &BTreeSet<ScopeKey>,
    ) -> Result<Vec<Drift>, Error> {
        let mut attempt = 1;
        loop {
            let mut tx = self.begin(Mode::Write).await?;
            let result = audit(&mut tx, epoch, kind, scopes).await;
            match tx.end(master::POINTS, result).await {
                Err(error) if error.is_retried(&mut attempt) => {}
                other => return other,
            }
        }
    }
}

async fn all_keys(tx: &mut Transaction) -> Result<Vec<ScopeKey>, Error> {
    tx.rows(sql::SCOPES, args![]).await?.iter().map(|row| Ok(ledger_rows::scope(row)?.key)).collect()
}

/// Audits scopes of one kind; of pools, one.
async fn audit(
    tx: &mut Transaction,
    epoch: Epoch,
    kind: ScopeKind,
    scopes: &BTreeSet<ScopeKey>,
) -> Result<Done<Vec<Drift>>, Error> {
    master::lock(tx, epoch).await?;
    let locked = tx.lock_scopes(scopes).await?;
    let locked = tx.scopes(&locked).await?;
    let names = || keys(scopes.iter().map(|key| &*key.name));
    let reservations = match kind {
        ScopeKind::User => tx.reservations_in(sql::RESERVATIONS_OF_USERS, names()).await?,
        ScopeKind::Creator => tx.reservations_in(sql::RESERVATIONS_OF_CREATORS, names()).await?,
        ScopeKind::Tenant => {
            let pairs = scopes.iter().filter_map(ScopeKey::tenant_and_pool);
            let pairs = pairs.map(|(tenant, pool)| args![tenant, pool]).collect();
            let rows = tx.rows_in_tuples(sql::RESERVATIONS_OF_TENANTS, pairs).await?;
            rows.iter().map(ledger_rows::reservation).collect::<Result<_, _>>()?
        }
        ScopeKind::Pool => {
            let mut of_pool = Vec::new();
            for key in scopes {
                let rows = tx.rows(sql::RESERVATIONS_OF_POOL, args![&*key.name]).await?;
                of_pool.extend(rows.iter().map(ledger_rows::reservation).collect::<Result<Vec<_>, _>>()?);
            }
            of_pool
        }
    };
    let before = Loaded::new(locked, reservations);
    let mut after = before.ledger.clone();
    for key in scopes.iter().filter(|key| key.kind == ScopeKind::Pool) {
        for row in tx.rows(sql::SCOPES_OF_POOL, args![format!("%/{}", key.name)]).await? {
            let tenant = ledger_rows::scope(&row)?;
            // Without a wildcard: an underscore in the pattern is any character.
            if tenant.key.tenant_and_pool().is_some_and(|(_, pool)| pool == &*key.name) {
                after.put_scope(tenant.key, tenant.scope);
            }
        }
    }
    let drifts = after.audit().map_err(|refusal| Error::Broken(format!("audit: {refusal:?}").into()))?;
    let drifts: Vec<Drift> = drifts.into_iter().filter(|drift| scopes.contains(&drift.scope)).collect();
    if drifts.is_empty() {
        return Ok(Done::Same(drifts));
    }
    // Tenants that were only read are not written.
    let mut corrected = before.ledger.clone();
    for (key, scope) in after.scopes().filter(|(key, _)| scopes.contains(key)) {
        corrected.put_scope(key.clone(), *scope);
    }
    tx.write_ledger(&before, &corrected).await?;
    tx.execute(sql::DRIFTS_ADD, args![i64::try_from(drifts.len()).unwrap_or(i64::MAX)]).await?;
    Ok(Done::Write(drifts))
}
