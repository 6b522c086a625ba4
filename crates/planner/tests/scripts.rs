//! Golden scripts: each file of `tests/scripts` is a play, with what the planner decided after every line.
//!
//! A line that begins with `> ` is a command; what follows up to the next one is what it printed. With
//! `EH_UPDATE_SCRIPTS=1` the files are written anew; review the difference.
#![allow(clippy::unwrap_used, clippy::panic)]

mod play;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use model::change::Change;
use planner::Plan;
use play::{Play, Step, slot_key};

fn options<'a>(words: &[&'a str]) -> BTreeMap<&'a str, &'a str> {
    words.iter().map(|word| word.split_once('=').unwrap_or_else(|| panic!("no = in {word}"))).collect()
}

fn print_plan(out: &mut String, plan: &Plan) {
    for (at, decision) in plan.decisions().enumerate() {
        writeln!(out, "  {}", decision.row(at as u32 + 1)).unwrap();
    }
    for wait in &plan.waits {
        writeln!(out, "  - {}: {}", wait.engine, wait.reason).unwrap();
    }
    if let Some(waits_for) = &plan.waits_for {
        writeln!(out, "  waits for {waits_for}").unwrap();
    }
    if plan.chains.is_empty() && plan.waits.is_empty() {
        writeln!(out, "  nothing to do").unwrap();
    }
}

fn change(play: &Play, words: &[&str]) -> Option<Change> {
    Some(match words {
        ["unit", name, rest @ ..] => play.change_to(Play::unit(name, &options(rest))),
        ["pool", name, rest @ ..] => play.change_to(Play::pool(name, &options(rest))),
        ["tenant", name, rest @ ..] => play.change_to(Play::tenant(name, &options(rest))),
        ["drop", kind, name] => Play::drop_change(kind, name),
        _ => return None,
    })
}

fn run(play: &mut Play, line: &str, out: &mut String) {
    let words: Vec<&str> = line.split_whitespace().collect();
    if let Some(change) = change(play, &words) {
        if let Err(error) = play.commit(&change) {
            writeln!(out, "  refused: {}", error.message).unwrap();
        }
        return;
    }
    match words.as_slice() {
        ["surge", count] => play.world.desired.limits.surge = count.parse().unwrap(),
        ["start", link] => writeln!(out, "  {}", play.start(link)).unwrap(),
        ["stop", slot] => play.stop(&slot_key(slot)),
        ["restart", slot] => play.restart(&slot_key(slot), false),
        ["restart", slot, "force"] => play.restart(&slot_key(slot), true),
        ["plan"] => print_plan(out, &play.world.plan()),
        ["tick"] => {
            let plan = play.world.plan();
            print_plan(out, &plan);
            play.world.apply(&plan);
        }
        ["tick", "dies-after", count] => {
            let plan = play.world.plan();
            print_plan(out, &plan);
            play.apply_first(&plan, count.parse().unwrap());
        }
        ["settle"] => play.settle(|_, step| match step {
            Step::Plan(plan) => print_plan(out, plan),
            Step::World(what) => writeln!(out, "  * {what}").unwrap(),
        }),
        ["explain", rest @ ..] => {
            let rows = match change(play, rest) {
                Some(change) => play.explain(&change).unwrap(),
                None => play.explain_now(),
            };
            for row in rows {
                writeln!(out, "  {row}").unwrap();
            }
        }
        ["registers", engine] => {
            let engine = play.engine(engine);
            assert!(play.world.register(&engine), "{engine} may not register");
        }
        ["exits"] => writeln!(out, "  {} exited", play.world.exit_drained()).unwrap(),
        ["ends", engine, rest @ ..] => {
            let uid = play.uid(&play.engine(engine));
            play.world.end(&uid, &rest.join(" "));
        }
        ["vanishes", engine] => {
            let engine = play.engine(engine);
            play.world.observed.pods.retain(|pod| pod.name != engine);
        }
        ["terminates", engine] => {
            let engine = play.engine(engine);
            for pod in play.world.observed.pods.iter_mut().filter(|pod| pod.name == engine) {
                pod.phase = model::engine_state::Phase::Terminating;
            }
        }
        ["loses-session", engine] => {
            let engine = play.engine(engine);
            play.world.observed.lives.retain(|live| live.engine != engine);
        }
        ["lose-zookeeper"] => play.lose_zookeeper(),
        ["pass", ms] => play.world.pass(ms.parse().unwrap()),
        ["label", engine, label, value] => {
            let engine = play.engine(engine);
            for pod in play.world.observed.pods.iter_mut().filter(|pod| pod.name == engine) {
                std::sync::Arc::make_mut(&mut pod.labels).insert((*label).to_owned(), (*value).to_owned());
            }
        }
        ["needs-nodes"] => play.world.desired.defaults.needs_nodes = true,
        ["labels", node, labels] => drop(play.world.observed.nodes.insert((*node).to_owned(), play::labels(labels))),
        ["node", engine, node] => {
            let engine = play.engine(engine);
            for pod in play.world.observed.pods.iter_mut().filter(|pod| pod.name == engine) {
                pod.node = Some((*node).to_owned());
            }
        }
        ["refused", engine, failures, rest @ ..] => {
            let trouble = planner::Trouble { reason: rest.join(" "), failures: failures.parse().unwrap(), age_ms: 0 };
            let engine = play.engine(engine);
            play.world.observed.troubles.insert(engine, trouble);
        }
        ["allowed", engine] => {
            let engine = play.engine(engine);
            play.world.observed.troubles.remove(&engine);
        }
        ["late-create", engine] => {
            let engine = play.engine(engine);
            assert!(play.late_create(&engine), "the catalog has its unit and pool");
        }
        ["loses-row", engine] => {
            let engine = play.engine(engine);
            play.world.desired.snapshot.engines.retain(|record| record.name != engine);
        }
        ["silent", engine, ms, rest @ ..] => {
            let engine = play.engine(engine);
            let (uid, for_ms) = (play.uid(&engine), ms.parse().unwrap());
            let silent_ms = rest.first().map_or(for_ms, |ms| ms.parse().unwrap());
            let seen = planner::Unregistered { uid, for_ms, silent_ms: Some(silent_ms) };
            play.world.observed.unregistered.insert(engine, seen);
        }
        ["due"] => {
            let due_ms = play.world.plan().waits.iter().filter_map(|wait| wait.until_ms).min();
            let left = due_ms.map(|due_ms| due_ms - play.world.desired.snapshot.now_ms);
            writeln!(out, "  {left:?}").unwrap();
        }
        ["answers", engine] => {
            let engine = play.engine(engine);
            play.world.observed.unregistered.get_mut(&engine).unwrap().silent_ms = None;
        }
        ["runs", engine] => {
            let engine = play.engine(engine);
            for pod in play.world.observed.pods.iter_mut().filter(|pod| pod.name == engine) {
                pod.phase = model::engine_state::Phase::Running;
            }
        }
        ["cut-off", engine] => {
            let engine = play.engine(engine);
            play.world.observed.pods.iter_mut().filter(|pod| pod.name == engine).for_each(|pod| pod.incomplete = true);
        }
        ["from-generation", engine, generation] => {
            let engine = play.engine(engine);
            for pod in play.world.observed.pods.iter_mut().filter(|pod| pod.name == engine) {
                pod.generation = Some(model::Generation(generation.parse().unwrap()));
            }
        }
        ["show"] => {
            for row in play.world.plan().report {
                let state = model::engine_state::EngineState::from_observed(&row);
                writeln!(out, "  {} {state} {}", row.name, row.reason.as_deref().unwrap_or_default()).unwrap();
            }
        }
        other => panic!("no command {other:?}"),
    }
}

fn play_file(path: &Path) -> (String, String) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut play = Play::new();
    let mut out = String::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("> ") {
            writeln!(out, "> {command}").unwrap();
            run(&mut play, command, &mut out);
        } else if line.starts_with('#') || line.is_empty() {
            writeln!(out, "{line}").unwrap();
        }
    }
    (text, out)
}

#[test]
fn every_script_plays_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 12, "scripts are missing: {files:?}");
    let update = std::env::var_os("EH_UPDATE_SCRIPTS").is_some();
    let mut different = Vec::new();
    for path in files {
        let (expected, played) = play_file(&path);
        if expected == played {
            continue;
        }
        if update {
            std::fs::write(&path, played).unwrap();
        } else {
            let first = expected.lines().zip(played.lines()).find(|(one, other)| one != other);
            different.push(format!("{}: {first:?}\n--- played:\n{played}", path.display()));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
