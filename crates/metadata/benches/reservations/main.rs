//! Reservations per second: calls of single holders, of which those for one pool share transactions, over 50 pools and on
//! one, and batches of a master on one pool. Then the expiry of 10,000 overdue reservations, and an audit of as many.
//!
//! The peer, in alternating rounds of the same run, is a bare loop of the statements that are needed at least, with the
//! same driver and number of connections and, for reservations, with as many callers, each in a transaction of its own.
//!
//! Run with `cargo bench --workspace --bench reservations`, which is a release build; the word `small` after `--` runs a
//! twentieth, which measures nothing. `PostgreSQL` and `MariaDB` are measured if `EH_TEST_POSTGRES` and `EH_TEST_MARIADB`
//! are their URLs. `SQLite` is measured on a disk (`TMPDIR`), where each COMMIT waits for it, and in `/dev/shm`, where none
//! does: an upper bound for `synchronous=NORMAL`, which the store does not allow.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod databases;
mod peer;
mod upkeep;

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
/// Measured rounds; one before them warms up.
const ROUNDS: usize = 5;
const SINGLES: [Singles; 4] = [
    Singles { title: "one caller, one pool", callers: 1, pools: 1, count: 80, targets: [None; 4] },
    Singles { title: "8 callers, 50 pools", callers: 8, pools: POOLS, count: 240, targets: [None; 4] },
    Singles {
        title: "50 callers, 50 pools",
        callers: 50,
        pools: POOLS,
        count: 400,
        targets: [None, None, Some(1_000.0), None],
    },
    Singles {
        title: "50 callers, one pool",
        callers: 50,
        pools: 1,
        count: 500,
        targets: [None, Some(5_000.0), Some(3_000.0), None],
    },
];
const BATCHES: [Batches; 2] = [Batches { size: 50, count: 20 }, Batches { size: 256, count: 8 }];
const EPOCH: Epoch = Epoch(0);
/// Longer than a run.
const TTL_MS: i64 = 1_000_000;
const UNLIMITED: Triple<Limit> = Triple::all(Limit::Unlimited);

/// A round of holders.
#[derive(Clone, Copy)]
struct Singles {
    title: &'static str,
    callers: usize,
    pools: usize,
    /// The number of requests.
    count: usize,
    /// Reservations per second, in the order of [`Database::all`].
    targets: [Option<f64>; 4],
}

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

    fn tenant_on_pool(self) -> String {
        format!("{}/{}", self.tenant(), self.pool())
    }

    fn scopes(self) -> Scopes {
        let (tenant, pool) = (TenantName::new(self.tenant()).unwrap(), PoolName::new(self.pool()).unwrap());
        Scopes::new(&tenant, &pool, None, None)
    }

    fn request(self) -> Arc<Request> {
        self.request_for(TTL_MS)
    }

    fn request_for(self, ttl_ms: i64) -> Arc<Request> {
        let amount = Amount { cpu_m: 1_000, memory: 1 << 30, engines: 1 };
        Arc::new(Request {
            id: self.id().into(),
            holder: Holder::External { key: self.key().into(), instance: "batch-7.example.com".into() },
            lineage: self.id().into(),
            scopes: self.scopes(),
            amounts: Amounts::same(amount).unwrap(),
            asked: Some(Resource::Cpu { cpu_m: 1_000 }),
            ttl_ms: Some(ttl_ms),
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

/// The items of a round by caller.
fn of_callers(items: &[Item], callers: usize) -> impl Iterator<Item = Vec<Item>> {
    let part = move |caller: usize| items.iter().skip(caller).step_by(callers).copied().collect();
    (0..callers).map(part)
}

async fn ours_single(store: &Store, items: &[Item], callers: usize) -> Duration {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for part in of_callers(items, callers) {
        let store = store.clone();
        tasks.spawn(async move {
            for item in part {
                store.reserve(&item.request()).await.unwrap().unwrap();
            }
        });
    }
    tasks.join_all().await;
    begun.elapsed()
}

async fn peer_single(peer: &Arc<Peer>, items: &[Item], callers: usize) -> Duration {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for part in of_callers(items, callers) {
        let peer = Arc::clone(peer);
        tasks.spawn(async move {
            for item in part {
                peer.reserve(&[item]).await;
            }
        });
    }
    tasks.join_all().await;
    begun.elapsed()
}

/// Batches of the one master.
async fn ours_batched(store: &Store, items: &[Item], size: usize) -> Duration {
    let begun = Instant::now();
    for batch in items.chunks(size) {
        reserve_all(store, batch, TTL_MS).await;
    }
    begun.elapsed()
}

/// Reserves for all items in one transaction of the master.
async fn reserve_all(store: &Store, items: &[Item], ttl_ms: i64) {
    let change =
        |item: &Item| ScopedChange { scopes: item.scopes(), change: Change::Reserve(item.request_for(ttl_ms)) };
    let changes: Vec<_> = items.iter().map(change).collect();
    let decided = store.ledger(EPOCH, &changes).await.unwrap();
    assert!(decided.iter().all(Result::is_ok));
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
fn print(title: &str, count: usize, rounds: &[(Duration, Duration)], target: Option<f64>) {
    let rate = |took: Duration| count as f64 / took.as_secs_f64();
    let measured = &rounds[1..];
    let ours = spread(measured.iter().map(|(ours, _)| rate(*ours)).collect());
    let bare = spread(measured.iter().map(|(_, peer)| rate(*peer)).collect());
    let ratio = spread(measured.iter().map(|(ours, peer)| rate(*ours) / rate(*peer)).collect());
    let whole = |[least, middle, most]: [f64; 3]| format!("{least:7.0} {middle:7.0} {most:7.0}");
    let [least, middle, most] = ratio;
    let target = target.map(|target| {
        let met = if ours[1] >= target { "met" } else { "missed" };
        format!("   target {target:.0}/s: {met}")
    });
    let target = target.unwrap_or_default();
    println!("{title:26} {}   {}   {least:5.2} {middle:5.2} {most:5.2}{target}", whole(ours), whole(bare));
}

/// The items of a round; each number is used once.
fn items(numbers: &mut usize, count: usize, pools: usize) -> Vec<Item> {
    let first = *numbers;
    *numbers += count;
    (first..*numbers).map(|number| Item { number, pool: number % pools }).collect()
}

/// The part of each size that is run: all, or one of `parts`.
#[derive(Clone, Copy)]
struct Size {
    parts: usize,
}

impl Size {
    fn of(self, whole: usize) -> usize {
        whole.div_ceil(self.parts)
    }
}

async fn measure(database: &Database, size: Size) {
    let store = founded(database.ours()).await;
    // Its scopes are made by a store, too.
    founded(database.peers()).await.close().await;
    let peer = Arc::new(Peer::open(database.peers()).await);
    println!(
        "{database}, {CONNECTIONS} connections; least, middle, most of {ROUNDS} rounds; targets are for the middle"
    );
    println!("{:26} {:^23}   {:^23}   {:^17}", "", "reservations/s", "bare loop/s", "ratio");
    let mut numbers = 1;
    for Singles { title, callers, pools, count, targets } in SINGLES {
        let count = size.of(count);
        let mut rounds = Vec::new();
        for _ in 0..=ROUNDS {
            let items = items(&mut numbers, count, pools);
            let ours = ours_single(&store, &items, callers).await;
            rounds.push((ours, peer_single(&peer, &items, callers).await));
        }
        print(title, count, &rounds, targets[database.at()]);
    }
    for Batches { size: of_batch, count } in BATCHES {
        let count = size.of(count);
        let mut rounds = Vec::new();
        for _ in 0..=ROUNDS {
            let items = items(&mut numbers, of_batch * count, 1);
            rounds.push((ours_batched(&store, &items, of_batch).await, peer_batched(&peer, &items, of_batch).await));
        }
        print(&format!("batches of {of_batch}, one pool"), of_batch * count, &rounds, None);
    }
    upkeep::measure(&store, &peer, &mut numbers, size).await;
    assert_eq!(store.audit_ledger(EPOCH).await.unwrap(), Vec::new());
    peer.close().await;
    store.close().await;
    println!();
}

#[tokio::main]
async fn main() {
    let is_small = std::env::args().skip(1).any(|word| word == "small");
    let size = Size { parts: if is_small { 20 } else { 1 } };
    let begun = Instant::now();
    for database in Database::all().await {
        measure(&database, size).await;
        database.delete().await;
    }
    println!("{:.0} s", begun.elapsed().as_secs_f64());
}
