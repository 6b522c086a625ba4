//! The judge of charges: every instance is charged, except for a moment.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::engine_name::EngineName;
use model::ledger::Reservation;

use crate::state::State;

/// For how long an instance may run without a charge.
const UNCHARGED: Duration = Duration::from_mins(1);

impl State {
    /// I4: every instance is charged, except for a moment.
    pub fn judge_charges(&mut self) {
        let now = self.now;
        // Both are in the order of the names.
        let reservations = self.database.state().ledger.reservations();
        let mut charged = reservations.filter(|held| held.state.is_charged()).peekable();
        let uncharged = self.agents.iter().filter(|(name, agent)| {
            let is_named = |held: &&Arc<Reservation>| std::ptr::eq(held.id().as_ptr(), name.as_str().as_ptr());
            let is_charged = charged.next_if(is_named).is_some() || {
                while charged.next_if(|held| &**held.id() < name.as_str()).is_some() {}
                charged.peek().is_some_and(|held| &**held.id() == name.as_str())
            };
            !is_charged && !agent.has_ended && !self.is_unready(name) && {
                self.database.engine(name).is_some_and(|row| row.ended_at_ms.is_none())
            }
        });
        let names: BTreeSet<EngineName> = uncharged.map(|(name, _)| name.clone()).collect();
        drop(charged);
        self.judge.uncharged.retain(|name, _| names.contains(name));
        for name in names {
            let since = *self.judge.uncharged.entry(name.clone()).or_insert(now);
            if since + UNCHARGED < now {
                self.violated(format!("engine {name} runs without a charge"));
            }
        }
    }
}
