//! The time from a statement to its first row: on a tenant without an engine, where connecting starts one; with START ENGINE … WAIT
//! before the statement; and on an engine that runs, which is the peer. The program is the real one (`standalone`), with a client
//! over its port. Every round measures all three, on engines that end before the next one begins.
//!
//! Run with `cargo bench -p enginehouse --bench first_row`, which is a release build.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod standalone;

use std::time::{Duration, Instant};

use hs2::Session;
use hs2::session::StatementProgress;

use standalone::{Standalone, WITHIN, run};

const ROUNDS: usize = 21;
/// The time to the first row of a cold engine.
const TARGET: Duration = Duration::from_millis(120);
/// A client that asks often measures the server and not its own pauses.
const POLL: Duration = Duration::from_millis(1);

/// From the statement to its first row.
async fn first_row(session: &mut Session) -> Duration {
    let began = Instant::now();
    let mut statement = session.execute("SELECT 1").await.unwrap();
    while matches!(statement.poll().await.unwrap(), StatementProgress::Running) {
        assert!(began.elapsed() < WITHIN);
        tokio::time::sleep(POLL).await;
    }
    assert_eq!(statement.fetch(1).await.unwrap().len(), 1);
    let took = began.elapsed();
    statement.close().await.unwrap();
    took
}

/// Ends the only engine of the tenant.
async fn end_engine(admin: &mut Session) {
    let engines = run(admin, "SHOW ENGINES t_1").await;
    let name = engines.get(0, "engine").unwrap().as_text().unwrap().to_owned();
    run(admin, &format!("STOP ENGINE rp_1 '{name}' WITHIN '0s' WAIT '1m'")).await;
}

fn print(what: &str, times: &mut [Duration]) -> Duration {
    times.sort();
    let (least, middle, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
    let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
    println!("{what:<44} {:>8.1} {:>8.1} {:>8.1} ms", ms(least), ms(middle), ms(most));
    middle
}

#[tokio::main]
async fn main() {
    let standalone = Standalone::start(&[]);
    let mut admin = standalone.session("admin").await;
    for statement in [
        "CREATE RESOURCE UNIT uc_1 ENGINE_TYPE 'datafusion', DRIVER_MEMORY '512M', MAX_ENGINES 1, START_ON_DEMAND TRUE",
        "CREATE RESOURCE POOL rp_1 UNIT_LIST ('uc_1')",
        "CREATE TENANT t_1 RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('ann')",
    ] {
        run(&mut admin, &format!("{statement} WAIT '1m'")).await;
    }
    let (mut by_connecting, mut by_start, mut warm) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut ann = standalone.session("ann").await;
        by_connecting.push(first_row(&mut ann).await);
        warm.push(first_row(&mut ann).await);
        ann.close().await.unwrap();
        end_engine(&mut admin).await;

        let mut ann = standalone.session("ann").await;
        let began = Instant::now();
        run(&mut admin, "START ENGINE t_1 rp_1 uc_1 WAIT '1m'").await;
        let started = began.elapsed();
        by_start.push(started + first_row(&mut ann).await);
        ann.close().await.unwrap();
        end_engine(&mut admin).await;
    }
    println!("from the statement to its first row, {ROUNDS} rounds: least, middle and most");
    let middle = print("by connecting, without an engine", &mut by_connecting);
    let started = print("with START ENGINE … WAIT first", &mut by_start);
    let peer = print("on an engine that runs (the peer)", &mut warm);
    let times = |of: Duration| of.as_secs_f64() / peer.as_secs_f64();
    println!("by connecting: {:.1} times the peer; with START: {:.1} times", times(middle), times(started));
    let met = by_connecting.iter().filter(|time| **time <= TARGET).count();
    println!("rounds that reach the target of {TARGET:?}: {met} of {ROUNDS}");
}
