//! Cases of the ledger in snapshots and SHOW, and of the limit of its queues.

use std::sync::Arc;

use metadata::{MAX_WAITING_OF_TENANT, QuotaScope, ReservationFilter, Viewer};
use model::ledger::{Change, Confirmation, End, Refusal, ScopeKey, ScopedChange, State};
use model::name::{PoolName, TenantName};
use model::slot::{Renewal, Replacement};

use super::bench::Bench;
use super::ledgers::{EPOCH, LONG_MS, claim, engine, external, one_engine, pool, scopes, tenant};

/// Tenants `t_a` and `t_b` on pool `rp_1`.
async fn founded(bench: Bench) -> Bench {
    let bench = bench.founded(1).await;
    bench.alter("a-1", super::bench::create_tenant("t_a", &["rp_1"], &[])).await;
    bench.alter("a-2", super::bench::create_tenant("t_b", &["rp_1"], &[])).await;
    bench
}

async fn changed(bench: &Bench, of: &model::ledger::Scopes, change: Change) {
    let change = [ScopedChange { scopes: of.clone(), change }];
    bench.store.ledger(EPOCH, &change).await.unwrap().remove(0).unwrap();
}

pub async fn a_snapshot_has_the_ledger_that_a_plan_needs(bench: Bench) {
    let bench = founded(bench).await;
    let slot = bench.store.snapshot().await.unwrap().slots[0].clone();
    let of = model::ledger::engine_scopes(&slot.key, slot.incarnation, Some(&slot));
    let request = model::ledger::Request {
        id: slot.engine().as_str().into(),
        holder: model::ledger::Holder::Engine { unit: slot.key.unit.clone(), incarnation: slot.incarnation },
        lineage: model::ledger::lineage_of(&slot.key, slot.incarnation, Some(&slot)),
        scopes: of.clone(),
        amounts: one_engine(),
        asked: None,
        ttl_ms: None,
    };
    changed(&bench, &of, Change::Reserve(request.into())).await;
    let id: Arc<str> = slot.engine().as_str().into();
    let end = |id: &Arc<str>| Change::End(End { id: Arc::clone(id), state: State::Released, reason: "gone".into() });
    changed(&bench, &of, end(&id)).await;
    let other = scopes("t_a", None);
    let past = engine("l", 3, other.clone(), one_engine());
    changed(&bench, &other, Change::Reserve(Arc::clone(&past))).await;
    changed(&bench, &other, end(&past.id)).await;
    for (id, user) in [("charged", "alice"), ("waiting", "bob")] {
        let request = external(id, id, scopes("t_a", Some(user)), one_engine());
        if id == "waiting" {
            bench.store.enqueue(&request, LONG_MS).await.unwrap().unwrap();
        } else {
            bench.store.reserve(&request).await.unwrap().unwrap();
        }
    }
    let ledger = bench.store.snapshot().await.unwrap().ledger;
    let ids: Vec<_> = ledger.reservations().map(|one| (one.id().to_string(), one.state)).collect();
    let expected = [("charged", State::Locked), (&*id, State::Released), ("waiting", State::Waiting)]
        .map(|(id, state)| (id.to_owned(), state));
    let mut sorted = expected.to_vec();
    sorted.sort();
    assert_eq!(ids, sorted, "an ended one only of a current engine");
    let keys: Vec<ScopeKey> = ledger.scopes().map(|(key, _)| key.clone()).collect();
    let t_1 = ScopeKey::tenant(&TenantName::new("t_1").unwrap(), &PoolName::new("rp_1").unwrap());
    let expected = [ScopeKey::user("bob"), ScopeKey::creator("IDE"), t_1, tenant("t_a"), tenant("t_b"), pool()];
    assert_eq!(keys, expected, "a user only if one of its requests is queued");
    let stored = bench.store.whole_ledger().await.unwrap();
    assert!(ledger.scopes().all(|(key, scope)| stored.scope(key) == Some(scope)));
    // What a snapshot has of it is the same after the wire.
    let read: model::ledger::Ledger = serde_json::from_str(&serde_json::to_string(&ledger).unwrap()).unwrap();
    assert_eq!(read, ledger);

    // A renewal with a reason condemns what ran before.
    bench.made(&slot.engine()).await;
    let renewal = |observed, condemn| Renewal {
        slot: slot.key.clone(),
        observed,
        failures: 0,
        replacement: Replacement::StandIn,
        condemn,
        ends: None,
    };
    let next = bench.store.new_incarnation(EPOCH, &renewal(slot.incarnation, None)).await.unwrap();
    let old = async || bench.store.engine(&slot.engine()).await.unwrap().unwrap().record;
    assert_eq!(old().await.end_reason, None, "it stands in");
    bench.store.new_incarnation(EPOCH, &renewal(next, Some("reclaimed".to_owned()))).await.unwrap();
    assert_eq!((old().await.end_reason.as_deref(), old().await.end_grace_ms), (Some("reclaimed"), None));
    let current = bench.store.snapshot().await.unwrap();
    let current = current.engines.iter().find(|engine| engine.incarnation > next).unwrap();
    assert_eq!(current.end_reason, None);
}

pub async fn scopes_and_reservations_are_shown(bench: Bench) {
    let bench = founded(bench).await;
    let request = |id: &str, tenant, user| external(id, id, scopes(tenant, Some(user)), one_engine());
    for (id, tenant, user) in [("x1", "t_a", "alice"), ("x2", "t_a", "bob"), ("x3", "t_b", "alice")] {
        bench.store.reserve(&request(id, tenant, user)).await.unwrap().unwrap();
    }
    let confirmed = claim(&request("x1", "t_a", "alice"), "u");
    let confirmation = Confirmation { claim: confirmed, actual: None, lease_ms: Some(LONG_MS) };
    bench.store.confirm(&confirmation).await.unwrap().unwrap();
    bench.store.release(&claim(&request("x3", "t_b", "alice"), "u")).await.unwrap().unwrap();
    bench.store.enqueue(&request("x4", "t_b", "alice"), LONG_MS).await.unwrap().unwrap();
    let of = scopes("t_a", None);
    for incarnation in [1, 2] {
        // Both engines of a lineage: charged once to the tenant, twice to the pool.
        let adopt = Change::Adopt { request: engine("l", incarnation, of.clone(), one_engine()), uid: "u".into() };
        changed(&bench, &of, adopt).await;
    }
    let shown = bench.store.quota_scopes().await.unwrap();
    let scope = |key: &ScopeKey| -> &QuotaScope { shown.iter().find(|scope| scope.key == *key).unwrap() };
    let counted = |key: &ScopeKey| {
        let scope = scope(key);
        (scope.locked().engines, scope.used.engines, scope.waiting)
    };
    assert_eq!(counted(&pool()), (1, 3, 1));
    assert_eq!(counted(&tenant("t_a")), (1, 2, 0));
    assert_eq!(counted(&tenant("t_b")), (0, 0, 1));
    assert_eq!(counted(&ScopeKey::user("alice")), (0, 1, 1));

    let ids = async |filter: ReservationFilter| {
        let found = bench.store.reservations(&ReservationFilter { limit: 100, ..filter }).await.unwrap();
        let mut ids: Vec<String> = found.iter().map(|one| one.id().to_string()).collect();
        ids.sort();
        ids
    };
    let all = ReservationFilter::default();
    assert_eq!(ids(all.clone()).await, ["l-1", "l-2", "x1", "x2", "x4"]);
    assert_eq!(ids(ReservationFilter { all: true, ..all.clone() }).await, ["l-1", "l-2", "x1", "x2", "x3", "x4"]);
    let t_b = TenantName::new("t_b").unwrap();
    assert_eq!(ids(ReservationFilter { tenant: Some(t_b.clone()), ..all.clone() }).await, ["x4"]);
    assert_eq!(ids(ReservationFilter { user: Some("bob".to_owned()), ..all.clone() }).await, ["x2"]);
    let pool = Some(PoolName::new("rp_9").unwrap());
    assert!(ids(ReservationFilter { pool, ..all.clone() }).await.is_empty());
    let seen_by = |tenants| Some(Viewer { user: "bob".to_owned(), tenants });
    assert_eq!(ids(ReservationFilter { seen_by: seen_by(Vec::new()), ..all.clone() }).await, ["x2"]);
    assert_eq!(ids(ReservationFilter { seen_by: seen_by(vec![t_b]), ..all.clone() }).await, ["x2", "x4"]);
    let newest = bench.store.reservations(&ReservationFilter { limit: 1, ..all }).await.unwrap();
    assert_eq!(newest.len(), 1);
}

pub async fn a_full_queue_refuses_requests(bench: Bench) {
    let bench = founded(bench).await;
    let request = |id: &str, tenant| external(id, id, scopes(tenant, None), one_engine());
    bench.store.enqueue(&request("first", "t_a"), LONG_MS).await.unwrap().unwrap();
    let columns = "holder, lineage, tenant, pool, instance, usr, creator, state, asked, asked_cpu, asked_memory, \
                   asked_engines, asked_request_cpu, asked_request_memory, ttl_ms, cpu, memory, engines, request_cpu, \
                   request_memory, epoch, asked_at_ms, deadline_ms";
    let numbers = |name: &str, most: usize| {
        format!("{name}(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM {name} WHERE i < {most})")
    };
    let more = MAX_WAITING_OF_TENANT - 2;
    bench
        .raw(&format!(
            "INSERT INTO reservation (id, request_key, {columns}) WITH RECURSIVE {}, {} \
             SELECT CONCAT('w-', a.i * 100 + b.i), CONCAT('w-', a.i * 100 + b.i), {columns} FROM reservation r \
             CROSS JOIN a CROSS JOIN b WHERE r.id = 'first' AND (a.i - 1) * 50 + b.i <= {more}",
            numbers("a", 20),
            numbers("b", 50),
        ))
        .await;
    bench.store.enqueue(&request("last", "t_a"), LONG_MS).await.unwrap().unwrap();
    let refused = bench.store.enqueue(&request("one more", "t_a"), LONG_MS).await.unwrap().unwrap_err();
    assert_eq!(refused, Refusal::QueueFull { scope: tenant("t_a"), limit: MAX_WAITING_OF_TENANT });
    assert_eq!(refused.error(&request("one more", "t_a"), None).sqlstate(), "54000");
    bench.store.enqueue(&request("last", "t_a"), LONG_MS).await.unwrap().unwrap();
    bench.store.enqueue(&request("other", "t_b"), LONG_MS).await.unwrap().unwrap();
    bench.store.cancel("first").await.unwrap().unwrap();
    bench.store.enqueue(&request("one more", "t_a"), LONG_MS).await.unwrap().unwrap();
}
