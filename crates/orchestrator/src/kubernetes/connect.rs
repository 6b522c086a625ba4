//! Which cluster, and as whom: the one that this process runs in, or one that a kubeconfig names.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};

use super::client_of;
use crate::Error;

/// A way to a cluster.
#[derive(Clone)]
pub struct Way {
    /// The client.
    pub client: kube::Client,
    /// The namespace that this process runs in, or that the kubeconfig's context names.
    pub namespace: String,
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Way").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// The way that files of this machine describe; nothing is called yet. Without a kubeconfig it is the cluster that this
/// process runs in, by the token of its service account; a context without a kubeconfig is one of the user's own
/// (`KUBECONFIG`, `~/.kube/config`).
pub async fn connect(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Way, Error> {
    let refused = |error: &dyn std::fmt::Display| Error::refused(format!("no way to a Kubernetes cluster: {error}"));
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = match (kubeconfig, context) {
        (Some(path), _) => {
            let read = Kubeconfig::read_from(path).map_err(|error| refused(&error))?;
            kube::Config::from_custom_kubeconfig(read, &options).await.map_err(|error| refused(&error))?
        }
        (None, Some(_)) => kube::Config::from_kubeconfig(&options).await.map_err(|error| refused(&error))?,
        (None, None) => kube::Config::incluster().map_err(|error| refused(&error))?,
    };
    let namespace = config.default_namespace.clone();
    Ok(Way { client: client_of(config)?, namespace })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [],
        "contexts": [{"name": "one", "context": {"cluster": "c", "namespace": "first"}},
                     {"name": "two", "context": {"cluster": "c", "namespace": "second"}}]}"#;

    #[tokio::test]
    async fn a_kubeconfig_says_the_namespace_and_a_context_chooses_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, KUBECONFIG).unwrap();
        assert_eq!(connect(Some(&path), None).await.unwrap().namespace, "first");
        assert_eq!(connect(Some(&path), Some("two")).await.unwrap().namespace, "second");
        let error = connect(Some(&path), Some("three")).await.unwrap_err().to_string();
        assert!(error.contains("three"), "{error}");
        let error = connect(Some(&folder.path().join("none")), None).await.unwrap_err().to_string();
        assert!(error.contains("no way to a Kubernetes cluster"), "{error}");
    }
}
