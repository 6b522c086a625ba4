//! The operations of holders: reserve, wait, confirm, renew, release and cancel, each idempotent, in
//! [shared transactions](Store::change_for_holder).
//!
//! The scopes of a reservation never change, so they are read before the transaction that locks them.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::ledger::{
    Change, Claim, Confirmation, Decided, Refusal, Request, ScopeKey, ScopeKind, ScopedChange, principal,
};

use crate::error::Error;
use crate::failpoints;
use crate::ledger_rows;
use crate::ledger_sql as sql;
use crate::read;
use crate::store::Store;
use crate::transaction::{CommitPoints, Done, Transaction};

const POINTS: CommitPoints = CommitPoints { before: failpoints::SCOPES_BEFORE, after: failpoints::SCOPES_AFTER };

impl Store {
    /// Reserves for an external holder. A repeat returns the reservation in whatever state it is.
    pub async fn reserve(&self, request: &Arc<Request>) -> Result<Decided, Error> {
        self.request_change(request, Change::Reserve(Arc::clone(request))).await
    }

    /// Queues a request of an external holder until a master grants it, for at most `wait_ms`.
    pub async fn enqueue(&self, request: &Arc<Request>, wait_ms: i64) -> Result<Decided, Error> {
        let change = Change::Enqueue { request: Arc::clone(request), wait_ms };
        self.request_change(request, change).await
    }

    pub async fn confirm(&self, confirmation: &Confirmation) -> Result<Decided, Error> {
        self.change_existing(Change::Confirm(confirmation.clone())).await
    }

    pub async fn renew(&self, claim: &Claim, lease_ms: i64) -> Result<Decided, Error> {
        self.change_existing(Change::Renew { claim: claim.clone(), lease_ms }).await
    }

    pub async fn release(&self, claim: &Claim) -> Result<Decided, Error> {
        self.change_existing(Change::Release(claim.clone())).await
    }

    /// CANCEL RESERVATION. The rights of the user are checked by the caller.
    pub async fn cancel(&self, id: &str) -> Result<Decided, Error> {
        self.change_existing(Change::Cancel { id: id.into() }).await
    }

    /// Inserts the users and creators among the scopes that have no row, with their limits of the catalog. In a
    /// transaction of its own under the catalog lock, so that no row is made from a quota that a concurrent ALTER
    /// replaces.
    pub async fn insert_principals(&self, keys: &BTreeSet<ScopeKey>) -> Result<(), Error> {
        let mut attempt = 1;
        loop {
            let mut tx = self.begin_for_catalog().await?;
            let result = insert(&mut tx, keys).await;
            match tx.end(POINTS, result).await {
                Err(error) if error.is_retried(&mut attempt) => {}
                other => return other,
            }
        }
    }

    /// Changes a reservation that exists.
    async fn change_existing(&self, change: Change) -> Result<Decided, Error> {
        let Some(existing) = self.reservation(change.id()).await? else {
            return Ok(Err(Refusal::Unknown(Arc::clone(change.id()))));
        };
        self.change_for_holder(&ScopedChange { scopes: existing.request.scopes.clone(), change }, None).await
    }

    async fn request_change(&self, request: &Request, change: Change) -> Result<Decided, Error> {
        self.change_for_holder(&ScopedChange { scopes: request.scopes.clone(), change }, None).await
    }
}

pub(crate) fn is_principal(key: &ScopeKey) -> bool {
    matches!(key.kind, ScopeKind::User | ScopeKind::Creator)
}

async fn insert(tx: &mut Transaction, keys: &BTreeSet<ScopeKey>) -> Result<Done<()>, Error> {
    tx.lock_catalog().await?;
    let keys: BTreeSet<ScopeKey> = keys.iter().filter(|key| is_principal(key)).cloned().collect();
    let existing = tx.existing_scopes(&keys).await?;
    let catalog = read::catalog(tx).await?;
    let missing = keys.difference(&existing).filter_map(|key| Some((key, principal(&catalog, key)?)));
    let rows: Vec<_> = missing.map(|(key, scope)| ledger_rows::scope_args(key, &scope, 0)).collect();
    let is_written = !rows.is_empty();
    tx.insert_all(sql::SCOPES_INSERT, rows).await?;
    Ok(if is_written { Done::Write(()) } else { Done::Same(()) })
}
