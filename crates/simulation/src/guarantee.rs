//! The end of a run: a request within its guarantee is admitted once capacity is free.

use std::time::Duration;

use model::error::UserError;

use crate::database::Statement;
use crate::event::{Event, Scripted};
use crate::liveness::{COOLDOWN, IDLE, ONE_BY_ONE, SERVED, arrival};
use crate::run::{Run, TICK};
use crate::script;

/// Engines of the pool that fit; the tenant is guaranteed as many.
const FIT: u64 = 3;
/// Enough sessions for more engines than fit.
const OTHERS: u64 = 20;
/// An engine without sessions that was stopped has ended after this, also if it has to be deleted.
const STOPPED: Duration = Duration::from_mins(3);
const PATIENCE: Duration = Duration::from_hours(1);

impl Run {
    /// One tenant has filled a pool; another is given a guarantee there, and waits. When the sessions of the first have ended, a
    /// session of the second is served. Returns whether nothing was violated.
    pub(crate) fn admits_within_a_guarantee(&mut self) -> Result<bool, UserError> {
        let links = script::links()?;
        // The same pool and unit.
        let (of_one, of_other) = (&links[0], &links[links.len() / 2]);
        {
            let mut world = self.world.lock();
            while !world.database.state().slots.is_empty() && world.violation.is_none() {
                world.run_at_once(&Statement::Stop(0));
            }
        }
        if !self.run_for(STOPPED) {
            return Ok(false);
        }
        let [limited, guaranteed] = script::guaranteeing(&of_one.pool, &of_other.tenant, FIT)?;
        if !self.happens(limited) {
            return Ok(false);
        }
        let others = arrival(of_one, (script::USERS[0], OTHERS), PATIENCE, false);
        if !self.happens(others) || !self.run_for(SERVED + TICK) {
            return Ok(false);
        }
        let of_guaranteed = arrival(of_other, (script::USERS[1], 1), PATIENCE, false);
        if !self.happens(guaranteed) || !self.happens(of_guaranteed) || !self.run_for(SERVED + TICK) {
            return Ok(false);
        }
        {
            let mut world = self.world.lock();
            let (filled, open) = (world.database.slots_of(of_one).count() as u64, world.open_at_link(of_other));
            if filled != FIT || open != 0 {
                world
                    .violated(format!("{filled} engines fill a pool for {FIT}, and {open} sessions find a seat there"));
                return Ok(false);
            }
            world.close_at_link(of_one);
        }
        if !self.run_for(IDLE + Duration::from_secs(35) + COOLDOWN + SERVED + TICK) {
            return Ok(false);
        }
        let mut world = self.world.lock();
        if world.open_at_link(of_other) == 0 {
            world.violated("a session within the guarantee of its tenant waits although capacity is free".to_owned());
        }
        Ok(world.violation.is_none())
    }

    /// Makes an event happen, and waits until a statement has taken effect.
    fn happens(&mut self, event: Scripted) -> bool {
        self.world.lock().handle(Event::Scripted(event));
        self.run_for(ONE_BY_ONE)
    }
}
