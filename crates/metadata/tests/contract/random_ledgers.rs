//! The store and the in-memory ledger run the same random operations and agree after each.
//!
//! A failure prints the seed; `EH_TEST_SEED` repeats it.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::ledger::{
    Actual, Amounts, Change, Confirmation, Decided, End, Ledger, Moment, PoolCapacity, Refusal, Request, Reservation,
    Scope, ScopeKey, ScopeKind, ScopedChange, State,
};
use model::quota::{Guarantee, Limit};
use model::resource::{Amount, Resource, Triple};

use super::batches::{block, queued_calls};
use super::bench::Bench;
use super::ledgers::{EPOCH, LONG_MS, TENANTS, UNLIMITED, claim, engine, external, pool, scopes, tenant};

/// The steps of a differential run, and those of the long tier.
const STEPS: usize = 60;
const LONG_STEPS: usize = 240;

/// A xorshift generator: a run is repeated by its seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % bound
    }

    pub(super) fn amount(&mut self, most: u64) -> i64 {
        self.below(most + 1) as i64
    }

    fn limit(&mut self) -> Limit {
        if self.below(2) == 0 { Limit::Unlimited } else { Limit::Of(self.amount(60)) }
    }

    fn limits(&mut self) -> Triple<Limit> {
        Triple { cpu_m: self.limit(), memory: self.limit(), engines: self.limit() }
    }

    fn guarantee(&mut self) -> Option<Guarantee> {
        let guarantee = Guarantee { amount: self.amount(15), borrow: self.limit(), lend: self.limit() };
        (self.below(2) == 0).then_some(guarantee)
    }

    fn guarantees(&mut self) -> Triple<Option<Guarantee>> {
        Triple { cpu_m: self.guarantee(), memory: self.guarantee(), engines: self.guarantee() }
    }

    fn amounts(&mut self) -> Amounts {
        let nominal = Amount { cpu_m: self.amount(6), memory: self.amount(6), engines: self.amount(2) };
        Amounts::new(nominal, self.amount(6).min(nominal.cpu_m), nominal.memory).unwrap()
    }
}

/// A reservation without its times, which are the database's: whether each is set.
fn timeless(reservation: &Reservation) -> (Reservation, [bool; 4]) {
    let Reservation { locked_at_ms, used_at_ms, ended_at_ms, deadline_ms, .. } = reservation;
    let set = [locked_at_ms, used_at_ms, ended_at_ms, deadline_ms].map(Option::is_some);
    let none = Reservation {
        asked_at_ms: 0,
        locked_at_ms: None,
        used_at_ms: None,
        ended_at_ms: None,
        deadline_ms: None,
        ..reservation.clone()
    };
    (none, set)
}

fn same(decided: &Decided) -> Result<(Reservation, [bool; 4]), Refusal> {
    decided.as_ref().map(|reservation| timeless(reservation)).map_err(Clone::clone)
}

/// A request of one of four lineages or six programs. Some programs belong to a user without a row.
fn request(random: &mut Random) -> Arc<Request> {
    let amounts = random.amounts();
    let at = random.below(10);
    let users = [None, Some("alice"), Some("bob"), Some("carol")];
    if at < 4 {
        let of_lineage = scopes(TENANTS[at as usize % 3], users[at as usize % 3]);
        return engine(&format!("l{at}"), random.amount(7) + 1, of_lineage, amounts);
    }
    // A key is used once, so there are several of each user.
    let name = format!("x{at}.{}", random.below(4));
    external(&name, &format!("key of {name}"), scopes("t_a", users[at as usize % 4]), amounts)
}

/// A change, in which a deadline has either passed at once or is far away.
fn change(random: &mut Random) -> ScopedChange {
    let request = request(random);
    let scopes = request.scopes.clone();
    let id = Arc::clone(&request.id);
    let claim = claim(&request, ["u0", "u1"][random.below(2) as usize]);
    let soon_or_late = [0, LONG_MS][random.below(2) as usize];
    let change = match random.below(18) {
        0..4 | 14..18 => Change::Reserve(request),
        4 => Change::Enqueue { request, wait_ms: soon_or_late },
        5 => Change::Admit { id },
        6 => Change::Adopt { request, uid: "u0".into() },
        7 => {
            let from = format!("{}-{}", request.lineage, random.amount(7) + 1);
            Change::Transfer { from: from.into(), request }
        }
        8..10 => {
            let actual = Actual { resource: Resource::Cpu { cpu_m: 1 }, amounts: random.amounts() };
            let actual = (random.below(2) == 0).then_some(actual);
            Change::Confirm(Confirmation { claim, actual, lease_ms: Some(soon_or_late) })
        }
        10 => Change::Release(claim),
        11 => Change::Renew { claim, lease_ms: LONG_MS },
        12 => Change::Expire { id },
        _ => {
            let state = [State::Released, State::Lost, State::Expired, State::Cancelled][random.below(4) as usize];
            Change::End(End { id, state, reason: "random".into() })
        }
    };
    ScopedChange { scopes, change }
}

/// Runs the change as its holder would.
async fn run_alone(bench: &Bench, change: &Change) -> Option<Decided> {
    let store = &bench.store;
    Some(match change {
        Change::Reserve(request) => store.reserve(request).await.unwrap(),
        Change::Enqueue { request, wait_ms } => store.enqueue(request, *wait_ms).await.unwrap(),
        Change::Confirm(confirmation) => store.confirm(confirmation).await.unwrap(),
        Change::Renew { claim, lease_ms } => store.renew(claim, *lease_ms).await.unwrap(),
        Change::Release(claim) => store.release(claim).await.unwrap(),
        Change::Cancel { id } => store.cancel(id).await.unwrap(),
        _ => return None,
    })
}

/// What the store makes of a change whose user has no row yet.
fn apply(model: &mut Ledger, change: &ScopedChange, inserts: bool) -> Decided {
    let at = Moment { now_ms: 1_000, epoch: EPOCH };
    let mut decided = model.apply(&change.change, at);
    while let (Err(Refusal::NoScope(key)), true) = (&decided, inserts) {
        if !matches!(key.kind, ScopeKind::User | ScopeKind::Creator) {
            break;
        }
        for key in change.scopes.policy().filter(|key| key.kind != ScopeKind::Tenant) {
            if model.scope(key).is_none() {
                model.put_scope(key.clone(), Scope::principal(UNLIMITED));
            }
        }
        decided = model.apply(&change.change, at);
    }
    decided
}

async fn is_equal(bench: &Bench, model: &Ledger, step: &str) {
    let stored = bench.store.whole_ledger().await.unwrap();
    let scopes = |ledger: &Ledger| ledger.scopes().map(|(key, scope)| (key.clone(), *scope)).collect::<Vec<_>>();
    assert_eq!(scopes(&stored), scopes(model), "{step}");
    let reservations = |ledger: &Ledger| ledger.reservations().map(|one| timeless(one)).collect::<Vec<_>>();
    assert_eq!(reservations(&stored), reservations(model), "{step}");
}

/// Sets the same random limits in the store and in the model.
async fn limit(bench: &Bench, model: &mut Ledger, random: &mut Random) {
    let guarantees = [random.guarantees(), random.guarantees(), random.guarantees()];
    let capacity = PoolCapacity { capacity: random.limits(), protected: Amount::ZERO, overcommit_percent: 100 };
    let mut limits = vec![(pool(), capacity.scope(&guarantees).unwrap())];
    limits.extend(TENANTS.iter().zip(&guarantees).map(|(name, of)| (tenant(name), Scope::tenant(of))));
    limits.extend(["alice", "bob"].map(|name| (ScopeKey::user(name), Scope::principal(random.limits()))));
    for (key, scope) in &limits {
        model.set_limits(key, scope).unwrap();
    }
    bench.store.write_limits(EPOCH, &limits).await.unwrap();
}

fn seeded() -> (u64, Random) {
    let seed = std::env::var("EH_TEST_SEED").ok().map_or_else(rand_seed, |seed| seed.parse().unwrap());
    println!("contract: EH_TEST_SEED={seed}");
    (seed, Random(seed | 1))
}

/// Calls that are queued while a transaction is under way take effect in the order of their arrival, as one after the
/// other would.
pub async fn the_store_and_the_model_agree_on_batches_of_holders(bench: Bench) {
    let (seed, mut random) = seeded();
    let mut model = Ledger::default();
    let (mut granted, mut refused) = (0, 0);
    for step in 0..STEPS / 4 {
        if step % 5 == 0 {
            limit(&bench, &mut model, &mut random).await;
        }
        let mut changes: Vec<ScopedChange> = (0..40).map(|_| change(&mut random)).collect();
        changes.retain(|change| is_of_holder(&change.change));
        let context = format!("seed {seed}, step {step}: {changes:?}");
        // Beforehand, because calls whose user has no row take effect after the others.
        let principals: BTreeSet<ScopeKey> =
            changes.iter().flat_map(|change| change.scopes.policy()).cloned().collect();
        bench.store.insert_principals(&principals).await.unwrap();
        for key in principals.into_iter().filter(|key| key.kind != ScopeKind::Tenant) {
            if model.scope(&key).is_none() {
                model.put_scope(key, Scope::principal(UNLIMITED));
            }
        }
        let blocked = block(&bench).await;
        let calls = queued_calls(&bench.store, changes.clone()).await;
        blocked.release().await;
        for (change, call) in changes.iter().zip(calls) {
            let decided = call.await.unwrap().unwrap();
            assert_eq!(same(&decided), same(&apply(&mut model, change, false)), "{context}");
            if decided.is_ok() { granted += 1 } else { refused += 1 }
        }
        is_equal(&bench, &model, &context).await;
    }
    println!("contract: operations that succeeded={granted} refused={refused}");
    assert!(granted > 10 && refused > 10, "both outcomes occur");
    assert_eq!(bench.store.audit_ledger(EPOCH).await.unwrap(), Vec::new());
}

/// Whether a holder may request the change.
fn is_of_holder(change: &Change) -> bool {
    match change {
        Change::Reserve(request) | Change::Enqueue { request, .. } => request.holder.is_external(),
        Change::Confirm(_) | Change::Renew { .. } | Change::Release(_) | Change::Cancel { .. } => true,
        _ => false,
    }
}

pub async fn the_store_and_the_model_agree_on_random_operations(bench: Bench) {
    let (seed, mut random) = seeded();
    let mut model = Ledger::default();
    let (mut granted, mut refused) = (0, 0);
    for step in 0..steps(STEPS, LONG_STEPS) {
        if step % 10 == 0 {
            limit(&bench, &mut model, &mut random).await;
        }
        let changes: Vec<ScopedChange> = (0..=random.below(4)).map(|_| change(&mut random)).collect();
        let context = format!("seed {seed}, step {step}: {changes:?}");
        let alone = if changes.len() == 1 { run_alone(&bench, &changes[0].change).await } else { None };
        let is_alone = alone.is_some();
        let stored = match alone {
            Some(decided) => vec![decided],
            None => bench.store.ledger(EPOCH, &changes).await.unwrap(),
        };
        for (change, decided) in changes.iter().zip(&stored) {
            assert_eq!(same(decided), same(&apply(&mut model, change, is_alone)), "{context}");
        }
        granted += stored.iter().filter(|decided| decided.is_ok()).count();
        refused += stored.iter().filter(|decided| decided.is_err()).count();
        is_equal(&bench, &model, &context).await;
    }
    println!("contract: operations that succeeded={granted} refused={refused}");
    assert!(granted > 10 && refused > 10, "both outcomes occur");
    assert_eq!(bench.store.audit_ledger(EPOCH).await.unwrap(), Vec::new());
}

/// How many random steps the tier takes.
pub(super) fn steps(default: usize, long: usize) -> usize {
    if std::env::var("EH_TEST_TIER").is_ok_and(|tier| tier == "long") { long } else { default }
}

pub(super) fn rand_seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}
