//! Changes of external holders with their row in the audit, in one transaction.
//!
//! A repeat changes nothing and is not audited again. A refusal changes nothing either, and is audited by
//! [`Store::record_refusal`](crate::Store::record_refusal).

use std::collections::BTreeSet;

use model::alteration::RequestId;
use model::ledger::{Decided, Refusal, ScopeKey, ScopedChange};

use crate::audit_row::{AuditOutcome, AuditRow};
use crate::backend::Mode;
use crate::caller::Caller;
use crate::commit::other_statement;
use crate::error::Error;
use crate::ledger::{HOLDER_POINTS, decide};
use crate::reserve::is_principal;
use crate::store::Store;
use crate::transaction::{Done, Transaction};

/// What the audit has of a change.
#[derive(Debug, Clone)]
pub struct HolderStatement {
    /// The same with every retry.
    pub id: RequestId,
    pub caller: Caller,
    pub statement: String,
}

impl Store {
    /// Changes one reservation for an external holder, and records the statement, if there is one, if that had an effect. Scopes of users
    /// and creators that do not exist are inserted before. A request id under which another statement took effect is
    /// refused.
    pub async fn change_for_holder(
        &self,
        change: &ScopedChange,
        statement: Option<&HolderStatement>,
    ) -> Result<Decided, Error> {
        let scopes: BTreeSet<ScopeKey> = change.scopes.in_lock_order().cloned().collect();
        let (mut attempt, mut has_principals) = (1, false);
        loop {
            let mut tx = self.begin(Mode::Write).await?;
            let result = change_and_audit(&mut tx, &scopes, change, statement).await;
            match tx.end(HOLDER_POINTS, result).await {
                Err(error) if error.is_retried(&mut attempt) => {}
                Ok(Err(Refusal::NoScope(key))) if is_principal(&key) && !has_principals => {
                    self.insert_principals(&scopes).await?;
                    has_principals = true;
                }
                other => return other,
            }
        }
    }
}

async fn change_and_audit(
    tx: &mut Transaction,
    scopes: &BTreeSet<ScopeKey>,
    change: &ScopedChange,
    statement: Option<&HolderStatement>,
) -> Result<Done<Decided>, Error> {
    let done = decide(tx, None, scopes, std::slice::from_ref(change)).await?;
    let first = |decided: Vec<Decided>| {
        decided.into_iter().next().ok_or_else(|| Error::Broken("a change has no result".into()))
    };
    let decided = match done {
        Done::Write(decided) => first(decided)?,
        Done::Same(decided) => return first(decided).map(Done::Same),
    };
    if let (Ok(reservation), Some(statement)) = (&decided, statement) {
        let row = AuditRow {
            request: statement.id.clone(),
            at_ms: tx.now_ms().await?,
            user: statement.caller.subject.user.clone(),
            source: statement.caller.source.clone(),
            statement: statement.statement.clone(),
            object: Some(format!("reservation \"{}\"", reservation.id())),
            tenant: Some(reservation.request.scopes.tenant_name().to_owned()),
            outcome: AuditOutcome::Committed,
            sqlstate: None,
            generation: None,
        };
        if !tx.audit(row).await? {
            return Err(other_statement(&statement.id));
        }
    }
    Ok(Done::Write(decided))
}
