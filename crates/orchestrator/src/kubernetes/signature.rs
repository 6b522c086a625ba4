//! The signature of a pod: an annotation that proves that a master of this installation created it, because it requires a
//! key that only masters have.
//!
//! It covers the installation's name (two installations may share keys), the namespace and the name, which contains the
//! incarnation, so it is invalid on any other pod. Copied to a second pod of the same name, created after the first is gone,
//! it proves no more than the labels: that pod has another uid, and an engine may register only below a permit with its own
//! uid. Labels are not covered: a changed label makes an engine outdated, not foreign.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The annotation that holds the signature.
pub const SIGNATURE_ANNOTATION: &str = "enginehouse.io/signature";

/// The key of masters that marks their pods.
pub trait PodKey: Send + Sync {
    /// The signature of the pod `<namespace>/<name>`.
    fn sign(&self, pod: &str) -> String;

    /// Whether it is the pod's, by any key that is accepted now.
    fn verifies(&self, pod: &str, signature: &str) -> bool;
}

/// Signs pods and verifies signatures.
#[derive(Clone)]
pub struct Signer(Arc<dyn PodKey>);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer(******)")
    }
}

impl Signer {
    pub fn new(key: Arc<dyn PodKey>) -> Self {
        Self(key)
    }

    /// The signature of the pod of that name in that namespace.
    pub fn sign(&self, namespace: &str, name: &str) -> String {
        self.0.sign(&pod(namespace, name))
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
            Some(signature) if self.0.verifies(&pod(namespace, name), signature) => None,
            Some(_) => Some("it has the labels of an engine, but not the signature of this installation"),
        }
    }
}

/// Neither namespace nor name contains "/", so no two pods have the same text.
fn pod(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn signer(name: &'static str) -> Signer {
        Signer::new(Arc::new(NameOf(name)))
    }

    fn signed(signature: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(SIGNATURE_ANNOTATION.to_owned(), signature.to_owned())])
    }

    /// A key that marks pods with their own name.
    struct NameOf(&'static str);

    impl PodKey for NameOf {
        fn sign(&self, pod: &str) -> String {
            format!("{} {pod}", self.0)
        }

        fn verifies(&self, pod: &str, signature: &str) -> bool {
            self.sign(pod) == signature
        }
    }

    #[test]
    fn a_signature_covers_namespace_name_and_key() {
        let (signer, other) = (signer("eh"), signer("staging"));
        let signature = signed(&signer.sign("rp-1--t-1", "one"));
        assert_eq!(signer.objection("rp-1--t-1", "one", &signature), None);
        assert!(signer.objection("rp-1--t-2", "one", &signature).unwrap().contains("not the signature"));
        assert!(signer.objection("rp-1--t-1", "two", &signature).is_some());
        assert!(other.objection("rp-1--t-1", "one", &signature).is_some());
        assert!(signer.objection("rp-1--t-1", "one", &BTreeMap::new()).unwrap().contains("no signature"));
        assert!(signer.objection("rp-1--t-1", "one", &signed("")).is_some());
    }
}
