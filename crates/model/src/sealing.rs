//! The sealing of units: what their rows have for their secret properties, and back.
//!
//! A value that cannot be opened stays sealed: a change of other options keeps it, every output masks it, and no engine is
//! created with it ([`closed`]), while running engines and other units are not affected. A process without keys leaves all values
//! as they are.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::catalog::{Catalog, UnitSpec};
use crate::error::{ErrorKind, UserError};
use crate::key_generation::KeyGeneration;
use crate::name::UnitName;
use crate::sealed::{CannotOpen, PropertyRef, SealedValue, SealingKeys, is_sealed};

/// The sealing of secret properties; by default without keys.
#[derive(Debug, Clone, Default)]
pub struct Sealing(Option<Arc<dyn SealingKeys>>);

/// A value of a row that cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedProperty {
    pub unit: UnitName,
    pub key: String,
    pub reason: CannotOpen,
}

impl fmt::Display for ClosedProperty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "property \"{}\" of resource unit \"{}\": {}", self.key, self.unit, self.reason)
    }
}

impl Sealing {
    pub fn new(keys: impl SealingKeys + 'static) -> Self {
        Self(Some(Arc::new(keys)))
    }

    /// The generation that new values are sealed with; `None` if they are stored in clear.
    pub fn in_use(&self) -> Option<KeyGeneration> {
        self.0.as_ref()?.in_use()
    }

    /// The unit as its row has it: with each recorded secret value sealed.
    pub fn seal(&self, unit: &UnitName, spec: &UnitSpec) -> Result<UnitSpec, UserError> {
        let mut stored = spec.clone();
        let (Some(keys), Some(secrets)) = (&self.0, &spec.secrets) else { return Ok(stored) };
        let secret = stored.properties.iter_mut().filter(|(key, _)| secrets.keys.contains(*key));
        for (key, value) in secret.filter(|(_, value)| !is_sealed(value)) {
            *value = keys.seal(&PropertyRef { unit, key }, value)?;
        }
        Ok(stored)
    }

    /// Opens the values of a row that can be opened, and returns the others.
    pub fn open(&self, unit: &UnitName, spec: &mut UnitSpec) -> Vec<ClosedProperty> {
        let mut closed = Vec::new();
        let Some(keys) = &self.0 else { return closed };
        for (key, value) in spec.properties.iter_mut().filter(|(_, value)| is_sealed(value)) {
            let opened = match SealedValue::parse(value) {
                Some(sealed) => keys.open(&PropertyRef { unit, key }, &sealed),
                None => Err(CannotOpen::NotGenuine),
            };
            match opened {
                Ok(opened) => *value = opened,
                Err(reason) => closed.push(ClosedProperty { unit: unit.clone(), key: key.clone(), reason }),
            }
        }
        closed
    }

    /// The same for all units.
    pub fn open_all(&self, catalog: &mut Catalog) -> Vec<ClosedProperty> {
        catalog.units.iter_mut().flat_map(|(name, unit)| self.open(name, &mut unit.spec)).collect()
    }

    /// Whether a row is to be sealed again: it has a secret value in clear, or one that was sealed with a generation before
    /// the one in use. A later generation is left to the agents that use it.
    pub fn is_due(&self, stored: &UnitSpec) -> bool {
        let Some(in_use) = self.in_use() else { return false };
        stored_secrets(stored).any(|value| match SealedValue::parse(value) {
            Some(sealed) => sealed.generation < in_use,
            None => !is_sealed(value),
        })
    }
}

/// Whether a row has a secret value in clear.
pub fn has_clear(stored: &UnitSpec) -> bool {
    stored_secrets(stored).any(|value| !is_sealed(value))
}

/// The values of the recorded secret properties of a row.
fn stored_secrets(stored: &UnitSpec) -> impl Iterator<Item = &str> {
    let secrets = stored.secrets.as_ref();
    let is_secret = move |key: &String| secrets.is_some_and(|secrets| secrets.keys.contains(key));
    stored.properties.iter().filter(move |(key, _)| is_secret(key)).map(|(_, value)| value.as_str())
}

/// The error for an engine of the unit if a value of its properties is still sealed.
pub fn closed(unit: &UnitName, properties: &BTreeMap<String, String>) -> Option<UserError> {
    let (key, value) = properties.iter().find(|(_, value)| is_sealed(value))?;
    let reason = match SealedValue::parse(value) {
        Some(SealedValue { generation, .. }) => format!(
            "It is sealed with generation {generation} of the keys, which the metadata agent does not accept, or it was altered."
        ),
        None => "It was altered.".to_owned(),
    };
    let message = format!("property \"{key}\" of resource unit \"{unit}\" cannot be opened");
    let hint = format!(
        "Give the metadata agents a key file that accepts its generation, or set the value again: ALTER RESOURCE UNIT {unit} \
         PROPERTIES ('{key}'='…')."
    );
    Some(UserError::new(ErrorKind::WrongState, message).detail(reason).hint(hint))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::change::UnitPatch;
    use crate::configuration::Defaults;
    use crate::fingerprint::SecretProperties;

    /// Marks values instead of encrypting them: this module does not depend on how that is done. Accepts two generations.
    #[derive(Debug)]
    struct Marks(Option<u32>);

    impl SealingKeys for Marks {
        fn in_use(&self) -> Option<KeyGeneration> {
            self.0.map(KeyGeneration)
        }

        fn seal(&self, place: &PropertyRef<'_>, value: &str) -> Result<String, UserError> {
            let content = format!("{}/{}/{value}", place.unit, place.key);
            Ok(match self.in_use() {
                Some(generation) => SealedValue { generation, content: &content }.to_string(),
                None => value.to_owned(),
            })
        }

        fn open(&self, place: &PropertyRef<'_>, sealed: &SealedValue<'_>) -> Result<String, CannotOpen> {
            if !(1..=2).contains(&sealed.generation.0) {
                return Err(CannotOpen::NotAccepted(sealed.generation));
            }
            let prefix = format!("{}/{}/", place.unit, place.key);
            sealed.content.strip_prefix(&prefix).map(str::to_owned).ok_or(CannotOpen::NotGenuine)
        }
    }

    fn unit() -> UnitName {
        UnitName::new("uc_1").unwrap()
    }

    fn spec(pairs: &[(&str, &str)], secret: &[&str]) -> UnitSpec {
        let mut spec = UnitPatch::default().create(&Defaults::default()).unwrap();
        spec.properties = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let keys = secret.iter().map(|key| (*key).to_owned()).collect();
        spec.secrets = (!secret.is_empty()).then(|| SecretProperties { keys, fingerprint: "f".to_owned() });
        spec
    }

    #[test]
    fn secret_values_are_sealed_and_opened_and_others_stay() {
        let clear = spec(&[("a", "1"), ("db.password", "x"), ("odd", "y")], &["db.password", "odd"]);
        let sealing = Sealing::new(Marks(Some(2)));
        let mut stored = sealing.seal(&unit(), &clear).unwrap();
        assert_eq!(stored.properties["a"], "1");
        assert_eq!(stored.properties["db.password"], "sealed:1:2:uc_1/db.password/x");
        assert_eq!(sealing.seal(&unit(), &stored).unwrap(), stored, "nothing is sealed twice");
        assert_eq!(sealing.open(&unit(), &mut stored), []);
        assert_eq!(stored, clear);
        let without = Sealing::new(Marks(None));
        assert_eq!(without.seal(&unit(), &clear).unwrap(), clear);
        assert_eq!(Sealing::default().seal(&unit(), &clear).unwrap(), clear);
    }

    #[test]
    fn a_value_that_cannot_be_opened_stays_and_is_named() {
        let pairs = [
            ("fine", "sealed:1:1:uc_1/fine/v"),
            ("moved", "sealed:1:1:uc_1/fine/v"),
            ("retired", "sealed:1:7:uc_1/retired/v"),
            ("torn", "sealed:"),
        ];
        let mut stored = spec(&pairs, &["fine", "moved", "retired", "torn"]);
        let closed_ones = Sealing::new(Marks(Some(2))).open(&unit(), &mut stored);
        let named: Vec<(&str, CannotOpen)> = closed_ones.iter().map(|one| (one.key.as_str(), one.reason)).collect();
        let (altered, retired) = (CannotOpen::NotGenuine, CannotOpen::NotAccepted(KeyGeneration(7)));
        assert_eq!(named, [("moved", altered), ("retired", retired), ("torn", altered)]);
        assert_eq!(stored.properties["fine"], "v");
        assert!(
            named.iter().all(|(key, _)| stored.properties[*key] == pairs.iter().find(|(of, _)| of == key).unwrap().1)
        );
        let error = closed(&unit(), &stored.properties).unwrap();
        assert_eq!(error.message, "property \"moved\" of resource unit \"uc_1\" cannot be opened");
        assert_eq!(error.sqlstate(), "55000");
        assert!(closed(&unit(), &spec(&[("a", "1")], &[]).properties).is_none());
    }

    #[test]
    fn rows_in_clear_or_of_an_older_generation_are_due() {
        let is_due = |in_use, value| Sealing::new(Marks(in_use)).is_due(&spec(&[("a", "1"), ("k", value)], &["k"]));
        assert!(is_due(Some(2), "x") && is_due(Some(2), "sealed:1:1:uc_1/k/x"));
        for settled in ["sealed:1:2:uc_1/k/x", "sealed:1:3:uc_1/k/x", "sealed:torn"] {
            assert!(!is_due(Some(2), settled), "{settled}");
        }
        assert!(!is_due(None, "x"), "generation 0 seals nothing");
        assert!(!Sealing::default().is_due(&spec(&[("k", "x")], &["k"])));
        assert!(!Sealing::new(Marks(Some(2))).is_due(&spec(&[("a", "1")], &[])));
    }
}
