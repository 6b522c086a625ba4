//! What the master does for external holders: ending overdue reservations, and the audit of what every scope holds.

use std::time::{Duration, Instant};

use metadata::Store;

use crate::peer::Peer;
use crate::{EPOCH, Item, POOLS, Size, items, reserve_all, spread};

/// Overdue reservations, and charged ones that are audited.
const RESERVATIONS: usize = 10_000;
const ROUNDS: usize = 3;
const EXPIRE_TARGET: Duration = Duration::from_secs(10);
/// The number of reservations that a transaction of the peer ends.
const OF_PEER: usize = 100;
/// Pools of one transaction that reserves: with their tenants, no more scopes than it may lock.
const POOLS_AT_ONCE: usize = 25;
/// The deadline is the time of the reservation.
const OVERDUE_MS: i64 = 0;

/// Prints both.
pub async fn measure(store: &Store, peer: &Peer, numbers: &mut usize, size: Size) {
    let count = size.of(RESERVATIONS);
    let (mut expiries, mut audits) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let items = items(numbers, count, POOLS);
        reserve(store, peer, &items).await;
        audits.push(audit(store, peer).await);
        expiries.push((expire(store, count).await, expire_of_peer(peer, &items).await));
    }
    let over = "min, median, max";
    print(&format!("expiry of {count} overdue reservations of {POOLS} pools; {over} of {ROUNDS}"), &expiries);
    if size.parts == 1 {
        let most = expiries.iter().map(|(ours, _)| *ours).max().unwrap();
        let met = if most <= EXPIRE_TARGET { "met" } else { "missed" };
        println!("  target {EXPIRE_TARGET:?}: {met}");
    }
    print(&format!("audit with {count} of them; the peer reads the charged rows; {over} of {ROUNDS}"), &audits);
}

/// Reserves for all items, those of one pool far from each other, as programs would.
async fn reserve(store: &Store, peer: &Peer, items: &[Item]) {
    for first in (0..POOLS).step_by(POOLS_AT_ONCE) {
        let pools = first..first + POOLS_AT_ONCE;
        let of_pools: Vec<Item> = items.iter().filter(|item| pools.contains(&item.pool)).copied().collect();
        for batch in of_pools.chunks(metadata::MAX_CHANGES) {
            reserve_all(store, batch, OVERDUE_MS).await;
        }
    }
    for pool in 0..POOLS {
        let of_pool: Vec<Item> = items.iter().filter(|item| item.pool == pool).copied().collect();
        for batch in of_pool.chunks(metadata::MAX_CHANGES) {
            peer.reserve(batch).await;
        }
    }
}

async fn expire(store: &Store, count: usize) -> Duration {
    let begun = Instant::now();
    let mut ended = 0;
    loop {
        let of_one = store.expire(EPOCH).await.unwrap().len();
        if of_one == 0 {
            assert_eq!(ended, count);
            return begun.elapsed();
        }
        ended += of_one;
    }
}

async fn expire_of_peer(peer: &Peer, items: &[Item]) -> Duration {
    let begun = Instant::now();
    for pool in 0..POOLS {
        let of_pool: Vec<Item> = items.iter().filter(|item| item.pool == pool).copied().collect();
        for batch in of_pool.chunks(OF_PEER) {
            peer.expire(batch).await;
        }
    }
    begun.elapsed()
}

async fn audit(store: &Store, peer: &Peer) -> (Duration, Duration) {
    let begun = Instant::now();
    assert_eq!(store.audit_ledger(EPOCH).await.unwrap(), Vec::new());
    let ours = begun.elapsed();
    let begun = Instant::now();
    assert!(peer.read_charged().await > 0);
    (ours, begun.elapsed())
}

fn print(title: &str, rounds: &[(Duration, Duration)]) {
    let seconds = |values: Vec<f64>| spread(values).map(|value| format!("{value:.3}")).join(" ");
    let ours = seconds(rounds.iter().map(|(ours, _)| ours.as_secs_f64()).collect());
    let bare = seconds(rounds.iter().map(|(_, peer)| peer.as_secs_f64()).collect());
    let ratio = seconds(rounds.iter().map(|(ours, peer)| ours.as_secs_f64() / peer.as_secs_f64()).collect());
    println!("{title}\n  {ours} s; the peer {bare} s; ours in turns of the peer {ratio}");
}
