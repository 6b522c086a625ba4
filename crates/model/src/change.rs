//! Catalog changes: the effect of a CREATE, ALTER or DROP, as a pure function, and the only place for the rules.
//!
//! A [`Change`] holds the content of one statement, so it can be applied to any catalog: the metadata agent applies
//! it twice, first to refuse early and then in the transaction that commits; EXPLAIN applies it to a copy. A change
//! that was computed from a stale catalog is refused by the generation of the object.

mod amounts;
mod object;
mod pool;
mod quota;
mod tenant;
mod unit;
mod warnings;

use serde::{Deserialize, Serialize};

pub use object::{Object, ObjectPatch};
pub use pool::{MAX_QUEUE_BYTES, PoolPatch, selector_text};
pub use quota::QuotaPatch;
pub use tenant::TenantPatch;
pub use unit::{PropertiesPatch, UnitPatch};
pub use warnings::{excess_capacity, excess_guarantees, quota_warnings};

use crate::alteration::{ObjectKind, ObjectRef};
use crate::catalog::{Catalog, MAX_COMMENT_BYTES, MAX_LIST, TenantSpec, UnitSpec};
use crate::configuration::Defaults;
use crate::error::{ErrorKind, UserError};
use crate::fingerprint::{FingerprintKey, SecretProperties};
use crate::name::UnitName;
use crate::number::Generation;
use crate::quota::QuotaSpec;
use crate::sealing::Sealing;
use crate::secret::SecretKeys;
use crate::text::cut;

/// A value that is kept, reset or set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Setting<T> {
    /// Not named by the statement.
    #[default]
    Keep,
    /// Back to its default.
    Reset,
    /// Set to a value.
    Set(T),
}

impl<T: Clone> Setting<T> {
    fn onto(&self, target: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Reset => *target = None,
            Self::Set(value) => *target = Some(value.clone()),
        }
    }
}

/// One statement's change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// CREATE.
    Create {
        if_not_exists: bool,
        /// The object with its options.
        object: ObjectPatch,
    },
    /// ALTER.
    Alter {
        if_exists: bool,
        /// The object with the options that change.
        object: ObjectPatch,
    },
    /// DROP.
    Drop { if_exists: bool, object: ObjectRef },
}

/// The effect on the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "one exists at a time, and it is destructured at once")]
pub enum Applied {
    /// None: IF EXISTS or IF NOT EXISTS applied. The note tells the user.
    Nothing {
        /// `tenant "t_1" exists already, nothing was created`.
        note: String,
    },
    /// The object changes.
    Object {
        /// The generation of the old object; 0 for CREATE.
        base: Generation,
        /// The old object; `None` for CREATE.
        before: Option<Object>,
        /// The new object; `None` for DROP.
        after: Option<Object>,
    },
}

/// The inputs of the rules apart from the catalog.
#[derive(Debug, Clone)]
pub struct Rules {
    pub defaults: Defaults,
    pub secret_keys: SecretKeys,
    /// The key of the fingerprints of secret properties.
    pub fingerprint_key: FingerprintKey,
    /// How secret properties are stored.
    pub sealing: Sealing,
    /// The most slots of all tenants.
    pub max_engines: usize,
    /// Whether clients prove their names. Otherwise a name that anyone can claim would choose the account of an engine.
    pub names_are_proven: bool,
}

/// [`Rules::max_engines`] unless configured. While every engine is replaced there are twice as many permits, and one
/// reading of ZooKeeper has 20,000 at most.
pub const DEFAULT_MAX_ENGINES: usize = 10_000;

impl Default for Rules {
    fn default() -> Self {
        Self {
            defaults: Defaults::default(),
            secret_keys: SecretKeys::default(),
            fingerprint_key: FingerprintKey::default(),
            sealing: Sealing::default(),
            max_engines: DEFAULT_MAX_ENGINES,
            names_are_proven: true,
        }
    }
}

impl Rules {
    /// The unit with the record of its secret properties.
    #[must_use]
    pub fn with_fingerprint(&self, name: &UnitName, before: Option<&UnitSpec>, mut spec: UnitSpec) -> UnitSpec {
        let stored = before.map(UnitSpec::stored_properties);
        spec.secrets = SecretProperties::new(name, stored, &spec.properties, &self.secret_keys, &self.fingerprint_key);
        spec
    }
}

impl Change {
    /// The object that the statement names.
    pub fn object(&self) -> ObjectRef {
        match self {
            Self::Create { object, .. } | Self::Alter { object, .. } => object.reference(),
            Self::Drop { object, .. } => object.clone(),
        }
    }

    /// CREATE, ALTER or DROP.
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Create { .. } => "CREATE",
            Self::Alter { .. } => "ALTER",
            Self::Drop { .. } => "DROP",
        }
    }

    /// Computes the effect, or the reason to refuse the change.
    pub fn apply(&self, catalog: &Catalog, rules: &Rules) -> Result<Applied, UserError> {
        let reference = self.object();
        let existing = Object::find(catalog, &reference)?;
        match (self, existing) {
            (Self::Create { if_not_exists: true, .. }, Some(_)) => {
                Ok(Applied::Nothing { note: format!("{reference} exists already, nothing was created") })
            }
            (Self::Create { .. }, Some(_)) => Err(UserError::new(
                ErrorKind::DuplicateObject,
                format!("{reference} already exists"),
            )
            .hint(format!("Use ALTER {} {} to change it.", reference.kind.keywords(), reference.name))),
            (Self::Create { object, .. }, None) => {
                let after = object.create(rules)?;
                after.validate(catalog, rules)?;
                Ok(Applied::Object { base: Generation(0), before: None, after: Some(after) })
            }
            (Self::Alter { if_exists: true, .. } | Self::Drop { if_exists: true, .. }, None) => {
                Ok(Applied::Nothing { note: format!("{reference} does not exist, nothing was changed") })
            }
            (Self::Alter { .. } | Self::Drop { .. }, None) => Err(undefined(catalog, &reference)),
            (Self::Alter { object, .. }, Some((before, base))) => {
                let after = object.alter(&before, rules)?;
                after.validate(catalog, rules)?;
                Ok(Applied::Object { base, before: Some(before), after: Some(after) })
            }
            (Self::Drop { .. }, Some((before, base))) => {
                refuse_while_listed(catalog, &reference)?;
                Ok(Applied::Object { base, before: Some(before), after: None })
            }
        }
    }
}

impl Catalog {
    /// The catalog after the change of one object, whose generation becomes `generation`.
    #[must_use]
    pub fn with(&self, reference: &ObjectRef, after: Option<&Object>, generation: Generation) -> Self {
        let mut catalog = self.clone();
        catalog.generation = catalog.generation.max(generation);
        object::put(&mut catalog, reference, after, generation);
        catalog
    }
}

/// The error `tenant "x" does not exist`, with the existing names as a hint.
fn undefined(catalog: &Catalog, reference: &ObjectRef) -> UserError {
    let error = reference.undefined();
    let names: Vec<&str> = match reference.kind {
        ObjectKind::Tenant => catalog.tenants.keys().map(AsRef::as_ref).collect(),
        ObjectKind::ResourcePool => catalog.pools.keys().map(AsRef::as_ref).collect(),
        ObjectKind::ResourceUnit => catalog.units.keys().map(AsRef::as_ref).collect(),
        ObjectKind::ResourceQuota => catalog.quotas.keys().map(AsRef::as_ref).collect(),
    };
    if names.is_empty() {
        error.hint(format!("Use CREATE {} {} to create it.", reference.kind.keywords(), reference.name))
    } else {
        error.hint(format!("Existing: {}.", list_names(&names)))
    }
}

fn refuse_while_listed(catalog: &Catalog, reference: &ObjectRef) -> Result<(), UserError> {
    let (owner, names): (&str, Vec<&str>) = match reference.kind {
        ObjectKind::Tenant => return refuse_while_limited(catalog, reference),
        ObjectKind::ResourceQuota => return Ok(()),
        ObjectKind::ResourcePool => {
            let all = catalog.tenants.iter();
            (
                "tenant",
                all.filter(|(_, tenant)| tenant.spec.pools.iter().any(|p| p.as_str() == reference.name))
                    .map(|(n, _)| n.as_str())
                    .collect(),
            )
        }
        ObjectKind::ResourceUnit => {
            let all = catalog.pools.iter();
            (
                "resource pool",
                all.filter(|(_, pool)| pool.spec.units.iter().any(|u| u.as_str() == reference.name))
                    .map(|(n, _)| n.as_str())
                    .collect(),
            )
        }
    };
    if names.is_empty() {
        refuse_while_limited(catalog, reference)?;
        return refuse_while_default(catalog, reference);
    }
    Err(UserError::new(ErrorKind::DependentObjects, format!("{reference} is in use"))
        .detail(format!("It is listed by {owner}{} {}.", if names.len() == 1 { "" } else { "s" }, list_names(&names)))
        .hint(format!("Remove it from the list of each {owner} first.")))
}

/// A tenant or pool cannot be dropped while it is in the subject of a quota.
fn refuse_while_limited(catalog: &Catalog, reference: &ObjectRef) -> Result<(), UserError> {
    let is_for_it = |spec: &QuotaSpec| match (reference.kind, spec.of_tenant()) {
        (ObjectKind::Tenant, Some(quota)) => quota.tenant.as_str() == reference.name,
        (ObjectKind::ResourcePool, Some(quota)) => quota.pool.as_str() == reference.name,
        _ => false,
    };
    let quotas = catalog.quotas.iter().filter(|(_, quota)| is_for_it(&quota.spec));
    let names: Vec<&str> = quotas.map(|(name, _)| name.as_str()).collect();
    let Some(first) = names.first() else { return Ok(()) };
    let detail = match names.as_slice() {
        [only] => format!("Resource quota \"{only}\" is for it."),
        _ => format!("Resource quotas {} are for it.", list_names(&names)),
    };
    Err(UserError::new(ErrorKind::DependentObjects, format!("{reference} is in use"))
        .detail(detail)
        .hint(format!("Use DROP RESOURCE QUOTA {first} first.")))
}

/// A unit cannot be dropped while it is the `DEFAULT_UNIT` of a tenant.
fn refuse_while_default(catalog: &Catalog, reference: &ObjectRef) -> Result<(), UserError> {
    let is_default = |spec: &TenantSpec| spec.default_unit.as_ref().is_some_and(|unit| unit.as_str() == reference.name);
    let mut tenants = catalog.tenants.iter().filter(|(_, tenant)| is_default(&tenant.spec)).map(|(name, _)| name);
    match tenants.next().filter(|_| reference.kind == ObjectKind::ResourceUnit) {
        None => Ok(()),
        Some(tenant) => Err(UserError::new(ErrorKind::DependentObjects, format!("{reference} is in use"))
            .detail(format!("It is the DEFAULT_UNIT of tenant \"{tenant}\"."))
            .hint(format!("Use ALTER TENANT {tenant} DEFAULT_UNIT DEFAULT to reset it."))),
    }
}

/// The most names that a message lists.
const MAX_NAMES_SHOWN: usize = 10;

fn list_names(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(MAX_NAMES_SHOWN).map(|name| format!("\"{name}\"")).collect();
    let more = names.len().saturating_sub(MAX_NAMES_SHOWN);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

/// `list` is the option with its object: `UNIT_LIST of resource pool "rp_1"`.
fn check_list<T: PartialEq + AsRef<str>>(list: &str, items: &[T]) -> Result<(), UserError> {
    if items.len() > MAX_LIST {
        return Err(UserError::new(ErrorKind::ProgramLimit, format!("{list} has too many names"))
            .detail(format!("It has {}; the limit is {MAX_LIST}.", items.len())));
    }
    for (at, item) in items.iter().enumerate() {
        if items[..at].contains(item) {
            let message = format!("\"{}\" specified more than once in {list}", shown(item.as_ref()));
            return Err(UserError::new(ErrorKind::InvalidValue, message).hint("Remove one of them."));
        }
    }
    Ok(())
}

/// Checks a name in a list that follows no rule of ours: 1 to `max` bytes, not blank.
fn check_foreign_names(what: &str, list: &str, names: &[String], max: usize) -> Result<(), UserError> {
    match names.iter().find(|name| name.trim().is_empty() || name.len() > max) {
        None => Ok(()),
        Some(name) => {
            let message = format!("invalid {what} name \"{}\" in {list}", shown(name));
            Err(UserError::new(ErrorKind::InvalidValue, message)
                .detail(format!("A {what} name has 1 to {max} bytes and is not blank.")))
        }
    }
}

fn check_comment(object: &str, comment: Option<&String>) -> Result<(), UserError> {
    match comment {
        Some(text) if text.len() > MAX_COMMENT_BYTES => {
            Err(UserError::new(ErrorKind::ProgramLimit, format!("COMMENT of {object} is too long"))
                .detail(format!("It has {} bytes; the limit is {MAX_COMMENT_BYTES}.", text.len())))
        }
        _ => Ok(()),
    }
}

/// The most bytes of a value that an error message repeats.
const MAX_VALUE_SHOWN_BYTES: usize = 256;

/// The beginning of a value that an error message repeats.
fn shown(value: &str) -> &str {
    cut(value, MAX_VALUE_SHOWN_BYTES)
}

#[cfg(test)]
mod tests;
