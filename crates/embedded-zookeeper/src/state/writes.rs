//! Write operations with ZooKeeper's checks in ZooKeeper's order, alone or as an atomic transaction.

use bytes::Bytes;

use super::acl::{self, Acl};
use super::path;
use super::tree::{Lifetime, Node, Tree, Txn, Undo};
use crate::proto::codes::{ErrorCode, EventKind, op};
use crate::proto::records::{AclEntry, Identity};
use crate::proto::reply::{Part, Reply};
use crate::proto::request::{Create, Write};

/// The most nodes of a tree; further creates are refused with *quota exceeded*.
pub(crate) const NODES_MAX: usize = 1_000_000;

/// The most bytes of all paths, data and access lists; a write that would exceed it is refused with *quota exceeded*.
/// It is many times the size of an installation, and keeps a client that writes without end from exhausting the
/// memory of the process. A write that does not grow the tree is always accepted.
pub(crate) const BYTES_MAX: usize = 256 << 20;

/// The caller of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) session: i64,
    pub(crate) identities: &'a [Identity],
}

/// An event that a change fires, before it is matched with watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fired {
    pub(crate) kind: EventKind,
    pub(crate) path: String,
    /// The access control list of the node; only connections that may read it are notified.
    pub(crate) acl: Acl,
}

/// A successful write.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) reply: Reply,
    pub(crate) fired: Vec<Fired>,
    /// `None` for a write that changes nothing.
    undo: Option<Undo>,
}

/// Applies one write, or changes nothing.
pub(crate) fn apply(tree: &mut Tree, txn: Txn, caller: Caller<'_>, write: Write) -> Result<Applied, ErrorCode> {
    match write {
        Write::Create(request) => create(tree, txn, caller, request),
        Write::Delete { path, version } => delete(tree, txn, caller, &path, version),
        Write::SetData { path, data, version } => {
            path::validate(&path)?;
            let node = tree.get(&path)?;
            acl::check(&node.acl, acl::WRITE, caller.identities)?;
            expect_version(node.version, version)?;
            check_capacity(tree, node.data.as_ref().map_or(0, Bytes::len), data.as_ref().map_or(0, Bytes::len))?;
            let undo = tree.set_data(txn, &path, data)?;
            let node = tree.get(&path)?;
            let fired = Fired { kind: EventKind::DataChanged, acl: node.acl.clone(), path };
            Ok(Applied { reply: Reply::Stat(node.stat()), fired: vec![fired], undo: Some(undo) })
        }
        Write::SetAcl { path, acl, version } => set_acl(tree, caller, &path, &acl, version),
        Write::Check { path, version } => {
            path::validate(&path)?;
            let node = tree.get(&path)?;
            acl::check(&node.acl, acl::READ, caller.identities)?;
            expect_version(node.version, version)?;
            Ok(Applied { reply: Reply::Empty, fired: Vec::new(), undo: None })
        }
    }
}

/// Applies all writes under one transaction id, or changes nothing.
///
/// The reply has the outcome of each part, as in ZooKeeper: in a failed transaction, the parts before the failed one
/// have code 0, the failed one has its own code, the later ones have *runtime inconsistency*.
pub(crate) fn apply_all(tree: &mut Tree, txn: Txn, caller: Caller<'_>, writes: Vec<Write>) -> (Reply, Vec<Fired>) {
    let count = writes.len();
    let mut parts = Vec::with_capacity(count);
    let mut fired = Vec::new();
    let mut undo = Vec::with_capacity(count);
    for (index, write) in writes.into_iter().enumerate() {
        let op = op_of(&write);
        match apply(tree, txn, caller, write) {
            Ok(applied) => {
                parts.push(Part { op, outcome: Ok(applied.reply) });
                fired.extend(applied.fired);
                undo.extend(applied.undo);
            }
            Err(code) => {
                for change in undo.into_iter().rev() {
                    tree.undo(change);
                }
                return (Reply::Parts(failed_parts(index, count, code)), Vec::new());
            }
        }
    }
    (Reply::Parts(parts), fired)
}

/// Deletes the ephemeral nodes of an ended session. The caller removes the session.
pub(crate) fn remove_ephemerals(tree: &mut Tree, txn: Txn, session: i64) -> Vec<Fired> {
    let paths: Vec<String> = tree.ephemerals(session).cloned().collect();
    remove_unchecked(tree, txn, paths)
}

/// Deletes nodes without permission checks. Missing paths are skipped.
pub(crate) fn remove_unchecked(tree: &mut Tree, txn: Txn, paths: Vec<String>) -> Vec<Fired> {
    paths.into_iter().filter_map(|path| remove(tree, txn, &path).ok()).flat_map(|applied| applied.fired).collect()
}

fn failed_parts(index: usize, count: usize, code: ErrorCode) -> Vec<Part> {
    let outcome = |part: usize| match part.cmp(&index) {
        std::cmp::Ordering::Less => ErrorCode::Ok,
        std::cmp::Ordering::Equal => code,
        std::cmp::Ordering::Greater => ErrorCode::RuntimeInconsistency,
    };
    (0..count).map(|part| Part { op: op::ERROR, outcome: Err(outcome(part)) }).collect()
}

fn op_of(write: &Write) -> i32 {
    match write {
        Write::Create(request) => request.op,
        Write::Delete { .. } => op::DELETE,
        Write::SetData { .. } => op::SET_DATA,
        Write::SetAcl { .. } => op::SET_ACL,
        Write::Check { .. } => op::CHECK,
    }
}

/// Checks that `after` bytes may replace `before` bytes.
fn check_capacity(tree: &Tree, before: usize, after: usize) -> Result<(), ErrorCode> {
    let fits = after <= before || tree.size() - before + after <= BYTES_MAX;
    if fits { Ok(()) } else { Err(ErrorCode::QuotaExceeded) }
}

fn expect_version(is: i32, expected: i32) -> Result<(), ErrorCode> {
    if expected == -1 || expected == is { Ok(()) } else { Err(ErrorCode::BadVersion) }
}

/// The meaning of the flags of a create request: lifetime, and whether a sequence number is appended.
fn lifetime(flags: i32, session: i64) -> Result<(Lifetime, bool), ErrorCode> {
    match flags {
        0 => Ok((Lifetime::Persistent, false)),
        1 => Ok((Lifetime::Session(session), false)),
        2 => Ok((Lifetime::Persistent, true)),
        3 => Ok((Lifetime::Session(session), true)),
        4 => Ok((Lifetime::Container, false)),
        // A time to live: ZooKeeper refuses it too, unless it is enabled by a system property.
        5 | 6 => Err(ErrorCode::Unimplemented),
        _ => Err(ErrorCode::BadArguments),
    }
}

fn create(tree: &mut Tree, txn: Txn, caller: Caller<'_>, request: Create) -> Result<Applied, ErrorCode> {
    let (lifetime, sequential) = lifetime(request.flags, caller.session)?;
    let mut path = request.path;
    let (parent_path, _) = path::split(&path).ok_or(ErrorCode::BadArguments)?;
    let parent_path = parent_path.to_owned();
    let acl = acl::resolve(&request.acl, caller.identities)?;
    let parent = tree.get(&parent_path)?;
    acl::check(&parent.acl, acl::CREATE, caller.identities)?;
    if sequential {
        path = format!("{path}{:010}", parent.creates);
    }
    path::validate(&path)?;
    if tree.get(&path).is_ok() {
        return Err(ErrorCode::NodeExists);
    }
    if matches!(parent.lifetime, Lifetime::Session(_)) {
        return Err(ErrorCode::NoChildrenForEphemerals);
    }
    if tree.len() >= NODES_MAX {
        return Err(ErrorCode::QuotaExceeded);
    }
    let parent_acl = parent.acl.clone();
    let node = Node::new(txn, request.data, acl.clone(), lifetime);
    check_capacity(tree, 0, path.len() + node.size())?;
    let stat = node.stat();
    let undo = tree.insert(txn, &path, node)?;
    let fired = vec![
        Fired { kind: EventKind::Created, path: path.clone(), acl },
        Fired { kind: EventKind::ChildrenChanged, path: parent_path, acl: parent_acl },
    ];
    let reply = if request.op == op::CREATE { Reply::Path(path) } else { Reply::Created { path, stat } };
    Ok(Applied { reply, fired, undo: Some(undo) })
}

fn delete(tree: &mut Tree, txn: Txn, caller: Caller<'_>, path: &str, version: i32) -> Result<Applied, ErrorCode> {
    let (parent, _) = path::split(path).ok_or(ErrorCode::BadArguments)?;
    if path.contains('\0') || path::BUILT_IN.contains(&path) {
        return Err(ErrorCode::BadArguments);
    }
    acl::check(&tree.get(parent)?.acl, acl::DELETE, caller.identities)?;
    let node = tree.get(path)?;
    expect_version(node.version, version)?;
    if !node.children.is_empty() {
        return Err(ErrorCode::NotEmpty);
    }
    remove(tree, txn, path)
}

fn remove(tree: &mut Tree, txn: Txn, path: &str) -> Result<Applied, ErrorCode> {
    let (parent, _) = path::split(path).ok_or(ErrorCode::BadArguments)?;
    let acl = tree.get(path)?.acl.clone();
    let parent_acl = tree.get(parent)?.acl.clone();
    let undo = tree.remove(txn, path)?;
    let fired = vec![
        Fired { kind: EventKind::Deleted, path: path.to_owned(), acl },
        Fired { kind: EventKind::ChildrenChanged, path: parent.to_owned(), acl: parent_acl },
    ];
    Ok(Applied { reply: Reply::Empty, fired, undo: Some(undo) })
}

fn set_acl(
    tree: &mut Tree,
    caller: Caller<'_>,
    path: &str,
    requested: &[AclEntry],
    version: i32,
) -> Result<Applied, ErrorCode> {
    path::validate(path)?;
    let acl = acl::resolve(requested, caller.identities)?;
    let node = tree.get(path)?;
    acl::check(&node.acl, acl::ADMIN, caller.identities)?;
    expect_version(node.aversion, version)?;
    check_capacity(tree, acl::size(&node.acl), acl::size(&acl))?;
    let undo = tree.set_acl(path, acl)?;
    Ok(Applied { reply: Reply::Stat(tree.get(path)?.stat()), fired: Vec::new(), undo: Some(undo) })
}
