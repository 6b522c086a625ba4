//! A round of admission for 10,000 requests of 1,000 tenants: all granted, all queued, and half of each, for tenants with
//! guarantees and for those without, and with nodes and gangs. The peer is sorting the same requests by their tenant and rank.
//! Prints the ratios.
//!
//! Run with `cargo bench -p planner --bench admit`, which is a release build.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use model::ledger::{Amounts, Holder, Ledger, Moment, PoolCapacity, Request as Reserve, Scope, ScopeKey, Scopes};
use model::number::{Epoch, Incarnation};
use model::quota::{Guarantee, Limit};
use model::resource::{Amount, Triple};
use model::{PoolName, TenantName, UnitName};
use planner::{AdmissionRules, Headroom, NodeAmount, NodeCapacity, Nodes, PATIENCE, Pods, Request, admit};
use rustix::time::{ClockId, clock_gettime};

const TENANTS: usize = 1_000;
const REQUESTS_OF_TENANT: usize = 10;
const NODES: usize = 1_000;
const ROUNDS: usize = 31;
/// The time budget of a round.
const TARGET: Duration = Duration::from_millis(50);
const AT: Moment = Moment { now_ms: 2_000_000_000_000, epoch: Epoch(1) };

fn tenant(number: usize) -> TenantName {
    TenantName::new(format!("t_{number:04}")).unwrap()
}

fn pool_name() -> PoolName {
    PoolName::new("rp_1").unwrap()
}

/// Each tenant is guaranteed one engine of 1 CPU and may borrow.
fn guaranteed() -> Triple<Option<Guarantee>> {
    let guarantee = Some(Guarantee { amount: 1_000, borrow: Limit::Unlimited, lend: Limit::Unlimited });
    Triple { cpu_m: guarantee, memory: None, engines: None }
}

/// A pool with this CPU, which tenants with these guarantees share.
fn headroom(cpu: Limit, guarantee: Triple<Option<Guarantee>>, has_nodes: bool) -> Headroom {
    let capacity = PoolCapacity {
        capacity: Triple { cpu_m: cpu, memory: Limit::Unlimited, engines: Limit::Unlimited },
        protected: Amount::ZERO,
        overcommit_percent: 100,
    };
    let mut ledger = Ledger::default();
    ledger.put_scope(ScopeKey::pool(&pool_name()), capacity.scope(&vec![guarantee; TENANTS]).unwrap());
    for number in 0..TENANTS {
        ledger.put_scope(ScopeKey::tenant(&tenant(number), &pool_name()), Scope::tenant(&guarantee));
        let user = Scope::principal(Triple::all(Limit::Unlimited));
        ledger.put_scope(ScopeKey::user(&format!("user_{number:04}")), user);
    }
    let name = |number: usize| format!("node-{number:04}.example.com");
    let size = NodeAmount { cpu_millis: 8_000, memory_bytes: 32 << 30 };
    let nodes = (0..NODES).map(|number| NodeCapacity {
        name: name(number),
        allocatable: size,
        used: NodeAmount { cpu_millis: 1_000 * (number as u64 % 5), memory_bytes: 1 << 30 },
        open: true,
    });
    let nodes = if has_nodes {
        Nodes::new(nodes, [("rp_1".to_owned(), (0..NODES).map(name).collect())])
    } else {
        Nodes::default()
    };
    Headroom { ledger, nodes, ..Headroom::default() }
}

const fn cores(number: i64) -> Limit {
    Limit::Of(1_000 * number)
}

fn requests(pods: Option<Pods>) -> Vec<Request> {
    let amount = Amount { cpu_m: 1_000, memory: 2 << 30, engines: 1 };
    let request = |number: usize| {
        // The tenants alternate.
        let of = number % TENANTS;
        let id: Arc<str> = format!("t-{of:04}-rp-1-uc-1-{number:05}").into();
        let reservation = Reserve {
            id: Arc::clone(&id),
            holder: Holder::Engine { unit: UnitName::new("uc_1").unwrap(), incarnation: Incarnation(1) },
            lineage: id,
            scopes: Scopes::new(&tenant(of), &pool_name(), Some(&format!("user_{of:04}")), None),
            amounts: Amounts::same(amount).unwrap(),
            asked: None,
            ttl_ms: None,
        };
        let asked_at_ms = AT.now_ms - (number as i64 * 7_919) % 600_000;
        Request { reservation: reservation.into(), replaces: None, priority: (number % 3) as i32, asked_at_ms, pods }
    };
    (0..TENANTS * REQUESTS_OF_TENANT).map(request).collect()
}

/// Processor time of this thread.
fn spent() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

fn time_of<T>(work: impl FnOnce() -> T) -> Duration {
    let begin = spent();
    // Not measured: freeing the result.
    let made = black_box(work());
    let time = spent().saturating_sub(begin);
    drop(made);
    time
}

/// Least, middle and most.
fn spread<T: PartialOrd + Copy>(mut all: Vec<T>) -> (T, T, T) {
    all.sort_by(|one, other| one.partial_cmp(other).unwrap());
    (all[0], all[all.len() / 2], all[all.len() - 1])
}

fn sorted(requests: &[Request]) -> Vec<&Request> {
    let mut sorted: Vec<&Request> = requests.iter().collect();
    sorted.sort_by_key(|request| {
        (request.reservation.scopes.tenant(), -request.priority, request.asked_at_ms, request.id())
    });
    sorted
}

fn measure(what: &str, headroom: &Headroom, requests: &[Request]) {
    let rules = AdmissionRules { at: AT, patience: PATIENCE, awaiting: [].into() };
    let (mut rounds, mut peers, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut counts = [0; 3];
    for round in 0..=ROUNDS {
        let mut copy = headroom.clone();
        let time = time_of(|| {
            let admission = admit(requests, &mut copy, &rules);
            counts = [admission.granted.len(), admission.queued.len(), admission.rejected.len()];
            admission
        });
        let peer = time_of(|| sorted(requests));
        if round > 0 {
            rounds.push(time);
            peers.push(peer);
            ratios.push(time.as_secs_f64() / peer.as_secs_f64());
        }
    }
    let [granted, queued, rejected] = counts;
    println!("{what}: {granted} granted, {queued} queued, {rejected} rejected; processor time; least, middle, most");
    let (least, middle, most) = spread(rounds);
    let met = if most <= TARGET { "met" } else { "missed" };
    println!("  a round of admission: {least:.2?} {middle:.2?} {most:.2?}; target {TARGET:?}: {met}");
    let (least, middle, most) = spread(peers);
    println!("  the peer, sorting the requests: {least:.2?} {middle:.2?} {most:.2?}");
    let (least, middle, most) = spread(ratios);
    println!("  rounds in one sorting: {least:.2} {middle:.2} {most:.2}");
}

fn rounds(criterion: &mut Criterion) {
    let all = requests(None);
    assert_eq!(all.len(), 10_000);
    let rules = AdmissionRules { at: AT, patience: PATIENCE, awaiting: [].into() };
    let (guaranteed, none) = (guaranteed(), Triple::all(None));
    let large = headroom(cores(20_000), guaranteed, false);
    let mut group = criterion.benchmark_group("10000 requests of 1000 tenants");
    group.bench_function("a copy and a round that grants all", |b| {
        b.iter(|| admit(black_box(&all), &mut large.clone(), &rules).granted.len());
    });
    group.finish();
    measure("all fit", &large, &all);
    measure("half fits", &headroom(cores(5_000), guaranteed, false), &all);
    measure("the pool is full", &headroom(cores(1), guaranteed, false), &all);
    measure("without guarantees, no limit", &headroom(Limit::Unlimited, none, false), &all);
    measure("without guarantees, half fits", &headroom(cores(5_000), none, false), &all);
    measure("without guarantees, the pool is full", &headroom(cores(1), none, false), &all);
    let pod = NodeAmount { cpu_millis: 500, memory_bytes: 1 << 30 };
    let gangs = requests(Some(Pods { driver: pod, executor: pod, executors: 1 }));
    measure("with 1,000 nodes, half fits", &headroom(cores(20_000), guaranteed, true), &gangs);
    measure("without guarantees, with 1,000 nodes, half fits", &headroom(cores(20_000), none, true), &gangs);
    let wide = requests(Some(Pods {
        driver: pod,
        executor: NodeAmount { cpu_millis: 1, memory_bytes: 1 << 20 },
        executors: 100_000,
    }));
    measure("with 100,000 executors each", &headroom(cores(20_000), guaranteed, true), &wide);
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_millis(500));
    targets = rounds
}
criterion_main!(benches);
