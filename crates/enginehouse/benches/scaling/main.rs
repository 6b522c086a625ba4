//! Scaling from no engine to 200 and back under a given load: 2,000 sessions arrive evenly within a minute, stay until all have
//! come and for twenty seconds more, and leave evenly within 40 s. Each needs a seat of an engine with ten. The program is the
//! real one (`standalone`) with its default settings; engines are local processes with DataFusion.
//!
//! Prints how long sessions waited for their first row, how many engines there were compared with how many were needed, and
//! how long the last one stayed; `plot` draws it. Two peers of the same run: the first row of a second statement, which
//! finds its session bound, and the number of engines that the open sessions need at each moment.
//!
//! Run with `cargo bench -p enginehouse --bench scaling -- FILE.svg`, which is a release build. It needs 16 GiB of memory.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, missing_docs)]

mod plot;
#[path = "../standalone/mod.rs"]
mod standalone;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hs2::Session;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant as Timer, sleep, sleep_until, timeout};

use standalone::{Standalone, WITHIN, run};

const ENGINES: usize = 200;
const SEATS: usize = 10;
const SESSIONS: usize = ENGINES * SEATS;
/// Users that the sessions belong to: one may not open as many.
const USERS: usize = 20;
const ARRIVE: Duration = Duration::from_mins(1);
const STAY: Duration = Duration::from_secs(20);
const LEAVE: Duration = Duration::from_secs(40);
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two samples.
const SAMPLE: Duration = Duration::from_millis(500);
/// How long the last engines may take to end.
const ENDED: Duration = Duration::from_mins(3);

/// What was at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// In seconds since the first arrival.
    pub at: f64,
    /// Open sessions, with those that wait.
    pub sessions: usize,
    pub waiting: usize,
    /// Engines that have been created and have not ended, with those that serve.
    pub engines: usize,
    pub serving: usize,
}

impl Sample {
    /// The fewest engines that the open sessions need.
    pub fn needed(&self) -> usize {
        self.sessions.div_ceil(SEATS)
    }
}

/// How long a session waited for its first row, and when it arrived.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    pub at: Duration,
    pub took: Duration,
}

#[derive(Default)]
struct Run {
    sessions: AtomicUsize,
    waiting: AtomicUsize,
    first: Mutex<Vec<Wait>>,
    later: Mutex<Vec<Duration>>,
}

#[tokio::main]
async fn main() {
    let file = std::env::args().skip(1).find(|word| !word.starts_with('-')).map(PathBuf::from);
    let standalone = Arc::new(Standalone::start(&[]));
    let mut admin = standalone.session("admin").await;
    let users: Vec<String> = (0..USERS).map(|user| format!("'user_{user}'")).collect();
    for statement in [
        format!(
            "CREATE RESOURCE UNIT uc_1 ENGINE_TYPE 'datafusion', DRIVER_MEMORY '512M', MAX_ENGINES {ENGINES}, \
             SESSIONS_PER_ENGINE {SEATS}, IDLE_TIMEOUT '{}s'",
            IDLE_TIMEOUT.as_secs()
        ),
        "CREATE RESOURCE POOL rp_1 UNIT_LIST ('uc_1')".to_owned(),
        format!("CREATE TENANT t_1 RESOURCE_POOL_LIST ('rp_1'), USER_LIST ({})", users.join(", ")),
    ] {
        run(&mut admin, &format!("{statement} WAIT '1m'")).await;
    }
    let (measured, began) = (Arc::new(Run::default()), Instant::now());
    let mut sessions = JoinSet::new();
    for number in 0..SESSIONS {
        sessions.spawn(session(Arc::clone(&standalone), Arc::clone(&measured), began, number));
    }
    let mut samples = Vec::new();
    let mut left = None;
    loop {
        let sample = sample(&mut admin, &measured, began).await;
        samples.push(sample);
        while let Some(ended) = sessions.try_join_next() {
            ended.unwrap();
        }
        if sessions.is_empty() {
            let left = *left.get_or_insert(sample.at);
            if sample.engines == 0 {
                break;
            }
            assert!(sample.at - left < ENDED.as_secs_f64(), "{} engines are left after {ENDED:?}", sample.engines);
        }
        sleep(SAMPLE).await;
    }
    let waits = measured.first.lock().clone();
    print(&samples, &waits, &measured.later.lock(), left.unwrap());
    if let Some(file) = file {
        plot::draw(&file, &samples, &waits);
        println!("drawn: {}", file.file_name().unwrap().display());
    }
}

/// One session: its arrival, a statement, its stay, another statement, and its end.
async fn session(standalone: Arc<Standalone>, measured: Arc<Run>, began: Instant, number: usize) {
    let share = number as f64 / SESSIONS as f64;
    let arrives = ARRIVE.mul_f64(share);
    sleep_until(Timer::from_std(began + arrives)).await;
    let mut session = standalone.session(&format!("user_{}", number % USERS)).await;
    measured.sessions.fetch_add(1, Ordering::SeqCst);
    measured.waiting.fetch_add(1, Ordering::SeqCst);
    let took = first_row(&mut session).await;
    measured.waiting.fetch_sub(1, Ordering::SeqCst);
    measured.first.lock().push(Wait { at: arrives, took });
    sleep_until(Timer::from_std(began + ARRIVE + STAY + LEAVE.mul_f64(share))).await;
    let took = first_row(&mut session).await;
    measured.later.lock().push(took);
    session.close().await.unwrap();
    measured.sessions.fetch_sub(1, Ordering::SeqCst);
}

/// From the statement to its first row; the proxy answers the question for its state once it has ended.
async fn first_row(session: &mut Session) -> Duration {
    let began = Instant::now();
    let mut statement = session.execute("SELECT 1").await.unwrap();
    timeout(WITHIN, statement.wait(WITHIN)).await.expect("the statement ends").unwrap();
    assert_eq!(statement.fetch(1).await.unwrap().len(), 1);
    let took = began.elapsed();
    statement.close().await.unwrap();
    took
}

async fn sample(admin: &mut Session, measured: &Run, began: Instant) -> Sample {
    let engines = run(admin, "SHOW ENGINES t_1").await;
    let state = |row: usize| engines.get(row, "state").unwrap().to_string();
    let states: Vec<String> = (0..engines.rows.len()).map(state).collect();
    Sample {
        at: began.elapsed().as_secs_f64(),
        sessions: measured.sessions.load(Ordering::SeqCst),
        waiting: measured.waiting.load(Ordering::SeqCst),
        engines: states.iter().filter(|state| !["pending", "ended"].contains(&state.as_str())).count(),
        serving: states.iter().filter(|state| *state == "ready").count(),
    }
}

fn print(samples: &[Sample], waits: &[Wait], later: &[Duration], left: f64) {
    println!("{SESSIONS} sessions in {ARRIVE:?}, {SEATS} for each engine; least, p50, p99 and most");
    let first: Vec<Duration> = waits.iter().map(|wait| wait.took).collect();
    let cold = spread("the first row of a session", first);
    let bound = spread("the first row of its second statement (the peer)", later.to_vec());
    println!("  the ratio of the middles: {:.1}", cold.as_secs_f64() / bound.as_secs_f64());
    let most = samples.iter().map(|sample| sample.engines).max().unwrap();
    let full = samples.iter().find(|sample| sample.serving == ENGINES).map(|sample| sample.at);
    let area = |of: &dyn Fn(&Sample) -> usize| -> f64 {
        samples.windows(2).map(|pair| of(&pair[0]) as f64 * (pair[1].at - pair[0].at)).sum()
    };
    let (used, needed) = (area(&|sample| sample.engines), area(&Sample::needed));
    println!(
        "  engines at most: {most}; {ENGINES} served {}",
        full.map_or("never".to_owned(), |at| { format!("{at:.1} s after the first arrival") })
    );
    println!("  engine seconds: {used:.0}; needed (the peer): {needed:.0}; ratio {:.2}", used / needed);
    let last = samples.last().unwrap().at;
    println!(
        "  the last engine was gone {:.1} s after the last session, of it the idle timeout {:.1} s",
        last - left,
        IDLE_TIMEOUT.as_secs_f64()
    );
}

fn spread(what: &str, mut times: Vec<Duration>) -> Duration {
    times.sort();
    let at = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1];
    let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
    let (least, middle, high, most) = (times[0], at(50), at(99), times[times.len() - 1]);
    println!("  {what:<50} {:>8.1} {:>8.1} {:>8.1} {:>8.1} ms", ms(least), ms(middle), ms(high), ms(most));
    middle
}
