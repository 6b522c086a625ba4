//! The signature of a pod: an annotation that proves that this installation created it, because it requires the cluster
//! secret.
//!
//! It covers the installation's name (two installations may share a secret), the namespace and the name, which contains the
//! incarnation, so it is invalid on any other pod. Copied to a second pod of the same name, created after the first is gone,
//! it proves no more than the labels: that pod has another uid, and an engine may register only below a permit with its own
//! uid. Labels are not covered: a changed label makes an engine outdated, not foreign.

use std::collections::BTreeMap;

use model::credential::{ClusterSecret, Purpose, keys_match};

/// The annotation that holds the signature.
pub const SIGNATURE_ANNOTATION: &str = "enginehouse.io/signature";

/// Signs pods and verifies signatures.
#[derive(Debug, Clone)]
pub struct Signer {
    secret: ClusterSecret,
    cluster: String,
}

impl Signer {
    pub fn new(secret: ClusterSecret, cluster: impl Into<String>) -> Self {
        Self { secret, cluster: cluster.into() }
    }

    /// The signature of the pod of that name in that namespace.
    pub fn sign(&self, namespace: &str, name: &str) -> String {
        // Neither namespace nor name contains "/", so no two pods have the same text.
        self.secret.derive(&Purpose::PodSignature(&format!("{}/{namespace}/{name}", self.cluster)))
    }

    /// Why the pod is not one of ours; `None` if it is.
    pub fn objection(
        &self,
        namespace: &str,
        name: &str,
        annotations: &BTreeMap<String, String>,
    ) -> Option<&'static str> {
        match annotations.get(SIGNATURE_ANNOTATION) {
            None => Some("it has the labels of an engine, but no signature"),
            Some(signature) if keys_match(signature, &self.sign(namespace, name)) => None,
            Some(_) => Some("it has the labels of an engine, but not the signature of this installation"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(signature: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(SIGNATURE_ANNOTATION.to_owned(), signature.to_owned())])
    }

    #[test]
    fn a_signature_covers_installation_namespace_name_and_secret() {
        let secret = || ClusterSecret::new(*b"0123456789abcdef").unwrap();
        let signer = Signer::new(secret(), "eh");
        let other = Signer::new(ClusterSecret::new(*b"0123456789abcdeF").unwrap(), "eh");
        let signature = signed(&signer.sign("rp-1--t-1", "one"));
        assert_eq!(signer.objection("rp-1--t-1", "one", &signature), None);
        assert!(signer.objection("rp-1--t-2", "one", &signature).unwrap().contains("not the signature"));
        assert!(signer.objection("rp-1--t-1", "two", &signature).is_some());
        assert!(other.objection("rp-1--t-1", "one", &signature).is_some());
        assert!(Signer::new(secret(), "staging").objection("rp-1--t-1", "one", &signature).is_some());
        assert!(signer.objection("rp-1--t-1", "one", &BTreeMap::new()).unwrap().contains("no signature"));
        assert!(signer.objection("rp-1--t-1", "one", &signed("")).is_some());
    }
}
