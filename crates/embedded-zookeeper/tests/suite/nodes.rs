//! Nodes and their stats.

use std::time::Duration;

use zookeeper_client::{Acls, CreateMode, EnsembleUpdate, Error};

use super::raw::{Raw, Record, op};
use super::{EPHEMERAL, PLAIN, SEQUENTIAL, Target};

pub async fn a_created_node_reads_back_with_its_stat(target: Target) {
    let client = target.client().await;
    let (created, _) = client.create("/a", b"data", &PLAIN).await.unwrap();
    let (data, stat) = client.get_data("/a").await.unwrap();
    assert_eq!(data, b"data");
    assert_eq!(stat, created);
    assert_eq!((stat.version, stat.cversion, stat.aversion, stat.data_length, stat.num_children), (0, 0, 0, 4, 0));
    assert_eq!((stat.mzxid, stat.pzxid, stat.mtime), (stat.czxid, stat.czxid, stat.ctime));
    assert_eq!(stat.ephemeral_owner, 0);
    assert_eq!(client.check_stat("/a").await.unwrap(), Some(stat));
    assert_eq!(client.check_stat("/b").await.unwrap(), None);
    let set = client.set_data("/a", b"", None).await.unwrap();
    assert_eq!((set.version, set.data_length, set.czxid), (1, 0, stat.czxid));
    assert!(set.mzxid > stat.mzxid && set.pzxid == stat.pzxid);
}

pub async fn creating_twice_or_without_a_parent_is_refused(target: Target) {
    let client = target.client().await;
    client.create("/a", b"", &PLAIN).await.unwrap();
    assert_eq!(client.create("/a", b"", &PLAIN).await.unwrap_err(), Error::NodeExists);
    assert_eq!(client.create("/b/c", b"", &PLAIN).await.unwrap_err(), Error::NoNode);
    assert_eq!(client.get_data("/b").await.unwrap_err(), Error::NoNode);
    assert_eq!(client.set_data("/b", b"", None).await.unwrap_err(), Error::NoNode);
    assert_eq!(client.delete("/b", None).await.unwrap_err(), Error::NoNode);
    assert_eq!(client.list_children("/b").await.unwrap_err(), Error::NoNode);
}

pub async fn a_sequence_counts_the_children_ever_made(target: Target) {
    let client = target.client().await;
    let made = async |name: &str, options| client.create(name, b"", options).await.unwrap().1.into_i64();
    assert_eq!(made("/n-", &SEQUENTIAL).await, 0);
    assert_eq!(made("/m-", &SEQUENTIAL).await, 1);
    client.create("/plain", b"", &PLAIN).await.unwrap();
    client.delete("/plain", None).await.unwrap();
    client.delete("/n-0000000000", None).await.unwrap();
    let ephemeral = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    assert_eq!(made("/n-", &ephemeral).await, 3);
    client.create("/folder", b"", &PLAIN).await.unwrap();
    assert_eq!(made("/folder/", &SEQUENTIAL).await, 0);
    assert_eq!(client.list_children("/folder").await.unwrap(), ["0000000000"]);
}

pub async fn the_stat_of_a_parent_counts_changes_of_its_children(target: Target) {
    let client = target.client().await;
    client.create("/a", b"", &PLAIN).await.unwrap();
    client.create("/a/b", b"", &PLAIN).await.unwrap();
    let (second, _) = client.create("/a/c", b"", &PLAIN).await.unwrap();
    let (mut children, stat) = client.get_children("/a").await.unwrap();
    children.sort();
    assert_eq!(children, ["b", "c"]);
    assert_eq!((stat.cversion, stat.num_children, stat.version), (2, 2, 0));
    assert_eq!(stat.pzxid, second.czxid);
    client.delete("/a/b", None).await.unwrap();
    let after = client.check_stat("/a").await.unwrap().unwrap();
    assert_eq!((after.cversion, after.num_children), (3, 1));
    assert!(after.pzxid > stat.pzxid && after.mzxid == stat.mzxid);
    client.set_data("/a/c", b"x", None).await.unwrap();
    assert_eq!(client.check_stat("/a").await.unwrap().unwrap(), after);
}

pub async fn an_ephemeral_node_has_an_owner_and_no_children(target: Target) {
    let client = target.client().await;
    let (stat, _) = client.create("/e", b"", &EPHEMERAL).await.unwrap();
    assert_eq!(stat.ephemeral_owner, client.session_id().0);
    assert_eq!(client.create("/e/a", b"", &PLAIN).await.unwrap_err(), Error::NoChildrenForEphemerals);
}

pub async fn versions_are_checked_by_set_and_delete(target: Target) {
    let client = target.client().await;
    client.create("/a", b"", &PLAIN).await.unwrap();
    assert_eq!(client.set_data("/a", b"1", Some(0)).await.unwrap().version, 1);
    assert_eq!(client.set_data("/a", b"2", Some(0)).await.unwrap_err(), Error::BadVersion);
    assert_eq!(client.delete("/a", Some(0)).await.unwrap_err(), Error::BadVersion);
    assert_eq!(client.get_data("/a").await.unwrap().0, b"1");
    client.delete("/a", Some(1)).await.unwrap();
    client.create("/a", b"", &PLAIN).await.unwrap();
    assert_eq!(client.check_stat("/a").await.unwrap().unwrap().version, 0);
}

pub async fn a_node_with_children_cannot_be_deleted(target: Target) {
    let client = target.client().await;
    client.mkdir("/a/b", &PLAIN).await.unwrap();
    assert_eq!(client.delete("/a", None).await.unwrap_err(), Error::NotEmpty);
    assert_eq!(client.delete("/a", Some(7)).await.unwrap_err(), Error::BadVersion);
    client.delete("/a/b", None).await.unwrap();
    client.delete("/a", None).await.unwrap();
}

pub async fn descendants_are_counted_and_own_ephemerals_listed(target: Target) {
    let (client, other) = (target.client().await, target.client().await);
    client.mkdir("/a/b/c", &PLAIN).await.unwrap();
    client.create("/ab", b"", &PLAIN).await.unwrap();
    assert_eq!(client.count_descendants_number("/a").await.unwrap(), 2);
    assert_eq!(client.count_descendants_number("/").await.unwrap(), 4);
    assert_eq!(client.count_descendants_number("/none").await.unwrap_err(), Error::NoNode);
    client.create("/a/e", b"", &EPHEMERAL).await.unwrap();
    client.create("/f", b"", &EPHEMERAL).await.unwrap();
    other.create("/a/other", b"", &EPHEMERAL).await.unwrap();
    let mut own = client.list_ephemerals("/").await.unwrap();
    own.sort();
    assert_eq!(own, ["/a/e", "/f"]);
    assert_eq!(client.list_ephemerals("/a").await.unwrap(), ["/a/e"]);
    assert_eq!(other.list_ephemerals("/a/b").await.unwrap(), Vec::<String>::new());
}

pub async fn a_container_is_no_ephemeral(target: Target) {
    let client = target.client().await;
    let container = CreateMode::Container.with_acls(Acls::anyone_all());
    let (stat, _) = client.create("/c", b"", &container).await.unwrap();
    assert_eq!(stat.ephemeral_owner, 0);
    client.create("/c/a", b"", &PLAIN).await.unwrap();
    assert_eq!(client.list_children("/c").await.unwrap(), ["a"]);
}

pub async fn a_time_to_live_is_refused(target: Target) {
    let client = target.client().await;
    let mortal = PLAIN.with_ttl(Duration::from_secs(1));
    assert_eq!(client.create("/a", b"", &mortal).await.unwrap_err(), Error::Unimplemented);
    assert_eq!(client.check_stat("/a").await.unwrap(), None);
}

pub async fn odd_paths_are_refused(target: Target) {
    const BAD_ARGUMENTS: i32 = -8;
    let mut raw = Raw::connect(target.addr).await;
    for path in ["relative", "/zookeeper/", "/.", "/..", "/\u{1}", ""] {
        assert_eq!(raw.ask(op::CREATE, Record::new().create(path, b"", 0)).await.0, BAD_ARGUMENTS, "{path:?}");
    }
    for path in ["", "relative", "/a/"] {
        let set = Record::new().text(path).bytes(b"").int(-1);
        assert_eq!(raw.ask(op::SET_DATA, set).await.0, BAD_ARGUMENTS, "{path:?}");
    }
    assert_eq!(raw.ask(op::CREATE, Record::new().create("/", b"", 0)).await.0, -110);
    assert_eq!(raw.ask(op::CREATE, Record::new().create("/a", b"", 99)).await.0, BAD_ARGUMENTS);
    assert_eq!(raw.ask(op::GET_DATA, Record::new().text("relative").flag(false)).await.0, -101);
}

pub async fn built_in_nodes_cannot_be_deleted(target: Target) {
    let client = target.whole_client().await;
    for path in ["/zookeeper", "/zookeeper/quota", "/zookeeper/config"] {
        assert!(matches!(client.delete(path, None).await, Err(Error::BadArguments(_))), "{path}");
    }
    assert!(client.list_children("/").await.unwrap().contains(&"zookeeper".to_owned()));
    assert!(client.get_config().await.is_ok());
    assert_eq!(client.set_data("/zookeeper/config", b"", None).await.unwrap_err(), Error::NoAuth);
}

pub async fn sync_answers_and_reconfig_is_refused(target: Target) {
    let client = target.client().await;
    client.sync("/").await.unwrap();
    client.sync("/none").await.unwrap();
    let update = EnsembleUpdate::New { ensemble: ["server.1=localhost:2888:3888;2181"].into_iter() };
    assert_eq!(client.update_ensemble(update, None).await.unwrap_err(), Error::ReconfigDisabled);
}
