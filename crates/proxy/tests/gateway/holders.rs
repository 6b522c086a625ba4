//! Programs that hold reservations, over REST.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hs2::Session;
use model::name::PoolName;
use serde_json::{Value, json};

use crate::agents::{column, run};
use crate::cluster::Cluster;
use crate::rest_client::{Reply, Rest};

const PATH: &str = "/api/v1/reservations";

/// A pool of 4 CPU for tenant `t_1` of ann and bob, all of whose engines are counted.
pub async fn pool() -> (Cluster, Session) {
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    alter(&cluster, &mut admin, "ALTER RESOURCE POOL rp_1 CAPACITY (CPU 4)").await;
    count(&cluster, 0).await;
    (cluster, admin)
}

pub async fn alter(cluster: &Cluster, admin: &mut Session, statement: &str) {
    let settling = cluster.master.keep_settling();
    run(admin, statement).await;
    cluster.settled().await;
    drop(settling);
}

/// What a master records after a round of admission.
pub async fn count(cluster: &Cluster, queued: i64) {
    let of_pool = BTreeMap::from([(PoolName::new("rp_1").unwrap(), queued)]);
    cluster.store.admitted(cluster.master.epoch, &of_pool).await.unwrap();
}

pub fn body(cpu: i64) -> Value {
    json!({
        "tenant": "t_1", "pool": "rp_1", "instance": "i-1", "creator": "launcher",
        "resource": {"type": "Load", "memory": "1G", "cpu": cpu}
    })
}

pub fn with(mut body: Value, member: &str, value: impl Into<Value>) -> Value {
    body[member] = value.into();
    body
}

pub fn holder(instance: &str) -> Value {
    json!({"pool": "rp_1", "instance": instance})
}

pub async fn reserve(user: &Rest, body: &Value, key: &str) -> Reply {
    user.post_as(PATH, body, Some(key)).await
}

pub fn id(reply: &Reply) -> String {
    reply.body["id"].as_str().unwrap_or_else(|| panic!("no id: {}", reply.text)).to_owned()
}

pub fn refusal(reply: &Reply) -> (u16, &str, &Value) {
    (reply.status, reply.sqlstate(), &reply.body["errorCode"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reservation_is_requested_confirmed_renewed_and_released() {
    let (cluster, _admin) = pool().await;
    let ann = Rest::new(&cluster, "ann");
    let reserved = reserve(&ann, &body(3), "k-1").await.expect(201);
    let path = reserved.header("location").unwrap().to_owned();
    assert_eq!(path, format!("{PATH}/{}", id(&reserved)));
    assert_eq!((&reserved.body["state"], &reserved.body["user"]), (&json!("locked"), &json!("ann")));
    assert_eq!((&reserved.body["cpu_m"], &reserved.body["memory"]), (&json!(3_000), &json!(1 << 30)));
    assert!(reserved.body["expires_at"].is_string());
    // A repeat is charged once and returns the same reservation.
    assert_eq!(reserve(&ann, &body(3), "k-1").await.expect(201).body, reserved.body);
    let held = &cluster.store.whole_ledger().await.unwrap();
    let pools: Vec<i64> = held
        .scopes()
        .filter(|(key, _)| key.kind == model::ledger::ScopeKind::Pool)
        .map(|(_, scope)| scope.counter.held.cpu_m)
        .collect();
    assert_eq!(pools, [3_000]);
    let used = ann.post(&format!("{path}/confirm"), &with(holder("i-1"), "lease", "10m")).await.expect(200);
    assert_eq!((&used.body["state"], &used.body["instance"]), (&json!("used"), &json!("i-1")));
    assert_eq!(ann.post(&format!("{path}/confirm"), &holder("i-1")).await.expect(200).body, used.body, "a repeat");
    let renewed = ann.post(&format!("{path}/renew"), &with(holder("i-1"), "lease", "20m")).await.expect(200);
    assert!(renewed.body["expires_at"].as_str() > used.body["expires_at"].as_str());
    assert_eq!(ann.get(&path).await.expect(200).body, renewed.body);
    assert_eq!(ann.get(PATH).await.expect(200).rows().as_slice(), std::slice::from_ref(&renewed.body));
    let released = ann.post(&format!("{path}/release"), &holder("i-1")).await.expect(200);
    assert_eq!((&released.body["state"], &released.body["expires_at"]), (&json!("released"), &Value::Null));
    assert_eq!(ann.post(&format!("{path}/release"), &holder("i-1")).await.expect(200).body, released.body);
    assert_eq!(reserve(&ann, &body(3), "k-1").await.expect(200).body["state"], "released");
    assert!(ann.get(PATH).await.expect(200).rows().is_empty());
    assert_eq!(ann.get(&format!("{PATH}?state=all")).await.expect(200).column("state"), ["released"]);
    let audited = Rest::new(&cluster, "admin").get("/api/v1/audit?user=ann").await.expect(200);
    let statements = audited.column("statement");
    assert_eq!(statements.len(), 3, "repeats and renewals are not audited: {statements:?}");
    assert!(statements[0].starts_with("RELEASE RESERVATION '"), "{statements:?}");
    assert!(statements[1].ends_with("USER 'ann' INSTANCE 'i-1' LEASE '10m'"), "{statements:?}");
    assert!(statements[2].starts_with("RESERVE TENANT t_1 POOL rp_1 USER 'ann' CREATOR 'launcher'"), "{statements:?}");
    assert_eq!(audited.column("outcome"), ["committed"; 3]);
    assert_eq!(audited.column("proxy"), vec![cluster.proxy.addr().to_string(); 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_is_answered_although_the_tenant_has_left_the_pool() {
    let (cluster, mut admin) = pool().await;
    let ann = Rest::new(&cluster, "ann");
    let reserved = reserve(&ann, &body(3), "k-1").await.expect(201);
    alter(&cluster, &mut admin, "CREATE RESOURCE POOL rp_other UNIT_LIST ('uc_1')").await;
    alter(&cluster, &mut admin, "ALTER TENANT t_1 RESOURCE_POOL_LIST ('rp_other')").await;
    assert_eq!(reserve(&ann, &body(3), "k-1").await.expect(201).body, reserved.body);
    // Another request under the key, and a new one, are refused.
    for (cpu, key) in [(2, "k-1"), (3, "k-2")] {
        let refused = reserve(&ann, &body(cpu), key).await;
        assert_eq!((refused.status, refused.sqlstate()), (409, "55000"), "{}", refused.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shortage_names_its_numbers_and_whether_it_is_retryable() {
    let (cluster, _admin) = pool().await;
    let ann = Rest::new(&cluster, "ann");
    reserve(&ann, &body(3), "k-1").await.expect(201);
    let short = reserve(&ann, &body(2), "k-2").await;
    assert_eq!(refusal(&short), (409, "53000", &json!(46_011)));
    let expected = json!({
        "errorCode": 46_011, "code": "POOL_CPU", "retryable": true, "scope": {"kind": "pool", "name": "rp_1"},
        "component": "cpu", "asked": 2_000, "left": 1_000, "limit": 4_000
    });
    for (member, value) in expected.as_object().unwrap() {
        assert_eq!(&short.body[member], value, "{member}: {}", short.text);
    }
    let never = reserve(&ann, &body(5), "k-3").await;
    assert_eq!((refusal(&never), &never.body["retryable"]), ((409, "53400", &json!(46_011)), &json!(false)));
    let never = reserve(&ann, &with(body(5), "wait", "1m"), "k-4").await;
    assert_eq!(refusal(&never), (409, "53400", &json!(46_011)), "it would wait for ever");
    // A refusal is not remembered under its key.
    reserve(&ann, &body(1), "k-2").await.expect(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_requests_receive_the_specified_error() {
    let (cluster, mut admin) = pool().await;
    alter(&cluster, &mut admin, "CREATE RESOURCE POOL rp_2").await;
    let ann = Rest::new(&cluster, "ann");
    let nothing = Value::Null;
    let resource = |resource: Value| with(body(1), "resource", resource);
    for (sent, expected) in [
        (resource(json!({"type": "Disk", "disk": 1})), (422, "22023", &json!(46_091))),
        (resource(json!({"type": "Load", "memory": 1, "cpu_m": -1})), (422, "22023", &nothing)),
        (resource(json!({"type": "Memory", "memory": "9007199254740993G"})), (422, "22023", &nothing)),
        (resource(json!({"type": "Cpu", "cpu_m": 18_446_744_073_709_551_615_u64})), (422, "22023", &nothing)),
        (resource(json!({"type": "Special", "amounts": {"gpu": 1}})), (422, "0A000", &nothing)),
        (with(body(1), "ttl", "25h"), (422, "22023", &nothing)),
        (with(body(1), "wait", "0s"), (422, "22023", &nothing)),
        (with(body(1), "instance", ""), (422, "22023", &nothing)),
        (with(body(1), "user", "bob"), (403, "42501", &nothing)),
        (with(body(1), "tenant", "t_9"), (403, "42501", &nothing)),
        (with(body(1), "pool", "rp_2"), (409, "55000", &nothing)),
        (with(body(1), "color", "red"), (400, "42601", &nothing)),
    ] {
        assert_eq!(refusal(&reserve(&ann, &sent, "k-bad").await), expected, "{sent}");
    }
    let queue = json!({"tenant": "t_1", "queue": "root.x", "instance": "i", "resource": {"type": "Cpu", "cpu": 1}});
    assert_eq!(refusal(&reserve(&ann, &queue, "k-bad").await), (404, "42704", &nothing));
    assert_eq!(refusal(&ann.post(PATH, &body(1)).await), (400, "42601", &nothing), "no key");
    reserve(&ann, &body(1), "k-1").await.expect(201);
    assert_eq!(refusal(&reserve(&ann, &body(2), "k-1").await), (422, "22023", &nothing), "another request");
    // A provider may reserve for others, and an admin.
    for (user, key) in [("carol", "c-1"), ("admin", "a-1")] {
        let of_bob = with(body(1), "user", "bob");
        let user = Rest::new(&cluster, user);
        let reserved = reserve(&user, &of_bob, key).await;
        // Carol is not of the tenant.
        if key == "c-1" {
            assert_eq!(refusal(&reserved), (403, "42501", &nothing));
        } else {
            assert_eq!(reserved.expect(201).body["user"], "bob");
        }
    }
    let audit = Rest::new(&cluster, "admin").get("/api/v1/audit?user=ann&limit=1000").await.expect(200);
    assert!(audit.column("outcome").contains(&"refused".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_holder_and_its_instance_may_use_a_reservation() {
    let (cluster, mut admin) = pool().await;
    let (ann, bob) = (Rest::new(&cluster, "ann"), Rest::new(&cluster, "bob"));
    let unknown = json!(46_061);
    let path = format!("{PATH}/{}", id(&reserve(&ann, &body(1), "k-1").await.expect(201)));
    let confirm = format!("{path}/confirm");
    assert_eq!(refusal(&bob.post(&confirm, &holder("i-1")).await), (404, "42704", &unknown), "another user's");
    let of_ann = with(holder("i-1"), "user", "ann");
    assert_eq!(refusal(&bob.post(&confirm, &of_ann).await), (403, "42501", &Value::Null));
    let elsewhere = json!({"pool": "rp_2", "instance": "i-1"});
    assert_eq!(refusal(&ann.post(&confirm, &elsewhere).await), (404, "42704", &unknown));
    assert_eq!(refusal(&ann.post(&format!("{path}/renew"), &holder("i-1")).await), (404, "42704", &unknown));
    ann.post(&confirm, &holder("i-1")).await.expect(200);
    for action in ["confirm", "renew", "release"] {
        let other = ann.post(&format!("{path}/{action}"), &holder("i-2")).await;
        assert_eq!(refusal(&other), (404, "42704", &unknown), "{action} by another instance");
    }
    // A provider acts for its users.
    Rest::new(&cluster, "carol").post(&format!("{path}/renew"), &of_ann).await.expect(200);
    let late = with(body(1), "ttl", "1ms");
    let late = format!("{PATH}/{}/confirm", id(&reserve(&ann, &late, "k-2").await.expect(201)));
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(refusal(&ann.post(&late, &holder("i-1")).await), (404, "42704", &unknown), "too late");
    let none = format!("{PATH}/no-such-reservation");
    assert_eq!(refusal(&ann.get(&none).await), (404, "42704", &unknown));
    // Users of the tenant see it, and others learn nothing about it.
    bob.get(&path).await.expect(200);
    assert_eq!(refusal(&Rest::new(&cluster, "eve").get(&path).await), (404, "42704", &unknown));
    assert!(Rest::new(&cluster, "eve").get(&format!("{PATH}?tenant=t_1")).await.expect(200).rows().is_empty());
    // Its user and an admin may cancel it, and its holder finds out with its next call.
    assert_eq!(refusal(&bob.send("DELETE", &path, &[], None).await), (403, "42501", &Value::Null));
    let cancelled = ann.send("DELETE", &path, &[], None).await.expect(200);
    assert_eq!((&cancelled.body["state"], &cancelled.body["reason"]), (&json!("cancelled"), &json!("cancelled")));
    assert_eq!(refusal(&ann.post(&format!("{path}/renew"), &holder("i-1")).await), (404, "42704", &unknown));
    // The reservation of an engine is no program's.
    let engine = column(&run(&mut admin, "START ENGINE t_1 rp_1 uc_1 NOWAIT").await, "engine").remove(0);
    let of_engine = format!("{PATH}/{engine}");
    assert_eq!(ann.get(&of_engine).await.expect(200).body["holder"], "engine");
    let admin_as_holder = Rest::new(&cluster, "admin").post(&format!("{of_engine}/release"), &holder("i-1")).await;
    assert_eq!(refusal(&admin_as_holder), (404, "42704", &unknown));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queued_request_is_granted_by_the_master_and_reported_at_once() {
    let (cluster, _admin) = pool().await;
    let ann = Rest::new(&cluster, "ann");
    let first = id(&reserve(&ann, &body(3), "k-1").await.expect(201));
    let queued = reserve(&ann, &with(body(2), "wait", "1m"), "k-2").await.expect(202);
    assert_eq!((&queued.body["state"], &queued.body["position"]), (&json!("waiting"), &json!(1)));
    let reason = queued.body["reason"].as_str().unwrap();
    assert!(reason.contains("asked 2, left 1 of 4 (POOL_CPU, retryable)"), "{reason}");
    assert_eq!(id(&reserve(&ann, &with(body(2), "wait", "1m"), "k-2").await.expect(202)), id(&queued));
    let path = queued.header("location").unwrap().to_owned();
    // A state that differs from the known one is returned at once, and a wait ends.
    ann.get(&format!("{path}?wait=30s&state=locked")).await.expect(200);
    let began = Instant::now();
    assert_eq!(ann.get(&format!("{path}?wait=300ms")).await.expect(200).body["state"], "waiting");
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(refusal(&ann.get(&format!("{path}?wait=31s")).await), (422, "22023", &Value::Null));
    let waiting = tokio::spawn({
        let (ann, path) = (ann.clone(), path.clone());
        async move { ann.get(&format!("{path}?wait=30s")).await }
    });
    ann.post(&format!("{PATH}/{first}/release"), &holder("i-1")).await.expect(200);
    let admit = model::ledger::ScopedChange {
        scopes: cluster.store.reservation(&id(&queued)).await.unwrap().unwrap().request.scopes.clone(),
        change: model::ledger::Change::Admit { id: id(&queued).as_str().into() },
    };
    cluster.store.ledger(cluster.master.epoch, &[admit]).await.unwrap().remove(0).unwrap();
    let granted = waiting.await.unwrap().expect(200);
    assert_eq!((&granted.body["state"], &granted.body["position"]), (&json!("locked"), &Value::Null));
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_master_grants_while_requests_are_queued_or_engines_are_not_counted() {
    let (cluster, _admin) = pool().await;
    let ann = Rest::new(&cluster, "ann");
    count(&cluster, 1).await;
    let queued = reserve(&ann, &body(1), "k-1").await.expect(202);
    let reservation = cluster.store.reservation(&id(&queued)).await.unwrap().unwrap();
    let wait_ms = reservation.deadline_ms.unwrap() - reservation.asked_at_ms;
    assert_eq!(wait_ms, 2_000, "it named no wait");
    count(&cluster, 0).await;
    reserve(&ann, &body(1), "k-2").await.expect(201);
    let read = cluster.store.master().await.unwrap().epoch;
    cluster.store.raise_epoch(read, "another").await.unwrap();
    reserve(&ann, &body(1), "k-3").await.expect(202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_reservations_are_filtered_and_complete() {
    let (cluster, _admin) = pool().await;
    let (ann, bob) = (Rest::new(&cluster, "ann"), Rest::new(&cluster, "bob"));
    for at in 0..3 {
        let user = if at == 0 { &bob } else { &ann };
        reserve(user, &body(1), &format!("k-{at}")).await.expect(201);
    }
    let (mut ids, mut path) = (Vec::new(), format!("{PATH}?limit=2"));
    loop {
        let page = ann.get(&path).await.expect(200);
        ids.extend(page.column("id"));
        match page.body["next"].as_str() {
            Some(next) => path = format!("{PATH}?limit=2&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(ids.len(), 3);
    assert!(ids.is_sorted());
    for (query, count) in [
        ("user=bob", 1),
        ("user=ann&state=locked", 2),
        ("state=used", 0),
        ("tenant=t_1&pool=rp_1", 3),
        ("tenant=t_2", 0),
        ("state=all", 3),
    ] {
        assert_eq!(ann.get(&format!("{PATH}?{query}")).await.expect(200).rows().len(), count, "{query}");
    }
    assert_eq!(refusal(&ann.get(&format!("{PATH}?state=gone")).await), (422, "22023", &Value::Null));
}
