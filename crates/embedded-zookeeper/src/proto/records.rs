//! Records that requests and replies share.

/// The metadata of a node. Times are milliseconds since 1970, the data length is in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Transaction that created the node.
    pub(crate) czxid: i64,
    /// Transaction that last set its data.
    pub(crate) mzxid: i64,
    /// Transaction that last added or removed a child.
    pub(crate) pzxid: i64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    /// How often a child was added or removed.
    pub(crate) cversion: i32,
    pub(crate) aversion: i32,
    /// Session that the node lives with; 0 if it is not ephemeral.
    pub(crate) ephemeral_owner: i64,
    pub(crate) data_length: i32,
    pub(crate) num_children: i32,
}

/// An identity of a client or of an access control entry, under one scheme (`world`, `auth`, `digest`, `ip`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) scheme: String,
    pub(crate) id: String,
}

/// One entry of a node's access control list: what `identity` may do, as the sum of permission bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AclEntry {
    pub(crate) permissions: i32,
    pub(crate) identity: Identity,
}
