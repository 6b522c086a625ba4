//! The state machine as a whole, with a manual clock, and the tree's invariants under arbitrary operations.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::tree::{Lifetime, Tree, Txn};
use super::writes::{self, Caller};
use super::{CONTAINER_CHECK_INTERVAL, ConnectionId, Output, State, acl, path};
use crate::clock::Now;
use crate::proto::codes::{ErrorCode, op};
use crate::proto::jute::Writer;
use crate::proto::records::{AclEntry, Identity};
use crate::proto::reply::{Part, Reply};
use crate::proto::request::{Create, Write};

const TIMEOUT_MS: u64 = 1_000;

fn at(mono_ms: u64) -> Now {
    Now { wall_ms: 1_700_000_000_000, mono: Duration::from_millis(mono_ms) }
}

/// An empty state that grants timeouts up to [`TIMEOUT_MS`].
fn empty(start: Now) -> State {
    State::new(start, [1; 16], Duration::from_millis(10)..=Duration::from_millis(TIMEOUT_MS))
}

fn frame(fill: impl FnOnce(&mut Writer)) -> Bytes {
    let mut writer = Writer::new();
    fill(&mut writer);
    writer.finish().slice(4..)
}

fn request(op: i32, fill: impl FnOnce(&mut Writer)) -> Bytes {
    frame(|writer| {
        writer.int(1);
        writer.int(op);
        fill(writer);
    })
}

fn create(path: &str, flags: i32) -> Bytes {
    request(op::CREATE, |writer| {
        writer.text(path);
        writer.buffer(None);
        writer.int(1);
        writer.int(acl::ALL);
        writer.text("world");
        writer.text("anyone");
        writer.int(flags);
    })
}

fn exists(path: &str, watch: bool) -> Bytes {
    request(op::EXISTS, |writer| {
        writer.text(path);
        writer.boolean(watch);
    })
}

fn on_path(op: i32, path: &str) -> Bytes {
    request(op, |writer| {
        writer.text(path);
        writer.int(-1);
    })
}

/// A state with one session of [`TIMEOUT_MS`] per connection.
fn state(connections: &[ConnectionId]) -> State {
    let mut state = empty(at(0));
    for connection in connections {
        let hello = frame(|writer| {
            writer.int(0);
            writer.long(0);
            writer.int(TIMEOUT_MS as i32);
            writer.long(0);
            writer.buffer(Some(&[0; 16]));
            writer.boolean(false);
        });
        let outputs = state.connect(at(0), *connection, "127.0.0.1".parse().unwrap(), hello);
        assert!(matches!(outputs[..], [Output::Frame { .. }]));
    }
    state
}

/// Outputs as short words: `2:/a` an event, `1!` a close, `1=0` a reply with its error.
fn words(outputs: &[Output]) -> Vec<String> {
    let word = |output: &Output| match output {
        Output::Frame { connection, frame } => {
            format!("{connection}={}", i32::from_be_bytes(frame[16..20].try_into().unwrap()))
        }
        Output::Event { connection, path, .. } => format!("{connection}:{path}"),
        Output::Close { connection } => format!("{connection}!"),
    };
    outputs.iter().map(word).collect()
}

#[test]
fn a_silent_session_expires_with_its_nodes_and_watches_fire() {
    let mut state = state(&[1, 2]);
    assert_eq!(words(&state.handle(at(0), 1, create("/e", 1))), ["1=0"]);
    assert_eq!(words(&state.handle(at(900), 2, exists("/e", true))), ["2=0"]);
    assert!(state.tick(at(TIMEOUT_MS - 1)).is_empty());
    assert_eq!(words(&state.tick(at(TIMEOUT_MS))), ["2:/e", "1!"]);
    assert_eq!(words(&state.handle(at(TIMEOUT_MS), 1, exists("/", false))), ["1!"], "no request is executed");
    assert_eq!(words(&state.handle(at(TIMEOUT_MS), 2, exists("/e", false))), ["2=-101"]);
    state.tree.assert_invariants();
}

#[test]
fn a_disconnected_session_keeps_its_nodes_and_loses_its_watches() {
    let mut state = state(&[1, 2]);
    state.handle(at(0), 1, create("/e", 1));
    state.handle(at(0), 1, exists("/x", true));
    state.disconnect(1);
    assert_eq!(words(&state.handle(at(500), 2, create("/x", 0))), ["2=0"], "no client is notified");
    assert_eq!(words(&state.handle(at(999), 2, exists("/e", false))), ["2=0"]);
    assert!(state.tick(at(1_000)).is_empty(), "there is no connection to close");
    assert_eq!(words(&state.handle(at(1_000), 2, exists("/e", false))), ["2=-101"]);
    assert_eq!(state.counts().watches, 0);
}

#[test]
fn a_paused_server_extends_session_deadlines() {
    let mut state = state(&[1]);
    state.extend_deadlines(Duration::from_secs(5));
    assert!(state.tick(at(5_999)).is_empty());
    assert_eq!(words(&state.tick(at(6_000))), ["1!"]);
}

#[test]
fn a_container_is_deleted_when_its_last_child_is_gone() {
    let mut state = state(&[1]);
    for path in ["/used", "/fresh"] {
        state.handle(at(0), 1, create(path, 4));
    }
    state.handle(at(0), 1, create("/used/a", 0));
    state.handle(at(0), 1, exists("/used", true));
    // A session needs a request within each timeout.
    let (mut now, interval) = (0, CONTAINER_CHECK_INTERVAL.as_millis() as u64);
    while now <= interval {
        assert!(state.tick(at(now)).is_empty());
        now += TIMEOUT_MS / 2;
        state.handle(at(now), 1, exists("/", false));
    }
    state.handle(at(now), 1, on_path(op::DELETE, "/used/a"));
    while now < 2 * interval {
        assert!(state.tick(at(now)).is_empty());
        now += TIMEOUT_MS / 2;
        state.handle(at(now), 1, exists("/", false));
    }
    assert_eq!(words(&state.tick(at(now))), ["1:/used"]);
    assert_eq!(words(&state.handle(at(now), 1, exists("/fresh", false))), ["1=0"]);
}

#[test]
fn events_stand_before_the_reply_that_shows_the_change() {
    let mut state = state(&[1, 2, 3]);
    for connection in [1, 2, 3] {
        state.handle(at(0), connection, exists("/a", true));
    }
    assert_eq!(words(&state.handle(at(0), 2, create("/a", 0))), ["1:/a", "2:/a", "3:/a", "2=0"]);
}

#[test]
fn a_close_request_is_answered_before_the_connection_closes() {
    let mut state = state(&[1, 2]);
    state.handle(at(0), 1, create("/e", 1));
    state.handle(at(0), 2, exists("/e", true));
    assert_eq!(words(&state.handle(at(0), 1, request(op::CLOSE, |_| {}))), ["2:/e", "1=0", "1!"]);
    assert_eq!(state.sessions().len(), 1);
}

#[test]
fn a_frame_without_a_session_is_ignored() {
    let mut state = state(&[]);
    assert!(state.handle(at(0), 7, create("/a", 0)).is_empty());
    assert_eq!(words(&state.connect(at(0), 8, "::1".parse().unwrap(), Bytes::from_static(b"short"))), ["8!"]);
    assert!(state.tree.get("/a").is_err());
}

#[test]
fn zxids_rise_with_every_write_and_exceed_those_of_earlier_servers() {
    let mut earlier = state(&[1]);
    for number in 0..1_000 {
        earlier.handle(at(0), 1, create(&format!("/{number}"), 0));
        earlier.handle(at(0), 1, create(&format!("/{number}"), 0));
    }
    let before = earlier.counts().zxid;
    assert!(before > state(&[]).counts().zxid + 2_000 - 1);
    let later = empty(Now { wall_ms: at(0).wall_ms + 1, ..at(0) });
    assert!(later.counts().zxid > before);
}

/// The size of a node's data, about the longest that a request can have; shared, so that the test itself needs
/// little memory.
const LONG_BYTES: usize = 1_000_000;

fn with_data(path: &str, data: Bytes) -> Write {
    Write::Create(Create { op: op::CREATE, path: path.to_owned(), data: Some(data), acl: open(), flags: 0 })
}

#[test]
fn bytes_are_limited_in_whatever_way_they_come() {
    let (mut tree, long) = (Tree::new(), Bytes::from(vec![0; LONG_BYTES]));
    let caller = Caller { session: 1, identities: &[] };
    let mut zxid = 0;
    let mut write = |tree: &mut Tree, write: Write| {
        zxid += 1;
        writes::apply(tree, Txn { zxid, wall_ms: 0 }, caller, write).map(drop)
    };
    let set = |path: &str, data: Bytes| Write::SetData { path: path.to_owned(), data: Some(data), version: -1 };
    let full = writes::BYTES_MAX / LONG_BYTES;
    for number in 0..full {
        write(&mut tree, with_data(&format!("/{number}"), long.clone())).unwrap();
    }
    write(&mut tree, with_data("/small", Bytes::new())).unwrap();
    let before = tree.clone();
    let over = Err(ErrorCode::QuotaExceeded);
    assert_eq!(write(&mut tree, with_data("/more", long.clone())), over);
    assert_eq!(write(&mut tree, set("/small", long.clone())), over);
    let entry = open().remove(0);
    let endless = AclEntry {
        permissions: entry.permissions,
        identity: Identity {
            scheme: "digest".to_owned(),
            id: format!("{}:{}", "u".repeat(LONG_BYTES), "A".repeat(27) + "="),
        },
    };
    assert_eq!(
        write(&mut tree, Write::SetAcl { path: "/small".to_owned(), acl: vec![endless.clone()], version: -1 }),
        over
    );
    let listed = Create { op: op::CREATE, path: "/more".to_owned(), data: None, acl: vec![endless], flags: 0 };
    assert_eq!(write(&mut tree, Write::Create(listed)), over);
    assert_eq!(tree, before, "a refused write changes nothing");

    // A write that needs no more bytes is accepted, and frees capacity.
    write(&mut tree, set("/0", long.slice(1..))).unwrap();
    write(&mut tree, set("/0", Bytes::new())).unwrap();
    write(&mut tree, with_data("/more", long.slice(..LONG_BYTES / 2))).unwrap();
    write(&mut tree, Write::Delete { path: "/1".to_owned(), version: -1 }).unwrap();
    write(&mut tree, set("/small", long)).unwrap();
    tree.assert_invariants();
}

// The tree's invariants under arbitrary operations.

const SESSIONS: [i64; 2] = [11, 12];
const PATHS: [&str; 8] = ["/a", "/b", "/a/a", "/a/b", "/a/a/a", "/b/a", "/zookeeper/a", "/none/a"];

#[derive(Clone, Debug)]
enum Step {
    One(i64, Write),
    Many(i64, Vec<Write>),
    EndSession(i64),
}

fn open() -> Vec<AclEntry> {
    acl::open().to_vec()
}

fn any_write() -> impl Strategy<Value = Write> {
    let path = proptest::sample::select(&PATHS[..]).prop_map(str::to_owned);
    let version = prop_oneof![3 => Just(-1), 1 => 0..3];
    let data = prop_oneof![Just(None), (0_u8..4).prop_map(|length| Some(Bytes::from(vec![0; usize::from(length)])))];
    (0..8, path, version, data, 0..5).prop_map(|(kind, path, version, data, flags)| match kind {
        0..=3 => Write::Create(Create { op: op::CREATE2, path, data, acl: open(), flags }),
        4 | 5 => Write::Delete { path, version },
        6 => Write::SetData { path, data, version },
        _ => Write::Check { path, version },
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let session = || proptest::sample::select(&SESSIONS[..]);
    prop_oneof![
        6 => (session(), any_write()).prop_map(|(session, write)| Step::One(session, write)),
        3 => (session(), prop::collection::vec(any_write(), 0..5)).prop_map(|(session, writes)| Step::Many(session, writes)),
        1 => session().prop_map(Step::EndSession),
    ]
}

fn parent_stat(tree: &Tree, path: &str) -> Option<crate::proto::records::Stat> {
    tree.get(path::split(path)?.0).ok().map(super::tree::Node::stat)
}

/// Applies one write and checks its effect on the tree and on the parent's stat.
fn check_one(tree: &mut Tree, txn: Txn, session: i64, write: Write) {
    let before = tree.clone();
    let path = match &write {
        Write::Create(create) => create.path.clone(),
        Write::Delete { path, .. } | Write::SetData { path, .. } | Write::Check { path, .. } => path.clone(),
        Write::SetAcl { .. } => unreachable!("not among the steps"),
    };
    let (parent_before, is_create) = (parent_stat(&before, &path), matches!(write, Write::Create(_)));
    let is_delete = matches!(write, Write::Delete { .. });
    let outcome = writes::apply(tree, txn, Caller { session, identities: &[] }, write);
    if outcome.is_err() {
        assert_eq!(*tree, before, "a refused write changes nothing");
    } else if is_create || is_delete {
        let (was, is) = (parent_before.unwrap(), parent_stat(tree, &path).unwrap());
        assert_eq!(is.cversion, was.cversion + 1);
        assert_eq!(is.num_children, was.num_children + if is_create { 1 } else { -1 });
        assert_eq!(is.pzxid, txn.zxid);
        assert_eq!((is.version, is.mzxid), (was.version, was.mzxid));
    }
}

fn check_many(tree: &mut Tree, txn: Txn, session: i64, writes: Vec<Write>) {
    let before = tree.clone();
    let count = writes.len();
    let (reply, fired) = writes::apply_all(tree, txn, Caller { session, identities: &[] }, writes);
    let Reply::Parts(parts) = reply else { panic!("the reply to a transaction has parts") };
    assert_eq!(parts.len(), count);
    let code = |part: &Part| part.outcome.as_ref().err().copied();
    if let Some(failed) = parts.iter().position(|part| code(part).is_some_and(|code| code != ErrorCode::Ok)) {
        assert_eq!(*tree, before, "a failed transaction changes nothing");
        assert!(fired.is_empty());
        assert!(parts[..failed].iter().all(|part| code(part) == Some(ErrorCode::Ok)));
        assert!(parts[failed + 1..].iter().all(|part| code(part) == Some(ErrorCode::RuntimeInconsistency)));
    } else {
        assert!(parts.iter().all(|part| part.outcome.is_ok()));
    }
}

proptest! {
    #[test]
    fn the_tree_stays_consistent_after_any_requests(steps in prop::collection::vec(any_step(), 1..60)) {
        let mut tree = Tree::new();
        for (number, step) in steps.into_iter().enumerate() {
            let txn = Txn { zxid: number as i64 + 1, wall_ms: number as i64 };
            match step {
                Step::One(session, write) => check_one(&mut tree, txn, session, write),
                Step::Many(session, writes) => check_many(&mut tree, txn, session, writes),
                Step::EndSession(session) => {
                    let (nodes, own) = (tree.len(), tree.ephemerals(session).count());
                    let fired = writes::remove_ephemerals(&mut tree, txn, session);
                    prop_assert_eq!(tree.ephemerals(session).count(), 0);
                    prop_assert_eq!((tree.len(), fired.len()), (nodes - own, 2 * own));
                }
            }
            tree.assert_invariants();
            let below = tree.descendants("/").unwrap();
            prop_assert_eq!(below, tree.len() - 1);
        }
        for session in SESSIONS {
            for path in tree.ephemerals(session) {
                prop_assert_eq!(tree.get(path).unwrap().lifetime, Lifetime::Session(session));
            }
        }
    }
}
