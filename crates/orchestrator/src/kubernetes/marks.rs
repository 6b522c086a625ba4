//! Labels and annotations of an engine's pods, and what the API server accepts as such.
//!
//! Driver and executors bear the same labels except for the role; the diff reads the role *engine* only. Annotations
//! hold what is never compared: generation, epoch, signature, and the files of an engine without executors.

use std::collections::BTreeMap;

use model::Epoch;
use model::labels::{self, LabelMap};
use sha2::{Digest as _, Sha256};

use crate::observed::annotations;
use crate::{Error, Spec};

use super::signature::{SIGNATURE_ANNOTATION, Signer};

/// The annotations that hold files begin with this; the number of the file follows.
pub const FILE_ANNOTATION: &str = "enginehouse.io/file-";
/// The name of the application, as Spark's cluster mode writes it.
pub const SPARK_APP_NAME: &str = "spark-app-name";
/// Spark's id of the application.
pub const SPARK_APP_SELECTOR: &str = "spark-app-selector";
/// Driver or executor.
pub const SPARK_ROLE: &str = "spark-role";
/// The version of Spark in the image.
pub const SPARK_VERSION: &str = "spark-version";

/// The labels of the engine's pod.
pub fn of_engine(spec: &Spec) -> LabelMap {
    let mut map = spec.labels.clone();
    if let Some(spark) = &spec.pod.spark {
        map.insert(SPARK_APP_NAME.to_owned(), spec.name.to_string());
        map.insert(SPARK_APP_SELECTOR.to_owned(), spark_app_id(spec));
        map.insert(SPARK_ROLE.to_owned(), "driver".to_owned());
        map.insert(SPARK_VERSION.to_owned(), spark.version.clone());
    }
    map
}

/// The labels of its executors' pods: those that Spark sets itself are left to it.
pub fn of_executors(spec: &Spec) -> LabelMap {
    let mut map = of_engine(spec);
    map.insert(labels::ROLE.to_owned(), labels::ROLE_EXECUTOR.to_owned());
    map.insert(SPARK_ROLE.to_owned(), "executor".to_owned());
    map
}

/// What cluster mode would draw at random: here it follows from namespace and name, so that making an engine twice
/// makes the same.
pub fn spark_app_id(spec: &Spec) -> String {
    let digest = Sha256::digest(format!("{}/{}", spec.namespace, spec.name));
    digest.iter().take(16).fold("spark-".to_owned(), |id, byte| format!("{id}{byte:02x}"))
}

/// The annotations of the engine's pod, without its files.
pub fn annotations_of(spec: &Spec, epoch: Epoch, signer: &Signer) -> BTreeMap<String, String> {
    let mut map = annotations(spec, epoch);
    map.insert(SIGNATURE_ANNOTATION.to_owned(), signer.sign(&spec.namespace, spec.name.as_str()));
    map
}

/// The annotations that are told: the signature proves nothing to a reader, and files may be secret.
pub fn told(all: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let hidden = |key: &str| key == SIGNATURE_ANNOTATION || key.starts_with(FILE_ANNOTATION);
    all.iter().filter(|(key, _)| !hidden(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Refuses a label that the API server would refuse.
pub fn check_label(label: &str, value: &str) -> Result<(), Error> {
    check_key(label)?;
    if labels::is_value(value) {
        return Ok(());
    }
    Err(Error::refused(format!("label \"{label}\" can't have the value \"{value}\" on a pod")))
}

/// Refuses the key of a label or annotation that the API server would refuse.
pub fn check_key(key: &str) -> Result<(), Error> {
    if labels::is_key(key) {
        return Ok(());
    }
    Err(Error::refused(format!("\"{key}\" is no name of a label or annotation on a pod")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_refused_by_key_and_by_value() {
        check_label("enginehouse.io/slot", "0").unwrap();
        for (label, value, said) in [("A.io/x", "a", "A.io/x"), ("x", "a b", "can't have the value")] {
            let refused = check_label(label, value).unwrap_err();
            assert!(matches!(&refused, Error::Refused { reason } if reason.contains(said)), "{refused}");
        }
    }

    #[test]
    fn neither_signature_nor_files_are_told() {
        let all = [(SIGNATURE_ANNOTATION, "s"), ("enginehouse.io/file-0", "key"), ("note", "kept")];
        let all: BTreeMap<_, _> = all.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        assert_eq!(told(&all).into_keys().collect::<Vec<_>>(), ["note"]);
    }
}
