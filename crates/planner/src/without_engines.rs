//! The plan of a master that gets no list of engines from its orchestrator.
//!
//! It makes and ends nothing, because it can't see what is there. Only alterations come to an end: one that reaches no
//! slot and no engine is converged, and one that is past its deadline is stalled, so that an orchestrator that is away
//! holds up nobody's next statement for longer than that. What is stalled here becomes converged in a later plan that
//! sees engines. A stale snapshot does no harm: the database compares the plan's generation and its own clock.

use std::collections::HashSet;

use model::engine_name::EngineName;
use model::snapshot::EngineRecord;

use crate::alteration;
use crate::census;
use crate::desired::Desired;
use crate::draft::{Draft, Undone};
use crate::linked::Words;
use crate::observed::Observed;
use crate::plan::Plan;
use crate::report;
use crate::standing;

/// What to do while the orchestrator does not tell which engines there are, and what to tell meanwhile. The report holds
/// only engines that were never recorded as made: about the others nothing new is known.
pub fn plan_without_engines(desired: &Desired, reason: &str) -> Plan {
    let observed = Observed::default();
    let mut words = Words::default();
    let mut draft = Draft::new(desired, &observed, &mut words);
    let snapshot = &desired.snapshot;
    // Whatever an alteration reaches may be what it waits for.
    let lives = snapshot.engines.iter().filter(|engine| engine.ended_at_ms.is_none());
    let lives = lives.map(|engine| (&engine.slot, engine.incarnation));
    let reached = snapshot.slots.iter().map(|slot| (&slot.key, slot.incarnation)).chain(lives);
    draft.undone.extend(reached.map(|(slot, incarnation)| {
        let what = reason.to_owned();
        Undone { slot: slot.clone(), incarnation: Some(incarnation), what }
    }));
    let waits_for = alteration::plan(&mut draft);
    let census = census::take(desired, &observed, None);
    let wanted = census.slots.iter().map(|(_, at)| census.engines[*at].name.clone());
    draft.reasons.extend(wanted.map(|name| (name, reason.to_owned())));
    let standings = standing::all(desired, &census);
    let mut report = report::rows(&census, &standings, &draft.reasons);
    let was_made = |it: &&EngineRecord| it.uid.is_some() || it.ended_at_ms.is_some();
    let made: HashSet<&EngineName> = snapshot.engines.iter().filter(was_made).map(|it| &it.name).collect();
    report.retain(|row| !made.contains(&row.name));
    Plan { generation: snapshot.catalog.generation, chains: draft.chains, waits: Vec::new(), report, waits_for }
}
