//! REST: the pages of lists, and the document, which promises the columns that rows have.

use std::collections::BTreeSet;

use model::demand::DemandKey;
use model::demand_report::{DemandReport, WaitingSessions};
use model::end::{EndClass, EndWord};
use model::engine_name::EngineName;
use model::name::TenantName;
use model::observation::{EndedEngine, EngineFacts};
use serde_json::{Value, json};

use crate::agents::{self, run};
use crate::cluster::Cluster;
use crate::holder_rights::{self, Requests, claim};
use crate::rest_client::{Reply, Rest};

/// Sessions of tenant `t_1` that wait, as a proxy records them: a number for each creator and engine type.
async fn wait(cluster: &Cluster, sessions: &[(&str, &str, u64)]) {
    let of = |creator: &str, engine_type: &str| DemandKey {
        tenant: TenantName::new("t_1").unwrap(),
        pool: None,
        unit: None,
        engine_type: Some(engine_type.to_owned()),
        creator: creator.to_owned(),
        user: None,
        group: None,
        session: None,
    };
    let demand = sessions.iter().map(|(creator, engine_type, sessions)| WaitingSessions {
        key: of(creator, engine_type),
        sessions: *sessions,
        waited_ms: 0,
    });
    let report = DemandReport { proxy: "p-1".to_owned(), seq: 1, lease_ms: 600_000, demand: demand.collect() };
    cluster.store.record_demand(&report).await.unwrap();
}

/// All pages of a list.
async fn pages(user: &Rest, path: &str) -> Vec<Reply> {
    let mut pages = vec![user.get(path).await.expect(200)];
    while let Some(next) = pages[pages.len() - 1].body["next"].as_str() {
        let page = user.get(&format!("{path}&cursor={next}")).await.expect(200);
        pages.push(page);
    }
    pages
}

fn column(pages: &[Reply], name: &str) -> Vec<String> {
    pages.iter().flat_map(|page| page.column(name)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_have_every_row_once() {
    let cluster = Cluster::new().await;
    let mut session = cluster.objects().await;
    let admin = Rest::new(&cluster, "admin");
    {
        let _settling = cluster.master.keep_settling();
        for number in [5, 3, 4, 2] {
            run(&mut session, &format!("CREATE TENANT t_{number}")).await;
        }
        cluster.settled().await;
    }
    for _ in 0..5 {
        run(&mut session, "START ENGINE t_1 rp_1 uc_1").await;
    }
    let tenants = pages(&admin, "/api/v1/tenants?limit=2").await;
    assert_eq!(column(&tenants, "tenant"), ["t_1", "t_2", "t_3", "t_4", "t_5"]);
    assert_eq!(tenants.iter().map(|page| page.rows().len()).collect::<Vec<_>>(), [2, 2, 1]);
    assert_eq!(column(&pages(&admin, "/api/v1/tenants?like=T%5C_3&limit=2").await, "tenant"), ["t_3"]);
    let engines = column(&pages(&admin, "/api/v1/engines?tenant=t_1&limit=2").await, "engine");
    assert_eq!(engines.len(), 5);
    assert_eq!(engines.iter().collect::<BTreeSet<_>>().len(), 5);
    wait(&cluster, &[("etl", "spark", 30), ("IDE", "datafusion", 2), ("etl", "datafusion", 1)]).await;
    let demand = pages(&admin, "/api/v1/demand?tenant=t_1&limit=2").await;
    assert_eq!(column(&demand, "creator"), ["IDE", "etl", "etl"]);
    assert_eq!(
        column(&demand, "engine_type"),
        ["datafusion", "datafusion", "spark"],
        "rows may differ by the type alone"
    );
    assert_eq!(demand.iter().map(|page| page.rows().len()).collect::<Vec<_>>(), [2, 1]);
    let waiting: Vec<&Value> = demand.iter().flat_map(Reply::rows).map(|row| &row["waiting"]).collect();
    assert_eq!(waiting, [2, 1, 30]);
    assert!(admin.get("/api/v1/demand?tenant=t_2").await.expect(200).rows().is_empty());
    for (path, key, count) in [("/api/v1/alterations?limit=3", "id", 7), ("/api/v1/audit?limit=5", "request", 12)] {
        let listed = pages(&admin, path).await;
        let keys = column(&listed, key);
        assert_eq!(keys.len(), count, "{path}");
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), count, "{path}");
        let all = admin.get(path.split('?').next().unwrap()).await.expect(200);
        assert_eq!(all.column(key), keys, "{path}: in the same order");
        assert_eq!(all.body["next"], Value::Null);
    }
    // A row that comes between two pages shifts none.
    let first = admin.get("/api/v1/alterations?limit=2").await.expect(200);
    {
        let _settling = cluster.master.keep_settling();
        run(&mut session, "ALTER TENANT t_5 COMMENT 'new'").await;
    }
    let next = first.body["next"].as_str().unwrap();
    let second = admin.get(&format!("/api/v1/alterations?limit=2&cursor={next}")).await.expect(200);
    let both: BTreeSet<String> = first.column("id").into_iter().chain(second.column("id")).collect();
    assert_eq!(both.len(), 4);
    let other = admin.get(&format!("/api/v1/audit?cursor={next}")).await;
    assert_eq!((other.status, other.sqlstate()), (422, "22023"));
}

/// The operations of the document as method, path and what it says about them.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            operations.push((method.to_uppercase(), path.clone(), operation.clone()));
        }
    }
    operations
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_have_the_columns_and_types_of_the_document() {
    let cluster = Cluster::new().await;
    let mut session = cluster.objects().await;
    let gone = agents::column(&run(&mut session, "START ENGINE t_1 rp_1 uc_1").await, "engine").remove(0);
    run(&mut session, &format!("STOP ENGINE rp_1 '{gone}'")).await;
    let (name, class) = (EngineName::new(gone).unwrap(), Some(EndClass::of(EndWord::Stopped)));
    let ended = vec![EndedEngine { name, reason: "drained".to_owned(), class, log_tail: None }];
    cluster.master.record(EngineFacts { ended, ..EngineFacts::default() }).await;
    let mut engine = agents::column(&run(&mut session, "START ENGINE t_1 rp_1 uc_1").await, "engine").remove(0);
    cluster.master.seen(agents::ready(&engine, "127.0.0.1:1")).await;
    {
        let _settling = cluster.master.keep_settling();
        run(&mut session, "CREATE RESOURCE QUOTA q_1 TENANT t_1, POOL rp_1").await;
    }
    let admin = Rest::new(&cluster, "admin");
    let document = admin.get("/api/v1/openapi.json").await.expect(200);
    assert_eq!(document.header("content-type"), Some("application/json"));
    assert_eq!(document.body["openapi"], "3.1.0");
    wait(&cluster, &[("IDE", "datafusion", 3)]).await;
    holder_rights::count(&cluster, &["rp_1"]).await;
    let mut requests = Requests::new(&admin);
    let mut compared = 0;
    for (method, path, operation) in operations(&document.body) {
        let names =
            [("{tenant}", "t_1"), ("{pool}", "rp_1"), ("{unit}", "uc_1"), ("{quota}", "q_1"), ("{engine}", &engine)];
        let mut called = names.iter().fold(path.clone(), |path, (name, value)| path.replace(name, value));
        let reply = match (method.as_str(), path.as_str()) {
            (_, "/api/v1/openapi.json" | "/api/v1/statements") => continue,
            (method, path) if path.starts_with("/api/v1/reservations") => {
                let id = requests.used(1, "ann").await;
                let called = path.replace("{reservation}", &id);
                match (method, path.ends_with("/reservations")) {
                    ("POST", true) => requests.send(&admin, 1, None).await,
                    ("POST", false) => admin.post(&called, &claim(1, Some("ann"))).await,
                    _ => admin.send(method, &called, &[], None).await,
                }
            }
            // No statements, so they have no columns: see `registrations`.
            (_, path) if path.contains("/registration") => continue,
            ("GET", "/api/v1/engines" | "/api/v1/engines/history") => {
                called.push_str("?tenant=t_1");
                admin.get(&called).await
            }
            ("GET", _) => admin.get(&called).await,
            ("POST", "/api/v1/engines") => {
                admin.post(&called, &json!({"tenant": "t_1", "pool": "rp_1", "unit": "uc_1"})).await
            }
            ("POST", _) => {
                let reply = admin.post(&called, &json!({})).await;
                // The operations after this one name the engine that replaces it.
                engine = reply.column("engine").remove(0);
                reply
            }
            _ => panic!("{method} {path}"),
        };
        let documented = &operation["responses"][reply.status.to_string()]["content"]["application/json"]["schema"];
        // A reservation is the whole answer.
        let (described, rows) = match reply.body.get("rows") {
            Some(_) => (&documented["properties"]["rows"]["items"], reply.rows().clone()),
            None => (documented, vec![reply.body.clone()]),
        };
        let properties = described["properties"].as_object();
        let properties = properties.unwrap_or_else(|| panic!("{method} {path}: {} is not described", reply.status));
        assert!(!rows.is_empty(), "{method} {path}");
        for row in &rows {
            let row = row.as_object().unwrap();
            let (has, should): (BTreeSet<_>, BTreeSet<_>) = (row.keys().collect(), properties.keys().collect());
            assert_eq!(has, should, "{method} {path}");
            for (name, value) in row {
                let of = match value {
                    Value::Null => "null",
                    Value::Bool(_) => "boolean",
                    Value::Number(_) => "integer",
                    Value::Object(_) => "object",
                    _ => "string",
                };
                let types = properties[name]["type"].as_array().unwrap();
                assert!(types.contains(&json!(of)), "{method} {path}: {name} is {of}");
            }
        }
        compared += 1;
    }
    assert!(compared >= 29, "{compared}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_are_listed_by_one_subject() {
    let cluster = Cluster::new().await;
    let mut session = cluster.objects().await;
    {
        let _settling = cluster.master.keep_settling();
        for statement in [
            "CREATE RESOURCE QUOTA q_1 TENANT t_1, POOL rp_1, GUARANTEE (CPU 18)",
            "CREATE RESOURCE QUOTA q_2 USER DEFAULT, LIMIT (ENGINES 3)",
            "CREATE RESOURCE QUOTA q_3 CREATOR 'IDE', LIMIT (MEMORY '1G')",
        ] {
            run(&mut session, statement).await;
        }
    }
    let admin = Rest::new(&cluster, "admin");
    for (query, listed) in [
        // By scope: all other users, creators, tenants.
        ("", &["q_2", "q_3", "q_1"][..]),
        ("?like=q%252&limit=1", &["q_2"]),
        ("?tenant=t_1", &["q_1"]),
        ("?pool=rp_1", &["q_1"]),
        ("?user=alice", &["q_2"]),
        ("?creator=IDE&like=x", &[]),
    ] {
        let reply = admin.get(&format!("/api/v1/quotas{query}")).await.expect(200);
        assert_eq!(reply.column("quota"), listed, "{query}: {}", reply.text);
    }
    let first = admin.get("/api/v1/quotas?limit=2").await.expect(200);
    assert_eq!(
        (first.column("quota"), &first.rows()[0]["limit"]),
        (vec!["q_2".to_owned(), "q_3".to_owned()], &json!("3"))
    );
    let next = first.body["next"].as_str().unwrap();
    let second = admin.get(&format!("/api/v1/quotas?limit=2&cursor={next}")).await.expect(200);
    assert_eq!((second.column("quota"), &second.body["next"]), (vec!["q_1".to_owned()], &Value::Null));
    for (query, sqlstate) in [("?tenant=t_1&user=alice", "22023"), ("?tenant=t_9", "42704"), ("?pool=RP", "42602")] {
        let reply = admin.get(&format!("/api/v1/quotas{query}")).await;
        assert_eq!((reply.sqlstate(), reply.status >= 400), (sqlstate, true), "{query}: {}", reply.text);
    }
}
