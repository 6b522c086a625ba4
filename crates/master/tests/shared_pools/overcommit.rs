//! R4-16: the capacity of a node whose CPU is requested more than once.

use orchestrator::Orchestrator as _;

use crate::agents::{column, property, run, try_run};
use crate::installation::{Database, Installation, holds, ready, start};

on_each_database! {
    a_node_runs_twice_as_many_engines_as_it_has_cores,
}

/// R4-16
async fn a_node_runs_twice_as_many_engines_as_it_has_cores(database: Database) {
    let installation = Installation::of_pods(database, &[22]).await;
    let statements = [
        "CREATE RESOURCE UNIT uc_1 DRIVER_CPU 1, DRIVER_MEMORY '1G', MAX_ENGINES 100",
        "CREATE RESOURCE POOL rp_1 NODE_LIST ('node-1'), UNIT_LIST ('uc_1'), CAPACITY NODES, CPU_OVERCOMMIT 200",
        "CREATE TENANT t_a RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('ann')",
        "ALTER RESOURCE UNIT uc_1 MIN_ENGINES 44",
    ];
    let mut admin = installation.set_up(&statements).await;
    ready(&mut admin, "t_a", 44, 0).await;
    holds(&mut admin, "POOL rp_1", "pool rp_1", "CPU", ["NULL", "22", "0", "22", "0"]).await;
    // Its quota would count what the engines may use.
    holds(&mut admin, "TENANT t_a", "tenant t_a on pool rp_1", "CPU", ["NULL", "unlimited", "0", "44", "unlimited"])
        .await;
    let engine = column(&run(&mut admin, "SHOW ENGINES POOL t_a rp_1").await, "engine").remove(0);
    let reservation = run(&mut admin, &format!("DESCRIBE RESERVATION '{engine}'")).await;
    assert_eq!(property(&reservation, "charge"), "1 CPU, 1280 MiB, 1 engine");
    assert_eq!(property(&reservation, "charge of the pool"), "0.5 CPU, 1280 MiB, 1 engine");

    let node = installation.memory.nodes().await.unwrap().remove(0);
    assert_eq!(node.cpu_used_millis, 44 * 500);

    let error = try_run(&mut admin, "START ENGINE t_a rp_1 uc_1 NOWAIT").await.unwrap_err();
    assert_eq!((error.sqlstate(), error.error_code()), ("53000", 46_011), "{error}");
    let detail = "Resource pool \"rp_1\": asked 0.5, left 0 of 22 (POOL_CPU, retryable).";
    assert_eq!(error.detail.as_deref(), Some(detail));
    let mut ann = installation.session("ann").await;
    start(&mut ann, "t_a", 1).await;
    let queue = "queued at position 1: resource pool \"rp_1\": asked 0.5, left 0 of 22 (POOL_CPU, retryable)";
    assert_eq!(ready(&mut admin, "t_a", 44, 1).await, [queue]);
    installation.ticks().await;
    assert_eq!(ready(&mut admin, "t_a", 44, 1).await, [queue]);
}
