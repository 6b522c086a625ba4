//! The labels of an engine: the only place that encodes and decodes them.
//!
//! Slot and incarnation identify the engine; sizes, properties digest, configuration hash and owner must match the slot,
//! otherwise the engine is *outdated*. Foreign or broken labels decode to an error that names the label, never to a
//! guess.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::configuration::Configuration;
use crate::engine_name::EngineName;
use crate::labels::{
    CLUSTER, CONFIG, INCARNATION, LabelMap, MANAGED_BY, MANAGER, NAME, NAMESPACE, OWNER, POOL, ROLE, ROLE_ENGINE, SLOT,
    TENANT, UNIT, UNIT_CONFIGS, UNIT_PROPERTIES,
};
use crate::name::{PoolName, TenantName, UnitName};
use crate::number::Incarnation;
use crate::owner::{OWNER_LABEL_DIGITS, Owner};
use crate::slot::SlotKey;

/// The decoded labels of one engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineLabels {
    pub name: EngineName,
    pub namespace: String,
    /// The installation.
    pub cluster: String,
    pub slot: SlotKey,
    pub incarnation: Incarnation,
    /// The four sizes: `1_1G_2_2G`.
    pub sizes: String,
    /// The MD5 of the properties.
    pub properties: String,
    pub config: String,
    /// Of its [`Owner`]; `None` if the tenant shares the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// A missing or invalid label.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LabelError {
    #[error("label {0} is missing")]
    Missing(&'static str),
    #[error("label {label} has the value \"{value}\"")]
    Invalid { label: &'static str, value: String },
}

impl EngineLabels {
    /// The labels of the slot's engine, if the tenant shares it.
    pub fn new(cluster: &str, slot: &SlotKey, incarnation: Incarnation, configuration: &Configuration) -> Self {
        Self {
            name: slot.engine(incarnation),
            namespace: configuration.namespace.clone(),
            cluster: cluster.to_owned(),
            slot: slot.clone(),
            incarnation,
            sizes: configuration.sizes(),
            properties: configuration.properties_digest(),
            config: configuration.hash(),
            owner: None,
        }
    }

    /// The labels of an engine with this owner.
    #[must_use]
    pub fn owned_by(self, owner: Option<&Owner>) -> Self {
        Self { owner: owner.map(Owner::label), ..self }
    }

    /// Whether sizes, properties and configuration are those of the given configuration: the oracle of
    /// [`ConfigurationLabels::matches`] in tests.
    pub fn agrees_with(&self, configuration: &Configuration) -> bool {
        let agrees = |of: &Configuration| {
            self.sizes == of.sizes() && self.properties == of.properties_digest() && self.config == of.hash()
        };
        agrees(configuration) || configuration.unmasked().is_some_and(|unmasked| agrees(&unmasked))
    }

    pub fn encode(&self) -> LabelMap {
        [
            (NAME, self.name.to_string()),
            (NAMESPACE, self.namespace.clone()),
            (TENANT, self.slot.tenant.to_string()),
            (POOL, self.slot.pool.to_string()),
            (UNIT, self.slot.unit.to_string()),
            (UNIT_CONFIGS, self.sizes.clone()),
            (UNIT_PROPERTIES, self.properties.clone()),
            (MANAGED_BY, MANAGER.to_owned()),
            (CLUSTER, self.cluster.clone()),
            (ROLE, ROLE_ENGINE.to_owned()),
            (SLOT, self.slot.ordinal.to_string()),
            (INCARNATION, self.incarnation.to_string()),
            (CONFIG, self.config.clone()),
        ]
        .into_iter()
        .chain(self.owner.clone().map(|owner| (OWNER, owner)))
        .map(|(label, value)| (label.to_owned(), value))
        .collect()
    }

    /// Decodes labels; fails on the first that is missing or invalid.
    pub fn decode(labels: &LabelMap) -> Result<Self, LabelError> {
        fn read<T>(labels: &LabelMap, label: &'static str, parse: impl Fn(&str) -> Option<T>) -> Result<T, LabelError> {
            let value = labels.get(label).ok_or(LabelError::Missing(label))?;
            parse(value).ok_or_else(|| LabelError::Invalid { label, value: value.clone() })
        }
        let text = |label| read(labels, label, |value| Some(value.to_owned()));
        read(labels, MANAGED_BY, |value| (value == MANAGER).then_some(()))?;
        read(labels, ROLE, |value| (value == ROLE_ENGINE).then_some(()))?;
        Ok(Self {
            name: read(labels, NAME, |value| EngineName::new(value).ok())?,
            namespace: text(NAMESPACE)?,
            cluster: text(CLUSTER)?,
            slot: SlotKey {
                tenant: read(labels, TENANT, |value| TenantName::new(value).ok())?,
                pool: read(labels, POOL, |value| PoolName::new(value).ok())?,
                unit: read(labels, UNIT, |value| UnitName::new(value).ok())?,
                ordinal: read(labels, SLOT, |value| value.parse().ok())?,
            },
            incarnation: read(labels, INCARNATION, |value| value.parse().ok().map(Incarnation))?,
            sizes: text(UNIT_CONFIGS)?,
            properties: text(UNIT_PROPERTIES)?,
            config: text(CONFIG)?,
            owner: match labels.get(OWNER) {
                Some(value) if is_owner(value) => Some(value.clone()),
                Some(value) => return Err(LabelError::Invalid { label: OWNER, value: value.clone() }),
                None => None,
            },
        })
    }
}

fn is_owner(value: &str) -> bool {
    value.len() == OWNER_LABEL_DIGITS && value.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The labels that follow from a configuration, computed once for many engines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigurationLabels {
    sizes: String,
    properties: String,
    config: String,
    /// Digest and hash as computed by programs before schema version 6, where they differ.
    unmasked: Option<(String, String)>,
}

impl ConfigurationLabels {
    pub fn new(configuration: &Configuration) -> Self {
        Self {
            sizes: configuration.sizes(),
            properties: configuration.properties_digest(),
            config: configuration.hash(),
            unmasked: configuration.unmasked().map(|unmasked| (unmasked.properties_digest(), unmasked.hash())),
        }
    }

    /// Whether labels can be decoded and are those of the slot's engine of that name with this configuration and owner. Gives the
    /// result of [`EngineLabels::decode`] and [`EngineLabels::agrees_with`] in one pass that allocates nothing, except for the
    /// label of an owner.
    pub fn matches(
        &self,
        labels: &LabelMap,
        name: &EngineName,
        slot: &SlotKey,
        incarnation: Incarnation,
        owner: Option<&Owner>,
    ) -> bool {
        let mut wanted = SORTED.iter().peekable();
        let (mut properties, mut config) = (&self.properties, &self.config);
        if let Some((unmasked_properties, unmasked_config)) = &self.unmasked
            && labels.get(CONFIG) == Some(unmasked_config)
        {
            (properties, config) = (unmasked_properties, unmasked_config);
        }
        for (label, value) in labels {
            if wanted.peek() != Some(&&label.as_str()) {
                continue;
            }
            wanted.next();
            let fits = match label.as_str() {
                NAME => value == name.as_str(),
                TENANT => value == slot.tenant.as_str(),
                POOL => value == slot.pool.as_str(),
                UNIT => value == slot.unit.as_str(),
                UNIT_CONFIGS => *value == self.sizes,
                UNIT_PROPERTIES => value == properties,
                CONFIG => value == config,
                MANAGED_BY => value == MANAGER,
                ROLE => value == ROLE_ENGINE,
                SLOT => value.parse() == Ok(slot.ordinal),
                INCARNATION => value.parse() == Ok(incarnation.get()),
                // Namespace and cluster are not compared.
                _ => true,
            };
            if !fits {
                return false;
            }
        }
        wanted.next().is_none() && labels.get(OWNER) == owner.map(Owner::label).as_ref()
    }
}

/// The labels of every engine, sorted.
const SORTED: [&str; 13] = [
    MANAGED_BY,
    CLUSTER,
    CONFIG,
    INCARNATION,
    ROLE,
    SLOT,
    NAME,
    NAMESPACE,
    POOL,
    TENANT,
    UNIT_CONFIGS,
    UNIT,
    UNIT_PROPERTIES,
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::catalog::PoolSpec;
    use crate::change::UnitPatch;
    use crate::configuration::Defaults;
    use crate::labels::selector;

    fn slot() -> SlotKey {
        SlotKey {
            tenant: TenantName::new("t_1").unwrap(),
            pool: PoolName::new("rp_1").unwrap(),
            unit: UnitName::new("uc_1").unwrap(),
            ordinal: 3,
        }
    }

    fn configuration() -> Configuration {
        let unit = UnitPatch::default().create(&Defaults::default()).unwrap();
        let slot = slot();
        Configuration::new(&slot.tenant, &slot.pool, &PoolSpec::default(), &unit, &Defaults::default())
    }

    fn labels() -> EngineLabels {
        EngineLabels::new("eh", &slot(), Incarnation(12), &configuration())
    }

    #[test]
    fn labels_survive_a_round_trip() {
        let labels = labels();
        assert_eq!(EngineLabels::decode(&labels.encode()).unwrap(), labels);
        assert!(selector("eh").iter().all(|(label, value)| labels.encode().get(label) == Some(value)));
    }

    #[test]
    fn matching_labels_gives_the_result_of_decoding_them() {
        let (labels, of) = (labels(), configuration());
        let expected = ConfigurationLabels::new(&of);
        let matches = |map: &LabelMap| expected.matches(map, &labels.name, &labels.slot, labels.incarnation, None);
        let agrees = |map: &LabelMap| {
            EngineLabels::decode(map).is_ok_and(|decoded| {
                (&decoded.name, &decoded.slot, decoded.incarnation) == (&labels.name, &labels.slot, labels.incarnation)
                    && decoded.agrees_with(&of)
            })
        };
        let mut whole = labels.encode();
        assert!(SORTED.is_sorted() && SORTED.iter().eq(whole.keys()), "{SORTED:?} {:?}", whole.keys());
        for (label, value) in [("a", "first"), ("spark-version", "in between"), ("zone", "last")] {
            whole.insert(label.to_owned(), value.to_owned());
            assert!(matches(&whole) && agrees(&whole));
        }
        let mut agreed = 0;
        for label in SORTED {
            for value in [None, Some("-?"), Some("other"), Some("3"), Some("03"), Some("12"), Some("")] {
                let mut map = whole.clone();
                match value {
                    Some(value) => drop(map.insert(label.to_owned(), value.to_owned())),
                    None => drop(map.remove(label)),
                }
                assert_eq!(matches(&map), agrees(&map), "{label} {value:?}");
                agreed += usize::from(matches(&map));
            }
        }
        assert!(agreed > 12, "only {agreed}: namespace and cluster are not compared, numbers may have leading zeros");
    }

    #[test]
    fn the_owner_is_a_label_that_only_owned_engines_have() {
        let [ann, bob] = ["ann", "bob"].map(|name| Owner::User(name.to_owned()));
        let expected = ConfigurationLabels::new(&configuration());
        let unowned = labels();
        assert!(!unowned.encode().contains_key(OWNER));
        let of_ann = labels().owned_by(Some(&ann));
        assert_eq!(EngineLabels::decode(&of_ann.encode()).unwrap(), of_ann);
        for (of_engine, of_slot, fits) in [
            (&of_ann, Some(&ann), true),
            (&of_ann, Some(&bob), false),
            (&of_ann, None, false),
            (&unowned, None, true),
            (&unowned, Some(&ann), false),
        ] {
            let EngineLabels { name, slot, incarnation, .. } = of_engine;
            assert_eq!(expected.matches(&of_engine.encode(), name, slot, *incarnation, of_slot), fits, "{of_slot:?}");
        }
        let mut broken = of_ann.encode();
        for value in ["ann", "", "ABCDEF0123456789", "0123456789abcdef0"] {
            broken.insert(OWNER.to_owned(), value.to_owned());
            let error = EngineLabels::decode(&broken).unwrap_err();
            assert_eq!(error, LabelError::Invalid { label: OWNER, value: value.to_owned() });
        }
    }

    /// An upgrade replaces no engine: an engine with labels of unmasked values stays until its secrets change.
    #[test]
    fn labels_of_clear_values_fit_until_a_secret_changes() {
        use crate::fingerprint::{FingerprintKey, SecretProperties};
        let with = |value: &str| {
            let mut changed = configuration();
            changed.properties.insert("db.password".to_owned(), value.to_owned());
            let (unit, words) = (UnitName::new("uc_1").unwrap(), crate::secret::SecretKeys::default());
            changed.secrets =
                SecretProperties::new(&unit, None, &changed.properties, &words, &FingerprintKey::default());
            changed
        };
        let (now, changed) = (with("a"), with("b"));
        let labels_of = |of: &Configuration| EngineLabels::new("eh", &slot(), Incarnation(12), of);
        for (labels, fits) in [
            (labels_of(&now), true),
            (labels_of(&now.unmasked().unwrap()), true),
            (labels_of(&changed), false),
            (labels_of(&changed.unmasked().unwrap()), false),
        ] {
            let map = labels.encode();
            assert_eq!(labels.agrees_with(&now), fits);
            let walked =
                ConfigurationLabels::new(&now).matches(&map, &labels.name, &labels.slot, labels.incarnation, None);
            assert_eq!(walked, fits);
        }
        assert_eq!(labels_of(&now).properties, labels_of(&changed).properties, "the value is masked");
    }

    #[test]
    fn a_missing_or_broken_label_is_named() {
        for label in [NAME, TENANT, SLOT, INCARNATION, ROLE, MANAGED_BY] {
            let mut map = labels().encode();
            map.insert(label.to_owned(), "-?".to_owned());
            assert!(
                matches!(EngineLabels::decode(&map), Err(LabelError::Invalid { label: named, .. }) if named == label)
            );
            map.remove(label);
            assert_eq!(EngineLabels::decode(&map), Err(LabelError::Missing(label)));
        }
    }
}
