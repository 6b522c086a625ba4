//! Tenants with engines of several types, and what SET and `GetInfo` report with and without an engine.

use hs2::tcli::{TGetInfoReq, TGetInfoType, TGetInfoValue};
use hs2::{ClientError, Session};
use proxy::Product;

use crate::agents::{run, try_run};
use crate::cluster::{Cluster, sessions_of};
use crate::fixture::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_of_several_types_need_a_unit_and_a_tenant_may_name_it() {
    let (cluster, mut admin, _engine) = Cluster::with_engine().await;
    let settling = cluster.master.keep_settling();
    run(&mut admin, "CREATE RESOURCE UNIT sp ENGINE_TYPE 'spark'").await;
    run(&mut admin, "ALTER RESOURCE POOL rp_1 UNIT_LIST ('uc_1', 'sp')").await;
    // Not ready, and yet counted: otherwise the type would depend on which engine is ready first.
    run(&mut admin, "START ENGINE t_1 rp_1 sp").await;
    let error = eventually("the new catalog", async || {
        let mut ann = cluster.session("ann").await;
        try_run(&mut ann, "SELECT 1").await.err()
    })
    .await;
    assert_eq!(error.sqlstate(), "55000");
    let text = error.text();
    for part in ["\"sp\" (spark)", "\"uc_1\" (datafusion)", "SET enginehouse.unit=", "DEFAULT_UNIT"] {
        assert!(text.contains(part), "{text}");
    }
    let mut chosen = cluster.try_session("ann", &[("enginehouse.unit", "uc_1")]).await.unwrap();
    run(&mut chosen, "SELECT 1").await;
    run(&mut admin, "ALTER TENANT t_1 DEFAULT_UNIT 'uc_1'").await;
    eventually("the default", async || {
        let mut ann = cluster.session("ann").await;
        try_run(&mut ann, "SELECT 1").await.ok()
    })
    .await;
    let created = run(&mut admin, "SHOW CREATE TENANT t_1").await.rows[0][0].to_string();
    assert!(created.contains("DEFAULT_UNIT 'uc_1'"), "{created}");
    let error = try_run(&mut admin, "ALTER TENANT t_1 DEFAULT_UNIT 'nothing'").await.unwrap_err();
    assert_eq!(error.sqlstate(), "42704");
    run(&mut admin, "ALTER RESOURCE POOL rp_1 UNIT_LIST ('sp')").await;
    let error = try_run(&mut admin, "DROP RESOURCE UNIT uc_1").await.unwrap_err();
    assert_eq!(error.sqlstate(), "2BP01");
    assert!(error.text().contains("DEFAULT_UNIT of tenant \"t_1\""), "{}", error.text());
    drop(settling);
}

/// The demand of `t_1` with what the sessions ask for, and how many they are.
async fn demand(cluster: &Cluster) -> Vec<(String, u64)> {
    let demand = cluster.store.demand().await.unwrap();
    demand.into_iter().map(|it| (it.key.engine_type.unwrap_or_default(), it.waiting)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_chooses_engines_by_type_and_version() {
    let (cluster, mut admin, engine) = Cluster::with_engine().await;
    let settling = cluster.master.keep_settling();
    for sql in [
        "CREATE RESOURCE UNIT sp ENGINE_TYPE 'spark', START_ON_DEMAND TRUE",
        "CREATE RESOURCE POOL rp_2 UNIT_LIST ('sp'), IMAGE 'registry:5000/spark:3.5.1'",
        "ALTER TENANT t_1 RESOURCE_POOL_LIST ('rp_1', 'rp_2'), DEFAULT_UNIT 'uc_1'",
    ] {
        run(&mut admin, sql).await;
    }
    drop(settling);
    let typed = |engine_type: &str| vec![("enginehouse.engine_type".to_owned(), engine_type.to_owned())];
    let open = async |engine_type: &str| {
        let keys = typed(engine_type);
        let keys: Vec<(&str, &str)> = keys.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        cluster.try_session("ann", &keys).await
    };
    let mut fusion = open("DataFusion").await.unwrap();
    run(&mut fusion, "SELECT 1").await;
    assert_eq!(engine.datafusion.load().0, 1);

    // The default unit is of another type and decides nothing; no engine of that type is used.
    let mut spark = open("spark-3.5").await.unwrap();
    let waiting = spark.execute("SELECT 1").await.unwrap();
    let one = [("spark-3.5".to_owned(), 1)];
    eventually("its demand", async || (demand(&cluster).await == one).then_some(())).await;
    // A session that is bound follows its setting.
    run(&mut fusion, "SET enginehouse.engine_type=spark").await;
    let moved = fusion.execute("SELECT 1").await.unwrap();
    let both = [("spark".to_owned(), 1), ("spark-3.5".to_owned(), 1)];
    eventually("the demand of both", async || {
        let mut found = demand(&cluster).await;
        found.sort();
        (found == both).then_some(())
    })
    .await;
    eventually("it has left its engine", async || (engine.datafusion.load().0 == 0).then_some(())).await;
    for mut statement in [waiting, moved] {
        statement.cancel().await.unwrap();
    }
    drop(spark);
    run(&mut fusion, "SET enginehouse.engine_type=''").await;
    run(&mut fusion, "SELECT 1").await;
    let shown = run(&mut fusion, "SET enginehouse.engine_type").await.rows[0][1].to_string();
    assert_eq!(shown, "", "it asks for any type again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_type_or_version_that_no_engine_has_is_refused() {
    let (cluster, mut admin, _engine) = Cluster::with_engine().await;
    let settling = cluster.master.keep_settling();
    run(&mut admin, "CREATE RESOURCE UNIT sp ENGINE_TYPE 'spark', START_ON_DEMAND TRUE").await;
    run(&mut admin, "CREATE RESOURCE POOL rp_2 UNIT_LIST ('sp'), IMAGE 'spark:3.5.1'").await;
    run(&mut admin, "ALTER TENANT t_1 RESOURCE_POOL_LIST ('rp_1', 'rp_2')").await;
    drop(settling);
    for (asked, message) in
        [("presto", "unknown engine type \"presto\""), ("spark-", "invalid version \"\" of engine type spark")]
    {
        let opened = cluster.try_session("ann", &[("enginehouse.engine_type", asked)]).await;
        let Err(ClientError::Refused(error)) = opened else { panic!("{asked} is accepted") };
        assert_eq!((error.sqlstate(), error.message.as_str()), ("22023", message));
        assert!(error.hint.is_some(), "{}", error.text());
    }
    let mut ann = cluster.session("ann").await;
    let error = try_run(&mut ann, "SET enginehouse.engine_type=presto").await.unwrap_err();
    assert_eq!(error.sqlstate(), "22023");
    assert!(error.text().contains("'datafusion', 'spark' and 'hiveserver2'"), "{}", error.text());
    run(&mut ann, "SELECT 1").await;
    for (asked, scope) in [
        ("spark-3.4", "spark-3.4"),
        ("spark-3.51", "spark-3.51"),
        ("datafusion-1", "datafusion-1"),
        ("hiveserver2", "hiveserver2"),
    ] {
        run(&mut ann, &format!("SET enginehouse.engine_type={asked}")).await;
        let error = try_run(&mut ann, "SELECT 1").await.unwrap_err();
        assert_eq!(error.sqlstate(), "55000", "{asked}: {}", error.text());
        assert_eq!(error.message, format!("tenant \"t_1\" has no engine of type {scope}"));
        assert_eq!(error.detail.as_deref(), Some("Its resource units have engines of type datafusion, spark-3.5.1."));
        assert!(error.hint.is_some_and(|hint| hint.contains("enginehouse.engine_type")));
        assert_eq!(demand(&cluster).await, [], "{asked}: nothing is recorded");
    }
    // Pool and unit limit the types that there are.
    run(&mut ann, "SET enginehouse.engine_type=spark").await;
    run(&mut ann, "SET enginehouse.unit=uc_1").await;
    let error = try_run(&mut ann, "SELECT 1").await.unwrap_err();
    assert_eq!(error.message, "tenant \"t_1\" has no engine of type spark of resource unit \"uc_1\"");
    assert_eq!(error.detail.as_deref(), Some("Its resource units have engines of type datafusion."));
}

async fn info(session: &mut Session, info_type: TGetInfoType) -> TGetInfoValue {
    let request = TGetInfoReq { session_handle: session.handle().clone(), info_type };
    session.client().get_info(&request).await.unwrap().info_value
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_product_is_the_configured_one_before_and_after_binding() {
    let product = Product { name: "Spark SQL".to_owned(), version: "3.5.9".to_owned() };
    let cluster = Cluster::with(1, |settings| settings.product = product).await;
    let mut admin = cluster.objects().await;
    let _engine = cluster.engine(&mut admin).await;
    let mut ann = cluster.session("ann").await;
    for _ in 0..2 {
        assert_eq!(
            info(&mut ann, TGetInfoType::CLI_DBMS_NAME).await,
            TGetInfoValue::StringValue("Spark SQL".to_owned())
        );
        assert_eq!(info(&mut ann, TGetInfoType::CLI_DBMS_VER).await, TGetInfoValue::StringValue("3.5.9".to_owned()));
        run(&mut ann, "SELECT 1").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ready_engine_answers_set_and_use_at_once() {
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let mut ann = cluster.session("ann").await;
    let listed = run(&mut ann, "SET -v").await;
    assert!(listed.rows.len() > 10, "{} settings", listed.rows.len());
    assert_eq!(engine.datafusion.load().0, 1);
    let mut bob = cluster.session("bob").await;
    assert_eq!(run(&mut bob, "SET datafusion.execution.batch_size").await.rows[0][1].to_string(), "8192");
    let mut eager = cluster.session("bob").await;
    assert_eq!(try_run(&mut eager, "SET datafusion.no_such_thing=1").await.unwrap_err().sqlstate(), "22023");
    assert!(try_run(&mut eager, "USE nowhere").await.is_err());
    run(&mut eager, "SELECT 1").await;
    let opened = cluster.try_session("bob", &[("use:database", "nowhere")]).await;
    assert!(matches!(opened, Err(ClientError::Refused(error)) if error.text().contains("nowhere")));
    sessions_of(&engine, 3).await;
    let idle = cluster.try_session("bob", &[("use:database", "default")]).await.unwrap();
    assert_eq!(engine.datafusion.load().0, 3, "the default database needs no engine");
    drop(idle);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_engine_a_setting_of_engines_is_unknown_and_none_is_started() {
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await;
    let mut ann = cluster.session("ann").await;
    assert_eq!(
        run(&mut ann, "SET datafusion.execution.batch_size").await.rows[0][1].to_string(),
        "<unknown until the session has an engine>"
    );
    run(&mut ann, "SET datafusion.execution.batch_size=17").await;
    assert_eq!(run(&mut ann, "SET datafusion.execution.batch_size").await.rows[0][1].to_string(), "17");
    assert_eq!(run(&mut ann, "SET").await.rows.len(), 1);
    assert_eq!(run(&mut ann, "SET enginehouse.unit").await.rows[0][1].to_string(), "<undefined>");
}
