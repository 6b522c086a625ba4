//! Labels and annotations of an engine's pods, and the syntax that the API server accepts.
//!
//! Driver and executors have the same labels except for the role; only pods with the role *engine* are compared with the
//! desired state. Annotations hold what is never compared: generation, epoch, signature, and the files of an engine without
//! executors.

use std::collections::BTreeMap;

use model::Epoch;
use model::labels::{self, LabelMap};
use sha2::{Digest as _, Sha256};

use crate::observed::annotations;
use crate::{Error, Spec};

use super::signature::{SIGNATURE_ANNOTATION, Signer};

/// The prefix of annotations that hold files; the index of the file follows.
pub const FILE_ANNOTATION: &str = "enginehouse.io/file-";
/// The application name, as in Spark's cluster mode.
pub const SPARK_APP_NAME: &str = "spark-app-name";
/// Spark's application id.
pub const SPARK_APP_SELECTOR: &str = "spark-app-selector";
/// Driver or executor.
pub const SPARK_ROLE: &str = "spark-role";
/// The version of Spark in the image.
pub const SPARK_VERSION: &str = "spark-version";

/// The labels of the engine's pod.
pub fn engine_labels(spec: &Spec) -> LabelMap {
    let mut map = spec.labels.clone();
    if let Some(spark) = &spec.options.spark {
        map.insert(SPARK_APP_NAME.to_owned(), spec.name.to_string());
        map.insert(SPARK_APP_SELECTOR.to_owned(), spark_app_id(spec));
        map.insert(SPARK_ROLE.to_owned(), "driver".to_owned());
        map.insert(SPARK_VERSION.to_owned(), spark.version.clone());
    }
    map
}

/// The labels of its executors' pods, without those that Spark sets itself.
pub fn executor_labels(spec: &Spec) -> LabelMap {
    let mut map = engine_labels(spec);
    map.insert(labels::ROLE.to_owned(), labels::ROLE_EXECUTOR.to_owned());
    map.insert(SPARK_ROLE.to_owned(), "executor".to_owned());
    map
}

/// Spark's cluster mode would draw it at random; here it is derived from namespace and name, so that equal specs render to
/// equal objects.
pub fn spark_app_id(spec: &Spec) -> String {
    let digest = Sha256::digest(format!("{}/{}", spec.locality, spec.name));
    digest.iter().take(16).fold("spark-".to_owned(), |id, byte| format!("{id}{byte:02x}"))
}

/// The annotations of the engine's pod, without its files.
pub fn engine_annotations(spec: &Spec, epoch: Epoch, signer: &Signer) -> BTreeMap<String, String> {
    let mut map = annotations(spec, epoch);
    map.insert(SIGNATURE_ANNOTATION.to_owned(), signer.sign(&spec.locality, spec.name.as_str()));
    map
}

/// The annotations that may be reported: the signature proves nothing to a reader, and files may be secret.
pub fn without_hidden(all: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let hidden = |key: &str| key == SIGNATURE_ANNOTATION || key.starts_with(FILE_ANNOTATION);
    all.iter().filter(|(key, _)| !hidden(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Refuses a label that the API server would refuse.
pub fn check_label(label: &str, value: &str) -> Result<(), Error> {
    check_key(label)?;
    if labels::is_value(value) {
        return Ok(());
    }
    Err(Error::refused(format!("invalid value \"{value}\" of pod label \"{label}\"")))
}

/// Refuses the key of a label or annotation that the API server would refuse.
pub fn check_key(key: &str) -> Result<(), Error> {
    if labels::is_key(key) {
        return Ok(());
    }
    Err(Error::refused(format!("invalid name \"{key}\" of a pod label or annotation")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_checked_by_key_and_by_value() {
        check_label("enginehouse.io/slot", "0").unwrap();
        for (label, value, text) in [("A.io/x", "a", "A.io/x"), ("x", "a b", "invalid value")] {
            let refused = check_label(label, value).unwrap_err();
            assert!(matches!(&refused, Error::Refused { reason, .. } if reason.contains(text)), "{refused}");
        }
    }

    #[test]
    fn neither_signature_nor_files_are_reported() {
        let all = [(SIGNATURE_ANNOTATION, "s"), ("enginehouse.io/file-0", "key"), ("note", "kept")];
        let all: BTreeMap<_, _> = all.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        assert_eq!(without_hidden(&all).into_keys().collect::<Vec<_>>(), ["note"]);
    }
}
