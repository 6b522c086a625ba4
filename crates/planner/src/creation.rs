//! The chain of decisions that creates an engine: its permit, its instance, and the records of its uid.
//!
//! A queue may be long, so only the chain of an engine that is created now is made: its labels have a hash of the whole
//! configuration.

use model::charge::Charge;
use model::configuration::Configuration;
use model::engine_labels::EngineLabels;
use model::engine_name::EngineName;
use model::run_as::{self, RunAs};
use model::slot::Slot;

use crate::builder::{PlanBuilder, decide};
use crate::decision::{Action, Decision, DesiredEngine};
use crate::inventory::Engine;

/// The decisions that create the engine of the slot. `stand_in` serves until it is registered.
pub(crate) fn chain(
    builder: &PlanBuilder<'_>,
    engine: &Engine<'_>,
    slot: &Slot,
    stand_in: Option<&EngineName>,
    configuration: Configuration,
) -> Vec<Decision> {
    let because = match stand_in {
        _ if engine.instance.is_some() => "its creation was interrupted".to_owned(),
        Some(stand_in) => format!("replaces {stand_in}"),
        None if slot.failures > 0 => format!("the slot has no engine after failure {}", slot.failures),
        None => "the slot has no engine".to_owned(),
    };
    let pool = builder.desired.pool(&slot.key);
    let nodes = pool.and_then(|pool| pool.nodes.clone());
    let node_selector = pool.map(|pool| pool.node_selector.clone()).unwrap_or_default();
    let labels = EngineLabels::new(&builder.desired.cluster, &slot.key, slot.incarnation, &configuration);
    let labels = EngineLabels { name: engine.name.clone(), ..labels.owned_by(slot.owner.as_ref()) };
    let config = labels.config.clone();
    let sessions = builder.desired.sessions(&slot.key);
    let mut chain = Vec::new();
    if engine.permit.is_none() {
        chain.push(decide(
            engine,
            Action::CreatePermit { uid: None, sessions, owner: slot.owner.clone() },
            because.clone(),
        ));
    }
    let charge = Charge::new(&configuration, builder.desired.defaults.instances);
    let user = match configuration.run_as {
        RunAs::Service => None,
        RunAs::Owner => run_as::user_of(slot.owner.as_ref(), slot.started_for.as_ref()).map(str::to_owned),
    };
    let desired = DesiredEngine { labels, configuration, charge, nodes, node_selector, user };
    let desired = Action::CreateEngine(Box::new(desired));
    chain.push(decide(engine, desired, because));
    let recorded = engine.record.and_then(|record| record.uid.as_ref());
    if recorded.is_none() {
        chain.push(decide(engine, Action::RecordUid { uid: None, config }, "it was created"));
    }
    if recorded.is_none() || engine.permit.is_none_or(|permit| permit.uid.as_ref() != recorded) {
        chain.push(decide(
            engine,
            Action::WritePermitUid { uid: None, sessions, owner: slot.owner.clone() },
            "allows it to register",
        ));
    }
    chain
}
