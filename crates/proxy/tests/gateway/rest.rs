//! REST: resources, statements, problems and idempotency keys.

use std::time::Duration;

use serde_json::{Value, json};

use crate::agents::run;
use crate::cluster::Cluster;
use crate::rest_client::{Rest, read};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_is_started_described_restarted_and_stopped() {
    let cluster = Cluster::new().await;
    cluster.objects().await;
    let ann = Rest::new(&cluster, "ann");
    let started = ann.post("/api/v1/engines", &json!({"tenant": "t_1", "pool": "rp_1", "unit": "uc_1"})).await;
    let started = started.expect(202);
    assert_eq!(started.column("state"), ["starting"]);
    assert_eq!(started.header("cache-control"), Some("no-store"));
    let engine = started.column("engine").remove(0);
    let path = started.header("location").unwrap().to_owned();
    assert_eq!(path, format!("/api/v1/engines/rp_1/{engine}"));
    let described = ann.get(&path).await.expect(200);
    assert!(described.rows().contains(&json!({"property": "engine", "value": engine})), "{described:?}");
    let shown = ann.get("/api/v1/engines?tenant=t_1&pool=rp_1&unit=uc_1").await.expect(200);
    assert_eq!(shown.column("engine"), [engine.as_str()]);
    let row = &shown.rows()[0];
    assert_eq!((&row["current"], &row["sessions"], &row["address"]), (&json!(true), &Value::Null, &Value::Null));
    assert_eq!(shown.body["warnings"], json!([]));
    let restarted = ann.post(&format!("{path}/restart"), &json!({"within": "10m"})).await.expect(202);
    assert_eq!(restarted.column("state"), ["restarting"]);
    let new = restarted.header("location").unwrap().to_owned();
    assert_ne!(new, path);
    // A body whose members are all optional may be missing.
    let stopped = ann.send("POST", &format!("{new}/stop"), &[], None).await.expect(202);
    assert_eq!(stopped.column("state"), ["stopping"]);
    let admin = Rest::new(&cluster, "admin");
    let audited = admin.get("/api/v1/audit?user=ann&since=1h").await.expect(200);
    let statements = audited.column("statement");
    assert_eq!(statements.len(), 3, "{statements:?}");
    assert!(statements[0].starts_with("STOP ENGINE rp_1 '") && statements[1].ends_with(" WITHIN '10m'"));
    assert_eq!(statements[2], "START ENGINE t_1 rp_1 uc_1");
    assert_eq!(audited.column("proxy"), vec![cluster.proxy.addr().to_string(); 3]);
    assert_eq!(audited.column("client"), ["127.0.0.1"; 3]);
    assert_eq!(audited.column("request")[2], started.header("enginehouse-request").unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_stale_have_a_warning() {
    let cluster = Cluster::with_agents(1, |agent| agent.tick_interval = Duration::from_millis(1), |_| {}).await;
    cluster.objects().await;
    let admin = Rest::new(&cluster, "admin");
    for path in ["/api/v1/master", "/api/v1/engines?tenant=t_1", "/api/v1/alterations"] {
        let shown = admin.get(path).await.expect(200);
        let warnings = shown.body["warnings"].as_array().unwrap();
        assert!(warnings.len() == 1 && !warnings[0].as_str().unwrap().starts_with("warning"), "{path}: {shown:?}");
    }
    assert_eq!(admin.get("/api/v1/tenants").await.expect(200).body["warnings"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_control_statement_runs_as_text_and_no_other_sql() {
    let cluster = Cluster::new().await;
    cluster.objects().await;
    let admin = Rest::new(&cluster, "admin");
    {
        let _settling = cluster.master.keep_settling();
        let altered = admin.run("alter tenant t_1 comment 'it''s -- \"x\"' ;").await.expect(200);
        assert_eq!(altered.rows()[0]["object"], "tenant \"t_1\"");
    }
    let defined = admin.get("/api/v1/tenants/t_1/definition").await.expect(200);
    assert!(defined.column("statement")[0].contains("COMMENT 'it''s -- \"x\"'"), "{defined:?}");
    let explained = admin.run("EXPLAIN DROP TENANT t_1").await.expect(200);
    assert_eq!(explained.body["next"], Value::Null);
    assert_eq!(admin.run("SHOW RESOURCE UNITS").await.expect(200).rows()[0]["max_engines"], json!(10));
    for (statement, status, sqlstate) in [
        ("SELECT 1", 422, "0A000"),
        ("SET a=b", 422, "0A000"),
        ("", 422, "0A000"),
        ("START ENGINE t_1", 400, "42601"),
        ("SHOW TENANTS; SHOW TENANTS", 400, "42601"),
        ("DROP TENANT t_9", 404, "42704"),
        ("CREATE TENANT t_1", 409, "42710"),
        ("DROP RESOURCE UNIT uc_1", 409, "2BP01"),
        ("START ENGINE t_1 rp_1 uc_1 WAIT '11m'", 422, "22023"),
    ] {
        let refused = admin.run(statement).await;
        assert_eq!((refused.status, refused.sqlstate()), (status, sqlstate), "{statement}: {}", refused.text);
        assert!(refused.header("enginehouse-request").is_some());
    }
    let near = admin.run("SHOW ENGINS t_1").await;
    assert!(near.body["hint"].as_str().unwrap().contains("SHOW ENGINES"), "{near:?}");
    let long = admin.run(&format!("CREATE TENANT t_2 COMMENT '{}'", "x".repeat(300_000))).await;
    assert_eq!((long.status, long.sqlstate()), (422, "54000"), "it would not fit later");
    assert_eq!(cluster.store.snapshot().await.unwrap().slots.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_key_returns_the_first_outcome_to_its_user_only() {
    let cluster = Cluster::new().await;
    let mut session = cluster.objects().await;
    let (ann, bob) = (Rest::new(&cluster, "ann"), Rest::new(&cluster, "bob"));
    let body = json!({"tenant": "t_1", "pool": "rp_1", "unit": "uc_1"});
    let first = ann.post_as("/api/v1/engines", &body, Some("deploy-1")).await.expect(202);
    let again = ann.post_as("/api/v1/engines", &body, Some("deploy-1")).await.expect(202);
    assert_eq!(first.text, again.text);
    assert_eq!(first.header("enginehouse-request"), again.header("enginehouse-request"));
    // The same statement as text is the same statement.
    let text = json!({"statement": "start engine T_1 rp_1 uc_1"});
    let third = ann.post_as("/api/v1/statements", &text, Some("deploy-1")).await.expect(200);
    assert_eq!(third.rows(), first.rows());
    assert_eq!(cluster.store.snapshot().await.unwrap().slots.len(), 1);
    let other = bob.post_as("/api/v1/engines", &body, Some("deploy-1")).await.expect(202);
    assert_ne!(other.column("engine"), first.column("engine"));
    let stop = format!("{}/stop", first.header("location").unwrap());
    let reused = ann.post_as(&stop, &json!({}), Some("deploy-1")).await;
    assert_eq!((reused.status, reused.sqlstate()), (422, "22023"), "{}", reused.text);
    assert_eq!(cluster.store.snapshot().await.unwrap().slots.len(), 2, "nothing was stopped");
    // An alteration under the key of a request, and the other way round.
    let admin = Rest::new(&cluster, "admin");
    let _settling = cluster.master.keep_settling();
    let statement = |text: &str| json!({ "statement": text });
    let create = statement("CREATE TENANT t_2");
    let created = admin.post_as("/api/v1/statements", &create, Some("k")).await.expect(200);
    let repeated = admin.post_as("/api/v1/statements", &create, Some("k")).await.expect(200);
    assert_eq!(created.rows()[0]["alteration"], repeated.rows()[0]["alteration"]);
    let shown = run(&mut session, "SHOW ALTERATIONS LIMIT 1").await;
    assert_eq!(created.header("enginehouse-request").unwrap(), shown.get(0, "id").unwrap().to_string());
    for other in ["DROP TENANT t_2", "START ENGINE t_1 rp_1 uc_1"] {
        let reused = admin.post_as("/api/v1/statements", &statement(other), Some("k")).await;
        assert_eq!((reused.status, reused.sqlstate()), (422, "22023"), "{other}: {}", reused.text);
    }
    assert_eq!(cluster.store.snapshot().await.unwrap().slots.len(), 2);
    for key in ["", "a b", &"k".repeat(256)] {
        let refused = admin.post_as("/api/v1/statements", &create, Some(key)).await;
        assert_eq!((refused.status, refused.sqlstate()), (400, "42601"), "{key:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_not_understood_is_a_problem() {
    let cluster = Cluster::new().await;
    cluster.objects().await;
    let admin = Rest::new(&cluster, "admin");
    for (path, status, sqlstate) in [
        ("/api", 404, "42704"),
        ("/api/v1", 404, "42704"),
        ("/api/v2/tenants", 404, "42704"),
        ("/api/v1/tenants/", 404, "42704"),
        ("/api/v1/tenants?limit=0", 422, "22023"),
        ("/api/v1/tenants?limit=1001", 422, "22023"),
        ("/api/v1/tenants?limit=many", 400, "42601"),
        ("/api/v1/tenants?cursor=x", 422, "22023"),
        ("/api/v1/tenants?liek=a", 400, "42601"),
        ("/api/v1/tenants?doAs=admin", 400, "42601"),
        ("/api/v1/tenants?doAs=ann", 401, "28000"),
        ("/api/v1/tenants?limit=1&limit=2", 400, "42601"),
        ("/api/v1/master?limit=1", 400, "42601"),
        ("/api/v1/openapi.json?x=1", 400, "42601"),
        ("/api/v1/engines", 400, "42601"),
        ("/api/v1/engines?tenant=t_1&unit=uc_1", 422, "22023"),
        ("/api/v1/engines?tenant=T%201", 400, "42602"),
        ("/api/v1/tenants/T%201", 400, "42602"),
        ("/api/v1/tenants/%ff", 400, "42602"),
        ("/api/v1/tenants/t_9", 404, "42704"),
        ("/api/v1/engines/rp_1/nothing", 404, "42704"),
        ("/api/v1/audit?user=ann&tenant=t_1", 422, "22023"),
        ("/api/v1/audit?since=yesterday", 422, "22023"),
    ] {
        let refused = admin.get(path).await;
        assert_eq!(refused.status, status, "{path}");
        assert_eq!((refused.status, refused.sqlstate()), (status, sqlstate), "{path}: {}", refused.text);
    }
    for (method, path, allow) in [
        ("DELETE", "/api/v1/tenants", "GET,HEAD"),
        ("PUT", "/api/v1/engines", "GET,HEAD,POST"),
        ("GET", "/api/v1/statements", "POST"),
    ] {
        let refused = admin.send(method, path, &[], None).await;
        assert_eq!((refused.status, refused.sqlstate()), (405, "0A000"), "{method} {path}");
        let mut allowed: Vec<&str> = refused.header("allow").unwrap().split(',').map(str::trim).collect();
        allowed.sort_unstable();
        assert_eq!(allowed.join(","), allow);
    }
    let post = async |path: &str, body: &str| admin.send("POST", path, &[], Some(body.to_owned())).await;
    for (path, body, status, sqlstate) in [
        ("/api/v1/statements", "{", 400, "42601"),
        ("/api/v1/statements", "", 400, "42601"),
        ("/api/v1/statements", r#"["SHOW TENANTS"]"#, 400, "42601"),
        ("/api/v1/statements", r#"{"statement": 1}"#, 400, "42601"),
        ("/api/v1/statements", r#"{"statement": "SHOW TENANTS", "x": 1}"#, 400, "42601"),
        ("/api/v1/statements", r#"{"statement": "SHOW TENANTS"} {}"#, 400, "42601"),
        ("/api/v1/statements?x=1", r#"{"statement": "SHOW TENANTS"}"#, 400, "42601"),
        ("/api/v1/engines", r#"{"tenant": "t_1", "pool": "rp_1"}"#, 400, "42601"),
        ("/api/v1/engines", r#"{"tenant": "t_1'", "pool": "rp_1", "unit": "uc_1"}"#, 400, "42602"),
        ("/api/v1/engines/rp_1/e/stop", r#"{"within": "1m", "force": true}"#, 422, "22023"),
        ("/api/v1/engines/rp_1/e/stop", r#"{"within": "soon"}"#, 422, "22023"),
        ("/api/v1/engines/rp_1/e/stop", r#"{"in_place": true}"#, 400, "42601"),
        ("/api/v1/engines/rp_1/e/restart", r#"{"within": "1m", "force": true}"#, 422, "22023"),
        ("/api/v1/engines/rp_1/e/restart", r#"{"in_place": true, "force": true}"#, 422, "22023"),
        ("/api/v1/engines/rp_1/e/restart", r#"{"in_place": 1}"#, 400, "42601"),
        ("/api/v1/engines/rp_1/e/stop", r#"{"wait": "11m"}"#, 422, "22023"),
    ] {
        let refused = post(path, body).await;
        assert_eq!((refused.status, refused.sqlstate()), (status, sqlstate), "{path} {body}: {}", refused.text);
    }
    let text = [("Content-Type", "text/plain")];
    let body = Some(r#"{"statement": "SHOW TENANTS"}"#.to_owned());
    assert_eq!(admin.send("POST", "/api/v1/statements", &text, body).await.status, 415);
    let anonymous = {
        use tokio::io::AsyncWriteExt as _;
        let mut stream = tokio::net::TcpStream::connect(cluster.proxy.addr()).await.unwrap();
        let request = b"GET /api/v1/no/such/path HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        crate::fixture::within("the response", read(stream)).await
    };
    assert_eq!(anonymous.status, 401, "nothing is revealed before the login: {anonymous:?}");
}
