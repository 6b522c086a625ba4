//! The launcher: how the process that runs the master starts engines.

use std::collections::BTreeMap;

use model::charge::Charge;
use model::configuration::Configuration;
use model::engine_labels::EngineLabels;
use model::engine_name::EngineName;
use model::error::UserError;
use model::number::{Epoch, Generation, Incarnation};
use model::slot::SlotKey;
use orchestrator::Spec;

/// The engine to launch.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    pub engine: &'a EngineName,
    pub slot: &'a SlotKey,
    pub incarnation: Incarnation,
    pub labels: &'a EngineLabels,
    pub configuration: &'a Configuration,
    pub charge: &'a Charge,
    /// The nodes that it may run on; `None` means any.
    pub nodes: Option<&'a [String]>,
    /// Labels that its node must also have.
    pub node_selector: &'a BTreeMap<String, String>,
    /// The generation of the plan.
    pub generation: Generation,
    /// The master's epoch.
    pub epoch: Epoch,
}

/// Creates specs: command line, files, environment, grace and log of an engine agent with its engine.
pub trait Launcher: Send + Sync + 'static {
    /// The spec of one engine. The master overwrites what the plan determines: name, labels, generation, nodes with their
    /// labels, charge, namespace and image.
    fn spec(&self, launch: &Launch<'_>) -> Result<Spec, UserError>;
}

/// The launcher's spec, with what the plan determines.
pub(super) fn complete(launcher: &dyn Launcher, launch: &Launch<'_>) -> Result<Spec, UserError> {
    let configuration = launch.configuration;
    let mut spec = launcher.spec(launch)?;
    spec.name = launch.engine.clone();
    spec.labels.extend(launch.labels.encode());
    spec.generation = launch.generation;
    spec.locality.clone_from(&configuration.namespace);
    spec.image.clone_from(&configuration.image);
    spec.charge = *launch.charge;
    spec.nodes = launch.nodes.map(<[String]>::to_vec);
    spec.options.node_labels.clone_from(launch.node_selector);
    Ok(spec)
}
