//! Resource units: options, defaults, validation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Setting, check_comment};
use crate::catalog::{ChargedExecutors, MAX_ENGINES_LIMIT, MAX_EXECUTORS_LIMIT, MAX_PROPERTIES, PRIORITIES, UnitSpec};
use crate::configuration::Defaults;
use crate::engine_type::EngineType;
use crate::error::{ErrorKind, UserError};
use crate::name::UnitName;
use crate::quantity::{Cpu, Memory};
use crate::secret::{MASK, SecretKeys};
use crate::statement_timeout;

/// The options of a unit that a statement names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UnitPatch {
    /// `ENGINE_TYPE`
    pub engine_type: Option<EngineType>,
    /// `DRIVER_CPU`
    pub driver_cpu: Option<Cpu>,
    /// `DRIVER_MEMORY`
    pub driver_memory: Option<Memory>,
    /// `EXECUTOR_CPU`
    pub executor_cpu: Option<Cpu>,
    /// `EXECUTOR_MEMORY`
    pub executor_memory: Option<Memory>,
    /// `MIN_EXECUTORS`
    pub min_executors: Option<u32>,
    /// `MAX_EXECUTORS`
    pub max_executors: Option<u32>,
    /// `MIN_ENGINES`
    pub min_engines: Option<u32>,
    /// `MAX_ENGINES`
    pub max_engines: Option<u32>,
    /// `PROPERTIES`
    pub properties: PropertiesPatch,
    /// `PRIORITY`
    #[serde(default)]
    pub priority: Option<i32>,
    /// `CHARGE`
    #[serde(default)]
    pub charge: Option<ChargedExecutors>,
    /// `COMMENT`
    pub comment: Setting<String>,
}

/// The changes that a statement makes to the properties.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PropertiesPatch {
    /// `PROPERTIES RESET`: removes all properties first.
    pub reset: bool,
    /// Keys with their new values; `None` removes the key.
    pub set: BTreeMap<String, Option<String>>,
}

impl PropertiesPatch {
    /// A new object has no stored value that the mask could stand for.
    pub(super) fn refuse_masked_on_create(&self, keys: &SecretKeys) -> Result<(), UserError> {
        let masked = |(key, value): &(&String, &Option<String>)| keys.is_secret(key) && value.as_deref() == Some(MASK);
        match self.set.iter().find(masked) {
            None => Ok(()),
            Some((key, _)) => Err(UserError::new(
                ErrorKind::InvalidValue,
                format!("property \"{key}\" has the text that masks secret values"),
            )
            .hint("Specify an explicit value.")),
        }
    }

    fn onto(&self, properties: &mut BTreeMap<String, String>, keys: &SecretKeys) -> Result<(), UserError> {
        let stored = properties.clone();
        if self.reset {
            properties.clear();
        }
        for (key, value) in &self.set {
            match value {
                None => {
                    properties.remove(key);
                }
                Some(value) if value == MASK && keys.is_secret(key) => {
                    let kept = stored.get(key).ok_or_else(|| {
                        UserError::new(
                            ErrorKind::InvalidValue,
                            format!("property \"{key}\" has no stored value to keep"),
                        )
                        .hint("Specify an explicit value.")
                    })?;
                    properties.insert(key.clone(), kept.clone());
                }
                Some(value) => {
                    properties.insert(key.clone(), value.clone());
                }
            }
        }
        Ok(())
    }
}

impl UnitPatch {
    /// The spec of a new unit: the options of the statement, and defaults for the rest.
    pub fn create(&self, defaults: &Defaults) -> Result<UnitSpec, UserError> {
        let fresh = UnitSpec {
            engine_type: defaults.engine_type,
            driver_cpu: Cpu::ONE,
            driver_memory: Memory::GIB,
            executor_cpu: Cpu::ONE,
            executor_memory: Memory::GIB,
            min_executors: 0,
            max_executors: 2.max(self.min_executors.unwrap_or(0)),
            min_engines: 0,
            max_engines: 10.max(self.min_engines.unwrap_or(0)),
            properties: BTreeMap::new(),
            secrets: None,
            priority: 0,
            charge: ChargedExecutors::default(),
            comment: None,
        };
        self.alter(&fresh, &SecretKeys::new(Vec::new()))
    }

    /// The spec after an ALTER: options that are not named stay.
    pub(super) fn alter(&self, before: &UnitSpec, keys: &SecretKeys) -> Result<UnitSpec, UserError> {
        let mut spec = before.clone();
        let set = |target: &mut u32, value: Option<u32>| {
            if let Some(value) = value {
                *target = value;
            }
        };
        spec.engine_type = self.engine_type.unwrap_or(spec.engine_type);
        spec.driver_cpu = self.driver_cpu.unwrap_or(spec.driver_cpu);
        spec.driver_memory = self.driver_memory.unwrap_or(spec.driver_memory);
        spec.executor_cpu = self.executor_cpu.unwrap_or(spec.executor_cpu);
        spec.executor_memory = self.executor_memory.unwrap_or(spec.executor_memory);
        set(&mut spec.min_executors, self.min_executors);
        set(&mut spec.max_executors, self.max_executors);
        set(&mut spec.min_engines, self.min_engines);
        set(&mut spec.max_engines, self.max_engines);
        self.properties.onto(&mut spec.properties, keys)?;
        spec.priority = self.priority.unwrap_or(spec.priority);
        spec.charge = self.charge.unwrap_or(spec.charge);
        self.comment.onto(&mut spec.comment);
        Ok(spec)
    }
}

pub(super) fn validate(name: &UnitName, spec: &UnitSpec) -> Result<(), UserError> {
    check_range(name, "ENGINES", spec.min_engines, spec.max_engines, MAX_ENGINES_LIMIT)?;
    check_range(name, "EXECUTORS", spec.min_executors, spec.max_executors, MAX_EXECUTORS_LIMIT)?;
    check_comment(&format!("resource unit \"{name}\""), spec.comment.as_ref())?;
    if !PRIORITIES.contains(&spec.priority) {
        let message = format!("invalid PRIORITY {} of resource unit \"{name}\"", spec.priority);
        return Err(UserError::new(ErrorKind::InvalidValue, message).detail(format!(
            "It is a whole number from {} to {}.",
            PRIORITIES.start(),
            PRIORITIES.end()
        )));
    }
    if spec.properties.len() > MAX_PROPERTIES {
        return Err(UserError::new(
            ErrorKind::ProgramLimit,
            format!("resource unit \"{name}\" has too many properties"),
        )
        .detail(format!("It has {}; the limit is {MAX_PROPERTIES}.", spec.properties.len())));
    }
    if spec.properties.keys().any(String::is_empty) {
        return Err(UserError::new(
            ErrorKind::InvalidValue,
            format!("resource unit \"{name}\" has a property without a key"),
        )
        .detail("The key of a property has at least one character.")
        .hint("Write PROPERTIES ('key'='value')."));
    }
    statement_timeout::check(&spec.properties)
}

fn check_range(name: &UnitName, what: &str, min: u32, max: u32, limit: u32) -> Result<(), UserError> {
    if min > max {
        return Err(UserError::new(
            ErrorKind::InvalidValue,
            format!("MIN_{what} of resource unit \"{name}\" is above its MAX_{what}"),
        )
        .detail(format!("MIN_{what} is {min}, MAX_{what} is {max}."))
        .hint(format!("Set both: MIN_{what} {min}, MAX_{what} {min}.")));
    }
    if max > limit {
        return Err(UserError::new(
            ErrorKind::ProgramLimit,
            format!("MAX_{what} of resource unit \"{name}\" is too high"),
        )
        .detail(format!("It is {max}; the limit is {limit}.")));
    }
    Ok(())
}
