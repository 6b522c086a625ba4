//! What a master records of the ledger apart from changes of reservations, each under its epoch.

use model::ledger::{LedgerRecord, LedgerRecorded};
use model::number::Epoch;

use crate::error::Error;
use crate::store::Store;

impl Store {
    /// Records what the master has measured, or what an admission round left in the queues; or runs the expiry or the audit.
    pub async fn record_ledger(&self, epoch: Epoch, record: &LedgerRecord) -> Result<LedgerRecorded, Error> {
        Ok(match record {
            LedgerRecord::Admission(queued) => {
                self.admitted(epoch, queued).await?;
                LedgerRecorded::Done
            }
            LedgerRecord::Capacity(capacities) => {
                self.record_capacity(epoch, capacities).await?;
                LedgerRecorded::Done
            }
            LedgerRecord::Expiry => LedgerRecorded::Expired(self.expire(epoch).await?),
            LedgerRecord::Audit => LedgerRecorded::Audited(self.audit_ledger(epoch).await?),
        })
    }
}
