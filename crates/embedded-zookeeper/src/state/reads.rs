//! Read operations with ZooKeeper's permission checks: data and children need READ, the access control list READ or
//! ADMIN, existence nothing.

use super::acl;
use super::path::ROOT;
use super::tree::Tree;
use crate::proto::codes::{ErrorCode, op};
use crate::proto::records::Identity;
use crate::proto::reply::{Part, Reply};
use crate::proto::request::BatchRead;

pub(crate) fn data(tree: &Tree, caller: &[Identity], path: &str) -> Result<Reply, ErrorCode> {
    let node = tree.get(path)?;
    acl::check(&node.acl, acl::READ, caller)?;
    Ok(Reply::Data { data: node.data.clone(), stat: node.stat() })
}

pub(crate) fn children(tree: &Tree, caller: &[Identity], path: &str, with_stat: bool) -> Result<Reply, ErrorCode> {
    let node = tree.get(path)?;
    acl::check(&node.acl, acl::READ, caller)?;
    let children = node.children.iter().cloned().collect();
    Ok(if with_stat { Reply::Children { children, stat: node.stat() } } else { Reply::Texts(children) })
}

/// Several reads of one state; each succeeds or fails on its own.
pub(crate) fn batch(tree: &Tree, caller: &[Identity], batch: Vec<BatchRead>) -> Reply {
    let read = |read| match read {
        BatchRead::Data { path } => Part { op: op::GET_DATA, outcome: data(tree, caller, &path) },
        BatchRead::Children { path } => Part { op: op::GET_CHILDREN, outcome: children(tree, caller, &path, false) },
    };
    Reply::Parts(batch.into_iter().map(read).collect())
}

/// The access control list; without ADMIN, its hashes are hidden.
pub(crate) fn acl(tree: &Tree, caller: &[Identity], path: &str) -> Result<Reply, ErrorCode> {
    let node = tree.get(path)?;
    acl::check(&node.acl, acl::READ | acl::ADMIN, caller)?;
    let may_see = acl::check(&node.acl, acl::ADMIN, caller).is_ok();
    let acl = if may_see { node.acl.to_vec() } else { acl::masked(&node.acl) };
    Ok(Reply::Acl { acl, stat: node.stat() })
}

/// Number of nodes below a path.
pub(crate) fn descendants(tree: &Tree, caller: &[Identity], path: &str) -> Result<Reply, ErrorCode> {
    acl::check(&tree.get(path)?.acl, acl::READ, caller)?;
    Ok(Reply::Number(tree.descendants(path)? as i32))
}

/// The caller's own ephemeral nodes whose path begins with `prefix`.
pub(crate) fn ephemerals(tree: &Tree, session: i64, prefix: &str) -> Reply {
    let below = |path: &&String| prefix == ROOT || path.starts_with(prefix);
    Reply::Texts(tree.ephemerals(session).filter(below).cloned().collect())
}
