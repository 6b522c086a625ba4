//! The tree of nodes and its four kinds of change. Pure; permissions and versions are checked in `writes`.
//!
//! # Invariants
//!
//! - Every node but the root is in its parent's set of children, and every name there is a node.
//! - `creates` counts the children ever created; a sequence number is its value before the child was created.
//! - An ephemeral node is in `ephemerals` under its session, and has no children.
//! - Each change returns its undo record; undoing a series of changes in reverse order restores the tree.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;

use super::acl::{self, Acl};
use super::path::{self, ROOT};
use crate::proto::codes::ErrorCode;
use crate::proto::records::Stat;

/// The lifetime of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    Persistent,
    /// As long as this session.
    Session(i64),
    /// Until it has had children and has none left.
    Container,
}

/// The transaction that a change belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Txn {
    pub(crate) zxid: i64,
    pub(crate) wall_ms: i64,
}

/// One node. Equality covers all fields, for tests of undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) data: Option<Bytes>,
    pub(crate) acl: Acl,
    pub(crate) children: BTreeSet<String>,
    pub(crate) lifetime: Lifetime,
    pub(crate) creates: i32,
    pub(crate) version: i32,
    pub(crate) aversion: i32,
    czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) pzxid: i64,
    ctime: i64,
    mtime: i64,
}

impl Node {
    pub(crate) fn new(txn: Txn, data: Option<Bytes>, acl: Acl, lifetime: Lifetime) -> Self {
        Self {
            data,
            acl,
            children: BTreeSet::new(),
            lifetime,
            creates: 0,
            version: 0,
            aversion: 0,
            czxid: txn.zxid,
            mzxid: txn.zxid,
            pzxid: txn.zxid,
            ctime: txn.wall_ms,
            mtime: txn.wall_ms,
        }
    }

    pub(crate) fn stat(&self) -> Stat {
        let num_children = self.children.len() as i32;
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            pzxid: self.pzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            // Creates plus deletes; deletes are the created children that are gone.
            cversion: self.creates.wrapping_mul(2).wrapping_sub(num_children),
            aversion: self.aversion,
            ephemeral_owner: if let Lifetime::Session(session) = self.lifetime { session } else { 0 },
            data_length: self.data.as_ref().map_or(0, Bytes::len) as i32,
            num_children,
        }
    }

    /// Bytes of its data and access list.
    pub(crate) fn size(&self) -> usize {
        self.data.as_ref().map_or(0, Bytes::len) + acl::size(&self.acl)
    }
}

/// The undo record of one change.
#[derive(Debug)]
pub(crate) enum Undo {
    Inserted { path: String, parent_pzxid: i64 },
    Removed { path: String, node: Box<Node>, parent_pzxid: i64 },
    DataSet { path: String, data: Option<Bytes>, version: i32, mzxid: i64, mtime: i64 },
    AclSet { path: String, acl: Acl, aversion: i32 },
}

/// All nodes by path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    nodes: HashMap<String, Node>,
    ephemerals: BTreeMap<i64, BTreeSet<String>>,
    containers: BTreeSet<String>,
    /// Bytes of all paths, data and access lists.
    size: usize,
}

impl Tree {
    /// The tree that a fresh ZooKeeper has.
    pub(crate) fn new() -> Self {
        let mut tree =
            Self { nodes: HashMap::new(), ephemerals: BTreeMap::new(), containers: BTreeSet::new(), size: 0 };
        let txn = Txn { zxid: 0, wall_ms: 0 };
        for path in path::BUILT_IN {
            let acl = if path == "/zookeeper/config" { acl::read_only() } else { acl::open() };
            if let Some((parent, name)) = path::split(path).filter(|_| path != ROOT)
                && let Some(parent) = tree.nodes.get_mut(parent)
            {
                // Not counted as creates: a fresh ZooKeeper does not count them either.
                parent.children.insert(name.to_owned());
            }
            tree.link(path, Node::new(txn, Some(Bytes::new()), acl, Lifetime::Persistent));
        }
        tree
    }

    /// The node at `path`; the empty path is the root too.
    pub(crate) fn get(&self, path: &str) -> Result<&Node, ErrorCode> {
        self.nodes.get(if path.is_empty() { ROOT } else { path }).ok_or(ErrorCode::NoNode)
    }

    fn get_mut(&mut self, path: &str) -> Result<&mut Node, ErrorCode> {
        self.nodes.get_mut(path).ok_or(ErrorCode::NoNode)
    }

    /// Number of nodes, including the built-in ones.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes of all paths, data and access lists: for the limit, and for monitoring.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Number of nodes that live with a session.
    pub(crate) fn ephemeral_count(&self) -> usize {
        self.ephemerals.values().map(BTreeSet::len).sum()
    }

    /// Paths of the nodes that live with `session`, sorted.
    pub(crate) fn ephemerals(&self, session: i64) -> impl Iterator<Item = &String> {
        self.ephemerals.get(&session).into_iter().flatten()
    }

    /// Containers that had children and have none, sorted.
    pub(crate) fn idle_containers(&self) -> Vec<String> {
        let idle =
            |path: &&String| self.nodes.get(*path).is_some_and(|node| node.creates > 0 && node.children.is_empty());
        self.containers.iter().filter(idle).cloned().collect()
    }

    /// Number of all nodes below `path`.
    pub(crate) fn descendants(&self, path: &str) -> Result<usize, ErrorCode> {
        let mut found = 0;
        let mut open: Vec<(String, &Node)> = vec![(path.to_owned(), self.get(path)?)];
        while let Some((path, node)) = open.pop() {
            found += node.children.len();
            for name in &node.children {
                let child = if path == ROOT { format!("/{name}") } else { format!("{path}/{name}") };
                if let Some(node) = self.nodes.get(&child) {
                    open.push((child, node));
                }
            }
        }
        Ok(found)
    }

    /// Adds a node. The caller has checked that the parent exists and the path does not.
    pub(crate) fn insert(&mut self, txn: Txn, path: &str, node: Node) -> Result<Undo, ErrorCode> {
        let (parent, name) = path::split(path).ok_or(ErrorCode::BadArguments)?;
        let parent = self.get_mut(parent)?;
        let undo = Undo::Inserted { path: path.to_owned(), parent_pzxid: parent.pzxid };
        parent.children.insert(name.to_owned());
        parent.creates = parent.creates.wrapping_add(1);
        parent.pzxid = txn.zxid;
        self.link(path, node);
        Ok(undo)
    }

    /// Removes a node. The caller has checked that it has no children and may be deleted.
    pub(crate) fn remove(&mut self, txn: Txn, path: &str) -> Result<Undo, ErrorCode> {
        let (parent, name) = path::split(path).ok_or(ErrorCode::BadArguments)?;
        let node = self.unlink(path).ok_or(ErrorCode::NoNode)?;
        let parent = self.get_mut(parent)?;
        let undo = Undo::Removed { path: path.to_owned(), node: Box::new(node), parent_pzxid: parent.pzxid };
        parent.children.remove(name);
        parent.pzxid = txn.zxid;
        Ok(undo)
    }

    /// Sets a node's data and raises its version.
    pub(crate) fn set_data(&mut self, txn: Txn, path: &str, data: Option<Bytes>) -> Result<Undo, ErrorCode> {
        let node = self.get_mut(path)?;
        let (before, after) = (node.data.as_ref().map_or(0, Bytes::len), data.as_ref().map_or(0, Bytes::len));
        let undo = Undo::DataSet {
            path: path.to_owned(),
            data: std::mem::replace(&mut node.data, data),
            version: node.version,
            mzxid: node.mzxid,
            mtime: node.mtime,
        };
        node.version = node.version.wrapping_add(1);
        node.mzxid = txn.zxid;
        node.mtime = txn.wall_ms;
        self.size = self.size - before + after;
        Ok(undo)
    }

    /// Sets a node's access control list and raises that list's version.
    pub(crate) fn set_acl(&mut self, path: &str, acl: Acl) -> Result<Undo, ErrorCode> {
        let node = self.get_mut(path)?;
        let after = acl::size(&acl);
        let before = std::mem::replace(&mut node.acl, acl);
        let size = acl::size(&before);
        let undo = Undo::AclSet { path: path.to_owned(), acl: before, aversion: node.aversion };
        node.aversion = node.aversion.wrapping_add(1);
        self.size = self.size - size + after;
        Ok(undo)
    }

    /// Undoes the last change.
    pub(crate) fn undo(&mut self, change: Undo) {
        match change {
            Undo::Inserted { path, parent_pzxid } => {
                self.unlink(&path);
                if let Some((parent, name)) = path::split(&path)
                    && let Some(parent) = self.nodes.get_mut(parent)
                {
                    parent.children.remove(name);
                    parent.creates = parent.creates.wrapping_sub(1);
                    parent.pzxid = parent_pzxid;
                }
            }
            Undo::Removed { path, node, parent_pzxid } => {
                self.link(&path, *node);
                if let Some((parent, name)) = path::split(&path)
                    && let Some(parent) = self.nodes.get_mut(parent)
                {
                    parent.children.insert(name.to_owned());
                    parent.pzxid = parent_pzxid;
                }
            }
            Undo::DataSet { path, data, version, mzxid, mtime } => {
                if let Some(node) = self.nodes.get_mut(&path) {
                    self.size -= node.size();
                    node.data = data;
                    node.version = version;
                    node.mzxid = mzxid;
                    node.mtime = mtime;
                    self.size += node.size();
                }
            }
            Undo::AclSet { path, acl, aversion } => {
                if let Some(node) = self.nodes.get_mut(&path) {
                    self.size -= node.size();
                    node.acl = acl;
                    node.aversion = aversion;
                    self.size += node.size();
                }
            }
        }
    }

    fn link(&mut self, path: &str, node: Node) {
        match node.lifetime {
            Lifetime::Persistent => {}
            Lifetime::Session(session) => {
                self.ephemerals.entry(session).or_default().insert(path.to_owned());
            }
            Lifetime::Container => {
                self.containers.insert(path.to_owned());
            }
        }
        self.size += path.len() + node.size();
        self.nodes.insert(path.to_owned(), node);
    }

    fn unlink(&mut self, path: &str) -> Option<Node> {
        let node = self.nodes.remove(path)?;
        self.size -= path.len() + node.size();
        match node.lifetime {
            Lifetime::Persistent => {}
            Lifetime::Session(session) => {
                if let Some(paths) = self.ephemerals.get_mut(&session) {
                    paths.remove(path);
                    if paths.is_empty() {
                        self.ephemerals.remove(&session);
                    }
                }
            }
            Lifetime::Container => {
                self.containers.remove(path);
            }
        }
        Some(node)
    }

    /// Panics unless the invariants of this module hold.
    #[cfg(test)]
    pub(crate) fn assert_invariants(&self) {
        let mut size = 0;
        let mut sessions: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
        for (path, node) in &self.nodes {
            if path != ROOT {
                let (parent, name) = path::split(path).expect("a path has a parent");
                assert!(self.nodes[parent].children.contains(name), "{path} is missing in its parent");
            }
            for name in &node.children {
                let child = if path == ROOT { format!("/{name}") } else { format!("{path}/{name}") };
                assert!(self.nodes.contains_key(&child), "{child} does not exist");
            }
            let stat = node.stat();
            assert_eq!(stat.num_children as usize, node.children.len());
            size += path.len() + node.size();
            if !path::BUILT_IN.contains(&path.as_str()) {
                assert!(node.creates >= stat.num_children, "{path} has more children than were created");
                assert!(node.pzxid >= node.czxid && node.mzxid >= node.czxid, "{path} changed before it was created");
            }
            if let Lifetime::Session(session) = node.lifetime {
                assert!(node.children.is_empty(), "{path} lives with a session and has children");
                sessions.entry(session).or_default().insert(path.clone());
            }
        }
        assert_eq!(self.ephemerals, sessions);
        assert_eq!(self.size, size);
    }
}
