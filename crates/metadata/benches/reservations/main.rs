//! Reservations per second: requests of single holders over 50 pools and on one pool, and batches of a master on one
//! pool. The peer, in alternating rounds of the same run, is a bare loop of the UPDATEs, the INSERT and the COMMIT that a
//! reservation needs at least, with the same driver and number of connections.
//!
//! Run with `cargo bench -p metadata --bench reservations`, which is a release build. `PostgreSQL` and `MariaDB` are
//! measured if `EH_TEST_POSTGRES` and `EH_TEST_MARIADB` are their URLs. `SQLite` is measured on a disk (`TMPDIR`), where
//! each COMMIT waits for it, and in `/dev/shm`, where none does: an upper bound for `synchronous=NORMAL`, which the store
//! does not allow.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod databases;
mod peer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use metadata::{CONNECTIONS, Store, StoreSettings};
use model::change::Rules;
use model::clock::SystemClock;
use model::ledger::{Amounts, Change, Holder, PoolCapacity, Request, Scope, ScopedChange, Scopes};
use model::name::{PoolName, TenantName};
use model::number::Epoch;
use model::quota::Limit;
use model::resource::{Amount, Resource, Triple};
use tokio::task::JoinSet;

use databases::Database;
use peer::Peer;

const POOLS: usize = 50;
const ROUNDS: usize = 7;
/// Requests of single holders in a round.
const SINGLES: usize = 400;
const BATCHES: [Batches; 2] = [Batches { size: 50, count: 20 }, Batches { size: 256, count: 8 }];
const EPOCH: Epoch = Epoch(0);
/// Longer than a run.
const TTL_MS: i64 = 1_000_000;
const UNLIMITED: Triple<Limit> = Triple::all(Limit::Unlimited);

/// A round of a master.
#[derive(Clone, Copy)]
struct Batches {
    size: usize,
    count: usize,
}

/// A reservation of one engine in pool `pool`, under a key of its own.
#[derive(Clone, Copy)]
struct Item {
    number: usize,
    pool: usize,
}

impl Item {
    fn id(self) -> String {
        format!("3f1c9a52-7b44-4e0e-9d54-{:012x}", self.number)
    }

    fn key(self) -> String {
        format!("alice\n{}", self.id())
    }

    fn tenant(self) -> String {
        format!("t_{:02}", self.pool)
    }

    fn pool(self) -> String {
        format!("rp_{:02}", self.pool)
    }

    fn scopes(self) -> Scopes {
        let (tenant, pool) = (TenantName::new(self.tenant()).unwrap(), PoolName::new(self.pool()).unwrap());
        Scopes::new(&tenant, &pool, None, None)
    }

    fn request(self) -> Arc<Request> {
        let amount = Amount { cpu_m: 1_000, memory: 1 << 30, engines: 1 };
        Arc::new(Request {
            id: self.id().into(),
            holder: Holder::External { key: self.key().into(), instance: "batch-7.example.com".into() },
            lineage: self.id().into(),
            scopes: self.scopes(),
            amounts: Amounts::same(amount).unwrap(),
            asked: Some(Resource::Cpu { cpu_m: 1_000 }),
            ttl_ms: Some(TTL_MS),
        })
    }
}

/// A store with the scopes of all pools, each with one tenant without a quota.
async fn founded(settings: &StoreSettings) -> Store {
    Store::migrate(settings).await.unwrap();
    let store = Store::open(settings, Rules::default(), SystemClock::shared()).await.unwrap();
    let none = Triple::all(None);
    let capacity = PoolCapacity { capacity: UNLIMITED, protected: Amount::ZERO, overcommit_percent: 100 };
    let items = (0..POOLS).map(|pool| Item { number: 0, pool });
    let limits = items.clone().flat_map(|item| {
        let scopes = item.scopes();
        [(scopes.pool().clone(), capacity.scope(&[none]).unwrap()), (scopes.tenant().clone(), Scope::tenant(&none))]
    });
    store.write_limits(EPOCH, &limits.collect::<Vec<_>>()).await.unwrap();
    let counted = items.map(|item| (PoolName::new(item.pool()).unwrap(), 0)).collect();
    store.admitted(EPOCH, &counted).await.unwrap();
    store
}

/// Requests of single holders: as many callers as there are connections.
async fn ours_single(store: &Store, items: &[Item]) -> Duration {
    let begun = Instant::now();
    let mut callers = JoinSet::new();
    for part in items.chunks(items.len().div_ceil(CONNECTIONS as usize)) {
        let (store, part) = (store.clone(), part.to_vec());
        callers.spawn(async move {
            for item in part {
                store.reserve(&item.request()).await.unwrap().unwrap();
            }
        });
    }
    callers.join_all().await;
    begun.elapsed()
}

async fn peer_single(peer: &Arc<Peer>, items: &[Item]) -> Duration {
    let begun = Instant::now();
    let mut callers = JoinSet::new();
    for part in items.chunks(items.len().div_ceil(CONNECTIONS as usize)) {
        let (peer, part) = (Arc::clone(peer), part.to_vec());
        callers.spawn(async move {
            for item in part {
                peer.reserve(&[item]).await;
            }
        });
    }
    callers.join_all().await;
    begun.elapsed()
}

/// Batches of the one master.
async fn ours_batched(store: &Store, items: &[Item], size: usize) -> Duration {
    let begun = Instant::now();
    for batch in items.chunks(size) {
        let change = |item: &Item| ScopedChange { scopes: item.scopes(), change: Change::Reserve(item.request()) };
        let changes: Vec<_> = batch.iter().map(change).collect();
        let decided = store.ledger(EPOCH, &changes).await.unwrap();
        assert!(decided.iter().all(Result::is_ok));
    }
    begun.elapsed()
}

async fn peer_batched(peer: &Peer, items: &[Item], size: usize) -> Duration {
    let begun = Instant::now();
    for batch in items.chunks(size) {
        peer.reserve(batch).await;
    }
    begun.elapsed()
}

/// Least, middle, most.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values[0], values[values.len() / 2], values[values.len() - 1]]
}

/// Prints the rates of all rounds but the first, which warms up.
fn print(title: &str, count: usize, rounds: &[(Duration, Duration)]) {
    let rate = |took: Duration| count as f64 / took.as_secs_f64();
    let measured = &rounds[1..];
    let ours = spread(measured.iter().map(|(ours, _)| rate(*ours)).collect());
    let bare = spread(measured.iter().map(|(_, peer)| rate(*peer)).collect());
    let ratio = spread(measured.iter().map(|(ours, peer)| rate(*ours) / rate(*peer)).collect());
    let whole = |[least, middle, most]: [f64; 3]| format!("{least:7.0} {middle:7.0} {most:7.0}");
    let [least, middle, most] = ratio;
    println!("{title:26} {}   {}   {least:5.2} {middle:5.2} {most:5.2}", whole(ours), whole(bare));
}

/// The items of a round; each number is used once.
fn items(numbers: &mut usize, count: usize, pools: usize) -> Vec<Item> {
    let first = *numbers;
    *numbers += count;
    (first..*numbers).map(|number| Item { number, pool: number % pools }).collect()
}

async fn measure(database: &Database) {
    let store = founded(database.ours()).await;
    // Its scopes are made by a store, too.
    founded(database.peers()).await.close().await;
    let peer = Arc::new(Peer::open(database.peers()).await);
    println!("{database}, {CONNECTIONS} connections; least, middle, most of {ROUNDS} rounds");
    println!("{:26} {:^23}   {:^23}   {:^17}", "", "reservations/s", "bare loop/s", "ratio");
    let mut numbers = 1;
    for (title, pools) in [("single, 50 pools", POOLS), ("single, one pool", 1)] {
        let mut rounds = Vec::new();
        for _ in 0..=ROUNDS {
            let items = items(&mut numbers, SINGLES, pools);
            rounds.push((ours_single(&store, &items).await, peer_single(&peer, &items).await));
        }
        print(title, SINGLES, &rounds);
    }
    for Batches { size, count } in BATCHES {
        let mut rounds = Vec::new();
        for _ in 0..=ROUNDS {
            let items = items(&mut numbers, size * count, 1);
            rounds.push((ours_batched(&store, &items, size).await, peer_batched(&peer, &items, size).await));
        }
        print(&format!("batches of {size}, one pool"), size * count, &rounds);
    }
    assert_eq!(store.audit_ledger(EPOCH).await.unwrap(), Vec::new());
    peer.close().await;
    store.close().await;
    println!();
}

#[tokio::main]
async fn main() {
    for database in Database::all().await {
        measure(&database).await;
        database.delete().await;
    }
}
