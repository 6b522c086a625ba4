//! R4-14: guarantees that partition a pool.

use hs2::Session;
use reservation_client::LedgerError;

use crate::agents::{column, property, run, try_run};
use crate::installation::{Database, Installation, holds, queued, ready, start};
use crate::programs::Program;

on_each_database! {
    a_tenant_has_its_guarantee_although_the_pool_has_more,
    a_raised_guarantee_starts_the_queued_engine_and_a_lowered_one_ends_none,
}

const SHORT: &str = "tenant \"t_a\" on resource pool \"rp_1\": asked 1, left 0 of 18 (TENANT_CPU, retryable)";

/// 42 CPU for tenants `t_a` of ann, `t_b` of bob and `t_c` of carol, with guarantees of 18, 12 and 12.
async fn partitioned(installation: &Installation) -> Session {
    let statements = [
        "CREATE RESOURCE UNIT uc_1 DRIVER_CPU 1, DRIVER_MEMORY '1G', MAX_ENGINES 100",
        "CREATE RESOURCE POOL rp_1 UNIT_LIST ('uc_1'), CAPACITY (CPU 42)",
        "CREATE TENANT t_a RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('ann')",
        "CREATE TENANT t_b RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('bob')",
        "CREATE TENANT t_c RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('carol')",
        "CREATE RESOURCE QUOTA q_a TENANT t_a, POOL rp_1, GUARANTEE (CPU 18)",
        "CREATE RESOURCE QUOTA q_b TENANT t_b, POOL rp_1, GUARANTEE (CPU 12)",
        "CREATE RESOURCE QUOTA q_c TENANT t_c, POOL rp_1, GUARANTEE (CPU 12)",
    ];
    installation.set_up(&statements).await
}

/// R4-14
async fn a_tenant_has_its_guarantee_although_the_pool_has_more(database: Database) {
    let installation = Installation::of_processes(database).await;
    let mut admin = partitioned(&installation).await;
    let mut ann = installation.session("ann").await;
    start(&mut ann, "t_a", 18).await;
    ready(&mut ann, "t_a", 18, 0).await;
    let tenant = "tenant t_a on pool rp_1";
    holds(&mut ann, "TENANT t_a", tenant, "CPU", ["18", "18", "0", "18", "0"]).await;
    holds(&mut admin, "POOL rp_1", "pool rp_1", "CPU", ["NULL", "42", "0", "18", "24"]).await;

    // What does not wait is refused, with its numbers.
    let error = try_run(&mut ann, "START ENGINE t_a rp_1 uc_1 NOWAIT").await.unwrap_err();
    assert_eq!((error.sqlstate(), error.error_code()), ("53000", 46_021), "{error}");
    let detail = "Tenant \"t_a\" on resource pool \"rp_1\": asked 1, left 0 of 18 (TENANT_CPU, retryable).";
    assert_eq!(error.detail.as_deref(), Some(detail));
    assert!(error.hint.as_ref().unwrap().contains("ALTER RESOURCE QUOTA q_a GUARANTEE (CPU 19)"), "{error}");
    let (sqlstate, error) = Program::of(&installation, "ann", "t_a").is_refused(1_000).await;
    assert_eq!(sqlstate, "53000");
    let LedgerError { error_code, code, retryable, shortage } = error;
    assert_eq!((error_code, code.as_str(), retryable), (46_021, "TENANT_CPU", true));
    let shortage = shortage.unwrap();
    assert_eq!((&*shortage.scope.name, shortage.asked), ("t_a/rp_1", 1_000));
    assert_eq!((shortage.left, shortage.limit), (0, 18_000));

    // The 19th engine waits, and says for what.
    let answer = run(&mut ann, "START ENGINE t_a rp_1 uc_1").await;
    assert_eq!(column(&answer, "state"), ["queued"]);
    let queue = format!("queued at position 1: {SHORT}");
    assert_eq!(ready(&mut ann, "t_a", 18, 1).await, std::slice::from_ref(&queue));
    queued(&mut admin, 1).await;
    let engine = column(&answer, "engine").remove(0);
    let described = run(&mut ann, &format!("DESCRIBE ENGINE rp_1 '{engine}'")).await;
    assert_eq!((property(&described, "reservation"), property(&described, "position")), ("queued".into(), "1".into()));
    let shown = run(&mut ann, "SHOW RESERVATIONS TENANT t_a").await;
    let at = column(&shown, "state").iter().position(|state| state == "queued").unwrap();
    assert_eq!(column(&shown, "id")[at], engine);
    assert_eq!((&*column(&shown, "position")[at], &column(&shown, "reason")[at]), ("1", &queue));

    // It blocks none of the others, which have exactly the rest.
    let mut bob = installation.session("bob").await;
    start(&mut bob, "t_b", 13).await;
    let reasons = ready(&mut bob, "t_b", 12, 1).await;
    assert!(reasons[0].ends_with("asked 1, left 0 of 12 (TENANT_CPU, retryable)"), "{reasons:?}");
    assert_eq!(ready(&mut ann, "t_a", 18, 1).await, [queue]);
    let mut carol = installation.session("carol").await;
    start(&mut carol, "t_c", 13).await;
    ready(&mut carol, "t_c", 12, 1).await;
    for tenant in ["t_b", "t_c"] {
        let (filter, scope) = (format!("TENANT {tenant}"), format!("tenant {tenant} on pool rp_1"));
        holds(&mut admin, &filter, &scope, "CPU", ["12", "12", "0", "12", "0"]).await;
    }
    holds(&mut admin, "POOL rp_1", "pool rp_1", "CPU", ["NULL", "42", "0", "42", "0"]).await;
    queued(&mut admin, 3).await;
    // Now the pool has no more either, which is reported first.
    let reasons = ready(&mut ann, "t_a", 18, 1).await;
    assert!(reasons[0].ends_with("asked 1, left 0 of 42 (POOL_CPU, retryable)"), "{reasons:?}");
}

async fn a_raised_guarantee_starts_the_queued_engine_and_a_lowered_one_ends_none(database: Database) {
    let installation = Installation::of_processes(database).await;
    let mut admin = partitioned(&installation).await;
    let mut ann = installation.session("ann").await;
    start(&mut ann, "t_a", 19).await;
    ready(&mut ann, "t_a", 18, 1).await;
    run(&mut admin, "ALTER RESOURCE QUOTA q_a GUARANTEE (CPU 19)").await;
    ready(&mut ann, "t_a", 19, 0).await;
    queued(&mut admin, 0).await;

    let (tenant, pool) = ("tenant t_a on pool rp_1", "pool rp_1");
    holds(&mut ann, "TENANT t_a", tenant, "CPU", ["19", "19", "0", "19", "0"]).await;
    let engines = column(&run(&mut ann, "SHOW ENGINES POOL t_a rp_1").await, "engine");
    run(&mut admin, "ALTER RESOURCE QUOTA q_a GUARANTEE (CPU 5)").await;
    run(&mut admin, "ALTER RESOURCE POOL rp_1 CAPACITY (CPU 10)").await;
    holds(&mut ann, "TENANT t_a", tenant, "CPU", ["5", "5", "0", "19", "-14"]).await;
    holds(&mut admin, "POOL rp_1", pool, "CPU", ["NULL", "10", "0", "19", "-9"]).await;
    installation.ticks().await;
    ready(&mut ann, "t_a", 19, 0).await;
    assert_eq!(column(&run(&mut ann, "SHOW ENGINES POOL t_a rp_1").await, "engine"), engines);
    // Nothing more is granted, not even to a tenant that holds nothing of its guarantee.
    for tenant in ["t_a", "t_b"] {
        let error = try_run(&mut admin, &format!("START ENGINE {tenant} rp_1 uc_1 NOWAIT")).await.unwrap_err();
        assert_eq!((error.sqlstate(), error.error_code()), ("53000", 46_011), "{error}");
        let detail = "Resource pool \"rp_1\": asked 1, left -9 of 10 (POOL_CPU, retryable).";
        assert_eq!(error.detail.as_deref(), Some(detail));
    }
}
