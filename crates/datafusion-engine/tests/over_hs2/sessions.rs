//! Sessions: authentication, isolation, statements sent at connect.

use hs2::{Auth, Client, ClientError, ClientOptions, Session};

use crate::fixture::{DEADLINE, Fixture, one, refusal, rows, run, state};

#[tokio::test]
async fn only_the_credential_opens_a_connection() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    for auth in [Auth::user("alice", "wrong"), Auth::user("alice", ""), Auth::service("engine-agent", "wrong", "alice")]
    {
        let refused = Client::connect(&ClientOptions::new(engine.address(), auth)).await;
        assert!(matches!(refused, Err(ClientError::Unauthenticated(_))), "{:?}", refused.err());
    }
    let client = Client::connect(&ClientOptions::new(engine.address(), Auth::None)).await.unwrap();
    let refused = Session::open_as(client, Some(("alice", "wrong")), &[]).await.err().unwrap();
    assert_eq!(refused.user_error().sqlstate(), "28000");
    assert_eq!(engine.engine.load().sessions, 0);
    engine.stop().await;
}

#[tokio::test]
async fn two_sessions_have_settings_schemas_and_temporary_tables_of_their_own() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let (mut first, mut second) = (engine.session().await, engine.session().await);
    assert_eq!(engine.engine.load().sessions, 2);
    run(&mut first, "SET datafusion.execution.batch_size = 100").await;
    run(&mut first, "SET x.y=don't").await;
    run(&mut first, "CREATE DATABASE sales").await;
    run(&mut first, "USE sales").await;
    run(&mut first, "CREATE TEMPORARY TABLE t AS SELECT 1 AS a UNION ALL SELECT 2").await;
    assert_eq!(rows(&mut first, "SET datafusion.execution.batch_size").await[0][1], "100");
    assert_eq!(rows(&mut second, "SET datafusion.execution.batch_size").await[0][1], "8192");
    assert_eq!(rows(&mut first, "SET x.y").await, [["x.y", "don't"]]);
    assert_eq!(rows(&mut second, "SET x.y").await, [["x.y", "<undefined>"]]);
    assert_eq!(one(&mut first, "SELECT current_database()").await, "sales");
    assert_eq!(one(&mut second, "SELECT current_database()").await, "default");
    assert_eq!(one(&mut first, "SELECT sum(a) FROM t").await, "3");
    assert_eq!(state(&mut second, "SELECT sum(a) FROM t").await, "42P01");
    run(&mut second, "USE sales").await;
    assert_eq!(state(&mut second, "SELECT sum(a) FROM t").await, "42P01");
    run(&mut first, "DROP TABLE t").await;
    assert_eq!(state(&mut first, "SELECT sum(a) FROM t").await, "42P01");
    run(&mut first, "RESET datafusion.execution.batch_size").await;
    assert_eq!(rows(&mut first, "SET datafusion.execution.batch_size").await[0][1], "8192");
    engine.stop().await;
}

#[tokio::test]
async fn shared_settings_cannot_be_set() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    for statement in [
        "SET datafusion.runtime.memory_limit = '100G'",
        "set datafusion.runtime.temp_directory='/tmp'",
        "SET DATAFUSION.RUNTIME.MEMORY_LIMIT TO '1G'",
        "RESET datafusion.runtime.memory_limit",
        "SET datafusion.catalog.default_catalog = other",
    ] {
        assert_eq!(state(&mut session, statement).await, "42501", "{statement}");
    }
    assert_eq!(state(&mut session, "SET datafusion.execution.batch_size = 1000000000").await, "22023");
    assert_eq!(state(&mut session, "SET datafusion.no.such = 1").await, "22023");
    engine.stop().await;
}

#[tokio::test]
async fn statements_sent_at_connect_are_answered() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine
        .session_with(&[
            ("use:database", "default"),
            ("set:hiveconf:hive.server2.long.polling.timeout", "100ms"),
            ("set:hivevar:a", "1"),
            ("some.bare.key", "x"),
        ])
        .await
        .unwrap();
    assert!(session.configuration().contains_key("hive.server2.thrift.resultset.default.fetch.size"));
    assert_eq!(rows(&mut session, "SET hivevar:a").await[0][1], "1");
    // SET does not list the proxy's own setting among the client's.
    let listed = |rows: Vec<Vec<String>>| rows.into_iter().map(|row| row[0].clone()).collect::<Vec<_>>();
    assert_eq!(listed(rows(&mut session, "SET").await), ["a", "some.bare.key"]);
    assert!(listed(rows(&mut session, "SET -v").await).iter().any(|key| key == "hive.server2.long.polling.timeout"));
    assert_eq!(one(&mut session, "SELECT 1").await, "1");
    run(&mut session, "USE `default`").await;
    run(&mut session, "USE default;").await;
    assert_eq!(rows(&mut session, "SHOW DATABASES").await, [["default"]]);
    assert!(rows(&mut session, "SHOW TABLES").await.is_empty());
    assert!(rows(&mut session, "SHOW TABLES IN default").await.is_empty());
    assert_eq!(one(&mut session, "SELECT current_user").await, "alice");
    assert_eq!(one(&mut session, "select current_catalog").await, "datafusion");
    assert!(one(&mut session, "SELECT version()").await.contains("DataFusion"));
    assert!(rows(&mut session, "SET -v").await.len() > 50);
    assert!(rows(&mut session, "SHOW FUNCTIONS LIKE 'sub*'").await.len() > 1);
    assert!(!rows(&mut session, "SHOW ALL").await.is_empty());
    assert_eq!(rows(&mut session, "SELECT `a`, `a` + 1 AS \"b\" FROM (SELECT 1 AS a) x").await, [["1", "2"]]);
    let (state, text) = refusal(&mut session, "USE nowhere").await;
    assert_eq!((state.as_str(), text.lines().next().unwrap()), ("3F000", "schema \"nowhere\" does not exist"));
    for (key, expected) in [("use:database", "3F000"), ("set:env:PATH", "42501"), ("set:system:user.dir", "42501")] {
        let refused = engine.session_with(&[(key, "nowhere")]).await.err().unwrap();
        assert_eq!(refused.user_error().sqlstate(), expected, "{key}");
    }
    assert_eq!(engine.engine.load().sessions, 1);
    engine.stop().await;
}

#[tokio::test]
async fn a_session_ends_with_its_connection_and_takes_its_statements_along() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    session.execute("SELECT count(*) FROM generate_series(1, 100000000000)").await.unwrap();
    assert_eq!(engine.engine.load().running_statements, 1);
    drop(session);
    let ended = async {
        while engine.engine.load().running_statements > 0 || engine.engine.load().sessions > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, ended).await.unwrap();
    engine.stop().await;
}

#[tokio::test]
async fn sessions_and_operations_are_limited() {
    let fixture = Fixture::new();
    let mut config = fixture.config("e-1");
    (config.limits.sessions, config.limits.operations_per_session) = (2, 3);
    let engine = crate::fixture::RunningEngine::start(config).await;
    let (mut first, _second) = (engine.session().await, engine.session().await);
    let refused = Session::open(engine.client().await, &[]).await.err().unwrap();
    assert_eq!(refused.user_error().sqlstate(), "53300");
    for _ in 0..3 {
        first.execute("SELECT 1").await.unwrap().wait(DEADLINE).await.unwrap();
    }
    let refused = first.execute("SELECT 1").await.err().unwrap();
    assert_eq!(refused.user_error().sqlstate(), "54000");
    first.close().await.unwrap();
    let mut third = engine.session().await;
    assert_eq!(one(&mut third, "SELECT 1").await, "1");
    engine.stop().await;
}

#[tokio::test]
async fn unit_properties_are_initial_settings_and_are_checked_at_start() {
    let fixture = Fixture::new();
    let with = |properties: &[(&str, &str)]| {
        let mut config = fixture.config("e-1");
        config.properties = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        config
    };
    let engine = crate::fixture::RunningEngine::start(with(&[
        ("datafusion.execution.batch_size", "1234"),
        ("team", "blue"),
        ("store.password", "hush"),
    ]))
    .await;
    let mut session = engine.session().await;
    let batch_size = "SET datafusion.execution.batch_size";
    assert_eq!(rows(&mut session, batch_size).await[0][1], "1234");
    run(&mut session, "SET datafusion.execution.batch_size = 99").await;
    run(&mut session, "SET team = red").await;
    run(&mut session, "RESET").await;
    assert_eq!(rows(&mut session, "SET team").await[0][1], "blue");
    assert_eq!(rows(&mut session, batch_size).await[0][1], "1234");
    // Also a setting without an initial value.
    for reset in ["RESET", "RESET datafusion.execution.time_zone"] {
        let zone = "SET datafusion.execution.time_zone";
        let first = rows(&mut session, zone).await[0][1].clone();
        run(&mut session, "SET TIME ZONE '+02:00'").await;
        assert_eq!(rows(&mut session, zone).await[0][1], "+02:00");
        run(&mut session, reset).await;
        assert_eq!(rows(&mut session, zone).await[0][1], first, "{reset}");
    }
    assert_eq!(state(&mut session, "RESET datafusion.no.such").await, "22023");
    let mut session = engine.session().await;
    assert_eq!(rows(&mut session, "SET").await, [["store.password", "******"], ["team", "blue"]]);
    engine.stop().await;
    for (key, value) in [
        ("datafusion.no.such", "1"),
        ("datafusion.execution.batch_size", "many"),
        ("datafusion.execution.batch_size", "0"),
        ("datafusion.execution.collect_statistics", "perhaps"),
        ("datafusion.runtime.memory_limit", "100G"),
        ("datafusion.catalog.default_schema", "x"),
    ] {
        let refused = datafusion_engine::Server::bind(with(&[(key, value)])).await.err().unwrap();
        assert!(refused.to_string().contains(&format!("properties.{key}")), "{refused}");
    }
}
