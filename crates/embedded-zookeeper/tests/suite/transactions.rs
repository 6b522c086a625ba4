//! Atomic transactions and batches of reads.

use zookeeper_client::{Error, MultiReadResult, MultiWriteError, MultiWriteResult};

use super::raw::{Frame, Raw, Record, op};
use super::{EPHEMERAL, PLAIN, SEQUENTIAL, Target, soon};

pub async fn a_transaction_happens_as_a_whole(target: Target) {
    let client = target.client().await;
    client.create("/a", b"0", &PLAIN).await.unwrap();
    client.create("/old", b"", &PLAIN).await.unwrap();
    let mut writer = client.new_multi_writer();
    writer.add_check_version("/a", 0).unwrap();
    writer.add_create("/b", b"1", &PLAIN).unwrap();
    writer.add_create("/e", b"", &EPHEMERAL).unwrap();
    writer.add_set_data("/a", b"2", Some(0)).unwrap();
    writer.add_delete("/old", None).unwrap();
    let results = writer.commit().await.unwrap();
    assert_eq!(results.len(), 5);
    assert_eq!(results[0], MultiWriteResult::Check);
    assert!(matches!(&results[1], MultiWriteResult::Create { path, .. } if path == "/b"));
    assert!(matches!(&results[3], MultiWriteResult::SetData { stat } if stat.version == 1));
    assert_eq!(results[4], MultiWriteResult::Delete);
    let (made, set) =
        (client.check_stat("/b").await.unwrap().unwrap(), client.check_stat("/a").await.unwrap().unwrap());
    assert_eq!(made.czxid, set.mzxid, "one transaction has one id");
    assert_eq!(client.check_stat("/old").await.unwrap(), None);
    assert_eq!(client.check_stat("/e").await.unwrap().unwrap().ephemeral_owner, client.session_id().0);
}

pub async fn a_failed_transaction_changes_nothing_and_names_the_part(target: Target) {
    let client = target.client().await;
    client.mkdir("/a/b", &PLAIN).await.unwrap();
    client.create("/gone", b"g", &EPHEMERAL).await.unwrap();
    let before = (
        client.get_data("/a").await.unwrap(),
        client.get_data("/gone").await.unwrap(),
        client.check_stat("/").await.unwrap(),
    );
    let mut writer = client.new_multi_writer();
    writer.add_create("/c", b"", &PLAIN).unwrap();
    writer.add_set_data("/a", b"changed", None).unwrap();
    writer.add_delete("/gone", None).unwrap();
    writer.add_create("/a/n-", b"", &SEQUENTIAL).unwrap();
    writer.add_delete("/a", None).unwrap();
    writer.add_create("/d", b"", &PLAIN).unwrap();
    let error = writer.commit().await.unwrap_err();
    assert_eq!(error, MultiWriteError::OperationFailed { index: 4, source: Error::NotEmpty });
    let after = (
        client.get_data("/a").await.unwrap(),
        client.get_data("/gone").await.unwrap(),
        client.check_stat("/").await.unwrap(),
    );
    assert_eq!(after, before);
    assert_eq!(client.list_ephemerals("/").await.unwrap(), ["/gone"]);
    let (_, sequence) = client.create("/a/n-", b"", &SEQUENTIAL).await.unwrap();
    assert_eq!(sequence.into_i64(), 1, "a rolled-back sequence number is reused");
}

pub async fn later_parts_see_what_earlier_ones_did(target: Target) {
    let client = target.client().await;
    let mut writer = client.new_multi_writer();
    writer.add_create("/a", b"", &PLAIN).unwrap();
    writer.add_create("/a/n-", b"", &SEQUENTIAL).unwrap();
    writer.add_create("/a/n-", b"", &SEQUENTIAL).unwrap();
    writer.add_set_data("/a", b"x", Some(0)).unwrap();
    writer.add_check_version("/a", 1).unwrap();
    writer.add_delete("/a/n-0000000000", None).unwrap();
    let results = writer.commit().await.unwrap();
    assert!(matches!(&results[2], MultiWriteResult::Create { path, .. } if path == "/a/n-0000000001"));
    assert_eq!(client.list_children("/a").await.unwrap(), ["n-0000000001"]);
    let mut writer = client.new_multi_writer();
    writer.add_delete("/a/n-0000000001", None).unwrap();
    writer.add_delete("/a", None).unwrap();
    writer.add_create("/a", b"new", &PLAIN).unwrap();
    writer.commit().await.unwrap();
    assert_eq!(client.get_data("/a").await.unwrap().1.version, 0);
}

/// A transaction's record: each part with its header, then the end mark.
fn multi(parts: &[(i32, Record)]) -> Record {
    let mut record = Record::new();
    for (op, part) in parts {
        record = record.int(*op).flag(false).int(-1);
        record.0.extend(&part.0);
    }
    record.int(-1).flag(true).int(-1)
}

pub async fn each_part_of_a_failed_transaction_has_its_code(target: Target) {
    let mut raw = Raw::connect(target.addr).await;
    let check = |path: &str, version| Record::new().text(&target.path(path)).int(version);
    let parts = [
        (op::CHECK, check("", 0)),
        (op::DELETE, check("/none", -1)),
        (op::CREATE, Record::new().create(&target.path("/a"), b"", 0)),
    ];
    let (error, body) = raw.ask(op::MULTI, multi(&parts)).await;
    assert_eq!(error, 0, "the request itself does not fail");
    let expected =
        [0, -101, -2].iter().fold(Record::new(), |record, code| record.int(-1).flag(false).int(*code).int(*code));
    assert_eq!(body, expected.int(-1).flag(true).int(-1).0);
    let (error, body) = raw.ask(op::MULTI, multi(&[])).await;
    assert_eq!((error, body), (0, Record::new().int(-1).flag(true).int(-1).0));
}

pub async fn a_failed_transaction_fires_no_watch(target: Target) {
    let mut raw = Raw::connect(target.addr).await;
    let root = Record::new().text(&target.root).flag(true);
    assert_eq!(raw.ask(op::GET_CHILDREN, root).await.0, 0);
    let a = target.path("/a");
    let parts = [(op::CREATE, Record::new().create(&a, b"", 0)), (op::CHECK, Record::new().text(&a).int(7))];
    assert_eq!(raw.ask(op::MULTI, multi(&parts)).await.0, 0);
    let created = raw.send(op::CREATE, Record::new().create(&a, b"", 0)).await;
    assert_eq!(raw.receive().await.unwrap(), Frame::Event { kind: 4, path: target.root.clone() });
    assert!(matches!(raw.receive().await.unwrap(), Frame::Reply { xid, error: 0, .. } if xid == created));
}

pub async fn reads_in_a_batch_fail_each_for_itself(target: Target) {
    let client = target.client().await;
    client.create("/a", b"x", &PLAIN).await.unwrap();
    let mut reader = client.new_multi_reader();
    reader.add_get_data("/a").unwrap();
    reader.add_get_data("/none").unwrap();
    reader.add_get_children("/").unwrap();
    let results = soon(reader.commit()).await.unwrap();
    assert!(matches!(&results[0], MultiReadResult::Data { data, stat } if data == b"x" && stat.version == 0));
    assert!(matches!(&results[1], MultiReadResult::Error { err: Error::NoNode }));
    assert!(matches!(&results[2], MultiReadResult::Children { children } if *children == ["a"]));
}
