//! Cases of the ledger: concurrent callers never hold more than exists, and each operation takes effect once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use metadata::{Error, MAX_BATCH_SCOPES, MAX_CHANGES};
use model::ledger::{
    Amounts, Change, Claim, Confirmation, End, Holder, PoolCapacity, Refusal, Request, Scope, ScopeKey, ScopeKind,
    ScopedChange, Scopes, State,
};
use model::name::{PoolName, TenantName, UnitName};
use model::number::{Epoch, Incarnation};
use model::quota::Limit;
use model::resource::{Amount, Resource, Triple};

use super::bench::Bench;

pub const EPOCH: Epoch = Epoch(0);
/// Longer than any case.
pub(super) const LONG_MS: i64 = 1_000_000;
pub(super) const UNLIMITED: Triple<Limit> = Triple::all(Limit::Unlimited);

pub const TENANTS: [&str; 3] = ["t_a", "t_b", "t_c"];

pub(super) fn pool_name() -> PoolName {
    PoolName::new("rp_1").unwrap()
}

pub fn pool() -> ScopeKey {
    ScopeKey::pool(&pool_name())
}

pub(super) fn tenant(name: &str) -> ScopeKey {
    ScopeKey::tenant(&TenantName::new(name).unwrap(), &pool_name())
}

pub fn scopes(tenant: &str, user: Option<&str>) -> Scopes {
    Scopes::new(&TenantName::new(tenant).unwrap(), &pool_name(), user, user.map(|_| "IDE"))
}

pub(super) fn engine(lineage: &str, incarnation: i64, scopes: Scopes, amounts: Amounts) -> Arc<Request> {
    Arc::new(Request {
        id: format!("{lineage}-{incarnation}").into(),
        holder: Holder::Engine { unit: UnitName::new("uc_1").unwrap(), incarnation: Incarnation(incarnation) },
        lineage: lineage.into(),
        scopes,
        amounts,
        asked: None,
        ttl_ms: Some(LONG_MS),
    })
}

pub fn external(id: &str, key: &str, scopes: Scopes, amounts: Amounts) -> Arc<Request> {
    Arc::new(Request {
        id: id.into(),
        holder: Holder::External { key: key.into(), instance: "program".into() },
        lineage: id.into(),
        scopes,
        amounts,
        asked: Some(Resource::Cpu { cpu_m: amounts.nominal().cpu_m }),
        ttl_ms: Some(LONG_MS),
    })
}

pub fn one_engine() -> Amounts {
    Amounts::same(Amount { cpu_m: 0, memory: 0, engines: 1 }).unwrap()
}

pub(super) fn claim(request: &Request, uid: &str) -> Claim {
    Claim {
        id: Arc::clone(&request.id),
        user: request.scopes.user_name().unwrap_or_default().to_owned(),
        pool: "rp_1".to_owned(),
        uid: uid.to_owned(),
    }
}

fn engines(limit: i64) -> PoolCapacity {
    let capacity = Triple { engines: Limit::Of(limit), ..UNLIMITED };
    PoolCapacity { capacity, protected: Amount::ZERO, overcommit_percent: 100 }
}

/// Pool `rp_1` of that many engines with the tenants, none of which has a quota.
pub async fn founded(bench: &Bench, limit: i64) {
    let none = [Triple::all(None); 3];
    let mut limits = vec![(pool(), engines(limit).scope(&none).unwrap())];
    limits.extend(TENANTS.map(|name| (tenant(name), Scope::tenant(&none[0]))));
    bench.store.write_limits(EPOCH, &limits).await.unwrap();
}

/// Pool `rp_2` of ten engines with tenant `t_a`.
pub(super) async fn second_pool(bench: &Bench) {
    let none = Triple::all(None);
    let scopes = second_pool_scopes();
    let (pool, tenant) = (scopes.pool().clone(), scopes.tenant().clone());
    let limits = vec![(pool, engines(10).scope(&[none]).unwrap()), (tenant, Scope::tenant(&none))];
    bench.store.write_limits(EPOCH, &limits).await.unwrap();
}

pub(super) fn second_pool_scopes() -> Scopes {
    Scopes::new(&TenantName::new("t_a").unwrap(), &PoolName::new("rp_2").unwrap(), None, None)
}

/// Reserves for a new user, and ends the reservation as a master: passes every failpoint of the ledger. A repeat
/// changes nothing.
pub async fn reserve_and_end(bench: &Bench, epoch: Epoch) {
    let of = scopes("t_a", Some("alice"));
    let none = Triple::all(None);
    let limits = vec![(pool(), engines(10).scope(&[none]).unwrap()), (tenant("t_a"), Scope::tenant(&none))];
    bench.store.write_limits(epoch, &limits).await.unwrap();
    bench.store.admitted(epoch, &[(pool_name(), 0)].into()).await.unwrap();
    let request = external("the-reservation", "the-key", of.clone(), one_engine());
    bench.store.reserve(&request).await.unwrap().unwrap();
    let end = End { id: Arc::clone(&request.id), state: State::Released, reason: "gone".into() };
    let end = ScopedChange { scopes: of, change: Change::End(end) };
    bench.store.ledger(epoch, &[end]).await.unwrap().remove(0).unwrap();
}

/// What the pool holds is what its reservations say, wherever [`reserve_and_end`] was interrupted.
pub async fn is_charged_for_its_reservations(bench: &Bench, point: &str) {
    let ledger = bench.store.whole_ledger().await.unwrap();
    assert_eq!(ledger.drifts().unwrap(), Vec::new(), "{point}");
    let charged = ledger.reservations().filter(|reservation| reservation.state.is_charged()).count() as i64;
    assert_eq!(ledger.scope(&pool()).map_or(0, |scope| scope.counter.held.engines), charged, "{point}");
}

pub async fn held(bench: &Bench) -> BTreeMap<ScopeKey, i64> {
    let ledger = bench.store.whole_ledger().await.unwrap();
    ledger.scopes().map(|(key, scope)| (key.clone(), scope.counter.held.engines)).collect()
}

/// Eight callers of three tenants and users that ask for more engines than the pool has.
pub async fn concurrent_requests_never_hold_more_than_the_pool_has(bench: Bench) {
    const CAPACITY: i64 = 40;
    founded(&bench, CAPACITY).await;
    let tasks: Vec<_> = (0..8usize)
        .map(|worker| {
            let bench = bench.clone();
            tokio::spawn(async move {
                let mut granted = 0;
                for at in 0..8 {
                    let user = ["alice", "bob"][(worker + at) % 2];
                    let of = scopes(TENANTS[worker % 3], Some(user));
                    let id = format!("x{worker}-{at}");
                    let decided = if worker % 2 == 0 {
                        bench.store.reserve(&external(&id, &id, of, one_engine())).await.unwrap()
                    } else {
                        let keys: BTreeSet<ScopeKey> = of.policy().cloned().collect();
                        bench.store.insert_principals(&keys).await.unwrap();
                        let change = Change::Reserve(engine(&id, 1, of.clone(), one_engine()));
                        bench.store.ledger(EPOCH, &[ScopedChange { scopes: of, change }]).await.unwrap().remove(0)
                    };
                    match decided {
                        Ok(reservation) => granted += i64::from(reservation.state == State::Locked),
                        Err(Refusal::Short(shortage)) => assert_eq!(shortage.word(), "POOL_ENGINES"),
                        Err(refusal) => panic!("{refusal:?}"),
                    }
                }
                granted
            })
        })
        .collect();
    let mut granted = 0;
    for task in tasks {
        granted += task.await.unwrap();
    }
    assert_eq!((granted, held(&bench).await[&pool()]), (CAPACITY, CAPACITY));
    assert_eq!(bench.store.audit_ledger(EPOCH).await.unwrap(), Vec::new());
}

pub async fn concurrent_repeats_of_a_request_reserve_once(bench: Bench) {
    founded(&bench, 10).await;
    let tasks: Vec<_> = (0..6)
        .map(|at| {
            let store = bench.store.clone();
            let request = external(&format!("id-{at}"), "one key", scopes("t_a", Some("alice")), one_engine());
            tokio::spawn(async move { store.reserve(&request).await.unwrap().unwrap().id().to_string() })
        })
        .collect();
    let mut ids = BTreeSet::new();
    for task in tasks {
        ids.insert(task.await.unwrap());
    }
    assert_eq!(ids.len(), 1, "all callers receive the same reservation");
    assert_eq!(held(&bench).await[&pool()], 1);
}

/// The same key for two pools: neither waits for the other's scopes, so the database finds the duplicate.
pub async fn one_key_for_two_requests_is_refused(bench: Bench) {
    founded(&bench, 10).await;
    second_pool(&bench).await;
    let second = second_pool_scopes();
    for round in 0..6 {
        let tasks: Vec<_> = [scopes("t_a", None), second.clone()]
            .into_iter()
            .enumerate()
            .map(|(at, scopes)| {
                let store = bench.store.clone();
                let request = external(&format!("id-{round}-{at}"), &format!("key {round}"), scopes, one_engine());
                tokio::spawn(async move { store.reserve(&request).await.unwrap() })
            })
            .collect();
        let mut won = 0;
        for task in tasks {
            match task.await.unwrap() {
                Ok(_) => won += 1,
                Err(refusal) => assert!(matches!(refusal, Refusal::OtherRequest(_)), "{refusal:?}"),
            }
        }
        assert_eq!(won, 1);
    }
    let held = held(&bench).await;
    assert_eq!(held.iter().filter(|(key, _)| key.kind == ScopeKind::Pool).map(|(_, held)| held).sum::<i64>(), 6);
}

pub async fn a_deposed_master_changes_no_reservation(bench: Bench) {
    founded(&bench, 10).await;
    let request = engine("l", 1, scopes("t_a", None), one_engine());
    let reserve = [ScopedChange { scopes: request.scopes.clone(), change: Change::Reserve(Arc::clone(&request)) }];
    bench.store.ledger(EPOCH, &reserve).await.unwrap().remove(0).unwrap();
    bench.store.raise_epoch(EPOCH, "the next master").await.unwrap();
    let end = End { id: Arc::clone(&request.id), state: State::Released, reason: "gone".into() };
    let end = [ScopedChange { scopes: request.scopes.clone(), change: Change::End(end) }];
    assert!(matches!(bench.store.ledger(EPOCH, &end).await, Err(Error::Deposed(_))));
    assert!(matches!(bench.store.audit_ledger(EPOCH).await, Err(Error::Deposed(_))));
    assert!(matches!(bench.store.write_limits(EPOCH, &[]).await, Err(Error::Deposed(_))));
    assert_eq!(held(&bench).await[&pool()], 1);
    bench.store.ledger(Epoch(1), &end).await.unwrap().remove(0).unwrap();
    assert_eq!(held(&bench).await[&pool()], 0);
}

/// A batch of many engines is one transaction of few statements, and a refused change affects no other.
pub async fn a_batch_has_one_result_for_each_change(bench: Bench) {
    founded(&bench, 200).await;
    let of = scopes("t_b", None);
    let reserve = |at: usize| ScopedChange {
        scopes: of.clone(),
        change: Change::Reserve(engine(&format!("l{at}"), 1, of.clone(), one_engine())),
    };
    let batch: Vec<ScopedChange> = (0..MAX_CHANGES).map(reserve).collect();
    for _ in 0..2 {
        let decided = bench.store.ledger(EPOCH, &batch).await.unwrap();
        let granted = decided.iter().take_while(|decided| decided.is_ok()).count();
        assert_eq!((granted, decided.iter().filter(|decided| decided.is_ok()).count()), (200, 200));
        assert_eq!(held(&bench).await[&pool()], 200);
    }
    let confirm: Vec<ScopedChange> = (0..200)
        .map(|at| {
            let request = engine(&format!("l{at}"), 1, of.clone(), one_engine());
            let confirmation = Confirmation { claim: claim(&request, "uid"), actual: None, lease_ms: None };
            ScopedChange { scopes: of.clone(), change: Change::Confirm(confirmation) }
        })
        .collect();
    let used = bench.store.ledger(EPOCH, &confirm).await.unwrap();
    assert!(used.iter().all(|decided| decided.as_ref().unwrap().state == State::Used));
    let one_more: Vec<ScopedChange> = (0..=MAX_CHANGES).map(reserve).collect();
    assert!(matches!(bench.store.ledger(EPOCH, &one_more).await, Err(Error::Broken(_))));
    // Scopes that are not those of the reservation.
    let wrong = ScopedChange { scopes: scopes("t_c", None), ..confirm[0].clone() };
    let refused = bench.store.ledger(EPOCH, &[wrong]).await.unwrap().remove(0);
    assert_eq!(refused, Err(Refusal::OtherRequest("l0-1".into())));
}

pub async fn overdue_external_reservations_end_and_return_their_charge(bench: Bench) {
    founded(&bench, 10).await;
    let of = || scopes("t_a", Some("alice"));
    let due = Arc::new(Request { ttl_ms: Some(0), ..(*external("due", "a", of(), one_engine())).clone() });
    let later = external("later", "b", of(), one_engine());
    let waiting = external("waiting", "c", of(), one_engine());
    for request in [&due, &later] {
        bench.store.reserve(request).await.unwrap().unwrap();
    }
    bench.store.enqueue(&waiting, 0).await.unwrap().unwrap();
    let first = engine("l", 1, scopes("t_a", None), one_engine());
    let unregistered = Arc::new(Request { ttl_ms: Some(0), ..(*first).clone() });
    let reserve = ScopedChange { scopes: unregistered.scopes.clone(), change: Change::Reserve(unregistered) };
    bench.store.ledger(EPOCH, &[reserve]).await.unwrap().remove(0).unwrap();
    assert_eq!(held(&bench).await[&pool()], 3);
    let ended = bench.store.expire(EPOCH).await.unwrap();
    let ended: BTreeSet<_> = ended.iter().map(|one| (one.id().to_string(), one.state)).collect();
    let expected = [("due", State::Expired), ("waiting", State::Expired)].map(|(id, state)| (id.to_owned(), state));
    assert_eq!(ended, BTreeSet::from(expected), "an engine is ended by its master's plan");
    assert_eq!(held(&bench).await[&pool()], 2);
    assert_eq!(bench.store.expire(EPOCH).await.unwrap(), Vec::new());
    let confirmation = Confirmation { claim: claim(&due, "u"), actual: None, lease_ms: Some(LONG_MS) };
    assert_eq!(bench.store.confirm(&confirmation).await.unwrap(), Err(Refusal::Unknown("due".into())));
}

/// A transaction ends those of the pool whose deadline was first, whenever the others of it were, and then those of other pools;
/// it locks no more scopes than it may.
pub async fn overdue_reservations_end_pool_by_pool(bench: Bench) {
    // Each locks a user and a creator of its own; all of them lock the tenants and the pools.
    const IN_ONE_TRANSACTION: usize = (MAX_BATCH_SCOPES - 4) / 2;
    const USERS: usize = IN_ONE_TRANSACTION + 5;
    founded(&bench, 1_000).await;
    second_pool(&bench).await;
    let of_user = |user: &str| {
        Scopes::new(&TenantName::new("t_a").unwrap(), &pool_name(), Some(user), Some(&format!("program of {user}")))
    };
    let of_users = (0..USERS).map(|at| (format!("x{at}"), of_user(&format!("user {at}"))));
    let of_second = (0..4).map(|at| (format!("y{at}"), second_pool_scopes()));
    let calls = of_users.chain(of_second).map(|(id, scopes)| {
        let store = bench.store.clone();
        tokio::spawn(async move { store.enqueue(&external(&id, &id, scopes, one_engine()), LONG_MS).await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap().unwrap();
    }
    bench.raw("UPDATE reservation SET deadline_ms = 2").await;
    bench.raw("UPDATE reservation SET deadline_ms = 3 WHERE pool = 'rp_2'").await;
    bench.raw("UPDATE reservation SET deadline_ms = 1 WHERE id = 'y2'").await;
    let mut transactions = Vec::new();
    loop {
        let ended = bench.store.expire(EPOCH).await.unwrap();
        if ended.is_empty() {
            break;
        }
        assert!(ended.iter().all(|one| one.state == State::Expired), "{ended:?}");
        let pools: Vec<_> = ended.iter().map(|one| one.request.scopes.pool_name().to_owned()).collect();
        transactions.push((pools.iter().take_while(|pool| *pool == "rp_2").count(), pools.len()));
    }
    assert_eq!(transactions, [(4, 4 + IN_ONE_TRANSACTION), (0, 5)]);
}

pub async fn an_audit_corrects_every_counter(bench: Bench) {
    founded(&bench, 10).await;
    for (at, name) in TENANTS.iter().enumerate() {
        let id = format!("x{at}");
        bench.store.reserve(&external(&id, &id, scopes(name, Some("alice")), one_engine())).await.unwrap().unwrap();
    }
    let before = held(&bench).await;
    assert_eq!(bench.store.ledger_counts().await.unwrap().drifts, 0);
    bench.raw("UPDATE quota_scope SET held_engines = held_engines + 5, shared_held_cpu = shared_held_cpu + 7").await;
    let drifts = bench.store.audit_ledger(EPOCH).await.unwrap();
    // One user, one creator, three tenants and the pool; and the pool's part.
    assert_eq!(drifts.len(), 7, "{drifts:?}");
    assert!(drifts.iter().any(|drift| drift.to_string() == "user \"alice\": 8 engines instead of 3"), "{drifts:?}");
    assert_eq!(held(&bench).await, before);
    assert_eq!(bench.store.audit_ledger(EPOCH).await.unwrap(), Vec::new());
    assert_eq!(bench.store.ledger_counts().await.unwrap().drifts, 7);
}

pub async fn a_counter_below_zero_is_refused_by_the_database(bench: Bench) {
    founded(&bench, 10).await;
    let request = external("x", "x", scopes("t_a", None), one_engine());
    bench.store.reserve(&request).await.unwrap().unwrap();
    bench.raw("UPDATE quota_scope SET held_engines = 0 WHERE kind = 4").await;
    assert_eq!(bench.store.release(&claim(&request, "u")).await.unwrap(), Err(Refusal::OutOfRange));
    bench.store.audit_ledger(EPOCH).await.unwrap();
    bench.store.release(&claim(&request, "u")).await.unwrap().unwrap();
    assert!(held(&bench).await.values().all(|held| *held == 0));
}

/// A new master grants what running engines hold, unless it has counted them first.
pub async fn a_holder_reserves_only_while_the_pool_is_counted_and_has_no_queue(bench: Bench) {
    founded(&bench, 10).await;
    let request = |id: &str| external(id, id, scopes("t_a", None), one_engine());
    let (pool_of, queued) = (pool_name(), |queued| [(pool_name(), queued)].into());
    let must_queue = Err(Refusal::MustQueue(ScopeKey::pool(&pool_of)));
    bench.store.reserve(&request("x0")).await.unwrap().unwrap();
    bench.store.admitted(EPOCH, &queued(3)).await.unwrap();
    assert_eq!(bench.store.reserve(&request("x1")).await.unwrap(), must_queue);
    let waiting = bench.store.enqueue(&request("x1"), LONG_MS).await.unwrap().unwrap();
    assert_eq!(waiting.state, State::Waiting);
    let admit = Change::Admit { id: Arc::clone(waiting.id()) };
    let admit = [ScopedChange { scopes: waiting.request.scopes.clone(), change: admit }];
    assert_eq!(bench.store.ledger(EPOCH, &admit).await.unwrap().remove(0).unwrap().state, State::Locked);
    bench.store.admitted(EPOCH, &queued(0)).await.unwrap();
    bench.store.reserve(&request("x2")).await.unwrap().unwrap();

    bench.store.raise_epoch(EPOCH, "the next master").await.unwrap();
    assert_eq!(bench.store.reserve(&request("x3")).await.unwrap(), must_queue);
    assert_eq!(bench.store.reserve(&request("x2")).await.unwrap().unwrap().state, State::Locked, "a repeat");
    assert!(matches!(bench.store.admitted(EPOCH, &queued(0)).await, Err(Error::Deposed(_))));
    bench.store.admitted(Epoch(1), &queued(0)).await.unwrap();
    bench.store.reserve(&request("x3")).await.unwrap().unwrap();
}

pub async fn ended_reservations_and_closed_scopes_are_deleted(bench: Bench) {
    founded(&bench, 10).await;
    let (old, kept) = (external("old", "old", scopes("t_a", None), one_engine()), scopes("t_b", None));
    let kept = external("kept", "kept", kept, one_engine());
    for request in [&old, &kept] {
        bench.store.reserve(request).await.unwrap().unwrap();
    }
    bench.store.release(&claim(&old, "u")).await.unwrap().unwrap();
    bench.raw("UPDATE reservation SET ended_at_ms = 1 WHERE id = 'old'").await;
    let closed = Scope { is_open: false, ..Scope::tenant(&Triple::all(None)) };
    let limits = [tenant("t_a"), tenant("t_b")].map(|key| (key, closed)).to_vec();
    bench.store.write_limits(EPOCH, &limits).await.unwrap();
    let deleted = bench.store.housekeep(super::bench::AUDIT_KEEP, metadata::REQUEST_KEEP).await.unwrap();
    assert_eq!((deleted.reservations, deleted.scopes), (1, 1), "t_b holds an engine");
    assert!(bench.store.reservation("kept").await.unwrap().is_some());
    let left = held(&bench).await;
    assert!(!left.contains_key(&tenant("t_a")) && left[&tenant("t_b")] == 1, "{left:?}");
}
