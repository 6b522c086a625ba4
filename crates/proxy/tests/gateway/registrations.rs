//! Programs that register the capacity of a pool, over REST and with the client crate.

use std::sync::Arc;
use std::time::Duration;

use model::rights::Role;
use reservation_client::{Client, ClientOptions, Error, Kind, PoolCapacity, RegistrationState, RequestKey, Resource};
use serde_json::{Value, json};

use crate::agents::{column, property, run};
use crate::cluster::Cluster;
use crate::holder_clients::second_proxy;
use crate::holders::{alter, body, holder, id, pool, refusal, reserve, with};
use crate::rest_client::{Reply, Rest};
use crate::rights_matrix::{self, user_of};

const PATH: &str = "/api/v1/pools/rp_1/registration";
const RESERVATIONS: &str = "/api/v1/reservations";

/// The operations, as the document has them.
pub const OPERATIONS: [(&str, &str); 4] = [
    ("GET", "/api/v1/pools/{pool}/registration"),
    ("PUT", "/api/v1/pools/{pool}/registration"),
    ("DELETE", "/api/v1/pools/{pool}/registration"),
    ("POST", "/api/v1/pools/{pool}/registration/renew"),
];

fn capacity(instance: &str, cpu: i64) -> Value {
    json!({"name": "yarn", "instance": instance, "capacity": {"type": "Cpu", "cpu": cpu}})
}

async fn put(user: &Rest, path: &str, body: &Value, key: Option<&str>) -> Reply {
    let headers: Vec<(&str, &str)> = key.map(|key| ("Idempotency-Key", key)).into_iter().collect();
    user.send("PUT", path, &headers, Some(body.to_string())).await
}

async fn delete(user: &Rest, query: &str) -> Reply {
    user.send("DELETE", &format!("{PATH}{query}"), &[], None).await
}

/// A pool whose capacity is registered, without a registration.
async fn unregistered() -> (Cluster, hs2::Session) {
    let (cluster, mut admin) = pool().await;
    alter(&cluster, &mut admin, "ALTER RESOURCE POOL rp_1 CAPACITY REGISTERED").await;
    (cluster, admin)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_registers_replaces_and_unregisters_a_capacity() {
    let (cluster, mut admin) = unregistered().await;
    let (ann, carol) = (Rest::new(&cluster, "ann"), Rest::new(&cluster, "carol"));
    let none = carol.get(PATH).await.expect(200);
    assert_eq!((&none.body["state"], &none.body["capacity"]), (&json!("unregistered"), &Value::Null));
    let closed = json!(46_073);
    let refused = reserve(&ann, &body(1), "k-0").await;
    assert_eq!((refusal(&refused), &refused.body["retryable"]), ((409, "55000", &closed), &json!(true)));
    assert_eq!(refused.body["code"], "POOL_NOT_REGISTERED");
    let registered = put(&carol, PATH, &with(capacity("i-1", 3), "lease", "10m"), Some("r-1")).await.expect(200);
    let expected = json!({"pool": "rp_1", "state": "registered", "name": "yarn", "instance": "i-1", "user": "carol"});
    for (member, value) in expected.as_object().unwrap() {
        assert_eq!(&registered.body[member], value, "{member}: {}", registered.text);
    }
    assert_eq!(registered.body["capacity"], json!({"type": "Cpu", "cpu_m": 3_000}));
    let reserved = reserve(&ann, &body(2), "k-1").await.expect(201);
    let short = reserve(&ann, &body(2), "k-2").await;
    assert_eq!((refusal(&short), &short.body["limit"]), ((409, "53000", &json!(46_011)), &json!(3_000)));
    // The numbers are replaced, and nothing that is charged changes.
    put(&carol, PATH, &capacity("i-1", 4), None).await.expect(200);
    reserve(&ann, &body(2), "k-2").await.expect(201);
    let lower = with(capacity("i-1", 4), "protected", json!({"type": "Cpu", "cpu": 3}));
    put(&carol, PATH, &lower, None).await.expect(200);
    let short = reserve(&ann, &body(1), "k-3").await;
    assert_eq!((&short.body["left"], &short.body["limit"]), (&json!(-3_000), &json!(1_000)), "{}", short.text);
    let described = run(&mut admin, "DESCRIBE RESOURCE POOL rp_1").await;
    assert_eq!(property(&described, "registered by"), "yarn, instance i-1, user carol");
    assert_eq!(property(&described, "registered capacity"), "1 CPU");
    assert!(!property(&described, "registered until").is_empty());
    assert!(!column(&described, "property").contains(&"warning".to_owned()), "{described:?}");
    // A late repeat of the first request replaces nothing.
    let repeated = put(&carol, PATH, &with(capacity("i-1", 3), "lease", "10m"), Some("r-1")).await.expect(200);
    assert_eq!(repeated.body["capacity"], json!({"type": "Cpu", "cpu_m": 4_000}));
    // Without force the reservations stay.
    let ended = delete(&carol, "?instance=i-1").await.expect(200);
    assert_eq!(ended.body["state"], "unregistered");
    assert_eq!(refusal(&reserve(&ann, &body(1), "k-4").await), (409, "55000", &closed));
    let path = format!("{RESERVATIONS}/{}", id(&reserved));
    assert_eq!(ann.get(&path).await.expect(200).body["state"], "locked");
    ann.post(&format!("{path}/confirm"), &holder("i-1")).await.expect(200);
    delete(&carol, "?force=true").await.expect(200);
    assert_eq!(ann.get(&path).await.expect(200).body["state"], "lost");
    let stopped = ann.post(&format!("{path}/renew"), &holder("i-1")).await;
    assert_eq!(refusal(&stopped), (404, "42704", &json!(46_061)), "its holder must stop");
    let audited = Rest::new(&cluster, "admin").get("/api/v1/audit?user=carol").await.expect(200);
    let statements = audited.column("statement");
    assert_eq!(statements.len(), 5, "a row for each change: {statements:?}");
    assert_eq!(statements[0], "UNREGISTER RESOURCE POOL rp_1 FORCE");
    assert_eq!(statements[1], "UNREGISTER RESOURCE POOL rp_1 INSTANCE 'i-1'");
    assert!(
        statements[4].starts_with("REGISTER RESOURCE POOL rp_1 NAME 'yarn' INSTANCE 'i-1' CAPACITY '{"),
        "{statements:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_providers_register_and_one_instance_at_a_time() {
    let (cluster, mut admin) = unregistered().await;
    let carol = Rest::new(&cluster, "carol");
    let nothing = Value::Null;
    for user in ["ann", "eve"] {
        let user = Rest::new(&cluster, user);
        let body = capacity("i-1", 3);
        assert_eq!(refusal(&user.get(PATH).await), (403, "42501", &nothing));
        assert_eq!(refusal(&put(&user, PATH, &body, None).await), (403, "42501", &nothing));
        assert_eq!(refusal(&delete(&user, "?force=true").await), (403, "42501", &nothing));
        let renew = user.post(&format!("{PATH}/renew"), &json!({"instance": "i-1"})).await;
        assert_eq!(refusal(&renew), (403, "42501", &nothing));
        let unknown = put(&user, "/api/v1/pools/rp_9/registration", &body, None).await;
        assert_eq!(refusal(&unknown), (403, "42501", &nothing), "whether a pool exists is not revealed");
    }
    for (sent, expected) in [
        (with(capacity("i-1", 3), "kind", "Queue"), (422, "22023", &json!(46_092))),
        (with(capacity("i-1", 3), "kind", "Disk"), (422, "22023", &json!(46_091))),
        (with(capacity("i-1", 3), "protected", json!({"type": "Cpu", "cpu": 4})), (422, "22023", &nothing)),
        (
            with(capacity("i-1", 3), "capacity", json!({"type": "Special", "amounts": {"gpu": 1}})),
            (422, "0A000", &nothing),
        ),
        (with(capacity("i-1", 3), "lease", "25h"), (422, "22023", &nothing)),
        (with(capacity("i-1", 3), "lease", "0s"), (422, "22023", &nothing)),
        (with(capacity("i-1", 3), "name", ""), (422, "22023", &nothing)),
        (capacity("", 3), (422, "22023", &nothing)),
        (with(capacity("i-1", 3), "color", "red"), (400, "42601", &nothing)),
    ] {
        assert_eq!(refusal(&put(&carol, PATH, &sent, None).await), expected, "{sent}");
    }
    let unknown = put(&carol, "/api/v1/pools/rp_9/registration", &capacity("i-1", 3), None).await;
    assert_eq!(refusal(&unknown), (404, "42704", &json!(46_071)));
    // An admin may as well, and another instance may not until the first has ended.
    put(&Rest::new(&cluster, "admin"), PATH, &capacity("i-1", 3), None).await.expect(200);
    let other = put(&carol, PATH, &capacity("i-2", 9), None).await;
    assert_eq!(refusal(&other), (409, "55000", &nothing));
    assert!(other.text.contains("instance \\\"i-1\\\""), "{}", other.text);
    assert_eq!(refusal(&delete(&carol, "?instance=i-2").await), (409, "55000", &nothing));
    delete(&carol, "").await.expect(200);
    put(&carol, PATH, &with(capacity("i-2", 9), "lease", "10ms"), None).await.expect(200);
    tokio::time::sleep(Duration::from_millis(30)).await;
    let ann = Rest::new(&cluster, "ann");
    assert_eq!(refusal(&reserve(&ann, &body(1), "k-1").await), (409, "55000", &json!(46_073)), "its lease has ended");
    assert_eq!(carol.get(PATH).await.expect(200).body["state"], "expired");
    let late = carol.post(&format!("{PATH}/renew"), &json!({"instance": "i-2"})).await;
    assert_eq!(refusal(&late), (409, "55000", &json!(46_073)));
    let described = run(&mut admin, "DESCRIBE RESOURCE POOL rp_1").await;
    assert!(!property(&described, "lease ended at").is_empty());
    put(&carol, PATH, &capacity("i-3", 3), None).await.expect(200);
    reserve(&ann, &body(1), "k-1").await.expect(201);
    // All of a capacity may be protected: then nothing can ever be granted.
    let all = with(capacity("i-3", 3), "protected", json!({"type": "Cpu", "cpu": 3}));
    put(&carol, PATH, &all, None).await.expect(200);
    let empty = reserve(&ann, &body(1), "k-2").await;
    assert_eq!((refusal(&empty), &empty.body["code"]), ((409, "55000", &json!(46_072)), &json!("EMPTY_POOL")));
    assert_eq!(empty.body["retryable"], false);
    // Another capacity, and back: the registration is gone.
    alter(&cluster, &mut admin, "ALTER RESOURCE POOL rp_1 CAPACITY (CPU 4)").await;
    let declared = put(&carol, PATH, &capacity("i-3", 3), None).await;
    assert_eq!(refusal(&declared), (409, "55000", &nothing));
    assert!(declared.text.contains("CAPACITY REGISTERED"), "{}", declared.text);
    alter(&cluster, &mut admin, "ALTER RESOURCE POOL rp_1 CAPACITY REGISTERED").await;
    assert_eq!(carol.get(PATH).await.expect(200).body["state"], "unregistered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_all_roles_only_an_admin_registers() {
    let lists = rights_matrix::role_lists;
    let cluster = Cluster::with_agents(1, |agent| agent.roles = lists(), |proxy| proxy.roles = lists()).await;
    for role in Role::ALL {
        let user = Rest::new(&cluster, user_of(role));
        for (method, path) in OPERATIONS {
            let body = match method {
                "PUT" => Some(capacity("i-1", 3)),
                "POST" => Some(json!({"instance": "i-1"})),
                _ => None,
            };
            let path = path.replace("{pool}", "rp_9");
            let reply = user.send(method, &path, &[], body.map(|body| body.to_string())).await;
            let expected = if role == Role::Admin { 404 } else { 403 };
            assert_eq!(reply.status, expected, "{role:?} {method} {path}: {}", reply.text);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registration_is_kept_by_the_client_until_it_is_lost() {
    let (cluster, _admin) = unregistered().await;
    let second = second_proxy(&cluster).await;
    let proxies = vec![second.addr().to_string(), cluster.proxy.addr().to_string()];
    let client = Arc::new(Client::new(ClientOptions::new(proxies, "carol", "x")));
    let lease = Duration::from_secs(6);
    let mut offered = PoolCapacity::new("rp_1", "yarn", "i-1", Resource::Cpu { cpu_m: 3_000 });
    (offered.kind, offered.lease) = (Some(Kind::Cpu), Some(lease));
    let key = RequestKey::random();
    let registered = client.register(&offered, &key).await.unwrap();
    assert_eq!((registered.state, registered.kind), (RegistrationState::Registered, Some(Kind::Cpu)));
    second.shutdown().await;
    assert_eq!(client.register(&offered, &key).await.unwrap(), registered, "the same, from another proxy");
    let (sender, mut lost) = tokio::sync::oneshot::channel();
    let _renewal = client.keep_registered("rp_1", "i-1", lease, move |error| {
        let _ = sender.send(error);
    });
    // Past its end, had it not been renewed.
    tokio::time::sleep(lease * 6 / 5).await;
    let renewed = client.registration("rp_1").await.unwrap();
    assert!(
        renewed.state == RegistrationState::Registered && renewed.expires_at > registered.expires_at,
        "{renewed:?}"
    );
    assert!(lost.try_recv().is_err());
    let other = PoolCapacity { instance: "i-2".to_owned(), ..offered.clone() };
    let Err(Error::Refused(problem)) = client.register(&other, &RequestKey::random()).await else { panic!("two") };
    assert_eq!(problem.status, 409);
    // An admin ends it: the renewals register nothing again.
    assert_eq!(client.unregister("rp_1", "i-1", true).await.unwrap().state, RegistrationState::Unregistered);
    let error = tokio::time::timeout(Duration::from_secs(20), lost).await.unwrap().unwrap();
    assert!(error.is_unregistered(), "{error}");
    assert_eq!(client.registration("rp_1").await.unwrap().state, RegistrationState::Unregistered);
}
