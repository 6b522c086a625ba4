//! An engine's agent: its seats, its owner, its idle time and its consent to retire.

use std::collections::BTreeSet;
use std::time::Duration;

use model::number::Generation;
use model::owner::Owner;
use model::sharing::Sharer;
use planner::EngineUse;

use crate::mutant::Mutant;

/// How long an agent that agreed to retire opens no sessions.
const CONSENT: Duration = Duration::from_secs(30);
/// How old a proxy's view of an engine's status may be.
const STATUS_AGE: Duration = Duration::from_secs(1);

/// An agent with its engine.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "its faults are independent of each other")]
pub struct EngineAgent {
    pub uid: String,
    /// The machine that it runs on.
    pub machine: String,
    /// The generation of the snapshot that it was created from.
    pub generation: Generation,
    pub sessions: BTreeSet<u64>,
    has_read_owner: bool,
    /// The owner in the first permit that it read; `None`: the tenant.
    owner: Option<Owner>,
    pub has_registered: bool,
    pub has_ended: bool,
    pub is_draining: bool,
    /// It never registers.
    pub is_silent: bool,
    /// It does not exit after a drain order.
    pub is_stubborn: bool,
    /// It does not answer until then.
    pub muted_until: Duration,
    /// Whether it has opened a session.
    pub was_used: bool,
    /// What it has last reported of its sessions, and when; `None` if it did not answer.
    pub reported: Option<(EngineUse, Duration)>,
    idle_since: Duration,
    consent_until: Duration,
}

impl EngineAgent {
    pub fn new(uid: String, (machine, generation): (String, Generation), now: Duration) -> Self {
        Self {
            uid,
            machine,
            generation,
            has_read_owner: false,
            owner: None,
            sessions: BTreeSet::new(),
            was_used: false,
            reported: None,
            has_registered: false,
            has_ended: false,
            is_draining: false,
            is_silent: false,
            is_stubborn: false,
            muted_until: Duration::ZERO,
            idle_since: now,
            consent_until: Duration::ZERO,
        }
    }

    pub fn answers(&self, now: Duration) -> bool {
        !self.has_ended && now >= self.muted_until
    }

    pub fn is_retiring(&self, now: Duration) -> bool {
        now < self.consent_until
    }

    /// Whether it retires, and has for so long that proxies have read its status since.
    pub fn is_known_to_retire(&self, now: Duration) -> bool {
        self.is_retiring(now) && self.consent_until < now + CONSENT.saturating_sub(STATUS_AGE)
    }

    /// What it reports of its sessions.
    pub fn seen(&self, now: Duration) -> EngineUse {
        EngineUse {
            idle_for: self.idle(now),
            is_retiring: self.is_retiring(now),
            was_used: self.was_used,
            stateful: None,
        }
    }

    /// For how long no session has been open.
    pub fn idle(&self, now: Duration) -> Duration {
        if self.sessions.is_empty() { now.saturating_sub(self.idle_since) } else { Duration::ZERO }
    }

    /// Reads the owner in its permit: the first one counts.
    pub fn read_owner(&mut self, owner: Option<&Owner>) {
        if !std::mem::replace(&mut self.has_read_owner, true) {
            self.owner = owner.cloned();
        }
    }

    /// Whether it serves the sessions of this user.
    pub fn serves(&self, sharer: &Sharer) -> bool {
        self.has_read_owner && sharer.is_owner(self.owner.as_ref())
    }

    /// Opens a session of its owner, if a seat is free.
    pub fn open(
        &mut self,
        (session, sharer): (u64, &Sharer),
        seats: Option<u32>,
        now: Duration,
        mutant: Option<Mutant>,
    ) -> bool {
        let has_seat = seats.is_none_or(|seats| self.sessions.len() < seats as usize);
        let retires = self.is_retiring(now) && mutant != Some(Mutant::ConsentWithoutEffect);
        let opens = self.has_registered
            && !self.has_ended
            && !self.is_draining
            && !retires
            && (self.serves(sharer) || mutant == Some(Mutant::OwnerUnchecked))
            && (has_seat || mutant == Some(Mutant::SeatsUnchecked));
        if opens {
            self.sessions.insert(session);
            self.was_used = true;
        }
        opens
    }

    pub fn close(&mut self, session: u64, now: Duration) {
        if self.sessions.remove(&session) {
            self.idle_since = now;
        }
    }

    /// Agrees to retire, if it has been idle for that long.
    pub fn retire(&mut self, idle: Duration, now: Duration, mutant: Option<Mutant>) -> bool {
        let is_idle = self.sessions.is_empty() && self.idle(now) >= idle;
        let agrees = is_idle || mutant == Some(Mutant::ConsentOfBusyEngine);
        if agrees {
            self.consent_until = now + CONSENT;
        }
        agrees
    }
}
