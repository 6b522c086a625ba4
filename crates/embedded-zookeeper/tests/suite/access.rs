//! Access control.

use zookeeper_client::{Acl, Acls, AuthId, AuthUser, Client, CreateMode, Error, MultiWriteError, Permission};

use super::raw::{Frame, Raw, Record, op};
use super::{PLAIN, Target};

const ME: &[u8] = b"me:secret";
const YOU: &[u8] = b"you:secret";

async fn authenticated(target: &Target, secret: &[u8]) -> Client {
    let client = target.client().await;
    client.auth("digest", secret).await.unwrap();
    client
}

pub async fn strangers_may_only_check_existence(target: Target) {
    let (me, you) = (authenticated(&target, ME).await, authenticated(&target, YOU).await);
    me.create("/a", b"x", &CreateMode::Persistent.with_acls(Acls::creator_all())).await.unwrap();
    assert_eq!(you.get_data("/a").await.unwrap_err(), Error::NoAuth);
    assert_eq!(you.list_children("/a").await.unwrap_err(), Error::NoAuth);
    assert_eq!(you.get_children("/a").await.unwrap_err(), Error::NoAuth);
    assert_eq!(you.count_descendants_number("/a").await.unwrap_err(), Error::NoAuth);
    assert_eq!(you.set_data("/a", b"", None).await.unwrap_err(), Error::NoAuth);
    assert_eq!(you.get_acl("/a").await.unwrap_err(), Error::NoAuth);
    assert_eq!(you.set_acl("/a", &Acls::anyone_all(), None).await.unwrap_err(), Error::NoAuth);
    assert!(you.check_stat("/a").await.unwrap().is_some());
    assert_eq!(me.get_data("/a").await.unwrap().0, b"x");
    // A second identity adds to the first.
    you.auth("digest", ME).await.unwrap();
    assert_eq!(you.get_data("/a").await.unwrap().0, b"x");
}

pub async fn creating_and_deleting_are_checked_on_the_parent(target: Target) {
    let (me, you) = (authenticated(&target, ME).await, authenticated(&target, YOU).await);
    let read_only = [Acl::new(Permission::ALL, AuthId::authed()), Acl::new(Permission::READ, AuthId::anyone())];
    me.create("/p", b"", &CreateMode::Persistent.with_acls(Acls::new(&read_only))).await.unwrap();
    me.create("/p/open", b"", &PLAIN).await.unwrap();
    assert_eq!(you.create("/p/more", b"", &PLAIN).await.unwrap_err(), Error::NoAuth);
    assert_eq!(you.delete("/p/open", None).await.unwrap_err(), Error::NoAuth);
    assert_eq!(you.delete("/p/none", None).await.unwrap_err(), Error::NoAuth, "permission comes before existence");
    you.create("/p/open/child", b"", &PLAIN).await.unwrap();
    // The node's own list does not matter for its deletion.
    me.create("/mine", b"", &CreateMode::Persistent.with_acls(Acls::creator_all())).await.unwrap();
    you.delete("/mine", None).await.unwrap();
}

pub async fn the_list_itself_needs_admin_and_counts_its_versions(target: Target) {
    let me = authenticated(&target, ME).await;
    me.create("/a", b"", &PLAIN).await.unwrap();
    let before = me.check_stat("/a").await.unwrap().unwrap();
    let without_admin = [Acl::new(Permission::READ | Permission::WRITE, AuthId::anyone())];
    let stat = me.set_acl("/a", &without_admin, Some(0)).await.unwrap();
    assert_eq!((stat.aversion, stat.version, stat.mzxid), (1, 0, before.mzxid));
    assert_eq!(me.set_acl("/a", &Acls::anyone_all(), None).await.unwrap_err(), Error::NoAuth);
    let (acl, _) = me.get_acl("/a").await.unwrap();
    assert_eq!(acl, without_admin);
    me.create("/b", b"", &PLAIN).await.unwrap();
    assert_eq!(me.set_acl("/b", &without_admin, Some(1)).await.unwrap_err(), Error::BadVersion);
    assert_eq!(me.set_acl("/none", &without_admin, None).await.unwrap_err(), Error::NoNode);
}

pub async fn without_admin_the_hashes_are_hidden(target: Target) {
    let (me, you) = (authenticated(&target, ME).await, target.client().await);
    let acls = [Acl::new(Permission::ALL, AuthId::authed()), Acl::new(Permission::READ, AuthId::anyone())];
    me.create("/a", b"", &CreateMode::Persistent.with_acls(Acls::new(&acls))).await.unwrap();
    let shown = |acl: &[Acl]| acl[0].id().to_owned();
    assert_eq!(shown(&me.get_acl("/a").await.unwrap().0), "me:016djjlksVQS5RgX3M7biBGyYwY=");
    assert_eq!(shown(&you.get_acl("/a").await.unwrap().0), "me:x");
}

pub async fn impossible_lists_are_refused(target: Target) {
    let client = target.client().await;
    for (scheme, id) in
        [("auth", ""), ("digest", "only-a-user"), ("world", "someone"), ("ip", "not-an-address"), ("nonsense", "x")]
    {
        let acls = [Acl::new(Permission::ALL, AuthId::new(scheme, id))];
        let options = CreateMode::Persistent.with_acls(Acls::new(&acls));
        assert_eq!(client.create("/a", b"", &options).await.unwrap_err(), Error::InvalidAcl, "{scheme}:{id}");
    }
    let here = [Acl::new(Permission::ALL, AuthId::new("ip", "127.0.0.1"))];
    client.create("/here", b"", &CreateMode::Persistent.with_acls(Acls::new(&here))).await.unwrap();
    client.get_data("/here").await.unwrap();
    let elsewhere = [Acl::new(Permission::ALL, AuthId::new("ip", "10.0.0.0/8"))];
    client.create("/elsewhere", b"", &CreateMode::Persistent.with_acls(Acls::new(&elsewhere))).await.unwrap();
    assert_eq!(client.get_data("/elsewhere").await.unwrap_err(), Error::NoAuth);
}

pub async fn a_check_in_a_transaction_needs_read(target: Target) {
    let (me, you) = (authenticated(&target, ME).await, target.client().await);
    me.create("/a", b"", &CreateMode::Persistent.with_acls(Acls::creator_all())).await.unwrap();
    let mut writer = you.new_multi_writer();
    writer.add_create("/b", b"", &PLAIN).unwrap();
    writer.add_check_version("/a", 0).unwrap();
    let error = writer.commit().await.unwrap_err();
    assert_eq!(error, MultiWriteError::OperationFailed { index: 1, source: Error::NoAuth });
    assert_eq!(me.check_stat("/b").await.unwrap(), None);
}

pub async fn an_event_about_an_unreadable_node_is_not_delivered(target: Target) {
    let me = authenticated(&target, ME).await;
    let mut stranger = Raw::connect(target.addr).await;
    let (secret, open) = (target.path("/secret"), target.path("/open"));
    for path in [&secret, &open] {
        let exists = Record::new().text(path).flag(true);
        assert_eq!(stranger.ask(op::EXISTS, exists).await.0, -101);
    }
    me.create("/secret", b"", &CreateMode::Persistent.with_acls(Acls::creator_all())).await.unwrap();
    me.create("/open", b"", &PLAIN).await.unwrap();
    assert_eq!(stranger.receive().await.unwrap(), Frame::Event { kind: 1, path: open });
}

pub async fn who_am_i_returns_the_identities(target: Target) {
    let me = authenticated(&target, ME).await;
    let users = me.list_auth_users().await.unwrap();
    assert!(users.contains(&AuthUser::new("digest", "me")), "{users:?}");
    assert!(users.contains(&AuthUser::new("ip", "127.0.0.1")), "{users:?}");
    assert_eq!(users.len(), 2);
}

pub async fn a_wrong_scheme_ends_the_connection(target: Target) {
    let mut raw = Raw::connect(target.addr).await;
    raw.send_as(-4, op::AUTH, Record::new().int(0).text("digest").bytes(ME)).await;
    assert!(matches!(raw.receive().await.unwrap(), Frame::Reply { xid: -4, error: 0, .. }));
    raw.send_as(-4, op::AUTH, Record::new().int(0).text("nonsense").bytes(b"")).await;
    let frames = raw.until_closed().await;
    assert!(matches!(frames[..], [Frame::Reply { xid: -4, error: -115, .. }]), "{frames:?}");
}
