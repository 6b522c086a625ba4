//! The Secret of an engine: what its containers mount and others must not read.
//!
//! It holds the agent's files, with the keys of this engine, and for Spark its properties, with the secret ones of the unit.
//! Each container mounts its own part only. Masters may create Secrets, and not read them, so the pod's uid is in it: the
//! agent compares it with its own, because a Secret of its name may be left of another pod.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{KeyToPath, Secret, SecretProjection, SecretVolumeSource, Volume};

use super::agent::{FILE_MODE, FILES};
use super::{owned_metadata, properties};
use crate::kubernetes::config::Config;
use crate::kubernetes::names::{self, OWNER_UID, SPARK, SPARK_PROPERTIES};
use crate::{Spec, java_properties};

/// The Secret, without its owner.
pub(super) fn secret(spec: &Spec, config: &Config) -> Secret {
    let mut data = BTreeMap::new();
    for (index, file) in spec.files.iter().enumerate() {
        data.insert(names::file_key(index), ByteString(file.content.clone()));
    }
    if let Some(spark) = &spec.options.spark {
        let comment = format!("Written by the master for container \"{SPARK}\" of this pod.");
        let properties = java_properties::text(&comment, &properties::all(spec, spark, config));
        data.insert(SPARK_PROPERTIES.to_owned(), ByteString(properties.into_bytes()));
    }
    Secret {
        metadata: owned_metadata(spec),
        data: Some(data),
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

/// The agent's files; only the agent's container mounts them.
pub(super) fn files_of_agent(spec: &Spec) -> Volume {
    let item = |key: String, path: &str| KeyToPath { key, mode: Some(FILE_MODE), path: path.to_owned() };
    let files = spec.files.iter().enumerate().map(|(index, file)| item(names::file_key(index), &file.path));
    let items = files.chain([item(OWNER_UID.to_owned(), OWNER_UID)]).collect();
    Volume {
        name: FILES.to_owned(),
        secret: Some(SecretVolumeSource {
            default_mode: Some(FILE_MODE),
            items: Some(items),
            optional: Some(false),
            secret_name: Some(spec.name.to_string()),
        }),
        ..Volume::default()
    }
}

/// Spark's properties, for a volume with more.
pub(super) fn spark_properties(spec: &Spec) -> SecretProjection {
    let item = KeyToPath { key: SPARK_PROPERTIES.to_owned(), mode: None, path: SPARK_PROPERTIES.to_owned() };
    SecretProjection { items: Some(vec![item]), name: spec.name.to_string(), optional: Some(false) }
}
