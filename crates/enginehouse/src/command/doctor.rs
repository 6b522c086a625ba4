//! `enginehouse doctor`: a read-only diagnosis of an installation, with a fix for each finding.
//!
//! Exit status: 0 if there is no problem (warnings do not count), 1 if there is one, 2 if the target cannot be read.
//!
//! Transient states are not findings. If the first run over engines, nodes and rows has findings, the doctor repeats it until
//! they are gone, for at most [`RECHECK_DEADLINE`]: one session timeout and some ticks, within which an acting master has
//! handled everything that it can. Servers, access lists and other static state are checked once.

mod agents;
mod alterations;
mod certificates;
mod checks;
mod database;
mod demand;
mod directory;
mod durability;
mod facts;
mod idle;
mod keys;
mod keytab;
mod ledger;
mod limits;
mod observations;
mod orchestrator;
mod orphans;
mod print;
mod proxies;
mod registry;
mod report;
mod role_files;
mod secrets;
mod slots;
mod target;
mod tokens;
mod unreachable;
mod users_file;
mod zookeeper;

use std::process::ExitCode;
use std::time::Duration;

use coordination::{Agent, Session};
use model::clock::utc;
use tokio::time::{Instant, sleep};

use crate::cli::{DoctorArguments, DoctorFormat};
use crate::output::{print_error, print_line, with_causes};
use crate::roles;
use report::Report;
use target::{CONNECT_DEADLINE, Target, bounded};

/// The exit status if there is a problem.
const BROKEN: u8 = 1;
/// The exit status if the target cannot be read.
const BLIND: u8 = 2;
/// The longest time for which transient state is checked again.
const RECHECK_DEADLINE: Duration = Duration::from_secs(30);
/// The pause between two runs.
const RECHECK_PAUSE: Duration = Duration::from_secs(1);
/// The ticks within which an acting master handles what it observes.
const TICKS: u32 = 3;

pub async fn run(arguments: DoctorArguments) -> anyhow::Result<ExitCode> {
    let clock = roles::clock();
    let target = match (&arguments.target.config, &arguments.target.data_dir) {
        (Some(file), None) => Target::of_file(file, &clock).await,
        (None, Some(folder)) => Target::of_standalone(folder, &clock),
        _ => Err(anyhow::anyhow!("specify one of --config FILE and --data-dir DIR")),
    };
    let target = match target {
        Ok(target) => target,
        Err(error) => {
            print_error(&format!("enginehouse: {}", with_causes(&error)));
            return Ok(ExitCode::from(BLIND));
        }
    };
    let report = diagnose(&target).await;
    let heading = format!("{} at {}", target.named, utc(clock.wall_ms()));
    print_line(&match arguments.format {
        DoctorFormat::Text => print::text(&report, &heading),
        DoctorFormat::Json => print::json(&report, &heading),
    });
    Ok(if report.tally().problems == 0 { ExitCode::SUCCESS } else { ExitCode::from(BROKEN) })
}

async fn diagnose(target: &Target) -> Report {
    let mut report = Report::default();
    let ((), session, found) = {
        let (mut of_servers, mut of_database) = (Report::default(), Report::default());
        let results = tokio::join!(
            zookeeper::servers(target, &mut of_servers),
            target::session(target),
            database::check(target, &mut of_database)
        );
        report.add(of_servers);
        report.add(of_database);
        results
    };
    zookeeper::nodes(target, session.as_ref(), &mut report).await;
    let agents = agents::check(target, session.as_ref(), &mut report).await;
    let registered = match &session {
        Ok(session) => bounded("reading the discovery namespace", coordination::discovery::list(session)).await,
        Err(_) => Ok((Vec::new(), Vec::new())),
    };
    let registered: Vec<String> = registered.unwrap_or_default().0.into_iter().map(|proxy| proxy.address).collect();
    proxies::listen(target, &registered, &mut report).await;
    keys::check(target, session.as_ref(), found.secrets.as_ref(), &mut report).await;
    certificates::check(target, &mut report);
    users_file::check(&target.configuration, &mut report);
    directory::check(&target.configuration, &mut report).await;
    tokens::check(&target.configuration, &mut report).await;
    keytab::check(&target.configuration, &mut report);
    report.add(repeated(target, session.as_ref(), &agents, found.is_readable).await);
    if let Ok(session) = session {
        // A session that is not closed in time is expired by the server.
        let _ = tokio::time::timeout(CONNECT_DEADLINE, session.close()).await;
    }
    report.by_cause()
}

/// Checks transient state until no finding is left that a tick may resolve, or until the deadline.
async fn repeated(target: &Target, session: Result<&Session, &String>, agents: &[Agent], readable: bool) -> Report {
    let ticks = target.configuration.master.tick_interval.0 * TICKS;
    let patience = (target.configuration.zookeeper.session_timeout.0 + ticks).min(RECHECK_DEADLINE);
    let until = Instant::now() + patience;
    let mut report = transient(target, session, agents, readable).await;
    while report.may_resolve() && Instant::now() < until {
        sleep(RECHECK_PAUSE).await;
        report = report.only_repeated(transient(target, session, agents, readable).await);
    }
    report
}

async fn transient(target: &Target, session: Result<&Session, &String>, agents: &[Agent], readable: bool) -> Report {
    let facts = facts::read(target, session, agents, readable).await;
    let mut report = Report::default();
    proxies::master(target, &facts, &mut report);
    orchestrator::check(target, &facts.running, facts.desired.as_ref().ok(), &mut report);
    slots::check(target, &facts, &mut report);
    orphans::check(target, &facts, &mut report);
    unreachable::check(&facts, &mut report);
    demand::check(&facts, &mut report);
    idle::check(target, &facts, &mut report);
    registry::check(target, &facts, &mut report);
    alterations::check(target, &facts, &mut report);
    observations::check(target, &facts, &mut report);
    ledger::check(&facts, &mut report);
    report
}
