//! Requests: a header (`xid`, operation) and a record whose format follows from the operation.

use bytes::Bytes;

use super::codes::op;
use super::jute::{DecodeError, Reader};
use super::records::{AclEntry, Identity};

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The client's number for the request, repeated in the reply.
    pub(crate) xid: i32,
    pub(crate) op: i32,
}

/// The creation of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Create {
    /// Which of the four create operations this is; it decides the format of the reply.
    pub(crate) op: i32,
    pub(crate) path: String,
    pub(crate) data: Option<Bytes>,
    pub(crate) acl: Vec<AclEntry>,
    /// 0 persistent, 1 ephemeral, 2 and 3 the same with a sequence, 4 container, 5 and 6 with a time to live.
    pub(crate) flags: i32,
}

/// A write, alone or as a part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Create(Create),
    Delete { path: String, version: i32 },
    SetData { path: String, data: Option<Bytes>, version: i32 },
    SetAcl { path: String, acl: Vec<AclEntry>, version: i32 },
    Check { path: String, version: i32 },
}

/// A read that a `multiRead` may contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BatchRead {
    Data { path: String },
    Children { path: String },
}

/// The watches that a client had on its previous connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rewatch {
    /// The last transaction id that the client has seen; later changes are reported.
    pub(crate) since_zxid: i64,
    pub(crate) data: Vec<String>,
    pub(crate) exists: Vec<String>,
    pub(crate) children: Vec<String>,
    pub(crate) persistent: Vec<String>,
    pub(crate) recursive: Vec<String>,
}

/// A request after the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Write(Write),
    Multi(Vec<Write>),
    MultiRead(Vec<BatchRead>),
    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    GetAcl {
        path: String,
    },
    /// `with_stat` is the difference between the two operations of this name.
    GetChildren {
        path: String,
        watch: bool,
        with_stat: bool,
    },
    Sync {
        path: String,
    },
    Ping,
    Auth {
        scheme: String,
        secret: Bytes,
    },
    Rewatch(Rewatch),
    AddWatch {
        path: String,
        mode: i32,
    },
    CheckWatches {
        path: String,
        kind: i32,
    },
    RemoveWatches {
        path: String,
        kind: i32,
    },
    GetEphemerals {
        prefix: String,
    },
    CountDescendants {
        path: String,
    },
    WhoAmI,
    Reconfig,
    Close,
    /// An operation that this server does not know.
    Unknown,
}

/// Reads a frame's header. What remains in the reader is the record for [`decode_body`].
pub(crate) fn decode_header(reader: &mut Reader) -> Result<Header, DecodeError> {
    Ok(Header { xid: reader.int("xid")?, op: reader.int("operation")? })
}

/// Reads the record that follows a header with operation `code`.
pub(crate) fn decode_body(code: i32, reader: &mut Reader) -> Result<Request, DecodeError> {
    Ok(match code {
        op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL | op::DELETE | op::SET_DATA => {
            Request::Write(write(code, reader)?)
        }
        op::SET_ACL => {
            Request::Write(Write::SetAcl { path: path(reader)?, acl: acl(reader)?, version: version(reader)? })
        }
        op::MULTI => Request::Multi(parts(reader, write)?),
        op::MULTI_READ => Request::MultiRead(parts(reader, batch_read)?),
        op::EXISTS => Request::Exists { path: path(reader)?, watch: reader.boolean("watch")? },
        op::GET_DATA => Request::GetData { path: path(reader)?, watch: reader.boolean("watch")? },
        op::GET_ACL => Request::GetAcl { path: path(reader)? },
        op::GET_CHILDREN | op::GET_CHILDREN2 => Request::GetChildren {
            path: path(reader)?,
            watch: reader.boolean("watch")?,
            with_stat: code == op::GET_CHILDREN2,
        },
        op::SYNC => Request::Sync { path: path(reader)? },
        op::PING => Request::Ping,
        op::AUTH => {
            reader.int("auth type")?;
            Request::Auth {
                scheme: reader.text("auth scheme")?,
                secret: reader.buffer("auth secret")?.unwrap_or_default(),
            }
        }
        op::SET_WATCHES | op::SET_WATCHES2 => Request::Rewatch(rewatch(code, reader)?),
        op::ADD_WATCH => Request::AddWatch { path: path(reader)?, mode: reader.int("watch mode")? },
        op::CHECK_WATCHES => Request::CheckWatches { path: path(reader)?, kind: reader.int("watch kind")? },
        op::REMOVE_WATCHES => Request::RemoveWatches { path: path(reader)?, kind: reader.int("watch kind")? },
        op::GET_EPHEMERALS => Request::GetEphemerals { prefix: path(reader)? },
        op::GET_ALL_CHILDREN_NUMBER => Request::CountDescendants { path: path(reader)? },
        op::WHO_AM_I => Request::WhoAmI,
        op::RECONFIG => Request::Reconfig,
        op::CLOSE => Request::Close,
        _ => Request::Unknown,
    })
}

fn path(reader: &mut Reader) -> Result<String, DecodeError> {
    reader.text("path")
}

/// A node's data, copied: a slice would keep the whole frame in memory for as long as the node.
fn data(reader: &mut Reader) -> Result<Option<Bytes>, DecodeError> {
    Ok(reader.buffer("data")?.map(|slice| Bytes::copy_from_slice(&slice)))
}

fn version(reader: &mut Reader) -> Result<i32, DecodeError> {
    reader.int("version")
}

fn acl(reader: &mut Reader) -> Result<Vec<AclEntry>, DecodeError> {
    reader.vector("acl", |reader| {
        let permissions = reader.int("permissions")?;
        let scheme = reader.text("acl scheme")?;
        let id = reader.text("acl id")?;
        Ok(AclEntry { permissions, identity: Identity { scheme, id } })
    })
}

fn write(code: i32, reader: &mut Reader) -> Result<Write, DecodeError> {
    Ok(match code {
        op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
            let (path, data, acl) = (path(reader)?, data(reader)?, acl(reader)?);
            let flags = reader.int("flags")?;
            if code == op::CREATE_TTL {
                reader.long("time to live")?;
            }
            Write::Create(Create { op: code, path, data, acl, flags })
        }
        op::DELETE => Write::Delete { path: path(reader)?, version: version(reader)? },
        op::SET_DATA => Write::SetData { path: path(reader)?, data: data(reader)?, version: version(reader)? },
        op::CHECK => Write::Check { path: path(reader)?, version: version(reader)? },
        _ => return Err(DecodeError::Nested { code }),
    })
}

fn batch_read(code: i32, reader: &mut Reader) -> Result<BatchRead, DecodeError> {
    let read = match code {
        op::GET_DATA => BatchRead::Data { path: path(reader)? },
        op::GET_CHILDREN => BatchRead::Children { path: path(reader)? },
        _ => return Err(DecodeError::Nested { code }),
    };
    // A batch sets no watches; the flag is part of the record that it shares with the single read.
    reader.boolean("watch")?;
    Ok(read)
}

/// The parts of a transaction: each has a small header; the last header is the end mark.
fn parts<T>(
    reader: &mut Reader,
    part: impl Fn(i32, &mut Reader) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut parts = Vec::new();
    loop {
        let code = reader.int("operation")?;
        let done = reader.boolean("end mark")?;
        reader.int("error")?;
        if done {
            return Ok(parts);
        }
        parts.push(part(code, reader)?);
    }
}

fn rewatch(code: i32, reader: &mut Reader) -> Result<Rewatch, DecodeError> {
    let mut rewatch = Rewatch {
        since_zxid: reader.long("zxid")?,
        data: reader.texts("data watches")?,
        exists: reader.texts("exists watches")?,
        children: reader.texts("child watches")?,
        ..Rewatch::default()
    };
    if code == op::SET_WATCHES2 {
        rewatch.persistent = reader.texts("persistent watches")?;
        rewatch.recursive = reader.texts("recursive watches")?;
    }
    Ok(rewatch)
}
