//! What a process of a proxy counts and reports: its sessions that wait, by key. Plain values; sessions are in `proxies`.
//!
//! The same as `proxy::demand` without its tasks, and compared with it: one report at a time, the next one 50 ms after the answer,
//! or 500 ms if it was not recorded; the same again within a third of the lease; none while nothing was reported and nothing waits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::demand::DemandKey;
use model::demand_report::{DemandReport, WaitingSessions};
use model::millis;

/// The least time between an answer and the next report.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);
/// The same after a report that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
const REPORTS_PER_LEASE: u32 = 3;

/// The sessions that wait, and how far they were reported.
#[derive(Debug)]
pub struct DemandCount {
    proxy: String,
    lease: Duration,
    counted: BTreeMap<DemandKey, Counted>,
    /// Raised with each change.
    version: u64,
    /// The version that was reported last.
    reported: u64,
    /// Whether the report after it has failed.
    fails: bool,
    seq: i64,
    /// Whether the last report had any demand, or may have been recorded.
    has_demand: bool,
    sending: Option<Sending>,
    /// The version that the last report began with; `None`: it is to be repeated.
    begun: Option<u64>,
    not_before: Duration,
}

#[derive(Debug)]
struct Counted {
    sessions: BTreeSet<u64>,
    /// Since when the key has been counted.
    since: Duration,
}

/// A report that is on its way.
#[derive(Debug)]
struct Sending {
    seq: i64,
    version: u64,
    has_demand: bool,
}

impl DemandCount {
    pub fn new(proxy: String, lease: Duration) -> Self {
        Self {
            proxy,
            lease,
            counted: BTreeMap::new(),
            version: 0,
            reported: 0,
            fails: false,
            seq: 0,
            has_demand: false,
            sending: None,
            begun: Some(0),
            not_before: Duration::ZERO,
        }
    }

    /// Raised with each change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Counts a session that waits since then.
    pub fn add(&mut self, key: &DemandKey, session: u64, since: Duration) {
        let of_key = self.counted.entry(key.clone()).or_insert_with(|| Counted { sessions: BTreeSet::new(), since });
        of_key.sessions.insert(session);
        of_key.since = of_key.since.min(since);
        self.version += 1;
    }

    /// Returns whether the session was counted.
    pub fn remove(&mut self, key: &DemandKey, session: u64) -> bool {
        let Some(of_key) = self.counted.get_mut(key) else { return false };
        if !of_key.sessions.remove(&session) {
            return false;
        }
        if of_key.sessions.is_empty() {
            self.counted.remove(key);
        }
        self.version += 1;
        true
    }

    /// Whether a session that left the count with this version is opened: that was reported, or cannot be.
    pub fn is_reported(&self, version: u64) -> bool {
        self.reported >= version || self.fails
    }

    /// When the next report begins; `None` while one is on its way, or nothing is to be reported.
    pub fn due(&self) -> Option<Duration> {
        if self.sending.is_some() {
            None
        } else if self.begun == Some(self.version) {
            self.has_demand.then(|| self.not_before + self.lease / REPORTS_PER_LEASE)
        } else {
            Some(self.not_before)
        }
    }

    /// Whether the report that is due is sent: something was reported or waits.
    pub fn sends(&self) -> bool {
        self.has_demand || !self.counted.is_empty()
    }

    /// Begins the report that is due, `at` that time; `None` if it is not sent. Ages are counted until `now`, by the clock of
    /// [`DemandCount::add`].
    pub fn begin(&mut self, now: Duration, at: Duration) -> Option<DemandReport> {
        self.begun = Some(self.version);
        if !self.sends() {
            self.recorded(at, self.version);
            return None;
        }
        let demand = self.counted.iter().map(|(key, counted)| WaitingSessions {
            key: key.clone(),
            sessions: counted.sessions.len() as u64,
            waited_ms: millis::from_duration(now.saturating_sub(counted.since)),
        });
        let demand: Vec<WaitingSessions> = demand.collect();
        self.seq += 1;
        self.sending = Some(Sending { seq: self.seq, version: self.version, has_demand: !demand.is_empty() });
        self.has_demand = true;
        let lease_ms = millis::from_duration(self.lease);
        Some(DemandReport { proxy: self.proxy.clone(), seq: self.seq, lease_ms, demand })
    }

    /// The answer to a report, if that is still on its way.
    pub fn end(&mut self, now: Duration, seq: i64, is_recorded: bool) {
        let Some(sending) = self.sending.take_if(|sending| sending.seq == seq) else { return };
        if is_recorded {
            self.has_demand = sending.has_demand;
            self.recorded(now, sending.version);
        } else {
            self.fails = true;
            self.begun = None;
            self.not_before = now + RETRY_PAUSE;
        }
    }

    fn recorded(&mut self, now: Duration, version: u64) {
        self.reported = version;
        self.fails = false;
        self.not_before = now + REPORT_INTERVAL;
    }
}
