//! The seats of an engine: how many sessions it may have at the same time, and the refusal of one that has none.
//!
//! The permit limits them; without a limit, and above it, the agent's own applies. A session takes its seat when it begins to
//! be opened, under the lock of the sessions, so that never more are open. If the permit lowers the limit below what is open,
//! open sessions continue and none is opened. A proxy with a stale permit or status is refused before anything is done.

use model::engine_name::EngineName;
use model::error::{ErrorKind, UserError};

use super::settings::MAX_SESSIONS;

/// The number of seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seats(usize);

impl Seats {
    /// The seats by the permit's limit.
    pub(super) fn new(permitted: Option<u32>) -> Self {
        Self(permitted.map_or(MAX_SESSIONS, |sessions| (sessions as usize).min(MAX_SESSIONS)))
    }

    pub(super) const fn count(self) -> u32 {
        // At most `MAX_SESSIONS`.
        self.0 as u32
    }

    /// Refuses a session if all seats are taken.
    pub(super) fn check(self, engine: &EngineName, taken: usize) -> Result<(), UserError> {
        if taken < self.0 {
            return Ok(());
        }
        Err(UserError::new(ErrorKind::EngineFull, format!("engine \"{engine}\" has no free seat"))
            .detail(format!("{taken} of {} are taken.", self.0))
            .hint("Retry; the session will be opened on another engine, or when a session of this one is closed."))
    }
}

/// The refusal of a session while the engine retires.
pub(super) fn retiring(engine: &EngineName) -> UserError {
    UserError::new(ErrorKind::EngineFull, format!("engine \"{engine}\" is about to end"))
        .detail("It was idle and has agreed to open no more sessions.")
        .hint("Retry; the session will be opened on another engine.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_permit_lowers_the_limit_of_the_agent_and_never_raises_it() {
        let engine = EngineName::new("e-1").unwrap();
        assert_eq!(Seats::new(None).count() as usize, MAX_SESSIONS);
        assert_eq!(Seats::new(Some(u32::MAX)).count() as usize, MAX_SESSIONS);
        let three = Seats::new(Some(3));
        assert_eq!(three.check(&engine, 2), Ok(()));
        let refused = three.check(&engine, 4).unwrap_err();
        assert_eq!((refused.kind, refused.detail.as_deref()), (ErrorKind::EngineFull, Some("4 of 3 are taken.")));
        assert!(Seats::new(Some(0)).check(&engine, 0).is_err());
    }
}
