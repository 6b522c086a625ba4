//! Golden plan scripts: each file of `tests/scripts` is a story, with the planner's decisions after every command.
//!
//! A line that begins with `> ` is a command, followed by its output. `EH_UPDATE_SCRIPTS=1` rewrites the files; review the
//! difference.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;

use model::slot::Replacement;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use cluster::{Cluster, Step, slot_key};
use model::change::Change;
use model::instance::InstanceKind;
use planner::Plan;

fn options<'a>(words: &[&'a str]) -> BTreeMap<&'a str, &'a str> {
    words.iter().map(|word| word.split_once('=').unwrap_or_else(|| panic!("no = in {word}"))).collect()
}

fn print_plan(out: &mut String, cluster: &Cluster, plan: &Plan) {
    for (at, decision) in cluster.shown(plan).into_iter().enumerate() {
        writeln!(out, "  {}", decision.row(at as u32 + 1)).unwrap();
    }
    for wait in &plan.waits {
        writeln!(out, "  - {}: {}", wait.engine, wait.reason).unwrap();
    }
    for unmet in plan.unmet.iter().flatten() {
        let sessions = if unmet.sessions == 1 { "session" } else { "sessions" };
        writeln!(out, "  - {} {sessions} of {}: {}", unmet.sessions, unmet.key.tenant, unmet.reason).unwrap();
    }
    if let Some(waits_for) = &plan.waits_for {
        writeln!(out, "  waits for {waits_for}").unwrap();
    }
    if plan.chains.is_empty() && plan.waits.is_empty() {
        writeln!(out, "  nothing to do").unwrap();
    }
}

fn change(cluster: &Cluster, words: &[&str]) -> Option<Change> {
    Some(match words {
        ["unit", name, rest @ ..] => cluster.change_to(Cluster::unit(name, &options(rest))),
        ["pool", name, rest @ ..] => cluster.change_to(Cluster::pool(name, &options(rest))),
        ["tenant", name, rest @ ..] => cluster.change_to(Cluster::tenant(name, &options(rest))),
        ["quota", name, rest @ ..] => cluster.change_to(Cluster::quota(name, &options(rest))),
        ["drop", kind, name] => Cluster::drop_change(kind, name),
        _ => return None,
    })
}

fn run(cluster: &mut Cluster, line: &str, out: &mut String) {
    let words: Vec<&str> = line.split_whitespace().collect();
    if let Some(change) = change(cluster, &words) {
        if let Err(error) = cluster.commit(&change) {
            writeln!(out, "  refused: {}", error.message).unwrap();
        }
        return;
    }
    match words.as_slice() {
        ["surge", count] => cluster.simulation.desired.limits.surge = count.parse().unwrap(),
        ["start", link] => writeln!(out, "  {}", cluster.start(link)).unwrap(),
        ["stop", slot] => cluster.stop(&slot_key(slot)),
        ["restart", slot] => cluster.restart(&slot_key(slot), Replacement::StandIn),
        ["restart", slot, "force"] => cluster.restart(&slot_key(slot), Replacement::Force),
        ["plan"] => {
            let plan = cluster.simulation.plan();
            print_plan(out, cluster, &plan);
        }
        ["tick"] => {
            let plan = cluster.simulation.plan();
            print_plan(out, cluster, &plan);
            cluster.simulation.apply(&plan);
        }
        ["tick", "dies-after", count] => {
            let plan = cluster.simulation.plan();
            print_plan(out, cluster, &plan);
            cluster.apply_first_shown(&plan, count.parse().unwrap());
        }
        ["settle"] => cluster.settle(|cluster, step| match step {
            Step::Plan(plan) => print_plan(out, cluster, plan),
            Step::Event(what) => writeln!(out, "  * {what}").unwrap(),
        }),
        ["explain", rest @ ..] => {
            let rows = match change(cluster, rest) {
                Some(change) => cluster.explain(&change).unwrap(),
                None => cluster.explain_now(),
            };
            for row in rows {
                writeln!(out, "  {row}").unwrap();
            }
        }
        ["registers", engine] => {
            let engine = cluster.engine(engine);
            assert!(cluster.simulation.register(&engine), "{engine} may not register");
        }
        ["exits"] => writeln!(out, "  {} exited", cluster.simulation.exit_drained()).unwrap(),
        ["ends", engine, rest @ ..] => {
            let uid = cluster.uid(&cluster.engine(engine));
            cluster.simulation.end(&uid, &rest.join(" "));
        }
        ["vanishes", engine] => {
            let engine = cluster.engine(engine);
            cluster.simulation.observed.instances.retain(|instance| instance.name != engine);
        }
        ["terminates", engine] => {
            let engine = cluster.engine(engine);
            for instance in cluster.simulation.observed.instances.iter_mut().filter(|instance| instance.name == engine)
            {
                instance.phase = model::engine_state::Phase::Terminating;
            }
        }
        ["loses-session", engine] => {
            let engine = cluster.engine(engine);
            cluster.simulation.observed.registrations.retain(|registration| registration.engine != engine);
        }
        ["lose-zookeeper"] => cluster.lose_zookeeper(),
        ["pass", ms] => cluster.simulation.advance(time(ms)),
        ["label", engine, label, value] => {
            let engine = cluster.engine(engine);
            for instance in cluster.simulation.observed.instances.iter_mut().filter(|instance| instance.name == engine)
            {
                std::sync::Arc::make_mut(&mut instance.labels).insert((*label).to_owned(), (*value).to_owned());
            }
        }
        ["needs-nodes"] => cluster.simulation.desired.defaults.instances = InstanceKind::Pod,
        ["labels", node, labels] => {
            drop(cluster.simulation.observed.nodes.insert((*node).to_owned(), cluster::labels(labels)));
        }
        ["node", engine, node] => {
            let engine = cluster.engine(engine);
            for instance in cluster.simulation.observed.instances.iter_mut().filter(|instance| instance.name == engine)
            {
                instance.node = Some((*node).to_owned());
            }
        }
        ["unready", node, ms, rest @ ..] => {
            let unready = planner::UnreadyNode { lasted: time(ms), is_absent: !rest.is_empty() };
            cluster.simulation.observed.unready.insert((*node).to_owned(), unready);
        }
        ["returns", node] => drop(cluster.simulation.observed.unready.remove(*node)),
        ["registry", state] => cluster.simulation.observed.registry_complete = *state == "complete",
        ["polls"] => cluster.polls_agents = true,
        ["waiting", tenant, sessions] => cluster.wait(tenant, sessions.parse().unwrap()),
        ["sessions", engine, sessions] => {
            cluster.load(&cluster.engine(engine), sessions.parse().unwrap(), Duration::ZERO);
        }
        ["idle", engine, ms] => cluster.load(&cluster.engine(engine), 0, time(ms)),
        ["reservations"] => {
            for reservation in cluster.simulation.desired.snapshot.ledger.reservations() {
                writeln!(out, "  {} {}", reservation.id(), reservation.state).unwrap();
            }
        }
        ["refused", engine, failures, rest @ ..] => {
            let failures: u32 = failures.parse().unwrap();
            let retry_in = planner::back_off(failures.saturating_sub(1));
            let failure = planner::CreateFailure { reason: rest.join(" "), failures, retry_in, is_retryable: true };
            let engine = cluster.engine(engine);
            cluster.simulation.observed.create_failures.insert(engine, failure);
        }
        ["allowed", engine] => {
            let engine = cluster.engine(engine);
            cluster.simulation.observed.create_failures.remove(&engine);
        }
        ["late-create", engine] => {
            let engine = cluster.engine(engine);
            assert!(cluster.late_create(&engine), "the catalog has its unit and pool");
        }
        ["loses-row", engine] => {
            let engine = cluster.engine(engine);
            cluster.simulation.desired.snapshot.engines.retain(|record| record.name != engine);
        }
        ["silent", engine, ms, rest @ ..] => {
            let engine = cluster.engine(engine);
            let (uid, lasted) = (cluster.uid(&engine), time(ms));
            let silent = rest.first().map_or(lasted, |ms| time(ms));
            let seen = planner::Unregistered { uid, lasted, silent: Some(silent) };
            cluster.simulation.observed.unregistered.insert(engine, seen);
        }
        ["due"] => {
            let due_ms = cluster.simulation.plan().waits.iter().filter_map(|wait| wait.until_ms).min();
            let left = due_ms.map(|due_ms| due_ms - cluster.simulation.desired.snapshot.now_ms);
            writeln!(out, "  {left:?}").unwrap();
        }
        ["answers", engine] => {
            let engine = cluster.engine(engine);
            cluster.simulation.observed.unregistered.get_mut(&engine).unwrap().silent = None;
        }
        ["runs", engine] => {
            let engine = cluster.engine(engine);
            for instance in cluster.simulation.observed.instances.iter_mut().filter(|instance| instance.name == engine)
            {
                instance.phase = model::engine_state::Phase::Running;
            }
        }
        ["cut-off", engine] => {
            let engine = cluster.engine(engine);
            cluster
                .simulation
                .observed
                .instances
                .iter_mut()
                .filter(|instance| instance.name == engine)
                .for_each(|instance| instance.incomplete = true);
        }
        ["from-generation", engine, generation] => {
            let engine = cluster.engine(engine);
            for instance in cluster.simulation.observed.instances.iter_mut().filter(|instance| instance.name == engine)
            {
                instance.generation = Some(model::Generation(generation.parse().unwrap()));
            }
        }
        ["show"] => {
            for row in cluster.simulation.plan().rows {
                let state = row.state();
                writeln!(out, "  {} {state} {}", row.name, row.reason.as_deref().unwrap_or_default()).unwrap();
            }
        }
        other => panic!("no command {other:?}"),
    }
}

fn run_file(path: &Path) -> (String, String) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut cluster = Cluster::new();
    let mut out = String::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("> ") {
            writeln!(out, "> {command}").unwrap();
            run(&mut cluster, command, &mut out);
        } else if line.starts_with('#') || line.is_empty() {
            writeln!(out, "{line}").unwrap();
        }
    }
    (text, out)
}

#[test]
fn every_script_runs_as_recorded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 12, "scripts are missing: {files:?}");
    let update = std::env::var_os("EH_UPDATE_SCRIPTS").is_some();
    let mut different = Vec::new();
    for path in files {
        let (expected, actual) = run_file(&path);
        if expected == actual {
            continue;
        }
        if update {
            std::fs::write(&path, actual).unwrap();
        } else {
            let first = expected.lines().zip(actual.lines()).find(|(one, other)| one != other);
            different.push(format!("{}: {first:?}\n--- actual:\n{actual}", path.display()));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// A number of milliseconds.
fn time(text: &str) -> Duration {
    Duration::from_millis(text.parse().unwrap())
}
