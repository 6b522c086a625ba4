//! The database is restored to an older state: what it has recorded since is lost, and nothing else is.
//!
//! Nodes, instances, engines, sessions and alterations on their way stay as they are, ahead of the database. The master's session
//! ends with the restore, as operators stop masters for it; a call that is on its way arrives all the same.

use std::time::Duration;

use crate::backup::Backup;
use crate::event::Event;
use crate::faults::STALE_DEMAND;
use crate::state::State;

/// How long the election of the next master takes at most, in milliseconds.
const ELECTED_MS: u64 = 12_000;

impl State {
    /// Backs the database up, and restores that state later.
    pub fn back_up(&mut self, restored_after: Duration) {
        let backup = Backup { database: self.database.clone(), shown: self.shown.clone() };
        self.schedule(restored_after, Event::Restore(Box::new(backup)));
    }

    /// Restores the database.
    pub fn restore(&mut self, backup: Backup) {
        self.activity.restored += 1;
        self.database.restore(backup.database);
        self.shown = backup.shown;
        self.waiting_when_read = None;
        self.faults.stale_until = self.faults.stale_until.max(self.now + STALE_DEMAND);
        self.judge_restored();
        self.nodes.lock = None;
        let after = self.rng.millis(1, ELECTED_MS);
        self.schedule(after, Event::Elect);
        self.schedule(after, Event::CatalogRead);
    }

    /// Draws the numbers that the database has lost, as later statements do: the engines from newer generations, which it does not
    /// know, end then.
    pub fn draw_lost_numbers(&mut self) {
        let running = self.agents.values().filter(|agent| !agent.has_ended);
        let newest = running.map(|agent| agent.generation).max().unwrap_or_default();
        while self.database.state().catalog.generation < newest {
            self.database.simulation_mut().next_number();
        }
    }
}
