//! The limit of refused statements that are audited, for each user and minute.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::settings::{MAX_REFUSALS_PER_MINUTE, MAX_REFUSED_USERS};

/// Whether a refused statement is audited.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Admitted,
    /// The first one beyond the limit.
    First,
    Repeated,
}

/// Counts the refused statements of each user within the current minute.
#[derive(Debug, Default)]
pub(super) struct RefusalLimit(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    minute: u64,
    users: HashMap<String, u32>,
}

impl RefusalLimit {
    pub(super) fn admit(&self, user: &str, now: Duration) -> Admission {
        let mut window = self.0.lock();
        let minute = now.as_secs() / 60;
        if window.minute != minute {
            *window = Window { minute, users: HashMap::new() };
        }
        let is_full = window.users.len() >= MAX_REFUSED_USERS;
        let count = match window.users.get_mut(user) {
            Some(count) => count,
            None if is_full => return Admission::Repeated,
            None => window.users.entry(user.to_owned()).or_default(),
        };
        *count = count.saturating_add(1);
        match *count {
            0..=MAX_REFUSALS_PER_MINUTE => Admission::Admitted,
            count if count == MAX_REFUSALS_PER_MINUTE + 1 => Admission::First,
            _ => Admission::Repeated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_admits_a_limited_number_of_refusals_of_each_user() {
        let limit = RefusalLimit::default();
        let now = Duration::from_secs(61);
        for _ in 0..MAX_REFUSALS_PER_MINUTE {
            assert_eq!(limit.admit("eve", now), Admission::Admitted);
        }
        assert_eq!(limit.admit("eve", now), Admission::First);
        assert_eq!(limit.admit("eve", now), Admission::Repeated);
        assert_eq!(limit.admit("ann", now), Admission::Admitted, "each user has a limit of its own");
        assert_eq!(limit.admit("eve", now + Duration::from_mins(1)), Admission::Admitted);
    }

    #[test]
    fn the_number_of_counted_users_is_limited() {
        let limit = RefusalLimit::default();
        for number in 0..MAX_REFUSED_USERS {
            assert_eq!(limit.admit(&format!("u{number}"), Duration::ZERO), Admission::Admitted);
        }
        assert_eq!(limit.admit("one-more", Duration::ZERO), Admission::Repeated);
        assert_eq!(limit.admit("u0", Duration::ZERO), Admission::Admitted);
    }
}
