//! The simulation's model of what a proxy reports decides like the proxy: the same random changes of both, with the same answers to
//! the reports. The pauses are real: a report of the proxy may begin later than in the model, never earlier.
#![allow(clippy::unwrap_used)]

use std::time::Instant;

use model::clock::{Clock as _, ManualClock};
use model::name::TenantName;
use simulation::demand::DemandCount as Model;
use simulation::rng::Rng;

use super::*;

const CHANGES: usize = 120;
/// Short enough for some renewals.
const LEASE: Duration = Duration::from_millis(600);
/// What a pause of the runtime may be shorter.
const TOLERANCE: Duration = Duration::from_millis(2);

/// The model, with the time and the random answers.
struct Compared {
    model: Model,
    begun: Instant,
    /// When the count was changed last.
    changed: Duration,
    clock: Arc<ManualClock>,
    rng: Rng,
    recorded: usize,
    failed: usize,
    first_difference: Option<String>,
}

impl Compared {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn differs(&mut self, what: String) {
        self.first_difference.get_or_insert(what);
    }

    /// The model begins what it need not send: nothing was reported, and nothing waits.
    fn skip(&mut self) {
        while let Some(due) = self.model.due().filter(|due| *due <= self.now() && !self.model.sends()) {
            assert!(self.model.begin(self.clock.boottime(), due.max(self.changed)).is_none());
        }
    }

    /// The proxy sends a report; returns its number, how long the answer takes, and whether it is recorded.
    fn sent(&mut self, report: &DemandReport) -> (i64, Duration, bool) {
        let (now, due) = (self.now() + TOLERANCE, self.model.due());
        if due.is_none_or(|due| due > now) {
            self.differs(format!("{report:?} is sent at {now:?}, and due at {due:?}"));
        }
        let expected = self.model.begin(self.clock.boottime(), self.now());
        if expected.as_ref().map(|expected| (expected.seq, expected.lease_ms, &expected.demand))
            != Some((report.seq, report.lease_ms, &report.demand))
        {
            self.differs(format!("{report:?} is sent, and {expected:?} by the model"));
        }
        (report.seq, self.rng.millis(0, 30), !self.rng.percent(15))
    }

    fn answered(&mut self, seq: i64, is_recorded: bool) {
        let count = if is_recorded { &mut self.recorded } else { &mut self.failed };
        *count += 1;
        let now = self.now();
        self.model.end(now, seq, is_recorded);
    }
}

fn key(rng: &mut Rng) -> DemandKey {
    DemandKey {
        user: Some(format!("u{}", rng.below(3))),
        ..DemandKey::of_tenant(TenantName::new("t_1").unwrap(), "hive")
    }
}

/// Random sessions begin to wait and leave; returns the state of both in the end.
async fn change(count: &Arc<DemandCount>, compared: &Arc<Mutex<Compared>>, rng: &mut Rng) {
    let mut waiting: Vec<(u64, Arc<WaitingSession>)> = Vec::new();
    for id in 0..CHANGES as u64 {
        let pause = if rng.percent(15) { rng.millis(200, 700) } else { rng.millis(0, 60) };
        tokio::time::sleep(pause).await;
        let mut compared = compared.lock();
        compared.clock.advance(pause);
        compared.skip();
        compared.changed = compared.now();
        if waiting.is_empty() || rng.percent(50) {
            let key = key(rng);
            let now = compared.clock.boottime();
            compared.model.add(&key, id, now);
            waiting.push((id, count.add(key, None)));
        } else {
            let at = rng.index(waiting.len());
            let (session, left) = waiting.swap_remove(at);
            assert_eq!(left.uncount(), compared.model.remove(left.key(), session));
            if rng.percent(30) {
                // The engine was full: it waits again, for as long as before.
                compared.model.add(left.key(), session, left.since);
                waiting.push((session, count.add(left.key().clone(), Some(&left))));
            }
        }
    }
    let mut compared = compared.lock();
    for (session, left) in waiting {
        assert!(left.uncount() && compared.model.remove(left.key(), session));
    }
}

#[tokio::test]
async fn the_model_of_the_demand_reports_like_the_proxy() {
    let clock = ManualClock::at(1_000_000);
    let count = Arc::new(DemandCount::new(clock.clone()));
    let compared = Arc::new(Mutex::new(Compared {
        model: Model::new("proxy".to_owned(), LEASE),
        begun: Instant::now(),
        changed: Duration::ZERO,
        clock,
        rng: Rng::new(1),
        recorded: 0,
        failed: 0,
        first_difference: None,
    }));
    let (records, stop) = (Arc::clone(&compared), CancellationToken::new());
    let record = move |report: DemandReport| {
        let (seq, takes, is_recorded) = records.lock().sent(&report);
        let records = Arc::clone(&records);
        async move {
            tokio::time::sleep(takes).await;
            records.lock().answered(seq, is_recorded);
            if is_recorded { Ok(()) } else { Err(ApiError::Unavailable("no agent".to_owned().into())) }
        }
    };
    let reporting = tokio::spawn(report_with(record, Arc::clone(&count), LEASE, stop.clone()));
    change(&count, &compared, &mut Rng::new(2)).await;
    // Until it is recorded that nothing waits.
    let nothing = *count.version.borrow();
    let mut reported = count.reported.subscribe();
    let is_recorded = |reported: &Reported| reported.version >= nothing && !reported.fails;
    tokio::time::timeout(Duration::from_mins(1), reported.wait_for(is_recorded)).await.unwrap().unwrap();
    tokio::time::sleep(LEASE).await;
    {
        let mut compared = compared.lock();
        assert_eq!(compared.first_difference, None);
        compared.skip();
        let Compared { model, recorded, failed, .. } = &*compared;
        assert!(model.is_reported(model.version()) && model.due().is_none(), "{model:?}");
        assert!(*recorded > 20 && *failed > 3, "{recorded} recorded, {failed} failed");
    }
    stop.cancel();
    reporting.await.unwrap();
}
