//! Checks of the engines' nodes in ZooKeeper: registrations, permits, drain orders.

use coordination::PermitNode;
use model::clock::utc;

use super::checks::{DRAIN_ORDERS, PERMITS, REGISTRATIONS};
use super::facts::{Coordinated, Desired, Facts, RunningEngines, is_alive};
use super::report::{Finding, Report};
use super::target::Target;

pub fn check(target: &Target, facts: &Facts, report: &mut Report) {
    let (Ok(desired), Ok(coordinated), Ok(running)) = (&facts.desired, &facts.coordinated, &facts.running) else {
        return report.skip(&[REGISTRATIONS, PERMITS, DRAIN_ORDERS], &facts.missing());
    };
    let root = &target.configuration.zookeeper.root;
    registrations(root, coordinated, running, report);
    permits(root, desired, coordinated, running, report);
    drain_orders(root, coordinated, running, report);
}

fn registrations(root: &str, coordinated: &Coordinated, running: &RunningEngines, report: &mut Report) {
    let mut findings = Vec::new();
    let mut count = 0;
    for permit in &coordinated.nodes.permits {
        let Some(registration) = &permit.registration else { continue };
        count += 1;
        let path = format!("{root}/engines/{}/live", permit.engine);
        let mut wrong = |what: String| {
            let mend = "it ends with its session; the engine agent registers again, and the acting master deletes what remains";
            findings.push(Finding::problem(&path, what, mend));
        };
        match &registration.content {
            Err(reason) => wrong(format!("it cannot be read: {reason}")),
            Ok(content) if Some(content.uid.as_str()) != permit.uid() => {
                let admits = permit.uid().unwrap_or("no uid yet");
                wrong(format!("uid {} registered, but the permit admits {admits}", content.uid));
            }
            Ok(content) => match running.listing.find(&permit.engine) {
                Some(engine) if engine.uid == content.uid && is_alive(engine) => {}
                Some(engine) if engine.uid == content.uid => {
                    wrong(format!("the engine of its uid is {}", engine.phase));
                }
                Some(engine) => {
                    wrong(format!("uid {} registered, but uid {} runs under the name", content.uid, engine.uid));
                }
                None => wrong(format!("no engine of its uid {} runs", content.uid)),
            },
        }
    }
    let summary = format!("{} of {count} belong to a permit and a running engine", count - findings.len());
    report.checked(REGISTRATIONS, summary, findings);
}

fn permits(root: &str, desired: &Desired, coordinated: &Coordinated, running: &RunningEngines, report: &mut Report) {
    let mut findings = Vec::new();
    for permit in &coordinated.nodes.permits {
        let path = format!("{root}/engines/{}", permit.engine);
        if permit.left_behind {
            findings.push(left_behind(path, permit));
            continue;
        }
        if let Some(what) = wrong_permit(permit, desired, running) {
            let mend =
                format!("the acting master deletes it; manually, once no engine of that name runs: deleteall {path}");
            findings.push(Finding::problem(&path, what, mend));
        }
        if permit.strays > 0 {
            let what = format!("it has {} children that are neither registration nor mark", permit.strays);
            let mend = "only that engine can have created them: check who uses it; they are deleted with the permit, if possible";
            findings.push(Finding::warning(format!("{path}: children"), what, mend));
        }
    }
    for engine in running.listing.engines.iter().filter(|engine| is_alive(engine) && desired.is_present(&engine.name)) {
        if coordinated.permit(&engine.name).is_none() {
            let path = format!("{root}/engines/{}", engine.name);
            let mend = "the acting master creates it again, as after a loss of ZooKeeper: see the check \"last tick\"";
            findings.push(Finding::problem(
                path,
                "the engine runs and is desired, but has no permit: it cannot register",
                mend,
            ));
        }
    }
    report.checked(PERMITS, coordinated.nodes.permits.len().to_string(), findings);
}

/// A permit that masters cannot delete, because of nodes that its engine created below it.
fn left_behind(path: String, permit: &PermitNode) -> Finding {
    let why = permit.content.as_ref().err().map_or("it was left behind", String::as_str);
    let what = format!("{why}; it admits no engine. It was created at {}", utc(permit.ctime_ms));
    let mend = format!(
        "check who used that engine; only ZooKeeper's super user can delete the node \
         (zookeeper.DigestAuthenticationProvider.superDigest): deleteall {path}"
    );
    Finding::warning(path, what, mend)
}

fn wrong_permit(permit: &PermitNode, desired: &Desired, running: &RunningEngines) -> Option<String> {
    if let Err(reason) = &permit.content {
        return Some(format!("it cannot be read: {reason}"));
    }
    let since = utc(permit.ctime_ms);
    match running.listing.find(&permit.engine) {
        Some(engine) => match permit.uid() {
            Some(uid) if uid != engine.uid => Some(format!("it is for uid {uid}, but uid {} runs", engine.uid)),
            _ => None,
        },
        // Created before the engine, which is desired.
        None if desired.is_present(&permit.engine) => None,
        None => Some(format!("no engine of that name exists, and no slot desires one; it was created at {since}")),
    }
}

fn drain_orders(root: &str, coordinated: &Coordinated, running: &RunningEngines, report: &mut Report) {
    let mut findings = Vec::new();
    for order in &coordinated.nodes.drains {
        let path = format!("{root}/drains/{}", order.engine);
        let since = utc(order.ctime_ms);
        let there = running.listing.find(&order.engine);
        let what = match &order.content {
            Err(reason) => Some(format!("it cannot be read: {reason}")),
            Ok(content) => match (there, &content.uid) {
                (None, _) => Some(format!("no engine of that name exists; written at {since}: {}", content.reason)),
                (Some(engine), Some(uid)) if engine.uid != *uid => {
                    Some(format!("it is for uid {uid}, but uid {} runs", engine.uid))
                }
                _ => None,
            },
        };
        if let Some(what) = what {
            let mend = format!(
                "the acting master deletes it one session timeout after the end of the engine; manually, after that: delete {path}"
            );
            findings.push(Finding::problem(&path, what, mend));
        }
    }
    let summary = match coordinated.nodes.drains.len() {
        0 => "no engine is draining".to_owned(),
        count => count.to_string(),
    };
    report.checked(DRAIN_ORDERS, summary, findings);
}
