//! CANCEL RESERVATION: ends the reservation of an external holder, with a row of the audit in the same transaction.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::ledger::{Change, Decided, Refusal, Reservation, ScopeKey, ScopedChange};

use crate::audit_row::{AuditOutcome, AuditRow};
use crate::backend::Mode;
use crate::commit::{other_statement, too_late};
use crate::error::Error;
use crate::ledger::{HOLDER_POINTS, decide};
use crate::request::Request;
use crate::store::Store;
use crate::transaction::{Done, Transaction};

impl Store {
    /// Cancels a reservation for a user, whose rights the caller has checked. A repeat returns it as it is, and has no second
    /// row in the audit.
    pub async fn cancel_reservation(&self, request: &Request, id: &str) -> Result<Decided, Error> {
        let Some(existing) = self.reservation(id).await? else { return Ok(Err(Refusal::Unknown(id.into()))) };
        let mut attempt = 1;
        loop {
            let mut tx = self.begin(Mode::Write).await?;
            let result = self.cancel_in(&mut tx, request, &existing).await;
            match tx.end(HOLDER_POINTS, result).await {
                Err(error) if error.is_retried(&mut attempt) => {}
                other => return other,
            }
        }
    }

    async fn cancel_in(
        &self,
        tx: &mut Transaction,
        request: &Request,
        existing: &Reservation,
    ) -> Result<Done<Decided>, Error> {
        let scopes = existing.request.scopes.clone();
        let keys: BTreeSet<ScopeKey> = scopes.in_lock_order().cloned().collect();
        let changes = [ScopedChange { scopes, change: Change::Cancel { id: Arc::clone(existing.id()) } }];
        let done = decide(tx, None, &keys, &changes).await?;
        let first = |decided: Vec<Decided>| {
            decided.into_iter().next().ok_or_else(|| Error::Broken("a change has no result".into()))
        };
        let decided = match done {
            Done::Same(decided) => return first(decided).map(Done::Same),
            Done::Write(decided) => first(decided)?,
        };
        if self.is_past(request.deadline) {
            return Err(too_late().into());
        }
        let row = AuditRow {
            request: request.id.clone(),
            at_ms: tx.now_ms().await?,
            user: request.caller.subject.user.clone(),
            source: request.caller.source.clone(),
            statement: request.statement.clone(),
            object: Some(format!("reservation \"{}\"", existing.id())),
            tenant: Some(existing.request.scopes.tenant_name().to_owned()),
            outcome: AuditOutcome::Committed,
            sqlstate: None,
            generation: None,
        };
        if !tx.audit(row).await? {
            return Err(other_statement(&request.id));
        }
        Ok(Done::Write(decided))
    }
}
