//! Questions about a change that is only tried, in a copy: what a transfer or an end would add, and how to undo an end.

use super::book::Ledger;
use super::refusal::{Refusal, Shortage};
use super::reservation::{Request, Reservation};
use crate::resource::Amount;

impl Ledger {
    /// What the transfer of `old` to the request adds to its user, creator and tenant.
    pub fn raise_by_transfer(&self, old: &Reservation, request: &Request) -> Amount {
        let effect = self.effect(&request.lineage, Some(&old.amounts), Some(&request.amounts));
        effect.map_or(Amount::ZERO, |effect| effect.policy)
    }

    /// As [`Self::shortages`], for the transfer of `old` to the request.
    pub fn shortages_of_transfer(
        &self,
        old: &Reservation,
        request: &Request,
        now_ms: i64,
    ) -> Result<Vec<Shortage>, Refusal> {
        let effect = self.effect(&request.lineage, Some(&old.amounts), Some(&request.amounts))?;
        self.shortages_of(&request.scopes, &effect, now_ms)
    }

    /// What the end of a charged reservation adds to its user, creator and tenant: at most 0.
    pub fn change_by_end(&self, charged: &Reservation) -> Amount {
        let effect = self.effect(&charged.request.lineage, Some(&charged.amounts), None);
        effect.map_or(Amount::ZERO, |effect| effect.policy)
    }

    /// What a reservation that has ended would be short of if it were charged again as it was.
    pub fn shortages_of_restore(&self, charged: &Reservation, now_ms: i64) -> Result<Vec<Shortage>, Refusal> {
        let effect = self.effect(&charged.request.lineage, None, Some(&charged.amounts))?;
        self.shortages_of(&charged.request.scopes, &effect, now_ms)
    }

    /// Undoes an end, regardless of limits: `charged` is the reservation as it was before.
    pub fn restore(&mut self, charged: &Reservation) -> Result<(), Refusal> {
        let effect = self.effect(&charged.request.lineage, None, Some(&charged.amounts))?;
        self.charge(&charged.request.scopes, &effect)?;
        self.put(charged.clone());
        Ok(())
    }
}
