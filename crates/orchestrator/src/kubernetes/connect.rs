//! Connecting to a cluster: the one that this process runs in, or one that a kubeconfig names.

use std::path::Path;
use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use model::cause::Cause;
use tower::util::MapResponseLayer;

use super::{retry_after, watch};
use crate::Error;

/// How long a connection attempt may take.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// How long a connection may be silent while a reply is expected. Verbs give up sooner, and a watch ends by itself before
/// that; this limit is for the start of a watch and its list, which have no other deadline.
const READ_DEADLINE: Duration = Duration::from_secs(watch::WATCH_SECONDS as u64 + 10);

/// A cluster that can be reached.
#[derive(Clone)]
pub struct ClusterConnection {
    pub client: kube::Client,
    /// The namespace that this process runs in, or that the kubeconfig's context names.
    pub namespace: String,
}

impl std::fmt::Debug for ClusterConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterConnection").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Reads the local configuration; makes no call yet. Without a kubeconfig it is the cluster that this process runs in, with
/// the token of its service account; a context without a kubeconfig is looked up in the user's own (`KUBECONFIG`,
/// `~/.kube/config`).
pub async fn connect(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<ClusterConnection, Error> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = match (kubeconfig, context) {
        (Some(path), _) => {
            let read = Kubeconfig::read_from(path).map_err(unusable)?;
            kube::Config::from_custom_kubeconfig(read, &options).await.map_err(unusable)?
        }
        (None, Some(_)) => kube::Config::from_kubeconfig(&options).await.map_err(unusable)?,
        (None, None) => kube::Config::incluster().map_err(unusable)?,
    };
    let namespace = config.default_namespace.clone();
    Ok(ClusterConnection { client: client_of(config)?, namespace })
}

/// A client that never retries by itself and waits for nothing without a limit.
pub fn client_of(config: kube::Config) -> Result<kube::Client, Error> {
    let builder = ClientBuilder::try_from(bounded(config));
    let builder = builder.map_err(unusable)?;
    Ok(builder.with_layer(&MapResponseLayer::new(retry_after::into_body)).build())
}

fn unusable(error: impl Into<Cause>) -> Error {
    Error::refused("could not configure a Kubernetes client").caused_by(error)
}

fn bounded(mut config: kube::Config) -> kube::Config {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_DEADLINE);
    config.read_timeout = Some(READ_DEADLINE);
    // Measured from a request, not from the last use of its connection.
    config.reset_reader_on_write = true;
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::cause::chain;

    const KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [],
        "contexts": [{"name": "one", "context": {"cluster": "c", "namespace": "first"}},
                     {"name": "two", "context": {"cluster": "c", "namespace": "second"}}]}"#;

    #[tokio::test]
    async fn a_context_of_the_kubeconfig_chooses_the_namespace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, KUBECONFIG).unwrap();
        assert_eq!(connect(Some(&path), None).await.unwrap().namespace, "first");
        assert_eq!(connect(Some(&path), Some("two")).await.unwrap().namespace, "second");
        let error = connect(Some(&path), Some("three")).await.unwrap_err();
        let error = chain(&error).to_string();
        assert!(error.contains("three"), "{error}");
        let error = connect(Some(&folder.path().join("none")), None).await.unwrap_err().to_string();
        assert!(error.contains("could not configure a Kubernetes client"), "{error}");
    }

    #[test]
    fn a_silent_server_is_given_up_and_an_idle_watch_is_not() {
        let config = bounded(kube::Config::new(http::Uri::from_static("http://127.0.0.1:1")));
        let silence = config.read_timeout.unwrap();
        let watch_seconds = Duration::from_secs(watch::WATCH_SECONDS.into());
        assert!(silence > watch_seconds && silence < watch::RESYNC_INTERVAL, "{silence:?}");
        assert!(config.connect_timeout.is_some() && config.write_timeout.is_some() && !config.default_retry);
    }
}
