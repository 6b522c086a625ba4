//! Demand of this proxy: its sessions that wait for an engine, counted by what they have in common, and reported with a lease.
//!
//! A session is counted from the first time that no engine was found for its statement until an engine's session is about to be
//! opened for it, or its statement ends. It leaves the count before it is opened, and that is reported first, within a limit: an
//! engine's load and the demand never count it both.
//!
//! One task reports the whole demand: the first change at once, further ones at least [`REPORT_INTERVAL`] apart, and the same
//! again before its lease ends. A report that fails is repeated with a new number; meanwhile registered engines serve as before.
//! When the process dies, its demand ends with the lease.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_api::ApiError;
use hs2::Handle;
use model::clock::SharedClock;
use model::demand::{DemandKey, MAX_DEMAND_KEYS};
use model::demand_report::{DemandReport, WaitingSessions};
use model::millis;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::agents::Agents;

/// The least time between two reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);
/// The pause before a failed report is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// A report is repeated this often within its lease.
const REPORTS_PER_LEASE: u32 = 3;
/// How long a session waits until it is reported that it waits no longer. Slow agents delay it; an engine more costs more.
const LEAVE_DEADLINE: Duration = Duration::from_secs(1);
/// How long the last report of a proxy that stops may take.
const LAST_DEADLINE: Duration = Duration::from_secs(1);

/// The sessions that wait, and how far they were reported.
pub(crate) struct DemandCount {
    counted: Mutex<BTreeMap<DemandKey, Counted>>,
    /// Raised with each change.
    version: watch::Sender<u64>,
    reported: watch::Sender<Reported>,
    clock: SharedClock,
}

/// How far demand was reported.
#[derive(Debug, Clone, Copy, Default)]
struct Reported {
    /// The version that was reported last.
    version: u64,
    /// Whether the report after it has failed.
    fails: bool,
}

struct Counted {
    sessions: u64,
    /// Since when the key has been counted, by the clock that counts suspension.
    since: Duration,
}

/// A session that waits; counted until it leaves or this is dropped.
pub(crate) struct WaitingSession {
    count: Arc<DemandCount>,
    key: DemandKey,
    /// Since when it has been waiting, by the clock that counts suspension.
    since: Duration,
    is_counted: AtomicBool,
}

impl DemandCount {
    pub(crate) fn new(clock: SharedClock) -> Self {
        let counted = Mutex::default();
        Self { counted, version: watch::Sender::new(0), reported: watch::Sender::default(), clock }
    }

    /// Counts a session that waits, again if it has left for an engine that was full.
    pub(crate) fn add(self: &Arc<Self>, key: DemandKey, before: Option<&WaitingSession>) -> Arc<WaitingSession> {
        let now = self.clock.boottime();
        let since = before.filter(|before| before.key == key).map_or(now, |before| before.since);
        let mut counted = self.counted.lock();
        let of_key = counted.entry(key.clone()).or_insert(Counted { sessions: 0, since });
        of_key.sessions += 1;
        of_key.since = of_key.since.min(since);
        drop(counted);
        self.version.send_modify(|version| *version += 1);
        Arc::new(WaitingSession { count: Arc::clone(self), key, since, is_counted: AtomicBool::new(true) })
    }

    fn remove(&self, key: &DemandKey) {
        let mut counted = self.counted.lock();
        if let Some(of_key) = counted.get_mut(key) {
            of_key.sessions -= 1;
            if of_key.sessions == 0 {
                counted.remove(key);
            }
        }
        drop(counted);
        self.version.send_modify(|version| *version += 1);
    }

    /// The sessions of the keys that have waited longest, with the version that they are.
    fn sessions(&self) -> (u64, Vec<WaitingSessions>) {
        let version = *self.version.borrow();
        let now = self.clock.boottime();
        let counted = self.counted.lock();
        let mut keys: Vec<(&DemandKey, &Counted)> = counted.iter().collect();
        if keys.len() > MAX_DEMAND_KEYS {
            info!(keys = keys.len(), limit = MAX_DEMAND_KEYS, "only the oldest demand is reported");
            keys.sort_by_key(|(_, counted)| counted.since);
            keys.truncate(MAX_DEMAND_KEYS);
        }
        let sessions = keys.into_iter().map(|(key, counted)| WaitingSessions {
            key: key.clone(),
            sessions: counted.sessions,
            waited_ms: millis::from_duration(now.saturating_sub(counted.since)),
        });
        (version, sessions.collect())
    }
}

impl WaitingSession {
    pub(crate) fn key(&self) -> &DemandKey {
        &self.key
    }

    /// Whether it is still counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.is_counted.load(Ordering::SeqCst)
    }

    /// Leaves the count, and waits until that is reported; not for agents that cannot be reached, and only a short time for slow
    /// ones.
    pub(crate) async fn leave(&self) {
        if !self.uncount() {
            return;
        }
        let left = *self.count.version.borrow();
        let mut reported = self.count.reported.subscribe();
        let is_done = |reported: &Reported| reported.version >= left || reported.fails;
        if tokio::time::timeout(LEAVE_DEADLINE, reported.wait_for(is_done)).await.is_err() {
            debug!("it is not reported yet that a session waits no longer");
        }
    }

    /// Returns whether it was counted.
    fn uncount(&self) -> bool {
        let was_counted = self.is_counted.swap(false, Ordering::SeqCst);
        if was_counted {
            self.count.remove(&self.key);
        }
        was_counted
    }
}

impl Drop for WaitingSession {
    fn drop(&mut self) {
        self.uncount();
    }
}

/// Reports the demand to metadata agents until stopped, and then that there is none.
pub(crate) async fn report(count: Arc<DemandCount>, agents: Agents, lease: Duration, stop: CancellationToken) {
    let record = move |report: DemandReport| {
        let agents = agents.clone();
        async move { agents.record_demand(&report).await.map(drop) }
    };
    report_with(record, count, lease, stop).await;
}

async fn report_with<Recording: Future<Output = Result<(), ApiError>>>(
    record: impl Fn(DemandReport) -> Recording,
    count: Arc<DemandCount>,
    lease: Duration,
    stop: CancellationToken,
) {
    let mut reporter =
        Reporter { record, lease, proxy: Handle::random().to_string(), seq: 0, has_demand: false, fails: false };
    let mut versions = count.version.subscribe();
    loop {
        let renewal = reporter.has_demand.then_some(lease / REPORTS_PER_LEASE);
        tokio::select! {
            () = stop.cancelled() => break,
            changed = versions.changed() => if changed.is_err() { break },
            () = renewed(renewal) => {}
        }
        versions.mark_unchanged();
        let (version, sessions) = count.sessions();
        let pause = if reporter.send(sessions).await {
            count.reported.send_replace(Reported { version, fails: false });
            REPORT_INTERVAL
        } else {
            count.reported.send_modify(|reported| reported.fails = true);
            versions.mark_changed();
            RETRY_PAUSE
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
        }
    }
    if reporter.has_demand && tokio::time::timeout(LAST_DEADLINE, reporter.send(Vec::new())).await.is_err() {
        debug!("the demand of this proxy ends with its lease");
    }
}

async fn renewed(after: Option<Duration>) {
    match after {
        Some(after) => tokio::time::sleep(after).await,
        None => std::future::pending().await,
    }
}

struct Reporter<Record> {
    record: Record,
    lease: Duration,
    /// The id of this process.
    proxy: String,
    seq: i64,
    /// Whether the last report had any, or may have been recorded.
    has_demand: bool,
    fails: bool,
}

impl<Recording: Future<Output = Result<(), ApiError>>, Record: Fn(DemandReport) -> Recording> Reporter<Record> {
    /// Sends a report; returns whether it was recorded.
    async fn send(&mut self, demand: Vec<WaitingSessions>) -> bool {
        if demand.is_empty() && !self.has_demand {
            return true;
        }
        self.seq += 1;
        let has_demand = !demand.is_empty();
        self.has_demand = true;
        let lease_ms = millis::from_duration(self.lease);
        let report = DemandReport { proxy: self.proxy.clone(), seq: self.seq, lease_ms, demand };
        match (self.record)(report).await {
            Ok(()) => {
                self.has_demand = has_demand;
                if std::mem::take(&mut self.fails) {
                    info!("demand is recorded again");
                }
                true
            }
            Err(error) => {
                if !std::mem::replace(&mut self.fails, true) {
                    warn!(%error, "sessions wait for an engine, and no metadata agent records that");
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod simulated;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::pin::pin;

    use futures::poll;
    use model::clock::{ManualClock, SystemClock};
    use model::name::TenantName;

    use super::*;

    fn key(user: usize) -> DemandKey {
        DemandKey { user: Some(format!("u{user}")), ..DemandKey::of_tenant(TenantName::new("t_1").unwrap(), "IDE") }
    }

    #[test]
    fn a_session_is_counted_until_it_is_dropped_or_has_left() {
        let clock = ManualClock::at(5);
        let count = Arc::new(DemandCount::new(clock.clone()));
        let (one, two) = (count.add(key(1), None), count.add(key(1), None));
        clock.advance(Duration::from_millis(7));
        let other = count.add(key(2), None);
        let sessions = |count: &DemandCount| -> Vec<(String, u64, i64)> {
            let sessions = count.sessions().1;
            sessions.into_iter().map(|it| (it.key.user.unwrap(), it.sessions, it.waited_ms)).collect()
        };
        assert_eq!(sessions(&count), [("u1".to_owned(), 2, 7), ("u2".to_owned(), 1, 0)]);
        assert!(one.uncount() && !one.uncount());
        drop((one, other));
        assert_eq!(sessions(&count), [("u1".to_owned(), 1, 7)]);
        assert!(two.uncount());
        assert_eq!(sessions(&count), []);
        // It left for an engine that was full.
        let again = count.add(key(1), Some(&two));
        assert_eq!(sessions(&count), [("u1".to_owned(), 1, 7)], "it keeps its age");
        drop((again, two));
        assert_eq!(sessions(&count), []);
    }

    #[tokio::test]
    async fn a_session_leaves_once_that_is_reported_or_after_a_short_time() {
        let count = Arc::new(DemandCount::new(SystemClock::shared()));
        let [one, two, three, four] = [(); 4].map(|()| count.add(key(1), None));
        // Polled by hand: what a busy machine takes is no wait.
        for (waiting, fails) in [(one, false), (two, true)] {
            let mut leaving = pin!(waiting.leave());
            assert!(poll!(&mut leaving).is_pending(), "it is not reported");
            let version = *count.version.borrow() - u64::from(fails);
            count.reported.send_replace(Reported { version, fails });
            assert!(poll!(&mut leaving).is_ready(), "it is reported, or was tried");
        }
        assert!(poll!(pin!(three.leave())).is_ready(), "no agent can be reached");
        count.reported.send_modify(|reported| reported.fails = false);
        let begun = tokio::time::Instant::now();
        four.leave().await;
        assert!(begun.elapsed() >= LEAVE_DEADLINE);
        assert_eq!(count.sessions().1, []);
    }

    /// The sessions of the test, which come and go at the same time.
    const SIMULTANEOUS: u64 = 1_000;
    /// The most rows of demand that may be written for them.
    const MAX_WRITES: usize = 25;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn simultaneous_sessions_of_one_group_share_a_few_writes() {
        let count = Arc::new(DemandCount::new(SystemClock::shared()));
        let (written, stop) = (watch::Sender::new(Vec::new()), CancellationToken::new());
        let (recorded, records) = (written.subscribe(), written.clone());
        // Each report has the one key of the group, or no row.
        let record = move |report: DemandReport| {
            let sessions = report.demand.iter().map(|waiting| waiting.sessions).collect::<Vec<_>>();
            assert!(sessions.len() <= 1, "{sessions:?}");
            records.send_modify(|written: &mut Vec<u64>| written.push(sessions.first().copied().unwrap_or(0)));
            async { Ok(()) }
        };
        let lease = Duration::from_mins(10);
        let reporting = tokio::spawn(report_with(record, Arc::clone(&count), lease, stop.clone()));
        let group = DemandKey { user: None, group: Some("etl".to_owned()), ..key(0) };
        let sessions = (0..SIMULTANEOUS).map(|_| {
            let (count, group, mut recorded) = (Arc::clone(&count), group.clone(), recorded.clone());
            tokio::spawn(async move {
                let waiting = count.add(group, None);
                recorded.wait_for(|written| written.contains(&SIMULTANEOUS)).await.unwrap();
                waiting.leave().await;
            })
        });
        for session in sessions.collect::<Vec<_>>() {
            session.await.unwrap();
        }
        let mut recorded = recorded;
        recorded.wait_for(|written| written.last() == Some(&0)).await.unwrap();
        stop.cancel();
        reporting.await.unwrap();
        let written = recorded.borrow().clone();
        assert!(written.len() <= MAX_WRITES, "{} writes: {written:?}", written.len());
    }

    #[test]
    fn only_the_keys_that_have_waited_longest_are_reported() {
        let clock = ManualClock::at(5);
        let count = Arc::new(DemandCount::new(clock.clone()));
        let mut waiting = vec![count.add(key(MAX_DEMAND_KEYS), None)];
        clock.advance(Duration::from_millis(1));
        waiting.extend((0..MAX_DEMAND_KEYS).map(|user| count.add(key(user), None)));
        let reported = count.sessions().1;
        assert_eq!(reported.len(), MAX_DEMAND_KEYS);
        assert!(reported.iter().any(|it| it.key == key(MAX_DEMAND_KEYS)));
    }
}
