//! The options of units for engines on demand, as an admin sets and reads them.

use std::time::Duration;

use model::on_demand::{IdleTimeout, OnDemandDefaults};

use crate::agents::{column, property, run, try_run};
use crate::bench::{Bench, among_others};

const ROWS: [&str; 4] = ["start on demand", "sessions per engine", "spare engines", "idle timeout"];

/// The values of [`ROWS`].
async fn described(session: &mut hs2::Session, unit: &str) -> [String; 4] {
    let table = run(session, &format!("DESCRIBE RESOURCE UNIT {unit}")).await;
    ROWS.map(|row| property(&table, row))
}

/// The options in SHOW CREATE.
async fn created(session: &mut hs2::Session, unit: &str) -> String {
    column(&run(session, &format!("SHOW CREATE RESOURCE UNIT {unit}")).await, "statement").remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_on_demand_are_described_and_created_again() {
    let _gate = among_others().await;
    let bench = Bench::with(|settings| {
        let idle_timeout = IdleTimeout::After(Duration::from_mins(7));
        settings.rules.defaults.on_demand = OnDemandDefaults { start_on_demand: true, idle_timeout };
    })
    .await;
    let mut admin = bench.objects().await;
    let _settling = bench.master.keep_settling();
    let defaults = ["true, by default", "unlimited", "0", "7m, by default"];
    assert_eq!(described(&mut admin, "uc_1").await, defaults);
    let without = created(&mut admin, "uc_1").await;

    run(
        &mut admin,
        "CREATE RESOURCE UNIT uc_2 START_ON_DEMAND TRUE, SESSIONS_PER_ENGINE 10, SPARE_ENGINES 2, IDLE_TIMEOUT '90s'",
    )
    .await;
    assert_eq!(described(&mut admin, "uc_2").await, ["true", "10", "2", "90s"]);
    let statement = created(&mut admin, "uc_2").await;
    let options = "START_ON_DEMAND TRUE,\n  SESSIONS_PER_ENGINE 10,\n  SPARE_ENGINES 2,\n  IDLE_TIMEOUT '90s'";
    assert!(statement.ends_with(options), "{statement}");
    run(&mut admin, &statement.replace("uc_2", "uc_3")).await;
    assert_eq!(described(&mut admin, "uc_3").await, described(&mut admin, "uc_2").await);

    run(&mut admin, "ALTER RESOURCE UNIT uc_1 START_ON_DEMAND FALSE, IDLE_TIMEOUT NEVER").await;
    assert_eq!(described(&mut admin, "uc_1").await, ["false", "unlimited", "0", "never"]);
    run(&mut admin, "ALTER RESOURCE UNIT uc_1 SESSIONS_PER_ENGINE 1").await;
    assert_eq!(described(&mut admin, "uc_1").await, ["false", "1", "0", "never"], "the others stay");
    run(
        &mut admin,
        "ALTER RESOURCE UNIT uc_1 START_ON_DEMAND DEFAULT, SESSIONS_PER_ENGINE UNLIMITED, IDLE_TIMEOUT DEFAULT",
    )
    .await;
    assert_eq!(described(&mut admin, "uc_1").await, defaults);
    assert_eq!(created(&mut admin, "uc_1").await, without);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_on_demand_replace_no_engine_and_impossible_ones_change_nothing() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let _settling = bench.master.keep_settling();
    run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await;
    let before = bench.store.snapshot().await.unwrap();
    let set = "START_ON_DEMAND TRUE, SESSIONS_PER_ENGINE 5, SPARE_ENGINES 1, IDLE_TIMEOUT '1m'";
    run(&mut admin, &format!("ALTER RESOURCE UNIT uc_1 {set}")).await;
    let after = bench.store.snapshot().await.unwrap();
    assert_eq!(after.slots, before.slots);
    for (options, sqlstate, message) in [
        ("SPARE_ENGINES 3", "22023", "SPARE_ENGINES of resource unit \"uc_1\" is above its MAX_ENGINES"),
        (
            "START_ON_DEMAND FALSE",
            "22023",
            "resource unit \"uc_1\" has SPARE_ENGINES and does not start engines on demand",
        ),
        ("SESSIONS_PER_ENGINE 0", "22023", "SESSIONS_PER_ENGINE of resource unit \"uc_1\" is 0"),
        ("SESSIONS_PER_ENGINE 2001", "54000", "SESSIONS_PER_ENGINE of resource unit \"uc_1\" is too high"),
        ("IDLE_TIMEOUT '0s'", "22023", "IDLE_TIMEOUT: invalid idle timeout \"0s\""),
    ] {
        let error = try_run(&mut admin, &format!("ALTER RESOURCE UNIT uc_1 {options}")).await.unwrap_err();
        assert_eq!((error.sqlstate(), error.message.as_str()), (sqlstate, message));
        assert!(error.detail.is_some(), "{error}");
    }
    assert_eq!(bench.store.snapshot().await.unwrap().catalog, after.catalog);
    // The remedy that the hint names.
    run(&mut admin, "ALTER RESOURCE UNIT uc_1 START_ON_DEMAND FALSE, SPARE_ENGINES 0").await;
    assert_eq!(described(&mut admin, "uc_1").await, ["false", "5", "0", "1m"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sharing_is_described_and_created_again() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let _settling = bench.master.keep_settling();
    let shared_by = async |admin: &mut hs2::Session, unit: &str| {
        property(&run(admin, &format!("DESCRIBE RESOURCE UNIT {unit}")).await, "shared by")
    };
    assert_eq!(shared_by(&mut admin, "uc_1").await, "tenant");
    assert!(!created(&mut admin, "uc_1").await.contains("SHARED_BY"));
    run(&mut admin, "CREATE RESOURCE UNIT uc_2 START_ON_DEMAND TRUE, SHARED_BY 'user'").await;
    assert_eq!(shared_by(&mut admin, "uc_2").await, "user");
    let statement = created(&mut admin, "uc_2").await;
    assert!(statement.ends_with("START_ON_DEMAND TRUE,\n  SHARED_BY 'user'"), "{statement}");
    run(&mut admin, &statement.replace("uc_2", "uc_3")).await;
    assert_eq!(shared_by(&mut admin, "uc_3").await, "user");
    for options in ["MIN_ENGINES 1", "SPARE_ENGINES 1"] {
        let error = try_run(&mut admin, &format!("ALTER RESOURCE UNIT uc_2 {options}")).await.unwrap_err();
        let message = "resource unit \"uc_2\" is shared by user and keeps engines without sessions";
        assert_eq!((error.sqlstate(), error.message.as_str()), ("22023", message));
    }
    // The remedy that the hint names.
    run(&mut admin, "ALTER RESOURCE UNIT uc_2 SHARED_BY 'tenant', SPARE_ENGINES 1").await;
    run(&mut admin, "ALTER RESOURCE UNIT uc_2 SHARED_BY 'session', MIN_ENGINES 0, SPARE_ENGINES 0").await;
    assert_eq!(shared_by(&mut admin, "uc_2").await, "session");
}
