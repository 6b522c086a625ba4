//! Questions about a change that is only tried, in a copy: what a transfer or an end would add, and how to undo an end.

use super::book::{Effect, Ledger, Moment};
use super::refusal::{Refusal, Shortage};
use super::reservation::{Request, Reservation};
use crate::resource::Amount;

impl Ledger {
    /// How many requests like this one [`Self::reserve`] would grant one after the other, each of a lineage that is charged nothing
    /// yet; at most `most`.
    pub fn grantable(&self, request: &Request, most: u64, at: Moment) -> u64 {
        let one = Effect::of_new(&request.amounts);
        let fit = |count| one.times(count).is_some_and(|all| self.check(&request.scopes, &all, at.now_ms).is_ok());
        if self.impossible(request, at.now_ms).is_some() {
            return 0;
        }
        if fit(most) {
            return most;
        }
        // No grant lowers a counter: if so many fit at once, each of them fits before the next one.
        let (mut granted, mut refused) = (0, most);
        while refused - granted > 1 {
            let middle = u64::midpoint(granted, refused);
            if fit(middle) {
                granted = middle;
            } else {
                refused = middle;
            }
        }
        granted
    }

    /// Charges the request of an engine that has no slot yet, like [`Self::reserve`], but leaves no reservation. Its lineage is charged
    /// nothing, and it is not [`Self::impossible`].
    pub fn charge_unplaced(&mut self, request: &Request, at: Moment) -> Result<(), Refusal> {
        let effect = Effect::of_new(&request.amounts);
        self.check(&request.scopes, &effect, at.now_ms)?;
        self.charge(&request.scopes, &effect)
    }

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
