//! What the installation says about engines that are pods.

use std::time::Duration;

use model::engine_name::is_dns_label;
use model::labels::{self, LabelMap};

use super::Egress;
use crate::Error;

/// What a person sets to have more engines.
pub(super) const MAX_ENGINES_KEY: &str = "kubernetes.max_engines";
/// Pods at most, ended ones that were not deleted included, when nothing else is said.
pub const DEFAULT_MAX_ENGINES: usize = 20_000;
/// Namespaces of a fixed list at most.
pub const MAX_NAMESPACES: usize = 1_000;
/// Ways out of a namespace of engines at most.
pub const MAX_EGRESS: usize = 100;
/// The service account of engines, when nothing else is said.
pub const DEFAULT_SERVICE_ACCOUNT: &str = "enginehouse-engine";
/// Where the agent of a pod accepts connections, when nothing else is said.
pub const DEFAULT_AGENT_PORT: u16 = 10_021;

/// Where drivers of Spark find the API server, when nothing else is said.
pub const DEFAULT_API_SERVER: &str = "https://kubernetes.default.svc:443";
/// How long one call of the API may take, when nothing else is said.
pub const DEFAULT_CALL_DEADLINE: Duration = Duration::from_secs(10);
/// How long a reading of the epoch lets effects in, when nothing else is said.
pub const DEFAULT_EPOCH_GOOD_FOR: Duration = Duration::from_millis(50);

/// What the installation says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The installation's name: label `enginehouse.io/cluster`.
    pub cluster: String,
    /// The namespace of the masters, which has the config map with the epoch.
    pub home_namespace: String,
    /// The labels that a pod must bear to be looked at; a spec without them is refused, for it would never be listed.
    pub selector: LabelMap,
    /// The namespaces that are watched, each by itself; `None`: one watch over the whole cluster.
    pub namespaces: Option<Vec<String>>,
    /// Whether namespaces that are missing are made, with service account, role and binding.
    pub make_namespaces: bool,
    /// Whether namespaces that are made get network policies.
    pub network_policies: bool,
    /// Where engines may connect to by these policies, besides names, the coordination service and their executors.
    pub egress: Vec<Egress>,
    /// The image of the engine agent beside Spark; other engines run from the spec's image.
    pub agent_image: String,
    /// Where drivers of Spark find the API server, to which they say what executors they want.
    pub api_server: String,
    /// Secrets with which images are pulled; they must be in the engines' namespaces.
    pub image_pull_secrets: Vec<String>,
    /// The service account of engines.
    pub service_account: String,
    /// Where the agent accepts connections.
    pub agent_port: u16,
    /// How long an engine may take to answer its warm-up query: the start-up probe gives up after it.
    pub start_deadline: Duration,
    /// Engines at most, ended ones that were not deleted included.
    pub max_engines: usize,
    /// How long one call of the API may take.
    pub call_deadline: Duration,
    /// For how long from its beginning a reading of the epoch lets effects in; zero: only those that waited for it.
    pub epoch_good_for: Duration,
}

impl Config {
    /// An installation of that name, and everything else as it is when nothing is said.
    pub fn new(cluster: impl Into<String>, home_namespace: impl Into<String>, agent_image: impl Into<String>) -> Self {
        let cluster = cluster.into();
        Self {
            selector: labels::selector(&cluster),
            cluster,
            home_namespace: home_namespace.into(),
            namespaces: None,
            make_namespaces: true,
            network_policies: true,
            egress: Vec::new(),
            agent_image: agent_image.into(),
            api_server: DEFAULT_API_SERVER.to_owned(),
            image_pull_secrets: Vec::new(),
            service_account: DEFAULT_SERVICE_ACCOUNT.to_owned(),
            agent_port: DEFAULT_AGENT_PORT,
            start_deadline: Duration::from_mins(5),
            max_engines: DEFAULT_MAX_ENGINES,
            call_deadline: DEFAULT_CALL_DEADLINE,
            epoch_good_for: DEFAULT_EPOCH_GOOD_FOR,
        }
    }

    /// Refuses what no client could work with.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |reason: String| Err(Error::refused(reason));
        if self.selector.is_empty() {
            return refuse("the selector is empty: every pod would be an engine".to_owned());
        }
        for (label, value) in &self.selector {
            super::marks::check_label(label, value)?;
        }
        let listed = self.namespaces.iter().flatten();
        if let Some(bad) = listed.chain([&self.home_namespace, &self.service_account]).find(|it| !is_dns_label(it)) {
            return refuse(format!("\"{bad}\" is no name of a namespace or a service account"));
        }
        if self.namespaces.as_ref().is_some_and(|it| it.is_empty() || it.len() > MAX_NAMESPACES) {
            return refuse(format!("the list of namespaces has none or more than {MAX_NAMESPACES}"));
        }
        if self.egress.len() > MAX_EGRESS {
            return refuse(format!("engines have more than {MAX_EGRESS} ways out"));
        }
        Ok(())
    }

    /// Whether engines of that namespace are seen.
    pub fn covers(&self, namespace: &str) -> bool {
        self.namespaces.as_ref().is_none_or(|listed| listed.iter().any(|it| it == namespace))
    }
}
