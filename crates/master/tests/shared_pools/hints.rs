//! Hints of refusals: the statement that a hint names can be run as it is, resolves the refusal and changes nothing else.

use hs2::Session;

use crate::agents::{column, run, try_run};
use crate::installation::{Database, Installation};

on_each_database! {
    the_statement_of_a_hint_resolves_the_refusal_and_keeps_the_other_amounts,
    a_pool_with_the_capacity_of_its_nodes_has_no_statement,
}

/// Runs the statement of the hint with which this START is refused; what it was.
async fn resolve(admin: &mut Session, user: &mut Session, start: &str, code: i32) -> String {
    let refused = try_run(user, start).await.unwrap_err();
    assert_eq!(refused.error_code(), code, "{refused}");
    let hint = refused.hint.as_deref().unwrap();
    let statement = &hint[hint.find("ALTER").unwrap_or_else(|| panic!("{hint}"))..];
    let statement = statement.strip_suffix('.').unwrap().to_owned();
    run(admin, &statement).await;
    run(user, start).await;
    statement
}

async fn the_statement_of_a_hint_resolves_the_refusal_and_keeps_the_other_amounts(database: Database) {
    let installation = Installation::of_processes(database).await;
    let statements = [
        "CREATE RESOURCE UNIT uc_1 DRIVER_CPU 1, DRIVER_MEMORY '1G', MAX_ENGINES 100",
        "CREATE RESOURCE UNIT uc_2 DRIVER_CPU 3, DRIVER_MEMORY '1G', MAX_ENGINES 100",
        "CREATE RESOURCE POOL rp_1 UNIT_LIST ('uc_1', 'uc_2'), \
         CAPACITY (CPU '1500m', MEMORY '64G', 'nvidia.com/gpu' 2), PROTECTED (CPU '500m')",
        "CREATE RESOURCE POOL \"pool\" UNIT_LIST ('uc_1'), CAPACITY (CPU 10), CPU_OVERCOMMIT 150",
        "CREATE TENANT t_a RESOURCE_POOL_LIST ('rp_1', 'pool'), USER_LIST ('ann')",
        "CREATE TENANT t_b RESOURCE_POOL_LIST ('rp_1', 'pool'), USER_LIST ('bob')",
    ];
    let mut admin = installation.set_up(&statements).await;
    let mut ann = installation.session("ann").await;
    installation.ticks().await;
    let start = "START ENGINE t_a rp_1 uc_1 NOWAIT";
    run(&mut ann, start).await;

    let resolved = resolve(&mut admin, &mut ann, start, 46_011).await;
    assert_eq!(resolved, "ALTER RESOURCE POOL rp_1 CAPACITY (CPU '2500m', MEMORY '64G', 'nvidia.com/gpu' 2)");
    // One that is larger than the limit itself: what waits for it then fits.
    let resolved = resolve(&mut admin, &mut ann, "START ENGINE t_a rp_1 uc_2", 46_011).await;
    assert_eq!(resolved, "ALTER RESOURCE POOL rp_1 CAPACITY (CPU '5500m', MEMORY '64G', 'nvidia.com/gpu' 2)");
    run(&mut admin, "ALTER RESOURCE POOL rp_1 CAPACITY (CPU 100)").await;
    for engine in column(&run(&mut ann, "SHOW ENGINES POOL t_a rp_1").await, "engine") {
        run(&mut ann, &format!("STOP ENGINE rp_1 '{engine}' FORCE WAIT")).await;
    }

    for statement in [
        "CREATE RESOURCE QUOTA q_a TENANT t_a, POOL rp_1, GUARANTEE (MEMORY '2G', ENGINES 9)",
        "CREATE RESOURCE QUOTA q_user USER 'ann', LIMIT (CPU 8, ENGINES 2, 'nvidia.com/gpu' 1)",
        "CREATE RESOURCE QUOTA \"limit\" CREATOR DEFAULT, LIMIT (CPU '3500m', MEMORY '64G')",
        "CREATE RESOURCE QUOTA q_b TENANT t_b, POOL \"pool\", GUARANTEE (CPU 14), LEND_LIMIT NONE",
    ] {
        run(&mut admin, statement).await;
    }
    run(&mut ann, start).await;
    let resolved = resolve(&mut admin, &mut ann, start, 46_022).await;
    assert_eq!(resolved, "ALTER RESOURCE QUOTA q_a GUARANTEE (MEMORY '2560M', ENGINES 9)");
    run(&mut admin, "ALTER RESOURCE QUOTA q_a GUARANTEE (MEMORY '64G')").await;
    let resolved = resolve(&mut admin, &mut ann, start, 46_043).await;
    assert_eq!(resolved, "ALTER RESOURCE QUOTA q_user LIMIT (CPU 8, ENGINES 3, 'nvidia.com/gpu' 1)");
    run(&mut admin, "ALTER RESOURCE QUOTA q_user LIMIT (CPU 8)").await;
    let resolved = resolve(&mut admin, &mut ann, start, 46_031).await;
    assert_eq!(resolved, "ALTER RESOURCE QUOTA \"limit\" LIMIT (CPU 4, MEMORY '64G')");
    run(&mut admin, "ALTER RESOURCE QUOTA \"limit\" LIMIT (CPU 100)").await;

    // What the guarantees of others leave of a pool is in nominal units, and its capacity in requests.
    let start = "START ENGINE t_a \"pool\" uc_1 NOWAIT";
    run(&mut ann, start).await;
    let resolved = resolve(&mut admin, &mut ann, start, 46_011).await;
    assert_eq!(resolved, "ALTER RESOURCE POOL \"pool\" CAPACITY (CPU '10667m')");
}

async fn a_pool_with_the_capacity_of_its_nodes_has_no_statement(database: Database) {
    let installation = Installation::of_pods(database, &[1]).await;
    let statements = [
        "CREATE RESOURCE UNIT uc_1 DRIVER_CPU 2, DRIVER_MEMORY '1G', MAX_ENGINES 100",
        "CREATE RESOURCE POOL rp_1 NODE_LIST ('node-1'), UNIT_LIST ('uc_1'), CAPACITY NODES",
        "CREATE TENANT t_a RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('ann')",
    ];
    let mut admin = installation.set_up(&statements).await;
    installation.ticks().await;
    let refused = try_run(&mut admin, "START ENGINE t_a rp_1 uc_1").await.unwrap_err();
    assert_eq!(refused.hint.as_deref(), Some("Add a node to resource pool rp_1."), "{refused}");
}
