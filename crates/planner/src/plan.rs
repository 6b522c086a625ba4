//! The plan: decisions in their order, what waits and why, and what SHOW is to know.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::engine_name::EngineName;
use model::number::Generation;
use model::observation::ObservedEngine;
use model::slot::SlotKey;

use crate::census::{self, Census, Engine};
use crate::decision::{Chain, Decision, Stage};
use crate::desired::Desired;
use crate::draft::Draft;
use crate::linked::Words;
use crate::memo::Part;
use crate::names::Names;
use crate::observed::Observed;
use crate::present::{self, Around};
use crate::standing::{self, Standing};
use crate::{alteration, ending, report};

/// What to do, and what to tell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The generation of the catalog that it was made from.
    pub generation: Generation,
    /// Chains in the order of their stages. Those of one stage are independent of each other.
    pub chains: Vec<Chain>,
    /// What waits, and for what.
    pub waits: Vec<Wait>,
    /// Every engine that is seen or wished for, as SHOW is to know it: complete.
    pub report: Vec<Arc<ObservedEngine>>,
    /// What a converging alteration waits for: column `waits_for` of table `master`.
    pub waits_for: Option<String>,
}

impl Plan {
    /// All decisions, in order.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.chains.iter().flat_map(|chain| &chain.decisions)
    }
}

/// An engine that is not what it should be, and why nothing is done about it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The engine.
    pub engine: EngineName,
    /// Its slot, if known.
    pub slot: Option<SlotKey>,
    /// What it waits for: lower case, no full stop.
    pub reason: String,
    /// Until when, by the database's clock, if that is known.
    pub until_ms: Option<i64>,
}

/// A uid that should be there and is in no list: the orchestrator is to be asked for the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The name to ask for.
    pub engine: EngineName,
    /// The uid that is missed.
    pub uid: String,
    /// The namespace that it was seen in, if it is known.
    pub namespace: Option<String>,
}

/// What is to be asked before [`plan`]. The answers must be younger than the snapshot: a uid that was recorded and is
/// not there afterwards never comes back.
pub fn questions(desired: &Desired, observed: &Observed) -> Vec<Question> {
    questions_of(desired, observed, None)
}

/// What is to be asked of all engines, or of a part of them.
pub(crate) fn questions_of(desired: &Desired, observed: &Observed, part: Option<&Part>) -> Vec<Question> {
    let mut questions = Vec::new();
    for engine in census::take(desired, observed, part).engines {
        let recorded = engine.record.filter(|it| it.ended_at_ms.is_none()).and_then(|it| it.uid.as_ref());
        // The answer about a fact counts only once nothing of its engine has been seen for long enough.
        let fact = engine.fact.filter(|it| ending::is_quiet(desired, observed, it));
        let drained = fact.and_then(|it| it.uid.as_ref());
        let missed: BTreeSet<&String> =
            recorded.into_iter().chain(drained).filter(|uid| engine.pods().all(|pod| pod.uid != **uid)).collect();
        let namespace = fact.and_then(|it| it.namespace.as_ref());
        questions.extend(missed.into_iter().map(|uid| Question {
            engine: engine.name.clone(),
            uid: uid.clone(),
            namespace: namespace.filter(|_| drained == Some(uid)).cloned(),
        }));
    }
    questions
}

/// What to do now. Applied to a world that already is as desired, it decides nothing.
pub fn plan(desired: &Desired, observed: &Observed) -> Plan {
    make(desired, observed, &mut Words::default(), None).plan
}

/// A plan, and what of it holds for as long as nothing is different.
pub(crate) struct Made {
    pub plan: Plan,
    /// The engines for which there is something to do or to wait for, or may be by time alone.
    pub unsettled: Names,
    /// The name of each slot's present engine, in the order of slots.
    pub present: Vec<EngineName>,
}

/// The plan for all engines, or for a part of them: its report has no other rows then.
pub(crate) fn make(desired: &Desired, observed: &Observed, words: &mut Words, part: Option<&Part>) -> Made {
    let census = census::take(desired, observed, part);
    let standings = standing::all(desired, &census);
    let mut draft = Draft::new(desired, observed, words);
    let settled = plan_present(&mut draft, &census, &standings);
    for (engine, standing) in census.engines.iter().zip(&standings) {
        plan_other(&mut draft, engine, standing);
    }
    let waits_for = alteration::plan(&mut draft);
    draft.chains.sort_by_key(|chain| chain.stage);
    let plan = Plan {
        generation: desired.snapshot.catalog.generation,
        report: report::rows(&census, &standings, &draft.reasons),
        chains: draft.chains,
        waits: draft.waits,
        waits_for,
    };
    let mut unsettled = Names::default();
    for (engine, _) in census.engines.iter().zip(settled).filter(|(_, settled)| !settled) {
        unsettled.insert(&engine.name);
    }
    let present = census.slots.iter().map(|(_, at)| census.engines[*at].name.clone()).collect();
    Made { plan, unsettled, present }
}

/// In the order of slots, which is the order of turns. Answers which engines are settled.
fn plan_present<'a>(draft: &mut Draft<'a>, census: &Census<'a>, standings: &[Standing<'a>]) -> Vec<bool> {
    let mut settled = vec![false; census.engines.len()];
    let stand_ins = standing::stand_ins(census, standings);
    let waiting = standing::waiting_for_turn(draft.desired, census, &stand_ins);
    for &(slot, at) in &census.slots {
        if matches!(standings[at], Standing::Present(_)) {
            let around = Around { stand_in: stand_ins.get(&slot.key), waits_for_turn: waiting.contains(&slot.key) };
            let before = draft.said();
            present::plan(draft, &census.engines[at], slot, around);
            settled[at] = draft.said() == before && standing::is_settled(&census.engines[at], slot);
        }
    }
    settled
}

fn plan_other(draft: &mut Draft<'_>, engine: &Engine<'_>, standing: &Standing<'_>) {
    match standing {
        Standing::LeftAlone(reason) => {
            draft.left_alone(engine, format!("engine {} is left alone: {reason}", engine.name));
            return draft.wait(engine, format!("is left alone: {reason}"), None);
        }
        Standing::Present(_) => {}
        Standing::StandIn(slot) => {
            let Some(pod) = engine.alive() else { return };
            let awaited = draft.reasons.get(&slot.engine()).map_or("it is not registered yet", String::as_str);
            let reason = format!("waits for replacement: {awaited}");
            draft.push(Stage::Keep, present::keep(engine, pod));
            draft.wait(engine, reason, None);
        }
        Standing::Condemned(sentence) => ending::condemned(draft, engine, sentence),
        Standing::Over => ending::over(draft, engine),
    }
    ending::unclaimed_live(draft, engine);
    ending::strays(draft, engine);
    ending::settled_fact(draft, engine);
}
