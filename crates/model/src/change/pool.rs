//! Resource pools: options and validation.
//!
//! A node belongs to one pool. That is checked here for lists, and for labels where the labels of one pool include
//! those of another, so that every node of the one would also be the other's. Labels that overlap only on some
//! existing node are found where the nodes are known ([`crate::capacity`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::amounts::{check_custom, refuse_custom};
use super::{Setting, check_comment, check_foreign_names, check_list, list_names, shown};
use crate::catalog::{Catalog, PoolSpec};
use crate::engine_name::is_dns_label;
use crate::error::{ErrorKind, UserError};
use crate::instance::InstanceKind;
use crate::labels;
use crate::name::{PoolName, UnitName};
use crate::quota::{Capacity, DeclaredAmount, Reclaim};
use crate::resource::{Component, Kind, RequestPolicy};

/// The longest name of a node, in bytes: Kubernetes' limit.
pub const MAX_NODE_BYTES: usize = 253;
/// The most labels of a selector.
pub const MAX_SELECTOR_LABELS: usize = 32;
/// The longest name of a queue, in bytes.
pub const MAX_QUEUE_BYTES: usize = 255;
/// The range of `CPU_OVERCOMMIT`, in percent.
pub const OVERCOMMIT_PERCENT: std::ops::RangeInclusive<u32> = 100..=1_000;
/// The longest name of an image, in bytes.
pub const MAX_IMAGE_BYTES: usize = 1_024;

/// The options of a pool that a statement names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolPatch {
    /// `UNIT_LIST`
    pub units: Option<Vec<UnitName>>,
    /// `NAMESPACE`
    pub namespace: Setting<String>,
    /// `NODE_LIST`
    pub nodes: Setting<Vec<String>>,
    /// `NODE_SELECTOR`
    pub node_selector: Setting<BTreeMap<String, String>>,
    /// `CPU_OVERCOMMIT`
    pub cpu_overcommit: Setting<u32>,
    /// `QUEUE_PREFIX`
    pub queue_prefix: Setting<String>,
    /// `IMAGE`
    pub image: Setting<String>,
    /// `CAPACITY`
    #[serde(default)]
    pub capacity: Setting<Capacity>,
    /// `PROTECTED`
    #[serde(default)]
    pub protected: Setting<DeclaredAmount>,
    /// `RESOURCE_KIND`
    #[serde(default)]
    pub resource_kind: Setting<Kind>,
    /// `RECLAIM`
    #[serde(default)]
    pub reclaim: Setting<Reclaim>,
    /// `COMMENT`
    pub comment: Setting<String>,
}

impl PoolPatch {
    pub(super) fn onto(&self, before: &PoolSpec) -> PoolSpec {
        let mut spec = before.clone();
        if let Some(units) = &self.units {
            spec.units.clone_from(units);
        }
        self.namespace.onto(&mut spec.namespace);
        self.nodes.onto(&mut spec.nodes);
        match &self.node_selector {
            Setting::Keep => {}
            Setting::Reset => spec.node_selector.clear(),
            Setting::Set(labels) => spec.node_selector.clone_from(labels),
        }
        self.cpu_overcommit.onto(&mut spec.cpu_overcommit);
        self.queue_prefix.onto(&mut spec.queue_prefix);
        self.image.onto(&mut spec.image);
        self.capacity.onto(&mut spec.capacity);
        match &self.protected {
            Setting::Keep => {}
            Setting::Reset => spec.protected = DeclaredAmount::default(),
            Setting::Set(amount) => spec.protected.clone_from(amount),
        }
        self.resource_kind.onto(&mut spec.resource_kind);
        self.reclaim.onto(&mut spec.reclaim);
        self.comment.onto(&mut spec.comment);
        spec
    }
}

pub(super) fn validate(
    name: &PoolName,
    spec: &PoolSpec,
    catalog: &Catalog,
    instances: InstanceKind,
) -> Result<(), UserError> {
    check_list(&format!("UNIT_LIST of resource pool \"{name}\""), &spec.units)?;
    check_comment(&format!("resource pool \"{name}\""), spec.comment.as_ref())?;
    let unknown: Vec<&str> =
        spec.units.iter().filter(|unit| !catalog.units.contains_key(unit)).map(AsRef::as_ref).collect();
    if !unknown.is_empty() {
        return Err(UserError::new(
            ErrorKind::UndefinedObject,
            format!("resource unit {} does not exist", list_names(&unknown)),
        )
        .detail(format!("It is named in UNIT_LIST of resource pool \"{name}\"."))
        .hint(format!("Use CREATE RESOURCE UNIT {} first.", unknown[0])));
    }
    if let Some(namespace) = &spec.namespace {
        check_namespace(name, namespace)?;
    }
    if let Some(image) = &spec.image {
        check_image(name, image)?;
    }
    if let Some(percent) = spec.cpu_overcommit {
        check_overcommit(name, percent)?;
    }
    if let Some(prefix) = &spec.queue_prefix {
        check_queue_prefix(name, prefix, catalog)?;
    }
    check_selector(name, spec, catalog)?;
    check_nodes(name, spec, catalog)?;
    check_capacity(name, spec, instances)
}

fn check_capacity(name: &PoolName, spec: &PoolSpec, instances: InstanceKind) -> Result<(), UserError> {
    let pool = format!("resource pool \"{name}\"");
    if let Some(kind) = spec.resource_kind {
        RequestPolicy::of(kind)?;
    }
    refuse_custom(&format!("PROTECTED of {pool}"), &spec.protected)?;
    if spec.protected.engines.is_some() {
        let message = format!("ENGINES is not supported in PROTECTED of {pool}");
        return Err(UserError::new(ErrorKind::NotSupported, message)
            .detail("The protected part is for pods and services that are no engines.")
            .hint("Name ENGINES in CAPACITY to limit the number of engines."));
    }
    match &spec.capacity {
        Some(Capacity::Nodes) if instances == InstanceKind::Process => {
            Err(UserError::new(ErrorKind::WrongState, format!("CAPACITY NODES of {pool} needs observed nodes"))
                .detail("Engines are local processes, and no capacity of nodes is observed.")
                .hint("Declare the capacity: CAPACITY (CPU 16, MEMORY '64G')."))
        }
        None | Some(Capacity::Nodes | Capacity::Registered) => Ok(()),
        Some(Capacity::Amount(capacity)) => {
            check_custom(&format!("CAPACITY of {pool}"), capacity)?;
            check_protected(&pool, capacity, &spec.protected)
        }
    }
}

/// A part cannot exceed the whole.
fn check_protected(pool: &str, capacity: &DeclaredAmount, protected: &DeclaredAmount) -> Result<(), UserError> {
    let exceeding = Component::ALL.into_iter().find_map(|component| {
        let (part, whole) = (protected.get(component)?, capacity.get(component)?);
        (part > whole).then(|| (component.shown(part), component.shown(whole)))
    });
    let Some((part, whole)) = exceeding else { return Ok(()) };
    Err(UserError::new(ErrorKind::InvalidValue, format!("PROTECTED of {pool} is above its CAPACITY"))
        .detail(format!("PROTECTED is {part}, CAPACITY is {whole}."))
        .hint("Set both in one statement."))
}

fn check_nodes(name: &PoolName, spec: &PoolSpec, catalog: &Catalog) -> Result<(), UserError> {
    let Some(nodes) = &spec.nodes else { return Ok(()) };
    let list = format!("NODE_LIST of resource pool \"{name}\"");
    check_list(&list, nodes)?;
    check_foreign_names("node", &list, nodes, MAX_NODE_BYTES)?;
    for node in nodes {
        let owner = catalog
            .pools
            .iter()
            .find(|(other, pool)| *other != name && pool.spec.nodes.iter().flatten().any(|n| n == node));
        if let Some((owner, _)) = owner {
            return Err(UserError::new(
                ErrorKind::WrongState,
                format!("node \"{node}\" belongs to resource pool \"{owner}\""),
            )
            .detail("A node can belong to one pool only.")
            .hint(format!("Remove it from the NODE_LIST of resource pool {owner} first.")));
        }
    }
    Ok(())
}

fn check_namespace(pool: &PoolName, template: &str) -> Result<(), UserError> {
    if is_dns_label(&template.replace("{pool}", "p").replace("{tenant}", "t")) {
        return Ok(());
    }
    Err(UserError::new(
        ErrorKind::InvalidValue,
        format!("invalid NAMESPACE \"{}\" of resource pool \"{pool}\"", shown(template)),
    )
    .detail("A namespace has at most 63 of a-z, 0-9 and -, and begins and ends with a letter or digit.")
    .hint("{pool} and {tenant} stand for the names, as in '{pool}--{tenant}'."))
}

/// An empty image would hide the configured one.
fn check_image(pool: &PoolName, image: &str) -> Result<(), UserError> {
    if (1..=MAX_IMAGE_BYTES).contains(&image.len()) && !image.contains(char::is_whitespace) {
        return Ok(());
    }
    Err(UserError::new(
        ErrorKind::InvalidValue,
        format!("invalid IMAGE \"{}\" of resource pool \"{pool}\"", shown(image)),
    )
    .detail(format!("An image has 1 to {MAX_IMAGE_BYTES} bytes and no white space."))
    .hint("Use IMAGE DEFAULT for the configured image."))
}

/// Below 100 the CPU request would exceed the CPU limit.
fn check_overcommit(pool: &PoolName, percent: u32) -> Result<(), UserError> {
    if OVERCOMMIT_PERCENT.contains(&percent) {
        return Ok(());
    }
    let (least, most) = (OVERCOMMIT_PERCENT.start(), OVERCOMMIT_PERCENT.end());
    let message = format!("invalid CPU_OVERCOMMIT {percent} of resource pool \"{pool}\"");
    Err(UserError::new(ErrorKind::InvalidValue, message)
        .detail(format!("It is a percentage from {least} to {most}."))
        .hint("CPU_OVERCOMMIT 200 requests half of the CPU that engines may use; 100 requests all of it."))
}

fn check_queue_prefix(pool: &PoolName, prefix: &str, catalog: &Catalog) -> Result<(), UserError> {
    let is_name = |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || c.is_control());
    if prefix.len() > MAX_QUEUE_BYTES || !prefix.split('.').all(is_name) {
        let message = format!("invalid QUEUE_PREFIX \"{}\" of resource pool \"{pool}\"", shown(prefix));
        return Err(UserError::new(ErrorKind::InvalidValue, message)
            .detail(format!(
                "A queue has 1 to {MAX_QUEUE_BYTES} bytes without white space; dots separate its parts, none of them empty."
            ))
            .hint("QUEUE_PREFIX 'etl' matches the queues etl, etl.daily and all others that begin with \"etl.\"."));
    }
    let mut others = catalog.pools.iter().filter(|(other, _)| *other != pool);
    match others.find(|(_, other)| other.spec.queue_prefix.as_deref() == Some(prefix)) {
        None => Ok(()),
        Some((owner, _)) => {
            let message = format!("queue prefix \"{}\" belongs to resource pool \"{owner}\"", shown(prefix));
            Err(UserError::new(ErrorKind::WrongState, message)
                .detail("A queue prefix belongs to one pool; another pool may have a longer prefix.")
                .hint(format!("Use ALTER RESOURCE POOL {owner} QUEUE_PREFIX DEFAULT first.")))
        }
    }
}

fn check_selector(pool: &PoolName, spec: &PoolSpec, catalog: &Catalog) -> Result<(), UserError> {
    let wanted = &spec.node_selector;
    if wanted.len() > MAX_SELECTOR_LABELS {
        let message = format!("NODE_SELECTOR of resource pool \"{pool}\" has too many labels");
        return Err(UserError::new(ErrorKind::ProgramLimit, message)
            .detail(format!("It has {}; the limit is {MAX_SELECTOR_LABELS}.", wanted.len())));
    }
    if let Some((key, value)) = wanted.iter().find(|(key, value)| !labels::is_key(key) || !labels::is_value(value)) {
        let message =
            format!("invalid label \"{}={}\" in NODE_SELECTOR of resource pool \"{pool}\"", shown(key), shown(value));
        return Err(UserError::new(ErrorKind::InvalidValue, message)
            .detail(
                "A label is [prefix/]name=value: name and value have at most 63 of a-z, A-Z, 0-9, -, _ and ., and begin \
                 and end with a letter or digit; the prefix is a domain name; the value may be empty.",
            )
            .hint("Write NODE_SELECTOR ('topology.kubernetes.io/zone'='a')."));
    }
    if wanted.is_empty() || spec.nodes.is_some() {
        return Ok(());
    }
    let contains = |one: &BTreeMap<String, String>, other: &BTreeMap<String, String>| {
        other.iter().all(|(label, value)| one.get(label) == Some(value))
    };
    let reaches_all = |other: &PoolSpec| {
        other.nodes.is_none()
            && !other.node_selector.is_empty()
            && (contains(wanted, &other.node_selector) || contains(&other.node_selector, wanted))
    };
    match catalog.pools.iter().find(|(name, other)| *name != pool && reaches_all(&other.spec)) {
        None => Ok(()),
        Some((owner, other)) => Err(UserError::new(
            ErrorKind::WrongState,
            format!("NODE_SELECTOR of resource pool \"{pool}\" matches nodes of resource pool \"{owner}\""),
        )
        .detail(format!(
            "Its NODE_SELECTOR is {}; a node can belong to one pool only.",
            selector_text(&other.spec.node_selector)
        ))
        .hint(format!("Change the value of a label, or the NODE_SELECTOR of resource pool {owner} first."))),
    }
}

/// `zone=a, disk=ssd`
pub fn selector_text(labels: &BTreeMap<String, String>) -> String {
    let labels: Vec<String> = labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
    labels.join(", ")
}
