//! What stands in ZooKeeper for engines: registrations, permits, drain facts.

use coordination::PermitNode;
use model::clock::utc;

use super::checks::{DRAIN_FACTS, PERMITS, REGISTRATIONS};
use super::facts::{Coordinated, Desired, Facts, Running, is_alive};
use super::report::{Finding, Report};
use super::target::Target;

/// Looks at the nodes of engines.
pub fn look(target: &Target, facts: &Facts, report: &mut Report) {
    let (Ok(desired), Ok(coordinated), Ok(running)) = (&facts.desired, &facts.coordinated, &facts.running) else {
        return report.skip(&[REGISTRATIONS, PERMITS, DRAIN_FACTS], &facts.missing());
    };
    let root = &target.configuration.zookeeper.root;
    registrations(root, coordinated, running, report);
    permits(root, desired, coordinated, running, report);
    drain_facts(root, coordinated, running, report);
}

fn registrations(root: &str, coordinated: &Coordinated, running: &Running, report: &mut Report) {
    let mut findings = Vec::new();
    let mut count = 0;
    for permit in &coordinated.nodes.permits {
        let Some(live) = &permit.registration else { continue };
        count += 1;
        let path = format!("{root}/engines/{}/live", permit.engine);
        let mut wrong = |what: String| {
            let mend = "it goes with its session; an engine agent registers anew by itself, and the acting master takes away \
                        what is left over";
            findings.push(Finding::problem(&path, what, mend));
        };
        match &live.content {
            Err(reason) => wrong(format!("it can't be read: {reason}")),
            Ok(it) if Some(it.uid.as_str()) != permit.uid() => {
                let admits = permit.uid().unwrap_or("nobody yet");
                wrong(format!("uid {} registered, and the permit admits {admits}", it.uid));
            }
            Ok(it) => match running.listing.find(&permit.engine) {
                Some(engine) if engine.uid == it.uid && is_alive(engine) => {}
                Some(engine) if engine.uid == it.uid => wrong(format!("the engine of its uid is {}", engine.phase)),
                Some(engine) => wrong(format!("uid {} registered, and uid {} runs under the name", it.uid, engine.uid)),
                None => wrong(format!("no engine of its uid {} runs", it.uid)),
            },
        }
    }
    let summary = format!("{} of {count} are below a permit and of a running engine", count - findings.len());
    report.checked(REGISTRATIONS, summary, findings);
}

fn permits(root: &str, desired: &Desired, coordinated: &Coordinated, running: &Running, report: &mut Report) {
    let mut findings = Vec::new();
    for permit in &coordinated.nodes.permits {
        let path = format!("{root}/engines/{}", permit.engine);
        if permit.left_behind {
            findings.push(left_behind(path, permit));
            continue;
        }
        if let Some(what) = wrong_permit(permit, desired, running) {
            let mend =
                format!("the acting master takes it away; by hand, once no engine of that name runs: deleteall {path}");
            findings.push(Finding::problem(&path, what, mend));
        }
        if permit.strays > 0 {
            let what = format!("below it stand {} nodes that are neither registration nor mark", permit.strays);
            let mend = "only that engine can have made them: look at who uses it; they go with the permit, if they can";
            findings.push(Finding::warning(format!("{path}: children"), what, mend));
        }
    }
    for engine in running.listing.engines.iter().filter(|it| is_alive(it) && desired.is_present(&it.name)) {
        if coordinated.permit(&engine.name).is_none() {
            let path = format!("{root}/engines/{}", engine.name);
            let mend =
                "the acting master makes it again, as after a loss of ZooKeeper: look at the check \"last tick\"";
            findings.push(Finding::problem(
                path,
                "the engine runs, is wanted, and has no permit: it can't register",
                mend,
            ));
        }
    }
    report.checked(PERMITS, format!("{} stand", coordinated.nodes.permits.len()), findings);
}

/// A permit that no master can delete, because of what its engine made below it.
fn left_behind(path: String, permit: &PermitNode) -> Finding {
    let why = permit.content.as_ref().err().map_or("it is left behind", String::as_str);
    let what = format!("{why}; it admits nobody. It was made at {}", utc(permit.ctime_ms));
    let mend = format!(
        "look at who used that engine; only ZooKeeper's super user can delete it \
         (zookeeper.DigestAuthenticationProvider.superDigest): deleteall {path}"
    );
    Finding::warning(path, what, mend)
}

fn wrong_permit(permit: &PermitNode, desired: &Desired, running: &Running) -> Option<String> {
    if let Err(reason) = &permit.content {
        return Some(format!("it can't be read: {reason}"));
    }
    let since = utc(permit.ctime_ms);
    match running.listing.find(&permit.engine) {
        Some(engine) => match permit.uid() {
            Some(uid) if uid != engine.uid => Some(format!("it is for uid {uid}, and uid {} runs", engine.uid)),
            _ => None,
        },
        // Made before the engine: its slot wants it.
        None if desired.is_present(&permit.engine) => None,
        None => Some(format!("no engine of that name is there, and no slot wants one; it was made at {since}")),
    }
}

fn drain_facts(root: &str, coordinated: &Coordinated, running: &Running, report: &mut Report) {
    let mut findings = Vec::new();
    for fact in &coordinated.nodes.drains {
        let path = format!("{root}/drains/{}", fact.engine);
        let since = utc(fact.ctime_ms);
        let there = running.listing.find(&fact.engine);
        let what = match &fact.content {
            Err(reason) => Some(format!("it can't be read: {reason}")),
            Ok(it) => match (there, &it.uid) {
                (None, _) => Some(format!("no engine of that name is there; written at {since}: {}", it.reason)),
                (Some(engine), Some(uid)) if engine.uid != *uid => {
                    Some(format!("it is for uid {uid}, and uid {} runs", engine.uid))
                }
                _ => None,
            },
        };
        if let Some(what) = what {
            let mend = format!(
                "the acting master removes it one session timeout after the engine is gone; by hand, once it is: delete {path}"
            );
            findings.push(Finding::problem(&path, what, mend));
        }
    }
    let summary = match coordinated.nodes.drains.len() {
        0 => "no engine drains".to_owned(),
        count => format!("{count} stand"),
    };
    report.checked(DRAIN_FACTS, summary, findings);
}
