//! Checks of alterations: the alter node exists only until its alteration had its tick, and none converges for long.

use std::time::Duration;

use coordination::{AlterNode, Observation};
use model::alteration::{AlterationProgress, AlterationRecord};
use model::clock::utc;
use model::span;

use super::checks::{ALTER_NODE, CONVERGING, STALLED};
use super::facts::{Desired, Facts, elapsed};
use super::report::{Finding, Report};
use super::target::{REACTION_TIME, Target};

pub fn check(target: &Target, facts: &Facts, report: &mut Report) {
    let Ok(desired) = &facts.desired else {
        return report.skip(&[ALTER_NODE, CONVERGING, STALLED], &facts.missing_nodes());
    };
    stalled(desired, report);
    converging(target, desired, report);
    let Ok(coordinated) = &facts.coordinated else {
        return report.skip(&[ALTER_NODE], &facts.missing_nodes());
    };
    node(target, desired, &coordinated.nodes, facts.wall_ms, report);
}

fn waits(desired: &Desired) -> String {
    let condition = desired.snapshot.master.waits_for.as_ref();
    condition.map(|condition| format!(", and the master waits for {condition}")).unwrap_or_default()
}

fn what_of(node: &AlterNode) -> String {
    match &node.content {
        Ok(content) => format!("{} by \"{}\"", content.statement, content.by),
        Err(reason) => format!("an alteration with an unreadable node ({reason})"),
    }
}

fn node(target: &Target, desired: &Desired, nodes: &Observation, wall_ms: i64, report: &mut Report) {
    let path = format!("{}/lock/alter", target.configuration.zookeeper.root);
    let Some(node) = &nodes.alter else {
        return report.checked(ALTER_NODE, "none", Vec::new());
    };
    let stood = elapsed(node.ctime_ms, wall_ms);
    let since = format!("it has existed for {} (since {})", span::age(stood), utc(node.ctime_ms));
    let acting = "the acting master deletes it: see the check \"last tick\"";
    let by_hand = format!("manually, only while no master acts: deleteall {path}");
    let what = if node.is_debris() {
        Some((format!("{since} without an alteration: it has no child"), format!("{acting}; {by_hand}")))
    } else {
        against_its_row(target, desired, nodes, node, stood).map(|(what, mend)| {
            (
                format!("{since} for {}: {what}{}", what_of(node), waits(desired)),
                mend.unwrap_or(format!("{acting}; {by_hand}")),
            )
        })
    };
    let finding = what.map(|(what, mend)| Finding::problem(&path, what, mend));
    let summary = format!("{since} for {}{}", what_of(node), waits(desired));
    report.checked(ALTER_NODE, summary, finding.into_iter().collect());
}

/// The conflict between a node with a child and the row of its alteration, with a fix if that is a special one.
fn against_its_row(
    target: &Target,
    desired: &Desired,
    nodes: &Observation,
    node: &AlterNode,
    stood: Duration,
) -> Option<(String, Option<String>)> {
    let child = node.children.first()?;
    if let Some(record) = &desired.alteration_of_node {
        return match record.progress {
            Some(AlterationProgress::Converging) => None,
            Some(progress) => Some((format!("alteration {} is {} by its row", child.id, progress.as_str()), None)),
            None => Some((format!("alteration {} was {}", child.id, record.outcome.as_str()), None)),
        };
    }
    let grace = target.configuration.master.alter_grace.0;
    let executor = nodes.agents.iter().find(|agent| Some(agent.session) == child.session);
    match executor {
        None => Some((
            format!(
                "alteration {} is in doubt, and no metadata agent has the session that its child names ({}): it will not be committed",
                child.id,
                child.session.map_or_else(|| "unreadable".to_owned(), |session| format!("{session:#x}"))
            ),
            Some("the acting master aborts it and deletes the node: see the check \"last tick\"".to_owned()),
        )),
        Some(agent) if stood > grace + REACTION_TIME => Some((
            format!(
                "alteration {} has been in doubt for longer than master.alter_grace ({})",
                child.id,
                span::print(grace)
            ),
            Some(format!("see the log of metadata agent {} ({}), which executes it", agent.id, agent.address)),
        )),
        Some(_) => None,
    }
}

fn name(record: &AlterationRecord) -> String {
    format!("alteration {}", record.id)
}

fn converging(target: &Target, desired: &Desired, report: &mut Report) {
    let deadline = target.configuration.metadata_agent.alter_deadline.0;
    let (mut summary, mut findings) = (Vec::new(), Vec::new());
    for record in
        desired.snapshot.alterations.iter().filter(|record| record.progress == Some(AlterationProgress::Converging))
    {
        let stood = elapsed(record.decided_at_ms, desired.snapshot.now_ms);
        let since = format!("{} has been converging for {}{}", record.statement, span::age(stood), waits(desired));
        summary.push(since.clone());
        let acting = "the acting master finishes it: see the check \"last tick\", and SHOW ALTERATIONS";
        if stood > deadline + REACTION_TIME {
            let what = format!("{since}, longer than metadata_agent.alter_deadline ({})", span::print(deadline));
            findings.push(Finding::problem(name(record), what, acting));
        }
    }
    let summary = if summary.is_empty() { "no alteration is converging".to_owned() } else { summary.join("; ") };
    report.checked(CONVERGING, summary, findings);
}

fn stalled(desired: &Desired, report: &mut Report) {
    let rows: Vec<&AlterationRecord> = desired
        .snapshot
        .alterations
        .iter()
        .filter(|record| record.progress == Some(AlterationProgress::Stalled))
        .collect();
    let findings = rows.iter().map(|record| {
        let object = record.object.as_ref().map(|object| format!(" of {object}")).unwrap_or_default();
        let reason = record.reason.as_deref().unwrap_or("no reason recorded");
        let what = format!(
            "{}{object} stalled at {}: {reason}",
            record.statement,
            utc(record.finished_at_ms.unwrap_or(record.decided_at_ms))
        );
        let mend = "fix the cause, and it converges; or ALTER the same object again, which supersedes it";
        Finding::problem(name(record), what, mend)
    });
    let findings: Vec<Finding> = findings.collect();
    let summary = match findings.len() {
        0 => "none".to_owned(),
        count => count.to_string(),
    };
    report.checked(STALLED, summary, findings);
}
