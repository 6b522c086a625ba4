//! Resource pools: options and validation.

use serde::{Deserialize, Serialize};

use super::{Setting, check_comment, check_list, list_names};
use crate::catalog::{Catalog, PoolSpec};
use crate::error::{ErrorKind, UserError};
use crate::name::{PoolName, UnitName};

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
    check_list("UNIT_LIST", &spec.units)?;
    check_comment(spec.comment.as_ref())?;
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
    let Some(nodes) = &spec.nodes else { return Ok(()) };
    check_list("NODE_LIST", nodes)?;
    for node in nodes {
        if node.is_empty() || node.len() > 253 {
            return Err(UserError::new(ErrorKind::InvalidValue, format!("invalid node name \"{node}\" in NODE_LIST")));
        }
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
        format!("invalid NAMESPACE \"{template}\" of resource pool \"{pool}\""),
    )
    .detail("a namespace has at most 63 of a-z, 0-9 and -, and begins and ends with a letter or digit")
    .hint("{pool} and {tenant} stand for the names, as in '{pool}--{tenant}'"))
}
