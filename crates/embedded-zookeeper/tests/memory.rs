//! The byte budget of the tree: a client that fills it cannot make the process hold much more.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[allow(dead_code)]
mod suite;

use embedded_zookeeper::{Config, Server};
use suite::raw::{Raw, Record, op};
use tests::resident_set::Peak;

const MIB: usize = 1 << 20;
/// The limit on the bytes of paths, data and access control lists, as documented in `state/writes.rs`.
const BYTES_MAX: usize = 256 * MIB;
/// Data of one node: nearly a whole frame.
const DATA_BYTES: usize = 1_000_000;
/// The most that may become resident while the tree fills: allocations are rounded up, and frames are in transit.
const FULL_TREE_MAX: usize = BYTES_MAX + BYTES_MAX / 2;
/// Nodes with a byte of data each, created by requests of [`DATA_BYTES`].
const SMALL_NODES: usize = 200;
/// The most that may become resident for [`SMALL_NODES`]: one node's data, and frames in transit.
const SMALL_NODES_MAX: usize = 32 * MIB;
const QUOTA_EXCEEDED: i32 = -125;

#[tokio::test]
async fn a_full_tree_stays_within_its_byte_budget() {
    let server = Server::start(Config::default()).await.unwrap();
    let mut client = Raw::connect(server.addr()).await;
    let data = vec![b'x'; DATA_BYTES];

    // A small node does not keep the request in memory that created it.
    client.ask(op::CREATE, Record::new().create("/replaced", b"", 0)).await;
    let peak = Peak::of_this_process().unwrap();
    for number in 0..SMALL_NODES {
        let part = |code: i32| Record::new().int(code).flag(false).int(-1);
        let mut request = part(op::CREATE).create(&format!("/small-{number}"), b"x", 0);
        request.0.extend(part(op::SET_DATA).text("/replaced").bytes(&data).int(-1).0);
        let request = request.int(-1).flag(true).int(-1);
        assert_eq!(client.ask(op::MULTI, request).await.0, 0);
    }
    peak.ensure_within(SMALL_NODES_MAX, "small nodes of large requests").unwrap();

    let peak = Peak::of_this_process().unwrap();
    let mut created = 0;
    while client.ask(op::CREATE, Record::new().create(&format!("/{created}"), &data, 0)).await.0 != QUOTA_EXCEEDED {
        created += 1;
        assert!(created <= BYTES_MAX / DATA_BYTES, "the tree accepts more than its budget");
    }
    peak.ensure_within(FULL_TREE_MAX, "a full tree").unwrap();
    assert!(created >= BYTES_MAX / DATA_BYTES - 2, "the tree is full after {created} nodes");

    // Deletes free capacity.
    for number in 0..2 {
        assert_eq!(client.ask(op::DELETE, Record::new().text(&format!("/{number}")).int(-1)).await.0, 0);
    }
    assert_eq!(client.ask(op::CREATE, Record::new().create("/more", &data, 0)).await.0, 0);
    server.shutdown().await;
}
