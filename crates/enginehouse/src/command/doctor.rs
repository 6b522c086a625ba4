//! `enginehouse doctor`: looks at everything, changes nothing, and says what is wrong and what mends it.
//!
//! Exit status: 0 if nothing is broken (warnings are no breakage), 1 if something is, 2 if it could not look at all.
//!
//! What is in motion is not broken. So when a first look at engines, nodes and rows finds something, it looks again until
//! it is gone, and tells what is still there when [`LOOK_AGAIN_MOST`] or less is over: one session timeout and some
//! ticks, within which an acting master has dealt with everything that is its business. Servers, access lists and
//! whatever else doesn't move by itself is looked at once.

mod agents;
mod alterations;
mod checks;
mod database;
mod durability;
mod facts;
mod observations;
mod orchestrator;
mod orphans;
mod print;
mod proxies;
mod registry;
mod report;
mod slots;
mod target;
mod zookeeper;

use std::process::ExitCode;
use std::time::Duration;

use coordination::{Agent, Session};
use model::clock::utc;
use tokio::time::{Instant, sleep};

use crate::cli::{DoctorArguments, DoctorFormat};
use crate::output::{print_error, print_line};
use crate::roles;
use report::Report;
use target::{CONNECT_DEADLINE, Target, bounded};

/// Something is broken.
const BROKEN: u8 = 1;
/// It could not look.
const BLIND: u8 = 2;
/// The longest time for which what may be in motion is looked at again.
const LOOK_AGAIN_MOST: Duration = Duration::from_secs(30);
/// The pause between two of these looks.
const LOOK_AGAIN_PAUSE: Duration = Duration::from_secs(1);
/// Ticks that an acting master needs at most to deal with what it sees.
const TICKS: u32 = 3;

pub async fn run(arguments: DoctorArguments) -> anyhow::Result<ExitCode> {
    let clock = roles::clock();
    let target = match (&arguments.target.config, &arguments.target.data_dir) {
        (Some(file), None) => Target::of_file(file, &clock).await,
        (None, Some(folder)) => Target::of_standalone(folder, &clock),
        _ => Err(anyhow::anyhow!("say one of --config FILE and --data-dir DIR")),
    };
    let target = match target {
        Ok(target) => target,
        Err(error) => {
            print_error(&format!("enginehouse: {error:#}"));
            return Ok(ExitCode::from(BLIND));
        }
    };
    let report = examine(&target).await;
    let looked_at = format!("{} at {}", target.named, utc(clock.wall_ms()));
    print_line(&match arguments.format {
        DoctorFormat::Text => print::text(&report, &looked_at),
        DoctorFormat::Json => print::json(&report, &looked_at),
    });
    Ok(if report.tally().problems == 0 { ExitCode::SUCCESS } else { ExitCode::from(BROKEN) })
}

async fn examine(target: &Target) -> Report {
    let mut report = Report::default();
    let ((), session, readable) = {
        let (mut of_servers, mut of_database) = (Report::default(), Report::default());
        let looked = tokio::join!(
            zookeeper::servers(target, &mut of_servers),
            target::session(target),
            database::look(target, &mut of_database)
        );
        report.add(of_servers);
        report.add(of_database);
        looked
    };
    zookeeper::nodes(target, session.as_ref(), &mut report).await;
    let agents = agents::look(target, session.as_ref(), &mut report).await;
    let registered = match &session {
        Ok(session) => bounded("reading the discovery namespace", coordination::discovery::list(session)).await,
        Err(_) => Ok((Vec::new(), Vec::new())),
    };
    let registered: Vec<String> = registered.unwrap_or_default().0.into_iter().map(|it| it.address).collect();
    proxies::listen(target, &registered, &mut report).await;
    report.add(what_stays(target, session.as_ref(), &agents, readable).await);
    if let Ok(session) = session {
        // Nothing hangs on it; if it can't be closed in time, the server expires it.
        let _ = tokio::time::timeout(CONNECT_DEADLINE, session.close()).await;
    }
    report.by_cause()
}

/// What may be in motion: looked at until no finding is left that a tick may settle, or until nothing moves any more.
async fn what_stays(target: &Target, session: Result<&Session, &String>, agents: &[Agent], readable: bool) -> Report {
    let ticks = target.configuration.master.tick_interval.0 * TICKS;
    let patience = (target.configuration.zookeeper.session_timeout.0 + ticks).min(LOOK_AGAIN_MOST);
    let until = Instant::now() + patience;
    let mut stays = moving(target, session, agents, readable).await;
    while stays.may_settle() && Instant::now() < until {
        sleep(LOOK_AGAIN_PAUSE).await;
        stays = stays.only_what_stays(moving(target, session, agents, readable).await);
    }
    stays
}

async fn moving(target: &Target, session: Result<&Session, &String>, agents: &[Agent], readable: bool) -> Report {
    let facts = facts::look(target, session, agents, readable).await;
    let mut report = Report::default();
    proxies::master(target, &facts, &mut report);
    orchestrator::look(target, &facts.running, facts.desired.as_ref().ok(), &mut report);
    slots::look(target, &facts, &mut report);
    orphans::look(target, &facts, &mut report);
    registry::look(target, &facts, &mut report);
    alterations::look(target, &facts, &mut report);
    observations::look(target, &facts, &mut report);
    report
}
