//! How engines are launched: told by whoever composes the process.

use std::collections::BTreeMap;

use model::configuration::Configuration;
use model::engine_name::EngineName;
use model::error::UserError;
use model::labels::EngineLabels;
use model::number::{Epoch, Generation, Incarnation};
use model::slot::SlotKey;
use orchestrator::Spec;

/// What is to be launched.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// The engine's name.
    pub engine: &'a EngineName,
    /// Its slot.
    pub slot: &'a SlotKey,
    /// Which of the slot's engines.
    pub incarnation: Incarnation,
    /// Its labels.
    pub labels: &'a EngineLabels,
    /// Its configuration.
    pub configuration: &'a Configuration,
    /// The nodes that it may run on; `None` is any.
    pub nodes: Option<&'a [String]>,
    /// Labels that its node must have besides.
    pub node_selector: &'a BTreeMap<String, String>,
    /// The generation of the plan.
    pub generation: Generation,
    /// The master's epoch.
    pub epoch: Epoch,
}

/// Makes specs: command line, files, environment, grace and log of an engine agent with its engine.
pub trait Launcher: Send + Sync + 'static {
    /// The spec of one engine. Name, labels, generation, nodes with their labels, requests with their overcommit,
    /// namespace and image are the plan's: the master writes them over whatever stands there.
    fn spec(&self, launch: &Launch<'_>) -> Result<Spec, UserError>;
}

/// The spec with everything in it that is the plan's.
pub(super) fn complete(launcher: &dyn Launcher, launch: &Launch<'_>) -> Result<Spec, UserError> {
    let configuration = launch.configuration;
    let mut spec = launcher.spec(launch)?;
    spec.name = launch.engine.clone();
    spec.labels.extend(launch.labels.encode());
    spec.generation = launch.generation;
    spec.locality.clone_from(&configuration.namespace);
    spec.image.clone_from(&configuration.image);
    spec.requests = configuration.engine_type.requests(configuration);
    spec.nodes = launch.nodes.map(<[String]>::to_vec);
    spec.options.node_labels.clone_from(launch.node_selector);
    spec.options.cpu_overcommit_percent = configuration.cpu_overcommit;
    Ok(spec)
}
