//! Sessions: opening, resuming and ending them.

use zookeeper_client::{Acls, Client, CreateMode, EventType, LockOptions, LockPrefix};

use super::raw::{Handshake, Raw, Record, op};
use super::{EPHEMERAL, PLAIN, Target, soon};

/// A short session timeout, still long enough for a busy machine to send its next request.
fn short() -> Handshake {
    Handshake { timeout_ms: 6_000, ..Handshake::default() }
}

pub async fn a_session_is_resumed_with_its_password(target: Target) {
    let client = soon(Client::connector().with_detached().connect(&target.addr.to_string())).await.unwrap();
    client.create(&target.path("/e"), b"", &EPHEMERAL).await.unwrap();
    let id = client.session_id();
    let session = client.into_session();
    let again = soon(Client::connector().with_session(session).connect(&target.addr.to_string())).await.unwrap();
    assert_eq!(again.session_id(), id);
    let stat = again.check_stat(&target.path("/e")).await.unwrap().unwrap();
    assert_eq!(stat.ephemeral_owner, id.0);
}

pub async fn a_wrong_password_or_unknown_session_is_answered_as_expired(target: Target) {
    let owner = Raw::connect(target.addr).await;
    let mut wrong = Handshake::resume(&owner.session);
    wrong.password[0] ^= 1;
    let mut unknown = Handshake::resume(&owner.session);
    unknown.session -= 1 << 30;
    for handshake in [wrong, unknown] {
        let mut refused = Raw::connect_as(target.addr, handshake).await.unwrap();
        assert_eq!((refused.session.id, refused.session.timeout_ms), (0, 0));
        assert!(refused.until_closed().await.is_empty());
    }
}

pub async fn the_older_connection_of_a_session_is_closed(target: Target) {
    let mut older = Raw::connect(target.addr).await;
    let mut newer = Raw::connect_as(target.addr, Handshake::resume(&older.session)).await.unwrap();
    assert_eq!(newer.session.id, older.session.id);
    assert!(older.until_closed().await.is_empty());
    assert_eq!(newer.ask(op::EXISTS, Record::new().text("/").flag(false)).await.0, 0);
}

pub async fn a_silent_session_loses_its_nodes_and_watches_fire(target: Target) {
    let client = target.client().await;
    let mut silent = Raw::connect_as(target.addr, short()).await.unwrap();
    silent.ask(op::CREATE, Record::new().create(&target.path("/e"), b"", 1)).await;
    silent.ask(op::CREATE, Record::new().create(&target.path("/p"), b"", 0)).await;
    let (stat, gone) = client.check_and_watch_stat("/e").await.unwrap();
    assert_eq!(stat.unwrap().ephemeral_owner, silent.session.id);
    let (_, children) = client.list_and_watch_children("/").await.unwrap();
    assert_eq!(soon(gone.changed()).await.event_type, EventType::NodeDeleted);
    assert_eq!(soon(children.changed()).await.event_type, EventType::NodeChildrenChanged);
    assert_eq!(client.list_children("/").await.unwrap(), ["p"]);
    assert!(silent.until_closed().await.is_empty());
    let mut late = Raw::connect_as(target.addr, Handshake::resume(&silent.session)).await.unwrap();
    assert_eq!(late.session.id, 0);
    assert!(late.until_closed().await.is_empty());
}

pub async fn a_ping_keeps_a_session(target: Target) {
    let mut raw = Raw::connect_as(target.addr, short()).await.unwrap();
    let timeout = u64::try_from(raw.session.timeout_ms).unwrap();
    let mut pings = tokio::time::interval(std::time::Duration::from_millis(timeout / 3));
    for _ in 0..5 {
        pings.tick().await;
        raw.send_as(-2, op::PING, Record::new()).await;
        assert!(matches!(raw.receive().await.unwrap(), super::raw::Frame::Reply { xid: -2, error: 0, .. }));
    }
    assert_eq!(raw.ask(op::EXISTS, Record::new().text("/").flag(false)).await.0, 0);
}

pub async fn a_closed_session_loses_its_nodes_at_once(target: Target) {
    let client = target.client().await;
    let mut leaving = Raw::connect(target.addr).await;
    leaving.ask(op::CREATE, Record::new().create(&target.path("/e"), b"", 1)).await;
    assert_eq!(leaving.ask(op::CLOSE, Record::new()).await.0, 0);
    client.sync("/").await.unwrap();
    assert_eq!(client.check_stat("/e").await.unwrap(), None);
    assert!(leaving.until_closed().await.is_empty());
}

pub async fn a_timeout_is_granted_within_limits(target: Target) {
    let granted = async |timeout_ms| {
        let handshake = Handshake { timeout_ms, ..Handshake::default() };
        Raw::connect_as(target.addr, handshake).await.unwrap().session.timeout_ms
    };
    let (least, most) = (granted(1).await, granted(i32::MAX).await);
    assert!(least > 1 && most < i32::MAX && least < most, "{least} {most}");
    assert_eq!(granted(least + 1).await, least + 1);
    assert_eq!(granted(0).await, least);
}

pub async fn the_lock_recipe_hands_over(target: Target) {
    let (first, second) = (target.client().await, target.client().await);
    let options = || LockOptions::new(Acls::anyone_all()).with_ancestor_options(PLAIN).unwrap();
    let prefix = || LockPrefix::new_curator("/lock", "lock-").unwrap();
    let held = soon(first.lock(prefix(), b"first", options())).await.unwrap();
    let waiting = {
        let second = second.clone();
        tokio::spawn(async move {
            let lock = second.lock(
                LockPrefix::new_curator("/lock", "lock-").unwrap(),
                b"second",
                LockOptions::new(Acls::anyone_all()),
            );
            lock.await.unwrap().lock_path().to_owned()
        })
    };
    // Both are queued, and the first holds the lock.
    soon(async {
        loop {
            let (children, _, changed) = first.get_and_watch_children("/lock").await.unwrap();
            if children.len() == 2 {
                break;
            }
            changed.changed().await;
        }
    })
    .await;
    assert!(!waiting.is_finished());
    let guarded = CreateMode::Persistent.with_acls(Acls::anyone_all());
    held.create("/made-under-lock", b"", &guarded).await.unwrap();
    drop(held);
    let path = soon(waiting).await.unwrap();
    assert!(path.starts_with("/lock/_c_"), "{path}");
}
