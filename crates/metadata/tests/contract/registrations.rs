//! Registered capacities.

use std::sync::Arc;
use std::time::{Duration, Instant};

use metadata::{AuditFilter, Backend, Error, RegisterRequest, Store, StoreSettings, UnregisterRequest};
use model::alteration::ObjectKind;
use model::change::{PoolPatch, Rules, Setting};
use model::error::{KIND_MISMATCH, NO_POOL, POOL_NOT_REGISTERED, UserError};
use model::ledger::{Amounts, Refusal, RegistrationState, RegistrationStatus, Request, Scope, ScopeKey, Scopes, State};
use model::name::{PoolName, TenantName};
use model::quota::{Capacity, Limit};
use model::resource::{Amount, Kind, Resource};

use super::bench::{Bench, by, change_tenant, create_pool, drop_object};
use super::ledgers::{EPOCH, claim, external};
use super::limits::{capacity, change_pool};

const HOUR_MS: i64 = 3_600_000;

fn pool() -> PoolName {
    PoolName::new("rp_1").unwrap()
}

fn cores(cores: i64) -> Resource {
    Resource::Cpu { cpu_m: 1_000 * cores }
}

/// A pool whose capacity is registered, with a master that has counted it.
async fn registered_pool(bench: Bench) -> Bench {
    let bench = bench.founded(0).await.with_pods().await;
    bench.alter("a-1", change_pool("rp_1", capacity(Capacity::Registered))).await;
    bench
}

fn register(bench: &Bench, id: &str, instance: &str, of: i64) -> RegisterRequest {
    RegisterRequest {
        request: bench.request(id, &format!("REGISTER {instance} {of}"), by("carol")),
        pool: pool(),
        name: "yarn".to_owned(),
        instance: instance.to_owned(),
        kind: None,
        capacity: cores(of),
        protected: None,
        lease_ms: HOUR_MS,
    }
}

fn unregister(bench: &Bench, id: &str, instance: Option<&str>, force: bool) -> UnregisterRequest {
    let request = bench.request(id, &format!("UNREGISTER {instance:?} {force}"), by("carol"));
    UnregisterRequest { request, pool: pool(), instance: instance.map(str::to_owned), force }
}

fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> UserError {
    match result {
        Err(Error::Refused(error)) => error,
        other => panic!("{other:?}"),
    }
}

async fn scope(bench: &Bench) -> Scope {
    *bench.store.whole_ledger().await.unwrap().scope(&ScopeKey::pool(&pool())).unwrap()
}

async fn state(store: &Store) -> RegistrationState {
    store.registration(&pool()).await.unwrap().state
}

/// A request for one core of the pool.
fn one_core(id: &str) -> Arc<Request> {
    let scopes = Scopes::new(&TenantName::new("t_1").unwrap(), &pool(), Some("alice"), Some("IDE"));
    external(id, id, scopes, Amounts::same(Amount { cpu_m: 1_000, memory: 0, engines: 1 }).unwrap())
}

/// Whether a request is granted, and if not, whether the pool is closed.
async fn granted(bench: &Bench, id: &str) -> Result<(), Refusal> {
    bench.store.reserve(&one_core(id)).await.unwrap().map(drop)
}

fn is_closed(outcome: &Result<(), Refusal>) -> bool {
    matches!(outcome, Err(Refusal::Closed(key)) if *key == ScopeKey::pool(&pool()))
}

pub async fn a_registered_capacity_opens_its_pool_and_is_replaced_by_its_instance(bench: Bench) {
    let bench = registered_pool(bench).await;
    assert_eq!(bench.store.registration(&pool()).await.unwrap(), RegistrationStatus::unregistered("rp_1"));
    assert!(is_closed(&granted(&bench, "x-0").await));
    let mut first = register(&bench, "r-1", "i-1", 3);
    first.protected = Some(cores(1));
    let done = bench.store.register(&first).await.unwrap();
    assert_eq!((done.state, done.instance.as_deref()), (RegistrationState::Registered, Some("i-1")));
    assert_eq!((done.capacity, done.protected), (Some(cores(3)), Some(cores(1))));
    let open = scope(&bench).await;
    assert_eq!((open.is_open, open.counter.limit.cpu_m), (true, Limit::Of(2_000)), "without what the program keeps");
    assert_eq!(open.counter.limit.memory, Limit::Unlimited, "the kind has no memory");
    for id in ["x-1", "x-2"] {
        granted(&bench, id).await.unwrap();
    }
    assert!(matches!(granted(&bench, "x-3").await, Err(Refusal::Short(_))));
    // Fewer cores than are held: nothing ends, and nothing is granted.
    bench.store.register(&register(&bench, "r-2", "i-1", 1)).await.unwrap();
    let fewer = scope(&bench).await;
    assert_eq!((fewer.counter.limit.cpu_m, fewer.counter.held.cpu_m), (Limit::Of(1_000), 2_000));
    assert!(matches!(granted(&bench, "x-4").await, Err(Refusal::Short(_))));
    bench.store.register(&register(&bench, "r-3", "i-1", 3)).await.unwrap();
    granted(&bench, "x-5").await.unwrap();
    let shown = bench.store.quota_scopes().await.unwrap();
    let shown = shown.into_iter().find(|scope| scope.key == ScopeKey::pool(&pool())).unwrap();
    assert_eq!(shown.registration.unwrap().user, "carol");
    let of_carol = AuditFilter { user: Some("carol".to_owned()), limit: 9, ..AuditFilter::default() };
    let rows = bench.store.audit(&of_carol).await.unwrap();
    let statements: Vec<String> = rows.into_iter().map(|row| row.statement).collect();
    assert_eq!(statements.len(), 3, "{statements:?}");
    assert_eq!(bench.store.audit_ledger(EPOCH).await.unwrap(), Vec::new());
}

pub async fn only_one_instance_is_registered_until_its_lease_ends(bench: Bench) {
    let bench = registered_pool(bench).await;
    bench.store.register(&register(&bench, "r-1", "i-1", 3)).await.unwrap();
    let other = refused(bench.store.register(&register(&bench, "r-2", "i-2", 9)).await);
    assert_eq!(other.sqlstate(), "55000");
    assert!(other.text().contains("instance \"i-1\" of \"yarn\""), "{}", other.text());
    let other = refused(bench.store.unregister(&unregister(&bench, "u-1", Some("i-2"), true)).await);
    assert_eq!(other.sqlstate(), "55000");
    assert_eq!(scope(&bench).await.counter.limit.cpu_m, Limit::Of(3_000));
    // The lease ends by the database's clock.
    bench.raw("UPDATE quota_scope SET open_until_ms = 1 WHERE kind = 4").await;
    assert_eq!(state(&bench.store).await, RegistrationState::Expired);
    assert!(is_closed(&granted(&bench, "x-1").await), "also for a request that the capacity could never fit");
    let due = bench.store.snapshot().await.unwrap();
    assert_eq!(due.ledger.scope(&ScopeKey::pool(&pool())).unwrap().registered_until_ms(), Some(1));
    bench.store.register(&register(&bench, "r-3", "i-2", 9)).await.unwrap();
    granted(&bench, "x-1").await.unwrap();
}

pub async fn a_late_repeat_replaces_no_newer_numbers_and_opens_no_pool(bench: Bench) {
    let bench = registered_pool(bench).await;
    let first = register(&bench, "r-1", "i-1", 3);
    bench.store.register(&first).await.unwrap();
    bench.store.register(&register(&bench, "r-2", "i-1", 5)).await.unwrap();
    let repeated = bench.store.register(&first).await.unwrap();
    assert_eq!(repeated.capacity, Some(cores(5)), "as it is now");
    assert_eq!(scope(&bench).await.counter.limit.cpu_m, Limit::Of(5_000));
    let end = unregister(&bench, "u-1", Some("i-1"), false);
    bench.store.unregister(&end).await.unwrap();
    assert_eq!(bench.store.register(&first).await.unwrap().state, RegistrationState::Unregistered);
    assert!(!scope(&bench).await.is_open);
    bench.store.register(&register(&bench, "r-3", "i-1", 3)).await.unwrap();
    bench.store.unregister(&end).await.unwrap();
    assert_eq!(state(&bench.store).await, RegistrationState::Registered, "a repeat ends no later registration");
    let other = RegisterRequest { request: bench.request("r-1", "REGISTER another", by("carol")), ..first };
    assert_eq!(refused(bench.store.register(&other).await).sqlstate(), "22023", "the id of another statement");
    let mut late = register(&bench, "r-4", "i-1", 4);
    late.request.deadline = Duration::ZERO;
    assert_eq!(refused(bench.store.register(&late).await).sqlstate(), "HYT00");
}

pub async fn a_lease_is_renewed_by_its_instance_until_it_ends(bench: Bench) {
    let bench = registered_pool(bench).await;
    let renew = async |instance: &str| bench.store.renew_registration(&pool(), instance, 2 * HOUR_MS).await;
    assert_eq!(refused(renew("i-1").await).error_code(), POOL_NOT_REGISTERED);
    let done = bench.store.register(&register(&bench, "r-1", "i-1", 3)).await.unwrap();
    assert_eq!(refused(renew("i-2").await).error_code(), POOL_NOT_REGISTERED);
    let renewed = renew("i-1").await.unwrap();
    assert!(renewed.expires_at > done.expires_at, "{renewed:?}");
    assert_eq!(renewed, bench.store.registration(&pool()).await.unwrap());
    assert_eq!(renewed.registered_at, done.registered_at);
    // A lease that has ended is not extended: another instance may have been admitted meanwhile.
    bench.raw("UPDATE quota_scope SET open_until_ms = 1 WHERE kind = 4").await;
    assert_eq!(refused(renew("i-1").await).error_code(), POOL_NOT_REGISTERED);
    bench.store.register(&register(&bench, "r-2", "i-1", 3)).await.unwrap();
    bench.store.unregister(&unregister(&bench, "u-1", None, false)).await.unwrap();
    assert_eq!(refused(renew("i-1").await).error_code(), POOL_NOT_REGISTERED);
    assert!(!scope(&bench).await.is_open);
}

pub async fn an_end_of_a_registration_keeps_reservations_unless_forced(bench: Bench) {
    let bench = registered_pool(bench).await;
    bench.store.register(&register(&bench, "r-1", "i-1", 3)).await.unwrap();
    granted(&bench, "x-1").await.unwrap();
    let status = bench.store.unregister(&unregister(&bench, "u-1", Some("i-1"), false)).await.unwrap();
    assert_eq!(status, RegistrationStatus::unregistered("rp_1"));
    assert!(is_closed(&granted(&bench, "x-2").await));
    let held = scope(&bench).await;
    assert_eq!((held.is_open, held.counter.held.cpu_m), (false, 1_000), "it stays charged");
    assert_eq!(bench.store.release(&claim(&one_core("x-1"), "u")).await.unwrap().unwrap().state, State::Released);
    // The second time, with force: what was granted before ends, what is granted later does not.
    bench.store.register(&register(&bench, "r-2", "i-1", 3)).await.unwrap();
    for id in ["x-3", "x-4"] {
        granted(&bench, id).await.unwrap();
    }
    let forced = unregister(&bench, "u-2", None, true);
    bench.store.unregister(&forced).await.unwrap();
    let lost = bench.store.reservation("x-3").await.unwrap().unwrap();
    assert_eq!(lost.state, State::Lost);
    assert!(lost.reason.as_deref().unwrap().contains("unregistered by \"carol\""), "{:?}", lost.reason);
    assert_eq!(scope(&bench).await.counter.held.cpu_m, 0);
    bench.store.register(&register(&bench, "r-3", "i-1", 3)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    granted(&bench, "x-5").await.unwrap();
    bench.store.unregister(&forced).await.unwrap();
    assert_eq!(bench.store.reservation("x-5").await.unwrap().unwrap().state, State::Locked, "a repeat, however late");
    // More than one transaction ends; nothing is registered any more.
    bench.store.unregister(&unregister(&bench, "u-3", None, false)).await.unwrap();
    bench.store.register(&register(&bench, "r-4", "i-1", 300)).await.unwrap();
    for at in 0..120 {
        granted(&bench, &format!("y-{at}")).await.unwrap();
    }
    bench.raw("UPDATE quota_scope SET open_until_ms = 1 WHERE kind = 4").await;
    bench.store.unregister(&unregister(&bench, "u-4", None, true)).await.unwrap();
    assert_eq!(scope(&bench).await.counter.held.cpu_m, 0, "also after the lease has ended");
    assert_eq!(bench.store.audit_ledger(EPOCH).await.unwrap(), Vec::new());
}

pub async fn a_registration_belongs_to_one_pool_and_one_kind_of_capacity(bench: Bench) {
    let bench = bench.founded(0).await.with_pods().await;
    let of_pool = refused(bench.store.register(&register(&bench, "r-0", "i-1", 3)).await);
    assert_eq!(of_pool.sqlstate(), "55000", "its capacity is not registered: {}", of_pool.text());
    let other = RegisterRequest { pool: PoolName::new("rp_9").unwrap(), ..register(&bench, "r-0", "i-1", 3) };
    assert_eq!(refused(bench.store.register(&other).await).error_code(), NO_POOL);
    bench.alter("a-1", change_pool("rp_1", capacity(Capacity::Registered))).await;
    let kind = Setting::Set(Kind::Load);
    bench.alter("a-2", change_pool("rp_1", PoolPatch { resource_kind: kind, ..PoolPatch::default() })).await;
    let wrong = RegisterRequest { kind: Some(Kind::Queue), ..register(&bench, "r-1", "i-1", 3) };
    assert_eq!(refused(bench.store.register(&wrong).await).error_code(), KIND_MISMATCH);
    let more = RegisterRequest { protected: Some(cores(4)), ..register(&bench, "r-1", "i-1", 3) };
    assert_eq!(refused(bench.store.register(&more).await).sqlstate(), "22023");
    bench.store.register(&register(&bench, "r-1", "i-1", 3)).await.unwrap();
    // Other alterations keep it.
    let reclaim = Setting::Set("x".to_owned());
    bench.alter("a-3", change_pool("rp_1", PoolPatch { comment: reclaim, ..PoolPatch::default() })).await;
    assert_eq!(state(&bench.store).await, RegistrationState::Registered);
    assert_eq!(scope(&bench).await.counter.limit.cpu_m, Limit::Of(3_000));
    // Another capacity, and back: nothing is registered.
    for (at, other) in [Capacity::Nodes, Capacity::Registered].into_iter().enumerate() {
        bench.alter(&format!("b-{at}"), change_pool("rp_1", capacity(other))).await;
        assert!(!scope(&bench).await.is_open);
    }
    assert_eq!(state(&bench.store).await, RegistrationState::Unregistered);
    // A pool that is dropped and created again has none either, and no lease of the old one.
    bench.store.register(&register(&bench, "r-2", "i-1", 3)).await.unwrap();
    bench.alter("c-1", change_tenant("t_1", &[])).await;
    bench.alter("c-2", drop_object(ObjectKind::ResourcePool, "rp_1")).await;
    bench.alter("c-3", create_pool("rp_1", &[])).await;
    let unlimited = scope(&bench).await;
    assert_eq!((unlimited.is_open, unlimited.counter.limit.cpu_m), (true, Limit::Unlimited));
    assert_eq!(unlimited.registered_until_ms(), None);
    bench.alter("c-4", change_pool("rp_1", capacity(Capacity::Registered))).await;
    assert_eq!(state(&bench.store).await, RegistrationState::Unregistered);
    assert!(!scope(&bench).await.is_open);
}

pub async fn concurrent_registrations_leave_one_instance_and_no_over_grant(bench: Bench) {
    const ROUNDS: usize = 6;
    let bench = registered_pool(bench).await;
    let providers = (0..3).map(|provider| {
        let bench = bench.clone();
        tokio::spawn(async move {
            let instance = format!("i-{provider}");
            for round in 0..ROUNDS {
                let id = format!("{provider}-{round}");
                match bench.store.register(&register(&bench, &format!("r-{id}"), &instance, 2)).await {
                    // It is registered until it unregisters itself.
                    Ok(status) => {
                        assert_eq!(status.instance.as_deref(), Some(&*instance));
                        bench.store.renew_registration(&pool(), &instance, HOUR_MS).await.unwrap();
                        let end = unregister(&bench, &format!("u-{id}"), Some(&instance), round % 2 == 0);
                        bench.store.unregister(&end).await.unwrap();
                    }
                    Err(Error::Refused(error)) => assert_eq!(error.sqlstate(), "55000"),
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    let providers: Vec<_> = providers.collect();
    let programs = (0..2).map(|program| {
        let bench = bench.clone();
        tokio::spawn(async move {
            for at in 0..4 * ROUNDS {
                match granted(&bench, &format!("x-{program}-{at}")).await {
                    Ok(()) | Err(Refusal::Closed(_) | Refusal::Short(_)) => {}
                    Err(refusal) => panic!("{refusal:?}"),
                }
                let held = scope(&bench).await.counter.held.cpu_m;
                assert!(held <= 2_000, "{held} of 2 cores");
            }
        })
    });
    let programs: Vec<_> = programs.collect();
    for task in providers.into_iter().chain(programs) {
        task.await.unwrap();
    }
    bench.store.unregister(&unregister(&bench, "u-last", None, true)).await.unwrap();
    let last = scope(&bench).await;
    assert_eq!((last.is_open, last.counter.held.cpu_m), (false, 0));
    assert_eq!(bench.store.audit_ledger(EPOCH).await.unwrap(), Vec::new());
}

pub async fn a_call_waits_for_no_lock_beyond_its_deadline(bench: Bench) {
    let bench = registered_pool(bench).await;
    bench.store.register(&register(&bench, "r-1", "i-1", 3)).await.unwrap();
    // A lock of another connection: a file of SQLite is locked by one process.
    if bench.settings.backend().unwrap() == Backend::Sqlite {
        return;
    }
    bench.store.insert_principals(&one_core("x").scopes.policy().cloned().collect()).await.unwrap();
    let other = Held::new(&bench).await;
    // Its deadline ends the wait long before the limits of the connection.
    let limit = Duration::from_mins(1);
    let settings = StoreSettings { lock_timeout: limit, statement_timeout: limit, ..bench.settings.clone() };
    let patient = Store::open(&settings, Rules::default(), bench.clock.clone()).await.unwrap();
    let begun = Instant::now();
    let soon = patient.until(tokio::time::Instant::now() + Duration::from_millis(200));
    let error = soon.reserve(&one_core("x-1")).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)) && begun.elapsed() < limit / 3, "{error}");
    // The wait for a row has a limit of its own.
    let settings = StoreSettings { lock_timeout: Duration::from_secs(1), ..bench.settings.clone() };
    let impatient = Store::open(&settings, Rules::default(), bench.clock.clone()).await.unwrap();
    let error = impatient.reserve(&one_core("x-1")).await.unwrap_err();
    assert!(matches!(error, Error::LockTimeout(_)), "{error}");
    assert_eq!(error.user_error().error_code(), model::error::LOCK_TIMEOUT);
    other.release().await;
    granted(&bench, "x-1").await.unwrap();
    assert_eq!(scope(&bench).await.counter.held.cpu_m, 1_000, "what was refused is not charged");
}

/// A transaction that holds the row of the pool.
struct Held(sqlx::AnyConnection);

impl Held {
    async fn new(bench: &Bench) -> Self {
        use sqlx::{Connection as _, Executor as _};
        let mut connection = sqlx::AnyConnection::connect(&bench.settings.url).await.unwrap();
        connection.execute("BEGIN").await.unwrap();
        connection.execute("UPDATE quota_scope SET version = version + 1 WHERE kind = 4").await.unwrap();
        Self(connection)
    }

    async fn release(mut self) {
        use sqlx::Executor as _;
        self.0.execute("ROLLBACK").await.unwrap();
    }
}
