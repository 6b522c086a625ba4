//! The proof that this installation made a pod: an annotation that nobody without the cluster secret can write.
//!
//! It covers the installation's name (two may have been given one secret), namespace and name, and the name has the
//! incarnation, so it is worth nothing on any other pod. Copied to
//! a second pod of the same name, made after the first is gone, it says no more than the labels do: that pod has
//! another uid, and an engine may register only below a permit with its own. Labels stay out of it: a label that
//! somebody changed makes an engine outdated, not foreign.

use std::collections::BTreeMap;

use model::credential::{ClusterSecret, Purpose, keys_match};

/// The annotation that holds the signature.
pub const SIGNATURE_ANNOTATION: &str = "enginehouse.io/signature";

/// Signs pods, and knows what it has signed.
#[derive(Debug, Clone)]
pub struct Signer {
    secret: ClusterSecret,
    cluster: String,
}

impl Signer {
    /// A signer with the installation's secret and name.
    pub fn new(secret: ClusterSecret, cluster: impl Into<String>) -> Self {
        Self { secret, cluster: cluster.into() }
    }

    /// The signature of the pod of that name in that namespace.
    pub fn sign(&self, namespace: &str, name: &str) -> String {
        // No "/" is in namespace or name, so no two pods have the same text.
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
            None => Some("it has an engine's labels and no signature"),
            Some(signature) if keys_match(signature, &self.sign(namespace, name)) => None,
            Some(_) => Some("it has an engine's labels and its signature is not this installation's"),
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
    fn a_signature_holds_for_one_name_in_one_namespace_under_one_secret() {
        let secret = || ClusterSecret::new(*b"0123456789abcdef").unwrap();
        let signer = Signer::new(secret(), "eh");
        let other = Signer::new(ClusterSecret::new(*b"0123456789abcdeF").unwrap(), "eh");
        let signature = signed(&signer.sign("rp-1--t-1", "one"));
        assert_eq!(signer.objection("rp-1--t-1", "one", &signature), None);
        assert!(signer.objection("rp-1--t-2", "one", &signature).unwrap().contains("not this installation's"));
        assert!(signer.objection("rp-1--t-1", "two", &signature).is_some());
        assert!(other.objection("rp-1--t-1", "one", &signature).is_some());
        assert!(Signer::new(secret(), "staging").objection("rp-1--t-1", "one", &signature).is_some());
        assert!(signer.objection("rp-1--t-1", "one", &BTreeMap::new()).unwrap().contains("no signature"));
        assert!(signer.objection("rp-1--t-1", "one", &signed("")).is_some());
    }
}
