//! The settings and limits of external holders.

use std::time::Duration;

/// What applies to external holders of reservations.
#[derive(Debug, Clone)]
pub struct HolderSettings {
    /// How long a reservation may stay unconfirmed, unless its request says otherwise.
    pub ttl: Duration,
    /// How long a confirmed reservation is valid without a renewal, unless its holder says otherwise.
    pub lease: Duration,
    /// Users and `@groups` who may reserve for other users.
    pub providers: Vec<String>,
}

impl Default for HolderSettings {
    fn default() -> Self {
        Self { ttl: Duration::from_mins(5), lease: Duration::from_hours(1), providers: Vec::new() }
    }
}

/// The longest lease, time to confirm, and wait in the queue.
pub(super) const MAX_LEASE: Duration = Duration::from_hours(24);
/// How long a request without a wait is queued if only a master may grant it.
pub(super) const QUEUED_WITHOUT_WAIT: Duration = Duration::from_secs(2);
/// The longest time for which a reading of a state is held.
pub(super) const MAX_HOLD: Duration = Duration::from_secs(30);
/// The most readings that are held at the same time.
pub(super) const MAX_RESERVATION_WAITERS: usize = 1_000;
/// The interval at which the reservations of all of them are read.
pub(super) const RESERVATION_POLL: Duration = Duration::from_millis(250);
/// The longest name of a creator or an instance, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 255;
