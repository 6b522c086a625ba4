//! Resource units: options, defaults, validation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Setting, check_comment};
use crate::catalog::{ChargedExecutors, MAX_ENGINES_LIMIT, MAX_EXECUTORS_LIMIT, MAX_PROPERTIES, PRIORITIES, UnitSpec};
use crate::configuration::Defaults;
use crate::engine_type::{EngineType, Executors};
use crate::error::{ErrorKind, UserError};
use crate::name::UnitName;
use crate::on_demand::{IdleTimeout, MAX_SESSIONS_PER_ENGINE};
use crate::owner::SharedBy;
use crate::quantity::{Cpu, Memory};
use crate::run_as::{self, RunAs};
use crate::sealed;
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
    /// `START_ON_DEMAND`
    #[serde(default)]
    pub start_on_demand: Setting<bool>,
    /// `SESSIONS_PER_ENGINE`; `Reset` is UNLIMITED.
    #[serde(default)]
    pub sessions_per_engine: Setting<u32>,
    /// `SPARE_ENGINES`
    #[serde(default)]
    pub spare_engines: Option<u32>,
    /// `IDLE_TIMEOUT`
    #[serde(default)]
    pub idle_timeout: Setting<IdleTimeout>,
    /// `SHARED_BY`
    #[serde(default)]
    pub shared_by: Option<SharedBy>,
    /// `RUN_AS`
    #[serde(default)]
    pub run_as: Option<RunAs>,
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

    /// Whether a secret value is not the stored one. A value that is stored sealed is unknown, and the mask stands for the stored one.
    pub fn sets_other_secrets(&self, stored: &BTreeMap<String, String>, keys: &SecretKeys) -> bool {
        let secrets = self.set.iter().filter(|(key, _)| keys.is_secret(key));
        secrets
            .filter_map(|(key, value)| Some((value.as_deref()?, stored.get(key)?)))
            .any(|(value, stored)| value != MASK && !sealed::is_sealed(stored) && value != stored)
    }

    fn onto(&self, properties: &mut BTreeMap<String, String>, keys: &SecretKeys) -> Result<(), UserError> {
        sealed::refuse(self.set.iter().filter_map(|(key, value)| Some((key.as_str(), value.as_deref()?))))?;
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
            max_engines: 10.max(self.min_engines.unwrap_or(0)).max(self.spare_engines.unwrap_or(0)),
            properties: BTreeMap::new(),
            secrets: None,
            priority: 0,
            charge: ChargedExecutors::default(),
            start_on_demand: None,
            sessions_per_engine: None,
            spare_engines: 0,
            idle_timeout: None,
            shared_by: SharedBy::default(),
            run_as: RunAs::default(),
            comment: None,
        };
        self.alter(&fresh, &SecretKeys::new(Vec::new()))
    }

    /// Refuses `RUN_AS 'owner'` where clients prove no names. A unit that has the option may still be altered.
    pub(super) fn refuse_unproven_owner(&self, name: &UnitName, names_are_proven: bool) -> Result<(), UserError> {
        if names_are_proven || self.run_as != Some(RunAs::Owner) {
            return Ok(());
        }
        Err(run_as::unproven(&format!("the engines of resource unit \"{name}\" cannot run as their owner")))
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
        self.start_on_demand.onto(&mut spec.start_on_demand);
        self.sessions_per_engine.onto(&mut spec.sessions_per_engine);
        set(&mut spec.spare_engines, self.spare_engines);
        self.idle_timeout.onto(&mut spec.idle_timeout);
        spec.shared_by = self.shared_by.unwrap_or(spec.shared_by);
        spec.run_as = self.run_as.unwrap_or(spec.run_as);
        self.comment.onto(&mut spec.comment);
        Ok(spec)
    }

    /// Checks the options of the statement against the engine type of the resulting unit. A type that the installation cannot
    /// launch is refused when a unit is created, and when a statement names it, so that other options of an existing
    /// unit can still be altered.
    pub(super) fn check_type(
        &self,
        name: &UnitName,
        before: Option<&UnitSpec>,
        after: &UnitSpec,
        defaults: &Defaults,
    ) -> Result<(), UserError> {
        let engine_type = after.engine_type;
        if engine_type.resources().executors == Executors::Refused
            && let Some(option) = self.option_of_executors()
        {
            let message = format!("{option} of resource unit \"{name}\" is not supported");
            return Err(UserError::new(ErrorKind::InvalidValue, message)
                .detail(format!("Engines of type '{engine_type}' have no executors."))
                .hint("Omit the options for executors. DRIVER_CPU and DRIVER_MEMORY are the size of an engine."));
        }
        match defaults.refused_types.get(&engine_type) {
            Some(error) if before.is_none() || self.engine_type.is_some() => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// The first option for executors that the statement names.
    fn option_of_executors(&self) -> Option<&'static str> {
        let named = [
            ("EXECUTOR_CPU", self.executor_cpu.is_some()),
            ("EXECUTOR_MEMORY", self.executor_memory.is_some()),
            ("MIN_EXECUTORS", self.min_executors.is_some()),
            ("MAX_EXECUTORS", self.max_executors.is_some()),
            ("CHARGE", self.charge.is_some()),
        ];
        named.into_iter().find_map(|(option, is_named)| is_named.then_some(option))
    }
}

pub(super) fn validate(name: &UnitName, spec: &UnitSpec) -> Result<(), UserError> {
    check_range(name, "ENGINES", spec.min_engines, spec.max_engines, MAX_ENGINES_LIMIT)?;
    check_range(name, "EXECUTORS", spec.min_executors, spec.max_executors, MAX_EXECUTORS_LIMIT)?;
    check_on_demand(name, spec)?;
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

fn check_on_demand(name: &UnitName, spec: &UnitSpec) -> Result<(), UserError> {
    let UnitSpec { start_on_demand, sessions_per_engine, spare_engines, max_engines, .. } = spec;
    match sessions_per_engine {
        Some(0) => {
            return Err(UserError::new(
                ErrorKind::InvalidValue,
                format!("SESSIONS_PER_ENGINE of resource unit \"{name}\" is 0"),
            )
            .detail(format!("It is a whole number from 1 to {MAX_SESSIONS_PER_ENGINE}, or UNLIMITED.")));
        }
        Some(sessions) if *sessions > MAX_SESSIONS_PER_ENGINE => {
            return Err(UserError::new(
                ErrorKind::ProgramLimit,
                format!("SESSIONS_PER_ENGINE of resource unit \"{name}\" is too high"),
            )
            .detail(format!("It is {sessions}; the limit is {MAX_SESSIONS_PER_ENGINE}."))
            .hint("Set SESSIONS_PER_ENGINE UNLIMITED."));
        }
        Some(_) | None => {}
    }
    if spare_engines > max_engines {
        return Err(UserError::new(
            ErrorKind::InvalidValue,
            format!("SPARE_ENGINES of resource unit \"{name}\" is above its MAX_ENGINES"),
        )
        .detail(format!("SPARE_ENGINES is {spare_engines}, MAX_ENGINES is {max_engines}."))
        .hint(format!("Set both: SPARE_ENGINES {spare_engines}, MAX_ENGINES {spare_engines}.")));
    }
    check_sharing(name, spec)?;
    check_run_as(name, spec)?;
    if *spare_engines > 0 && *start_on_demand == Some(false) {
        return Err(UserError::new(
            ErrorKind::InvalidValue,
            format!("resource unit \"{name}\" has SPARE_ENGINES and does not start engines on demand"),
        )
        .detail(format!("SPARE_ENGINES is {spare_engines}; spare engines are started on demand."))
        .hint("Set both: START_ON_DEMAND FALSE, SPARE_ENGINES 0. MIN_ENGINES keeps engines without demand."));
    }
    Ok(())
}

/// An engine without an owner cannot be dedicated to one after its start, so only demand and START make engines with an owner.
fn check_sharing(name: &UnitName, spec: &UnitSpec) -> Result<(), UserError> {
    let UnitSpec { shared_by, min_engines, spare_engines, .. } = spec;
    if *shared_by == SharedBy::Tenant || (*min_engines == 0 && *spare_engines == 0) {
        return Ok(());
    }
    let message = format!("resource unit \"{name}\" is shared by {shared_by} and keeps engines without sessions");
    Err(UserError::new(ErrorKind::InvalidValue, message)
        .detail(format!(
            "MIN_ENGINES is {min_engines}, SPARE_ENGINES is {spare_engines}; the owner of such an engine is not known before \
             its first session."
        ))
        .hint(format!("Set all three: SHARED_BY '{shared_by}', MIN_ENGINES 0, SPARE_ENGINES 0.")))
}

/// Only an engine that serves a single user can run as that user.
fn check_run_as(name: &UnitName, spec: &UnitSpec) -> Result<(), UserError> {
    let UnitSpec { shared_by, run_as, .. } = spec;
    if *run_as == RunAs::Service || shared_by.charges_users() {
        return Ok(());
    }
    let message = format!("resource unit \"{name}\" runs its engines as their owner and is shared by {shared_by}");
    Err(UserError::new(ErrorKind::InvalidValue, message)
        .detail("An engine runs as its owner only if one user has it: with SHARED_BY 'user' or 'session'.")
        .hint("Set both: SHARED_BY 'user', RUN_AS 'owner'; or RUN_AS 'service'."))
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
