//! Full engines: those that open no session now, because their seats are taken or because they are about to end.
//!
//! An engine is full by its agent's refusal or status, until a later status reports a free seat. While sessions wait for it, it
//! is asked at most every [`ASKED_EACH`], by one of them. A mark that is outdated costs that time; an engine that is taken for
//! free refuses before it does anything.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use agent_api::EngineStatus;
use model::engine_name::EngineName;

/// The shortest time between two status calls to a full engine.
const ASKED_EACH: Duration = Duration::from_secs(1);

/// The full engines by uid.
#[derive(Default)]
pub(super) struct FullMarks(HashMap<String, FullMark>);

/// What is known of a full engine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FullMark {
    seats: Taken,
    /// When its status was requested last; `None`: ask at once.
    asked_at: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It refused and has not reported its seats.
    Unknown,
    Seats {
        sessions: u32,
        seats: u32,
    },
    /// It has agreed to retire.
    Retiring,
}

impl FullMarks {
    pub(super) fn contains(&self, uid: &str) -> bool {
        self.0.contains_key(uid)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The engine refused a session. Refusals that arrive together cause one status call.
    pub(super) fn refused(&mut self, uid: &str) {
        self.0.entry(uid.to_owned()).or_insert(FullMark { seats: Taken::Unknown, asked_at: None });
    }

    /// The last free seat that the engine reported at `reported_at` was given to a session of this proxy.
    pub(super) fn filled(&mut self, uid: &str, sessions: u32, seats: u32, reported_at: Duration) {
        let mark = FullMark { seats: Taken::Seats { sessions, seats }, asked_at: Some(reported_at) };
        self.0.insert(uid.to_owned(), mark);
    }

    /// A session of this proxy at the engine has ended: ask it at once.
    pub(super) fn freed(&mut self, uid: &str) {
        if let Some(mark) = self.0.get_mut(uid) {
            mark.asked_at = None;
        }
    }

    /// Applies a status.
    pub(super) fn reported(&mut self, uid: &str, status: &EngineStatus, now: Duration) {
        let seats = match status.seats {
            _ if status.retiring => Taken::Retiring,
            Some(seats) if status.is_full() => Taken::Seats { sessions: status.sessions, seats },
            _ => {
                self.0.remove(uid);
                return;
            }
        };
        self.0.insert(uid.to_owned(), FullMark { seats, asked_at: Some(now) });
    }

    /// Whether the full engine is to be asked for its status now. The caller asks: others are answered with no meanwhile.
    pub(super) fn is_due(&mut self, uid: &str, now: Duration) -> bool {
        let Some(mark) = self.0.get_mut(uid) else { return false };
        let due = mark.asked_at.is_none_or(|at| now.saturating_sub(at) >= ASKED_EACH);
        if due {
            mark.asked_at = Some(now);
        }
        due
    }

    pub(super) fn taken(&self, uid: &str) -> Option<Taken> {
        self.0.get(uid).map(|mark| mark.seats)
    }

    /// Forgets engines that are not registered.
    pub(super) fn retain(&mut self, registered: &HashSet<&str>) {
        self.0.retain(|uid, _| registered.contains(uid.as_str()));
    }
}

/// The full engines of a selector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FullEngines(pub(super) Vec<(EngineName, Taken)>);

impl FullEngines {
    pub(crate) fn contains(&self, engine: &EngineName) -> bool {
        self.0.iter().any(|(name, _)| name == engine)
    }

    /// Why a session waits for them; `None` if there are none.
    pub(crate) fn reason(&self) -> Option<String> {
        match self.0.as_slice() {
            [] => None,
            [(engine, Taken::Unknown)] => Some(format!("engine \"{engine}\" has no free seat")),
            [(engine, Taken::Retiring)] => Some(format!("engine \"{engine}\" is about to end")),
            [(engine, Taken::Seats { sessions, seats })] => {
                Some(format!("engine \"{engine}\" has no free seat ({sessions} of {seats})"))
            }
            several => Some(format!("all {} engines are full", several.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn status(sessions: u32, seats: Option<u32>, retiring: bool) -> EngineStatus {
        EngineStatus {
            engine: "e-1".to_owned(),
            uid: "u".to_owned(),
            sessions,
            running: 0,
            draining: false,
            idle: None,
            retiring,
            stateful: None,
            seats,
            served: None,
        }
    }

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn an_engine_is_full_until_a_status_reports_a_free_seat() {
        let mut full = FullMarks::default();
        full.refused("u");
        full.reported("u", &status(10, Some(10), false), at(0));
        assert_eq!(full.taken("u"), Some(Taken::Seats { sessions: 10, seats: 10 }));
        full.reported("u", &status(0, Some(10), true), at(0));
        assert_eq!(full.taken("u"), Some(Taken::Retiring), "its seats are not free");
        full.reported("u", &status(9, Some(10), false), at(0));
        assert!(!full.contains("u"));
        // An agent of an earlier version reports no seats.
        full.refused("u");
        full.reported("u", &status(10, None, false), at(0));
        assert!(!full.contains("u"));
    }

    #[test]
    fn waiting_sessions_cause_one_status_call_a_second() {
        let mut full = FullMarks::default();
        assert!(!full.is_due("u", at(0)), "it is not full");
        full.refused("u");
        assert!(full.is_due("u", at(0)), "nothing is known of it");
        full.refused("u");
        assert!(!full.is_due("u", at(999)), "another session asks");
        assert!(full.is_due("u", at(1_000)));
        full.freed("u");
        assert!(full.is_due("u", at(1_001)), "a seat may be free");
        full.filled("u", 10, 10, at(1_500));
        assert!(!full.is_due("u", at(2_499)) && full.is_due("u", at(2_500)));
    }

    #[test]
    fn the_reason_has_the_seats_of_one_engine_and_the_number_of_several() {
        let engine = |name: &str, taken| (EngineName::new(name).unwrap(), taken);
        let ten = Taken::Seats { sessions: 10, seats: 10 };
        let reason = |engines: Vec<_>| FullEngines(engines).reason();
        assert_eq!(reason(vec![]), None);
        assert_eq!(reason(vec![engine("e-1", ten)]).unwrap(), "engine \"e-1\" has no free seat (10 of 10)");
        assert_eq!(reason(vec![engine("e-1", Taken::Unknown)]).unwrap(), "engine \"e-1\" has no free seat");
        assert_eq!(reason(vec![engine("e-1", Taken::Retiring)]).unwrap(), "engine \"e-1\" is about to end");
        assert_eq!(
            reason(["e-1", "e-2", "e-3"].map(|name| engine(name, ten)).into()).unwrap(),
            "all 3 engines are full"
        );
    }
}
