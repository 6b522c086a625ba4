//! The configuration of the orchestrator of pods.

use std::collections::BTreeMap;
use std::time::Duration;

use model::engine_name::is_dns_label;
use model::labels::{self, LabelMap};

use super::Egress;
use crate::Error;

/// The configuration key of the limit of engines.
pub(super) const MAX_ENGINES_KEY: &str = "kubernetes.max_engines";
/// The default limit of pods. Ended pods count until they are deleted.
pub const DEFAULT_MAX_ENGINES: usize = 20_000;
/// The limit of namespaces in a fixed list.
pub const MAX_NAMESPACES: usize = 1_000;
/// The limit of egress rules.
pub const MAX_EGRESS: usize = 100;
/// The default service account of engines.
pub const DEFAULT_SERVICE_ACCOUNT: &str = "enginehouse-engine";
/// The default port of the agent.
pub const DEFAULT_AGENT_PORT: u16 = 10_021;
/// The default address of the API server for drivers of Spark.
pub const DEFAULT_API_SERVER: &str = "https://kubernetes.default.svc:443";
/// The default deadline of one call of the API.
pub const DEFAULT_CALL_DEADLINE: Duration = Duration::from_secs(10);
/// The user of the engine agent in a pod, which no user of engines has: next to Spark, neither may inspect the other.
pub const AGENT_UID: u32 = 10_001;
/// The highest uid that Kubernetes accepts.
const MAX_UID: u32 = i32::MAX.unsigned_abs();
/// The limit of users with a uid.
pub const MAX_USER_IDS: usize = 100_000;
/// The default of [`Config::epoch_good_for`].
pub const DEFAULT_EPOCH_GOOD_FOR: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The installation's name, for the label `enginehouse.io/cluster`.
    pub cluster: String,
    /// The namespace of the masters, which holds the config map with the epoch.
    pub home_namespace: String,
    /// The labels of the pods that are watched. A spec without them is refused, because its pod would never be listed.
    pub selector: LabelMap,
    /// The namespaces that are watched, one watch each; `None`: one watch over the whole cluster.
    pub namespaces: Option<Vec<String>>,
    /// Whether missing namespaces are created, with service account, role and role binding.
    pub make_namespaces: bool,
    /// Whether created namespaces get network policies.
    pub network_policies: bool,
    /// Where these policies let engines connect to, in addition to DNS, the coordination service and their executors.
    pub egress: Vec<Egress>,
    /// The image of the engine agent of Spark engines; other engines run from the spec's image.
    pub agent_image: String,
    /// The address of the API server for drivers of Spark, which create their executors.
    pub api_server: String,
    /// The pull secrets of images; they must exist in the engines' namespaces.
    pub image_pull_secrets: Vec<String>,
    pub service_account: String,
    /// The uids of users, as whom engines can run. None of them is 0.
    pub user_ids: BTreeMap<String, u32>,
    pub agent_port: u16,
    /// How long an engine may take until its warm-up query succeeds; then the startup probe gives up.
    pub start_deadline: Duration,
    /// The limit of engines. Ended engines count until they are deleted.
    pub max_engines: usize,
    /// Of one call of the API.
    pub call_deadline: Duration,
    /// For how long after its start a read of the epoch admits effects; zero: only those that were waiting for it.
    pub epoch_good_for: Duration,
}

impl Config {
    /// The defaults for an installation with this name.
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
            user_ids: BTreeMap::new(),
            agent_port: DEFAULT_AGENT_PORT,
            start_deadline: Duration::from_mins(5),
            max_engines: DEFAULT_MAX_ENGINES,
            call_deadline: DEFAULT_CALL_DEADLINE,
            epoch_good_for: DEFAULT_EPOCH_GOOD_FOR,
        }
    }

    /// Refuses settings that cannot work.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |reason: String| Err(Error::refused(reason));
        if self.selector.is_empty() {
            return refuse("the selector is empty: it would select every pod".to_owned());
        }
        for (label, value) in &self.selector {
            super::labels::check_label(label, value)?;
        }
        let listed = self.namespaces.iter().flatten();
        if let Some(invalid) =
            listed.chain([&self.home_namespace, &self.service_account]).find(|name| !is_dns_label(name))
        {
            return refuse(format!("invalid name \"{invalid}\" of a namespace or service account"));
        }
        if self.namespaces.as_ref().is_some_and(|listed| listed.is_empty() || listed.len() > MAX_NAMESPACES) {
            return refuse(format!("the list of namespaces is empty or has more than {MAX_NAMESPACES} entries"));
        }
        if self.egress.len() > MAX_EGRESS {
            return refuse(format!("more than {MAX_EGRESS} egress rules"));
        }
        if self.user_ids.len() > MAX_USER_IDS {
            return refuse(format!("more than {MAX_USER_IDS} users have a uid"));
        }
        self.user_ids.keys().try_for_each(|user| self.user_id(user).map(drop))
    }

    /// The uid of a user's engines.
    pub fn user_id(&self, user: &str) -> Result<u32, Error> {
        let refuse = |why: String| Err(Error::refused(why));
        match self.user_ids.get(user) {
            None => refuse(format!("user \"{user}\" has no uid in kubernetes.user_ids")),
            Some(0) => refuse(format!("user \"{user}\" has uid 0 in kubernetes.user_ids, and no engine runs as root")),
            Some(&AGENT_UID) => refuse(format!(
                "user \"{user}\" has uid {AGENT_UID} in kubernetes.user_ids, which is that of engine agents"
            )),
            Some(uid) if *uid > MAX_UID => {
                refuse(format!("user \"{user}\" has uid {uid} in kubernetes.user_ids, above the limit of {MAX_UID}"))
            }
            Some(uid) => Ok(*uid),
        }
    }

    /// Whether the namespace is watched.
    pub fn covers(&self, namespace: &str) -> bool {
        self.namespaces.as_ref().is_none_or(|listed| listed.iter().any(|listed| listed == namespace))
    }
}
