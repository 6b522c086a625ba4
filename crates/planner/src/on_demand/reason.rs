//! Why slots change, for people.

use std::collections::BTreeMap;

use model::end::EndWord;
use model::owner::Owner;
use model::scaling::SlotAddition;
use model::slot::Link;

use super::links::LinkOptions;
use super::slots::is_of_session;
use crate::decision::Scaling;
use crate::scale::RemovalReason;

/// Why the engine of a removed slot ends.
pub(super) fn removal_reason(reason: RemovalReason, link: &LinkOptions<'_>, owner: Option<&Owner>) -> String {
    match reason {
        RemovalReason::Idle if is_of_session(owner) => "its session has closed".to_owned(),
        RemovalReason::Idle => format!("idle for {}", link.idle_timeout),
        RemovalReason::OverMax => format!("MAX_ENGINES is {}", link.unit.max_engines),
        RemovalReason::Queued | RemovalReason::Unneeded | RemovalReason::Outdated => "no longer needed".to_owned(),
    }
}

/// The same in one word.
pub(super) const fn end_word(reason: RemovalReason, owner: Option<&Owner>) -> EndWord {
    match (reason, owner) {
        (RemovalReason::Idle, Some(Owner::Session(_))) => EndWord::Finished,
        (RemovalReason::Idle, _) => EndWord::Idle,
        (RemovalReason::OverMax, _) => EndWord::OverMax,
        (RemovalReason::Queued | RemovalReason::Unneeded, _) => EndWord::Unneeded,
        (RemovalReason::Outdated, _) => EndWord::Superseded,
    }
}

/// Why the slots of a link change. `waiting`: the sessions for which each addition is made.
pub(super) fn because(scaling: &Scaling, link: &LinkOptions<'_>, waiting: &[u64]) -> String {
    let Link { tenant, pool, unit } = &link.link;
    let mut changes = Vec::new();
    for (SlotAddition { owner, count, .. }, waiting) in scaling.slots.add.iter().zip(waiting) {
        let noun = if *waiting == 1 { "session waits" } else { "sessions wait" };
        let why = if *waiting == 0 { "a spare engine is kept ready".to_owned() } else { format!("{waiting} {noun}") };
        let of_owner = owner.as_ref().map(|owner| format!(" of {owner}")).unwrap_or_default();
        changes.push(format!("adds {}{of_owner}, because {why}", engines(*count as usize)));
    }
    let removed = scaling.slots.remove.iter().chain(scaling.release.iter().map(|release| &release.slot));
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for removal in removed {
        *reasons.entry(&removal.reason).or_default() += 1;
    }
    changes.extend(reasons.into_iter().map(|(reason, count)| format!("removes {}: {reason}", engines(count))));
    format!("tenant \"{tenant}\" on resource pool \"{pool}\", unit \"{unit}\": {}", changes.join("; "))
}

fn engines(count: usize) -> String {
    if count == 1 { "1 engine".to_owned() } else { format!("{count} engines") }
}
