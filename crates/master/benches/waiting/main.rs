//! The time from the statement of a session that has no engine to the create call at the orchestrator, beside 1,000 and
//! 10,000 engines at rest. The peer, in turns in the same run, is START ENGINE, which takes the same way without demand.
//!
//! Real are the proxy with its client, the metadata agent with SQLite in a file, the embedded ZooKeeper and the master with its
//! default settings; engines are entries of the orchestrator's fake. Each waiting session needs an engine of its own
//! (`SHARED_BY 'session'`). A turn begins when the engine of the turn before has ended and the master rests; without that rest a turn
//! also waits for the ticks of the one before, which is measured too.
//!
//! Run with `cargo bench -p master --bench waiting`, which is a release build, or with `-- 1000 50` for one size and
//! number of rounds.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "../../../engine-agent/tests/fixture/agents.rs"]
mod agents;
mod engines;
#[path = "../../../engine-agent/tests/fixture/mod.rs"]
mod fixture;
#[allow(dead_code)]
#[path = "../../tests/shared_pools/installation.rs"]
mod installation;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hs2::Session;
use model::EngineName;
use model::change::Rules;
use model::instance::InstanceKind;
use orchestrator::Orchestrator;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use agents::{column, run};
use installation::{Database, Installation};

/// Engines at rest, the waiting sessions, unless the arguments say otherwise, and whether the target is one for so many. As many
/// engines are started by statements.
const SIZES: [(usize, usize, bool); 2] = [(1_000, 100, true), (10_000, 20, false)];
/// Tenants that share them.
const TENANTS: usize = 10;
/// How long a master that rests has not ticked. Its timer is slower.
const REST: Duration = Duration::from_millis(500);
/// What 99 of 100 waiting sessions reach beside 1,000 engines.
const TARGET: Duration = Duration::from_millis(300);
/// How long the engines at rest may take to be created and registered.
const AT_REST: Duration = Duration::from_mins(10);
/// The longest that a create call is waited for.
const CREATED: Duration = Duration::from_secs(30);

type Created = mpsc::Receiver<(EngineName, Instant)>;

#[tokio::main]
async fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    for (engines, rounds, has_target) in SIZES {
        if numbers.first().is_none_or(|only| *only == engines) {
            measure(engines, numbers.get(1).copied().unwrap_or(rounds), has_target).await;
        }
    }
}

async fn measure(at_rest: usize, rounds: usize, has_target: bool) {
    let mut rules = Rules { max_engines: at_rest + 4 * rounds, ..Rules::default() };
    rules.defaults.instances = InstanceKind::Process;
    let began = Instant::now();
    let (sender, mut registered) = watch::channel(0);
    let mut receiver = None;
    let installation =
        Installation::with(Database::Sqlite, rules, master::Settings::default(), &[], |fixture, memory| {
            let (orchestrator, created) = engines::observed(memory);
            receiver = Some(created);
            let (settings, clock) = (engines::identity(fixture), Arc::clone(&fixture.clock));
            let agents = engines::register_those_at_rest(settings, clock, at_rest, sender);
            (orchestrator as Arc<dyn Orchestrator>, agents)
        })
        .await;
    let mut created = receiver.unwrap();
    let mut admin = found(&installation, at_rest, rounds).await;
    let all = registered.wait_for(|number| *number == at_rest);
    timeout(AT_REST, all).await.expect("all engines are registered").unwrap();
    // Until its registry is known to be complete, a new master adds no engine while one that runs is not registered.
    sleep(master::Settings::default().limits.session_timeout).await;
    installation.ticks().await;
    println!("{at_rest} engines are registered after {:.1} s", began.elapsed().as_secs_f64());
    for (how, rests) in [("each after a rest", true), ("one after the other", false)] {
        let (mut waiting, mut by_statement) = (Vec::new(), Vec::new());
        for turn in 0..2 * rounds {
            if rests {
                rest(&installation).await;
            }
            // In turns, and each as often after the other as after its like.
            if turn % 4 == 0 || turn % 4 == 3 {
                waiting.push(wait(&installation, &mut created).await);
            } else {
                by_statement.push(start(&mut admin, &mut created).await);
            }
        }
        println!("{at_rest} engines at rest, {rounds} rounds, {how}; least, p50, p99 and most");
        let connecting = print("from a waiting session to the create call", &mut waiting);
        let starting = print("from START ENGINE to the create call (the peer)", &mut by_statement);
        println!("  the ratio of the middles: {:.2}", connecting.0.as_secs_f64() / starting.0.as_secs_f64());
        if has_target && rests {
            let met = if connecting.1 < TARGET { "met" } else { "missed" };
            println!("  target: p99 below {TARGET:?}: {met}");
        }
    }
}

/// Waits until the master has nothing to do.
async fn rest(installation: &Installation) {
    let mut state = installation.master.state();
    while timeout(REST, state.changed()).await.is_ok() {}
}

/// The engines at rest, and the tenant whose sessions wait.
async fn found(installation: &Installation, at_rest: usize, rounds: usize) -> Session {
    // An engine that was started in vain goes only some time after its session.
    let (engines, most) = (at_rest / TENANTS, 2 * rounds);
    let mut admin = installation.session("admin").await;
    let size = "ENGINE_TYPE 'datafusion', DRIVER_MEMORY '512M'";
    for statement in [
        format!(
            "CREATE RESOURCE UNIT rest {size}, MIN_ENGINES {engines}, MAX_ENGINES {engines}, START_ON_DEMAND FALSE"
        ),
        "CREATE RESOURCE POOL rest UNIT_LIST ('rest')".to_owned(),
        format!("CREATE RESOURCE UNIT waiting {size}, MAX_ENGINES {most}, SHARED_BY 'session'"),
        format!("CREATE RESOURCE UNIT started {size}, MAX_ENGINES {most}, START_ON_DEMAND FALSE"),
        "CREATE RESOURCE POOL rp_1 UNIT_LIST ('waiting', 'started')".to_owned(),
        "CREATE TENANT t_1 RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('ann', 'admin')".to_owned(),
    ] {
        run(&mut admin, &statement).await;
    }
    for tenant in 0..TENANTS {
        run(&mut admin, &format!("CREATE TENANT rest_{tenant} RESOURCE_POOL_LIST ('rest')")).await;
    }
    admin
}

/// The time of the next create call.
async fn next(created: &mut Created) -> Instant {
    timeout(CREATED, created.recv()).await.expect("a create call").unwrap().1
}

/// From the statement of a new session to the create call. The session closes with its statement.
async fn wait(installation: &Installation, created: &mut Created) -> Duration {
    let mut ann = installation.session("ann").await;
    drain(created);
    let began = Instant::now();
    let statement = ann.execute("SELECT 1").await.unwrap();
    let took = next(created).await - began;
    drop(statement);
    ann.close().await.unwrap();
    took
}

/// From START ENGINE to the create call. The engine is stopped.
async fn start(admin: &mut Session, created: &mut Created) -> Duration {
    drain(created);
    let began = Instant::now();
    let answer = run(admin, "START ENGINE t_1 rp_1 started").await;
    let took = next(created).await - began;
    let engine = column(&answer, "engine").remove(0);
    run(admin, &format!("STOP ENGINE rp_1 '{engine}' WITHIN '0s'")).await;
    took
}

/// Forgets the create calls so far.
fn drain(created: &mut Created) {
    while created.try_recv().is_ok() {}
}

/// Prints the times; their p50 and p99.
fn print(what: &str, times: &mut [Duration]) -> (Duration, Duration) {
    times.sort();
    let at = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1];
    let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
    let (least, middle, high, most) = (times[0], at(50), at(99), times[times.len() - 1]);
    println!("  {what:<48} {:>7.1} {:>7.1} {:>7.1} {:>7.1} ms", ms(least), ms(middle), ms(high), ms(most));
    (middle, high)
}
