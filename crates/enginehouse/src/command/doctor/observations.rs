//! Checks of epochs and observations: the rows that SHOW reads agree with the running engines, and the epochs that fence
//! writes are consistent.

use model::engine_state::Phase;

use super::checks::{EPOCHS, OBSERVATIONS};
use super::facts::{Facts, Source};
use super::report::{Finding, Report};
use super::target::Target;

pub fn check(target: &Target, facts: &Facts, report: &mut Report) {
    epochs(target, facts, report);
    rows(facts, report);
}

fn epochs(target: &Target, facts: &Facts, report: &mut Report) {
    let (Ok(desired), Ok(running)) = (&facts.desired, &facts.running) else {
        return report.skip(&[EPOCHS], &facts.missing());
    };
    // In a cluster the epoch is in a config map that only masters read.
    let Source::Directory(running) = &running.source else { return };
    let now = desired.snapshot.master.epoch;
    let directory = running.state_dir.display();
    let Some(seen) = running.epoch else {
        return report.checked(EPOCHS, format!("{now} in the database, none in the state directory yet"), Vec::new());
    };
    let ahead = (seen > now).then(|| {
        Finding::problem(
            directory.to_string(),
            format!(
                "its highest epoch is {seen}, and the database is at {now}: every create and delete of the master is refused. Was the database restored from an older state?"
            ),
            format!(
                "stop all proxies, remove {}/lock, and start them again (cluster {})",
                directory, target.configuration.cluster.name
            ),
        )
    });
    report.checked(
        EPOCHS,
        format!("{now} in the database, {seen} the highest in the state directory"),
        ahead.into_iter().collect(),
    );
}

fn rows(facts: &Facts, report: &mut Report) {
    let (Ok(desired), Ok(running)) = (&facts.desired, &facts.running) else {
        return report.skip(&[OBSERVATIONS], &facts.missing());
    };
    let mend = "the acting master writes its observations with every tick: see the check \"last tick\"";
    let mut findings = Vec::new();
    for (seen, epoch) in &desired.observed {
        let mut wrong = |what: String| findings.push(Finding::problem(seen.name.to_string(), what, mend));
        if let Some(epoch) = epoch.filter(|epoch| *epoch < desired.snapshot.master.epoch) {
            wrong(format!("its row was written in epoch {epoch}, and no later master has written one"));
            continue;
        }
        let Some(uid) = &seen.uid else { continue };
        match running.listing.find(&seen.name) {
            Some(engine) if engine.uid != *uid => {
                wrong(format!("SHOW reports uid {uid}, but uid {} runs", engine.uid));
            }
            Some(engine) if (engine.phase == Phase::Ended) != (seen.phase == Phase::Ended) => {
                wrong(format!("SHOW reports that it is {}, but it is {}", seen.phase, engine.phase));
            }
            Some(_) => {}
            None if running.listing.unreadable.iter().any(|engine| engine.name == seen.name.as_str()) => {}
            None => wrong(format!("SHOW reports that it is {}, but it does not exist", seen.phase)),
        }
    }
    let summary = format!(
        "{} of {} rows agree with the running engines",
        desired.observed.len() - findings.len(),
        desired.observed.len()
    );
    report.checked(OBSERVATIONS, summary, findings);
}
