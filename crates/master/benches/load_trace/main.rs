//! The load trace: tenants that ask for engines of three sizes for less than a second or a second each, faster than the
//! pool can serve them.
//!
//! Real are the metadata agent with its database, the embedded ZooKeeper, the master with its default settings, and the
//! sessions of the engine agents; the engines are entries of the orchestrator's fake. Each request is START ENGINE, the use
//! of the engine from when it is registered, and STOP ENGINE. No proxy takes part.
//!
//! Two peers, in the same run: the lower bound, which follows from the trace alone, and the same trace in virtual time
//! (`ideal`). Run with `cargo bench -p master --bench load_trace -- WORDS`, with any of these:
//!
//! - `database=sqlite`, `database=postgres` (`EH_TEST_POSTGRES`) or `database=mariadb` (`EH_TEST_MARIADB`)
//! - `guarantees`: each tenant is guaranteed its part of the pool and borrows; otherwise no tenant has a quota
//! - `tenants=30 percent=100 seed=1`: fewer tenants in a smaller pool, and a part of each tenant's requests in the same
//!   part of the time
//! - `ideal`: only in virtual time
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[allow(dead_code)]
#[path = "../../../agent-api/tests/agent/mod.rs"]
mod agent;
mod catalog;
mod engines;
mod ideal;
mod installation;
mod outcome;
mod schedule;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant as Timer, sleep, sleep_until, timeout};

use engines::Life;
use installation::Installation;
use outcome::{Outcome, Served, spread};
use schedule::{Request, SHAPES, Trace};

/// Statements of one kind that clients run at once.
const STATEMENTS: usize = 16;
/// The guaranteed CPU of each tenant, if any is.
const GUARANTEED: i64 = 20;
/// The longest that a request may take.
const REQUEST_DEADLINE: Duration = Duration::from_mins(15);
/// How long the last charges may take to be returned.
const RETURN_DEADLINE: Duration = Duration::from_mins(2);

/// What a request spent in which step.
#[derive(Debug, Clone, Copy)]
struct Steps {
    /// Its turn and START.
    start: Duration,
    /// Until its instance was created.
    create: Duration,
    /// Until it was registered.
    register: Duration,
    /// Its turn and STOP.
    stop: Duration,
    /// Until the agent had its drain order.
    order: Duration,
    /// Until its instance was gone.
    end: Duration,
}

struct Run {
    installation: Installation,
    began: Instant,
    starts: Semaphore,
    stops: Semaphore,
    served: Mutex<Vec<(Served, Steps)>>,
}

impl Run {
    /// Serves one request.
    async fn serve(&self, request: Request) {
        sleep_until(Timer::from_std(self.began + request.at)).await;
        let arrived = Instant::now();
        let engine = {
            let _turn = self.starts.acquire().await.unwrap();
            self.installation.start(&request).await
        };
        let started = Instant::now();
        let mut life = self.installation.engines.life(&engine);
        let ready = life.wait_for(|life| life.ready.is_some()).await.unwrap().ready.unwrap();
        sleep_until(Timer::from_std(ready + request.runs())).await;
        let used = Instant::now();
        {
            let _turn = self.stops.acquire().await.unwrap();
            self.installation.stop(&request, &engine).await;
        }
        let stopped = Instant::now();
        let Life { created, ordered, gone, .. } = *life.wait_for(|life| life.gone.is_some()).await.unwrap();
        let (created, ordered, gone) = (created.unwrap(), ordered.unwrap(), gone.unwrap());
        let at = |moment: Instant| moment.saturating_duration_since(self.began);
        let served = Served { request, began: at(ready), ended: at(used), instance: (at(created), at(gone)) };
        let steps = Steps {
            start: started - arrived,
            create: created.saturating_duration_since(started),
            register: ready.saturating_duration_since(created),
            stop: stopped - used,
            order: ordered.saturating_duration_since(stopped),
            end: gone.saturating_duration_since(ordered),
        };
        self.served.lock().push((served, steps));
    }
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str, default: usize| value(name).map_or(default, |value| value.parse().unwrap());
    let has = |name: &str| words.iter().any(|word| word == name);
    let (seed, percent) = (number("seed", 1) as u64, number("percent", 100));
    let trace = Trace::new(seed, number("tenants", 30), percent);
    let guaranteed = has("guarantees").then_some(GUARANTEED);
    println!(
        "seed {seed}: {} requests of {} tenants on {} CPU; {percent} % of each: {}",
        trace.requests.len(),
        trace.tenants,
        trace.cores,
        SHAPES.map(|shape| format!("{} of {} CPU for {:?}", shape.requests, shape.cores, shape.runs)).join(", ")
    );
    let quotas = guaranteed.map_or("no tenant has a quota".to_owned(), |cores| {
        format!("each tenant is guaranteed {cores} CPU and may borrow")
    });
    println!("{quotas}; three numbers are the least, the middle and the most");
    println!("the lower bound: {:.1} s", trace.lower_bound().as_secs_f64());
    let began = Instant::now();
    ideal::play(&trace, guaranteed).print("in virtual time, with rounds of admission at 50 ms");
    println!("  computed in {:.1?}", began.elapsed());
    if !has("ideal") {
        play(&trace, guaranteed, value("database").unwrap_or("sqlite")).await;
    }
}

/// Plays the trace in an installation.
async fn play(trace: &Trace, guaranteed: Option<i64>, database: &str) {
    let folder = tempfile::tempdir().unwrap();
    let settings = installation::database(database, folder.path()).await;
    let installation = Installation::new(folder.path(), &settings, trace, guaranteed).await;
    let ticks = installation.ticks();
    let run = Arc::new(Run {
        installation,
        began: Instant::now(),
        starts: Semaphore::new(STATEMENTS),
        stops: Semaphore::new(STATEMENTS),
        served: Mutex::default(),
    });
    let mut requests = JoinSet::new();
    for request in trace.requests.iter().copied() {
        let run = Arc::clone(&run);
        requests.spawn(async move {
            let served = timeout(REQUEST_DEADLINE, run.serve(request)).await;
            served.unwrap_or_else(|_| panic!("not in time: {request:?}"));
        });
    }
    while let Some(served) = requests.join_next().await {
        served.unwrap();
    }
    let ticks = run.installation.ticks() - ticks;
    let last = run.began.elapsed();
    let returned = timeout(RETURN_DEADLINE, async {
        while run.installation.charged().await > 0 {
            sleep(Duration::from_millis(50)).await;
        }
    });
    returned.await.expect("all charges are returned");
    let returned = run.began.elapsed();
    let run = Arc::into_inner(run).expect("all requests are served");
    let (served, steps): (Vec<Served>, Vec<Steps>) = run.served.into_inner().into_iter().unzip();
    let outcome = Outcome { trace, served };
    assert_eq!(outcome.served.len(), trace.requests.len());
    assert!(outcome.most_cores() <= trace.cores as i64, "{} CPU at once", outcome.most_cores());
    outcome.print(&format!("through master and {database}"));
    println!(
        "  the last instance was gone after {:.1} s, and the last charge after {:.1} s",
        last.as_secs_f64(),
        returned.as_secs_f64()
    );
    println!(
        "  {ticks} ticks, {:.0} ms each; statements that were run again: {}",
        1_000. * last.as_secs_f64() / ticks.max(1) as f64,
        run.installation.retries.load(Ordering::SeqCst)
    );
    let print = |what: &str, step: fn(&Steps) -> Duration| {
        let (least, middle, most) = spread(steps.iter().map(|steps| step(steps).as_secs_f64()));
        println!("  seconds {what}: {least:.3} {middle:.3} {most:.3}");
    };
    print("of START, with its turn", |steps| steps.start);
    print("until the instance was created", |steps| steps.create);
    print("until it was registered", |steps| steps.register);
    print("of STOP, with its turn", |steps| steps.stop);
    print("until it had its drain order", |steps| steps.order);
    print("until it was gone", |steps| steps.end);
    run.installation.shutdown().await;
}
