//! Watches: which events are delivered, and when.

use zookeeper_client::{AddWatchMode, EventType};

use super::raw::{Frame, Handshake, Raw, Record, op};
use super::{PLAIN, Target, soon};

const CREATED: i32 = 1;
const DELETED: i32 = 2;
const DATA: i32 = 3;
const CHILDREN: i32 = 4;
const NO_WATCHER: i32 = -121;

fn reads(path: &str, watch: bool) -> Record {
    Record::new().text(path).flag(watch)
}

fn event(kind: i32, path: &str) -> Frame {
    Frame::Event { kind, path: path.to_owned() }
}

pub async fn a_data_watch_fires_once(target: Target) {
    let (watching, changing) = (target.client().await, target.client().await);
    changing.create("/a", b"", &PLAIN).await.unwrap();
    let (_, _, first) = watching.get_and_watch_data("/a").await.unwrap();
    changing.set_data("/a", b"1", None).await.unwrap();
    let event = soon(first.changed()).await;
    assert_eq!((event.event_type, event.path.as_str()), (EventType::NodeDataChanged, "/a"));
    let (_, _, second) = watching.get_and_watch_data("/a").await.unwrap();
    changing.create("/a/b", b"", &PLAIN).await.unwrap();
    changing.delete("/a/b", None).await.unwrap();
    changing.delete("/a", None).await.unwrap();
    assert_eq!(soon(second.changed()).await.event_type, EventType::NodeDeleted, "a data watch ignores children");
}

pub async fn an_exists_watch_fires_when_the_node_comes(target: Target) {
    let (watching, changing) = (target.client().await, target.client().await);
    let (stat, coming) = watching.check_and_watch_stat("/a").await.unwrap();
    assert_eq!(stat, None);
    changing.create("/a", b"", &PLAIN).await.unwrap();
    assert_eq!(soon(coming.changed()).await.event_type, EventType::NodeCreated);
    let (stat, going) = watching.check_and_watch_stat("/a").await.unwrap();
    assert!(stat.is_some());
    changing.delete("/a", None).await.unwrap();
    assert_eq!(soon(going.changed()).await.event_type, EventType::NodeDeleted);
}

pub async fn a_child_watch_fires_on_coming_and_going(target: Target) {
    let (watching, changing) = (target.client().await, target.client().await);
    let (_, coming) = watching.list_and_watch_children("/").await.unwrap();
    changing.create("/a", b"", &PLAIN).await.unwrap();
    let event = soon(coming.changed()).await;
    assert_eq!((event.event_type, event.path.as_str()), (EventType::NodeChildrenChanged, "/"));
    let (children, _, going) = watching.get_and_watch_children("/").await.unwrap();
    assert_eq!(children, ["a"]);
    changing.set_data("/a", b"x", None).await.unwrap();
    changing.delete("/a", None).await.unwrap();
    assert_eq!(soon(going.changed()).await.event_type, EventType::NodeChildrenChanged);
}

pub async fn a_deleted_node_fires_data_and_child_watches_once(target: Target) {
    let a = target.path("/a");
    let mut raw = Raw::connect(target.addr).await;
    raw.ask(op::CREATE, Record::new().create(&a, b"", 0)).await;
    raw.ask(op::GET_DATA, reads(&a, true)).await;
    raw.ask(op::GET_CHILDREN, reads(&a, true)).await;
    raw.ask(op::GET_CHILDREN, reads(&target.root, true)).await;
    let deleted = raw.send(op::DELETE, Record::new().text(&a).int(-1)).await;
    assert_eq!(raw.receive().await.unwrap(), event(DELETED, &a));
    assert_eq!(raw.receive().await.unwrap(), event(CHILDREN, &target.root));
    assert!(matches!(raw.receive().await.unwrap(), Frame::Reply { xid, error: 0, .. } if xid == deleted));
}

pub async fn the_event_arrives_before_the_reply_that_shows_the_change(target: Target) {
    let a = target.path("/a");
    let (mut watching, changing) = (Raw::connect(target.addr).await, target.client().await);
    for round in 0..20 {
        let name = format!("{a}{round}");
        assert_eq!(watching.ask(op::EXISTS, reads(&name, true)).await.0, -101);
        changing.create(&format!("/a{round}"), b"", &PLAIN).await.unwrap();
        let read = watching.send(op::EXISTS, reads(&name, false)).await;
        assert_eq!(watching.receive().await.unwrap(), event(CREATED, &name));
        assert!(matches!(watching.receive().await.unwrap(), Frame::Reply { xid, error: 0, .. } if xid == read));
    }
}

pub async fn an_own_change_fires_before_its_own_reply(target: Target) {
    let a = target.path("/a");
    let mut raw = Raw::connect(target.addr).await;
    raw.ask(op::CREATE, Record::new().create(&a, b"", 0)).await;
    raw.ask(op::GET_DATA, reads(&a, true)).await;
    let set = raw.send(op::SET_DATA, Record::new().text(&a).bytes(b"x").int(-1)).await;
    assert_eq!(raw.receive().await.unwrap(), event(DATA, &a));
    assert!(matches!(raw.receive().await.unwrap(), Frame::Reply { xid, error: 0, .. } if xid == set));
}

pub async fn a_persistent_watch_hears_every_change(target: Target) {
    let (watching, changing) = (target.client().await, target.client().await);
    let mut watch = watching.watch("/a", AddWatchMode::Persistent).await.unwrap();
    changing.create("/a", b"", &PLAIN).await.unwrap();
    changing.set_data("/a", b"1", None).await.unwrap();
    changing.set_data("/a", b"2", None).await.unwrap();
    changing.create("/a/b", b"", &PLAIN).await.unwrap();
    changing.set_data("/a/b", b"", None).await.unwrap();
    changing.delete("/a/b", None).await.unwrap();
    changing.delete("/a", None).await.unwrap();
    for expected in [
        EventType::NodeCreated,
        EventType::NodeDataChanged,
        EventType::NodeDataChanged,
        EventType::NodeChildrenChanged,
        EventType::NodeChildrenChanged,
        EventType::NodeDeleted,
    ] {
        let event = soon(watch.changed()).await;
        assert_eq!((event.event_type, event.path.as_str()), (expected, "/a"));
    }
}

pub async fn a_recursive_watch_hears_what_is_below(target: Target) {
    let (watching, changing) = (target.client().await, target.client().await);
    let mut watch = watching.watch("/a", AddWatchMode::PersistentRecursive).await.unwrap();
    changing.create("/ab", b"", &PLAIN).await.unwrap();
    changing.mkdir("/a/b/c", &PLAIN).await.unwrap();
    changing.set_data("/a/b/c", b"1", None).await.unwrap();
    changing.delete("/a/b/c", None).await.unwrap();
    for (expected, path) in [
        (EventType::NodeCreated, "/a"),
        (EventType::NodeCreated, "/a/b"),
        (EventType::NodeCreated, "/a/b/c"),
        (EventType::NodeDataChanged, "/a/b/c"),
        (EventType::NodeDeleted, "/a/b/c"),
    ] {
        let event = soon(watch.changed()).await;
        assert_eq!((event.event_type, event.path.as_str()), (expected, path));
    }
}

pub async fn a_removed_watch_hears_nothing(target: Target) {
    let mut raw = Raw::connect(target.addr).await;
    raw.ask(op::GET_DATA, reads(&target.root, true)).await;
    let kind = |kind| Record::new().text(&target.root).int(kind);
    assert_eq!(raw.ask(op::CHECK_WATCHES, kind(2)).await.0, 0);
    assert_eq!(raw.ask(op::CHECK_WATCHES, kind(1)).await.0, NO_WATCHER);
    assert_eq!(raw.ask(op::REMOVE_WATCHES, kind(1)).await.0, NO_WATCHER);
    assert_eq!(raw.ask(op::REMOVE_WATCHES, kind(3)).await.0, 0);
    assert_eq!(raw.ask(op::REMOVE_WATCHES, kind(3)).await.0, NO_WATCHER);
    let set = Record::new().text(&target.root).bytes(b"x").int(-1);
    assert_eq!(raw.ask(op::SET_DATA, set).await.0, 0, "the reply is the next frame");
}

pub async fn watches_set_again_report_missed_changes(target: Target) {
    let client = target.client().await;
    for name in ["/same", "/changed", "/deleted", "/parent"] {
        client.create(name, b"", &PLAIN).await.unwrap();
    }
    let mut before = Raw::connect(target.addr).await;
    let seen = before.zxid().await;
    client.set_data("/changed", b"x", None).await.unwrap();
    client.delete("/deleted", None).await.unwrap();
    client.create("/parent/child", b"", &PLAIN).await.unwrap();
    client.create("/made", b"", &PLAIN).await.unwrap();
    let session = before.session.clone();
    drop(before);
    let mut after = Raw::connect_as(target.addr, Handshake::resume(&session)).await.unwrap();
    let path = |name: &str| target.path(name);
    let (same, changed, deleted) = (path("/same"), path("/changed"), path("/deleted"));
    let (parent, made, absent) = (path("/parent"), path("/made"), path("/absent"));
    let record = Record::new().long(seen).texts(&[&same, &changed, &deleted]);
    let record = record.texts(&[&made, &absent]).texts(&[&parent, &same]);
    after.send_as(-8, op::SET_WATCHES, record).await;
    let mut events = Vec::new();
    loop {
        match after.receive().await.unwrap() {
            Frame::Event { kind, path } => events.push((kind, path)),
            Frame::Reply { xid, error, .. } => {
                assert_eq!((xid, error), (-8, 0), "events first, then the reply");
                break;
            }
        }
    }
    events.sort();
    assert_eq!(events, [(CREATED, made), (DELETED, deleted), (DATA, changed), (CHILDREN, parent)]);
    client.set_data("/same", b"x", None).await.unwrap();
    assert_eq!(after.receive().await.unwrap(), event(DATA, &same));
    client.create("/absent", b"", &PLAIN).await.unwrap();
    assert_eq!(after.receive().await.unwrap(), event(CREATED, &absent));
    client.create("/same/child", b"", &PLAIN).await.unwrap();
    assert_eq!(after.receive().await.unwrap(), event(CHILDREN, &same));
}

pub async fn a_read_that_fails_sets_no_watch(target: Target) {
    let a = target.path("/a");
    let mut raw = Raw::connect(target.addr).await;
    assert_eq!(raw.ask(op::GET_DATA, reads(&a, true)).await.0, -101);
    assert_eq!(raw.ask(op::GET_CHILDREN, reads(&a, true)).await.0, -101);
    assert_eq!(raw.ask(op::CREATE, Record::new().create(&a, b"", 0)).await.0, 0);
    assert_eq!(raw.ask(op::DELETE, Record::new().text(&a).int(-1)).await.0, 0);
}

pub async fn persistent_watches_set_again_receive_later_events(target: Target) {
    let client = target.client().await;
    let session = Raw::connect(target.addr).await.session;
    let mut after = Raw::connect_as(target.addr, Handshake::resume(&session)).await.unwrap();
    let (node, tree) = (target.path("/node"), target.path("/tree"));
    let none = Record::new().long(after.zxid().await).texts(&[]).texts(&[]).texts(&[]);
    after.send_as(-8, op::SET_WATCHES2, none.texts(&[&node]).texts(&[&tree])).await;
    assert!(matches!(after.receive().await.unwrap(), Frame::Reply { xid: -8, error: 0, .. }));
    for name in ["/node", "/tree", "/tree/below"] {
        client.create(name, b"", &PLAIN).await.unwrap();
    }
    client.set_data("/node", b"x", None).await.unwrap();
    for expected in
        [event(CREATED, &node), event(CREATED, &tree), event(CREATED, &target.path("/tree/below")), event(DATA, &node)]
    {
        assert_eq!(after.receive().await.unwrap(), expected);
    }
}

pub async fn watches_go_with_their_connection(target: Target) {
    let client = target.client().await;
    let mut before = Raw::connect(target.addr).await;
    before.ask(op::EXISTS, reads(&target.path("/a"), true)).await;
    let mut after = Raw::connect_as(target.addr, Handshake::resume(&before.session)).await.unwrap();
    client.create("/a", b"", &PLAIN).await.unwrap();
    assert_eq!(after.ask(op::EXISTS, reads(&target.path("/a"), false)).await.0, 0, "the reply is the next frame");
}
