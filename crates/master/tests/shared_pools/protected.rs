//! R0-15: a part of the nodes that stays free.

use crate::agents::{run, try_run};
use crate::installation::{Database, Installation, holds, ready, start, start_of};
use crate::programs::Program;

on_each_database! {
    what_is_protected_of_the_nodes_is_not_granted,
}

/// R0-15
async fn what_is_protected_of_the_nodes_is_not_granted(database: Database) {
    let installation = Installation::of_pods(database, &[8, 8, 8]).await;
    let statements = [
        "CREATE RESOURCE UNIT uc_1 DRIVER_CPU 4, DRIVER_MEMORY '1G', MAX_ENGINES 100",
        "CREATE RESOURCE UNIT uc_2 DRIVER_CPU 2.1, DRIVER_MEMORY '1G', MAX_ENGINES 100",
        "CREATE RESOURCE UNIT uc_3 DRIVER_CPU 2, DRIVER_MEMORY '1G', MAX_ENGINES 100",
        "CREATE RESOURCE POOL rp_1 NODE_LIST ('node-1', 'node-2', 'node-3'), UNIT_LIST ('uc_1', 'uc_2', 'uc_3'), \
         CAPACITY NODES, PROTECTED (CPU 2)",
        "CREATE TENANT t_a RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('ann')",
    ];
    let mut admin = installation.set_up(&statements).await;
    let mut ann = installation.session("ann").await;
    start(&mut ann, "t_a", 5).await;
    ready(&mut ann, "t_a", 5, 0).await;
    let pool = "pool rp_1";
    holds(&mut admin, "POOL rp_1", pool, "CPU", ["NULL", "22", "0", "20", "2"]).await;

    // 1.9 CPU would be left.
    let error = try_run(&mut ann, "START ENGINE t_a rp_1 uc_2 NOWAIT").await.unwrap_err();
    assert_eq!((error.sqlstate(), error.error_code()), ("53000", 46_011), "{error}");
    let detail = "Resource pool \"rp_1\": asked 2.1, left 2 of 22 (POOL_CPU, retryable).";
    assert_eq!(error.detail.as_deref(), Some(detail));
    let program = Program::of(&installation, "ann", "t_a");
    let (sqlstate, error) = program.is_refused(2_100).await;
    assert_eq!((sqlstate.as_str(), error.code.as_str(), error.retryable), ("53000", "POOL_CPU", true));
    let shortage = error.shortage.unwrap();
    assert_eq!((shortage.asked, shortage.left, shortage.limit), (2_100, 2_000, 22_000));

    // Exactly 2 CPU are left.
    let claim = program.reserve(2_000).await;
    holds(&mut admin, "POOL rp_1", pool, "CPU", ["NULL", "22", "2", "20", "0"]).await;
    program.release(&claim).await;
    let queued = start_of(&mut ann, "t_a", "uc_2", 1).await.remove(0);
    let reason = "queued at position 1: resource pool \"rp_1\": asked 2.1, left 2 of 22 (POOL_CPU, retryable)";
    assert_eq!(ready(&mut ann, "t_a", 5, 1).await, [reason]);
    // A smaller engine passes it.
    start_of(&mut ann, "t_a", "uc_3", 1).await;
    ready(&mut ann, "t_a", 6, 1).await;
    holds(&mut admin, "POOL rp_1", pool, "CPU", ["NULL", "22", "0", "22", "0"]).await;
    run(&mut ann, &format!("STOP ENGINE rp_1 '{queued}'")).await;
    ready(&mut ann, "t_a", 6, 0).await;
}
