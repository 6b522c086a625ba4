//! Replies and events: a header (`xid`, transaction id, error) and a record.

use bytes::Bytes;

use super::codes::{ErrorCode, EventKind, XID_EVENT, op};
use super::jute::Writer;
use super::records::{AclEntry, Identity, Stat};

/// The record of a successful reply, or one part of a transaction's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Empty,
    /// A path alone: the first create operation, and sync.
    Path(String),
    /// The later create operations.
    Created {
        path: String,
        stat: Stat,
    },
    Stat(Stat),
    Data {
        data: Option<Bytes>,
        stat: Stat,
    },
    Texts(Vec<String>),
    Children {
        children: Vec<String>,
        stat: Stat,
    },
    Acl {
        acl: Vec<AclEntry>,
        stat: Stat,
    },
    Number(i32),
    Identities(Vec<Identity>),
    Parts(Vec<Part>),
}

/// One part of the reply to a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Operation of the part; ignored for a failed one.
    pub(crate) op: i32,
    pub(crate) outcome: Result<Reply, ErrorCode>,
}

/// A reply's frame. `Err` carries no record, only its code.
pub(crate) fn encode_reply(xid: i32, zxid: i64, outcome: &Result<Reply, ErrorCode>) -> Bytes {
    let mut writer = Writer::new();
    writer.int(xid);
    writer.long(zxid);
    match outcome {
        Ok(reply) => {
            writer.int(ErrorCode::Ok.number());
            record(&mut writer, reply);
        }
        Err(code) => writer.int(code.number()),
    }
    writer.finish()
}

/// An event's frame.
pub(crate) fn encode_event(kind: EventKind, path: &str, zxid: i64) -> Bytes {
    /// The client's state that comes with an event of a node: connected.
    const STATE_CONNECTED: i32 = 3;
    let mut writer = Writer::new();
    writer.int(XID_EVENT);
    writer.long(zxid);
    writer.int(ErrorCode::Ok.number());
    writer.int(kind as i32);
    writer.int(STATE_CONNECTED);
    writer.text(path);
    writer.finish()
}

fn record(writer: &mut Writer, reply: &Reply) {
    match reply {
        Reply::Empty => {}
        Reply::Path(path) => writer.text(path),
        Reply::Created { path, stat: node } => {
            writer.text(path);
            stat(writer, node);
        }
        Reply::Stat(node) => stat(writer, node),
        Reply::Data { data, stat: node } => {
            writer.buffer(data.as_deref());
            stat(writer, node);
        }
        Reply::Texts(texts) => writer.texts(texts),
        Reply::Children { children, stat: node } => {
            writer.texts(children);
            stat(writer, node);
        }
        Reply::Acl { acl, stat: node } => {
            writer.vector(acl, |writer, entry| {
                writer.int(entry.permissions);
                identity(writer, &entry.identity);
            });
            stat(writer, node);
        }
        Reply::Number(number) => writer.int(*number),
        Reply::Identities(identities) => writer.vector(identities, identity),
        Reply::Parts(parts) => {
            for part in parts {
                encode_part(writer, part);
            }
            part_header(writer, op::ERROR, true, op::ERROR);
        }
    }
}

fn encode_part(writer: &mut Writer, part: &Part) {
    match &part.outcome {
        Ok(reply) => {
            part_header(writer, part.op, false, ErrorCode::Ok.number());
            record(writer, reply);
        }
        Err(code) => {
            part_header(writer, op::ERROR, false, code.number());
            writer.int(code.number());
        }
    }
}

fn part_header(writer: &mut Writer, op: i32, done: bool, error: i32) {
    writer.int(op);
    writer.boolean(done);
    writer.int(error);
}

fn identity(writer: &mut Writer, identity: &Identity) {
    writer.text(&identity.scheme);
    writer.text(&identity.id);
}

fn stat(writer: &mut Writer, stat: &Stat) {
    writer.long(stat.czxid);
    writer.long(stat.mzxid);
    writer.long(stat.ctime);
    writer.long(stat.mtime);
    writer.int(stat.version);
    writer.int(stat.cversion);
    writer.int(stat.aversion);
    writer.long(stat.ephemeral_owner);
    writer.int(stat.data_length);
    writer.int(stat.num_children);
    writer.long(stat.pzxid);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    #[test]
    fn a_stat_is_68_bytes_and_a_failed_reply_only_its_header() {
        let with_stat = encode_reply(1, 2, &Ok(Reply::Stat(Stat::default())));
        assert_eq!(with_stat.len(), 4 + 16 + 68);
        let failed = encode_reply(1, 2, &Err(ErrorCode::NoNode));
        assert_eq!(failed[..], [0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 255, 255, 255, 155]);
    }

    #[test]
    fn a_failed_transaction_names_each_part_and_ends_with_its_mark() {
        let parts = vec![
            Part { op: op::CHECK, outcome: Err(ErrorCode::Ok) },
            Part { op: op::DELETE, outcome: Err(ErrorCode::BadVersion) },
        ];
        let frame = encode_reply(5, 0, &Ok(Reply::Parts(parts)));
        let expected: &[u8] = &[
            255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, // error, not the end, code 0, code 0
            255, 255, 255, 255, 0, 255, 255, 255, 153, 255, 255, 255, 153, // code -103 twice
            255, 255, 255, 255, 1, 255, 255, 255, 255, // the end
        ];
        assert_eq!(&frame[20..], expected);
    }
}
