//! Section `[kubernetes]`: the cluster for engines that are pods.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use orchestrator::kubernetes::config::{
    DEFAULT_AGENT_PORT, DEFAULT_API_SERVER, DEFAULT_CALL_DEADLINE, DEFAULT_MAX_ENGINES, DEFAULT_SERVICE_ACCOUNT,
};
use orchestrator::kubernetes::{Config, Egress};
use serde::{Deserialize, Serialize};

use super::{Configuration, Span};

/// The cluster for engines that are pods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KubernetesSection {
    /// The kubeconfig file; the cluster of this process if empty.
    pub kubeconfig: PathBuf,
    /// The context of the kubeconfig; its current one if empty.
    pub context: String,
    /// The namespace of the masters; that of this process or of the context if empty.
    pub namespace: String,
    /// The namespaces of engines, with one watch each; one watch over the cluster if empty.
    pub namespaces: Vec<String>,
    /// Whether missing namespaces are created, with service account, role and binding.
    pub make_namespaces: bool,
    /// Whether created namespaces get network policies.
    pub network_policies: bool,
    /// Additional egress of engines in created namespaces: `10.0.0.0/8:443`.
    pub engine_egress: Vec<Egress>,
    /// The service account of engines.
    pub service_account: String,
    /// The uids of users, as whom engines can run.
    pub user_ids: BTreeMap<String, u32>,
    /// The program in the images of engines.
    pub program: PathBuf,
    /// The image of the engine agent of Spark engines.
    pub agent_image: String,
    /// The address of the API server for Spark drivers.
    pub api_server: String,
    /// Image pull secrets, which must be in the engines' namespaces.
    pub image_pull_secrets: Vec<String>,
    /// The port of the engine agent in a pod.
    pub agent_port: u16,
    /// The maximum number of engines.
    pub max_engines: usize,
    /// The deadline of an API call.
    pub call_deadline: Span,
}

impl Default for KubernetesSection {
    fn default() -> Self {
        Self {
            kubeconfig: PathBuf::new(),
            context: String::new(),
            namespace: String::new(),
            namespaces: Vec::new(),
            make_namespaces: true,
            network_policies: true,
            engine_egress: Vec::new(),
            service_account: DEFAULT_SERVICE_ACCOUNT.to_owned(),
            user_ids: BTreeMap::new(),
            program: PathBuf::from("/usr/local/bin/enginehouse"),
            agent_image: String::new(),
            api_server: DEFAULT_API_SERVER.to_owned(),
            image_pull_secrets: Vec::new(),
            agent_port: DEFAULT_AGENT_PORT,
            max_engines: DEFAULT_MAX_ENGINES,
            call_deadline: Span(DEFAULT_CALL_DEADLINE),
        }
    }
}

impl KubernetesSection {
    /// The kubeconfig, if one is named.
    pub fn kubeconfig(&self) -> Option<&Path> {
        (!self.kubeconfig.as_os_str().is_empty()).then_some(self.kubeconfig.as_path())
    }

    /// The context, if one is named.
    pub fn context(&self) -> Option<&str> {
        (!self.context.is_empty()).then_some(self.context.as_str())
    }
}

impl Configuration {
    /// The configuration of the orchestrator of pods; `found` is the namespace of this process.
    pub fn pods(&self, found: &str) -> Config {
        let section = &self.kubernetes;
        let home = if section.namespace.is_empty() { found } else { &section.namespace };
        Config {
            namespaces: (!section.namespaces.is_empty()).then(|| section.namespaces.clone()),
            make_namespaces: section.make_namespaces,
            api_server: section.api_server.clone(),
            network_policies: section.network_policies,
            egress: section.engine_egress.clone(),
            image_pull_secrets: section.image_pull_secrets.clone(),
            service_account: section.service_account.clone(),
            user_ids: section.user_ids.clone(),
            agent_port: section.agent_port,
            start_deadline: self.engines.start_deadline.0,
            max_engines: section.max_engines,
            call_deadline: section.call_deadline.0,
            ..Config::new(&self.cluster.name, home, &section.agent_image)
        }
    }
}
