//! Resource pools: options and validation.

use serde::{Deserialize, Serialize};

use super::{Setting, check_comment, check_foreign_names, check_list, list_names, shown};
use crate::catalog::{Catalog, PoolSpec};
use crate::error::{ErrorKind, UserError};
use crate::name::{PoolName, UnitName};

/// The longest name of a node, in bytes: what Kubernetes gives it.
pub const MAX_NODE_BYTES: usize = 253;
/// The longest image, in bytes.
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
    /// `IMAGE`
    pub image: Setting<String>,
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
        self.image.onto(&mut spec.image);
        self.comment.onto(&mut spec.comment);
        spec
    }
}

pub(super) fn validate(name: &PoolName, spec: &PoolSpec, catalog: &Catalog) -> Result<(), UserError> {
    check_list(&format!("UNIT_LIST of resource pool \"{name}\""), &spec.units)?;
    check_comment(&format!("resource pool \"{name}\""), spec.comment.as_ref())?;
    let unknown: Vec<&str> =
        spec.units.iter().filter(|unit| !catalog.units.contains_key(unit)).map(AsRef::as_ref).collect();
    if !unknown.is_empty() {
        return Err(UserError::new(
            ErrorKind::UndefinedObject,
            format!("resource unit {} does not exist", list_names(&unknown)),
        )
        .detail(format!("UNIT_LIST of resource pool \"{name}\" names it"))
        .hint(format!("CREATE RESOURCE UNIT {} first", unknown[0])));
    }
    if let Some(namespace) = &spec.namespace {
        check_namespace(name, namespace)?;
    }
    if let Some(image) = &spec.image {
        check_image(name, image)?;
    }
    let Some(nodes) = &spec.nodes else { return Ok(()) };
    let list = format!("NODE_LIST of resource pool \"{name}\"");
    check_list(&list, nodes)?;
    check_foreign_names("node", &list, nodes, MAX_NODE_BYTES)?;
    for node in nodes {
        let owner = catalog
            .pools
            .iter()
            .find(|(other, it)| *other != name && it.spec.nodes.iter().flatten().any(|n| n == node));
        if let Some((owner, _)) = owner {
            return Err(UserError::new(
                ErrorKind::WrongState,
                format!("node \"{node}\" belongs to resource pool \"{owner}\""),
            )
            .detail("a node can be in one pool only")
            .hint(format!("take it out of the NODE_LIST of resource pool {owner} first")));
        }
    }
    Ok(())
}

fn check_namespace(pool: &PoolName, template: &str) -> Result<(), UserError> {
    let filled = template.replace("{pool}", "p").replace("{tenant}", "t");
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let fits = filled.len() <= 63
        && edge(filled.chars().next())
        && edge(filled.chars().last())
        && filled.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if fits {
        return Ok(());
    }
    Err(UserError::new(
        ErrorKind::InvalidValue,
        format!("invalid NAMESPACE \"{}\" of resource pool \"{pool}\"", shown(template)),
    )
    .detail("a namespace has at most 63 of a-z, 0-9 and -, and begins and ends with a letter or digit")
    .hint("{pool} and {tenant} stand for the names, as in '{pool}--{tenant}'"))
}

/// An image that is empty would hide the configuration's and name none.
fn check_image(pool: &PoolName, image: &str) -> Result<(), UserError> {
    if (1..=MAX_IMAGE_BYTES).contains(&image.len()) && !image.contains(char::is_whitespace) {
        return Ok(());
    }
    Err(UserError::new(
        ErrorKind::InvalidValue,
        format!("invalid IMAGE \"{}\" of resource pool \"{pool}\"", shown(image)),
    )
    .detail(format!("an image has 1 to {MAX_IMAGE_BYTES} bytes and no white space"))
    .hint("IMAGE DEFAULT goes back to the image of the configuration"))
}
