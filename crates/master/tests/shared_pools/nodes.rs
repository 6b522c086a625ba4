//! Node fit: an engine starts only if its pods find nodes.

use crate::agents::{column, run, try_run};
use crate::installation::{Database, Installation, ready, start};

on_each_database! {
    an_engine_without_a_node_is_refused_with_nowait_and_queued_without,
}

async fn an_engine_without_a_node_is_refused_with_nowait_and_queued_without(database: Database) {
    let installation = Installation::of_pods(database, &[3, 3]).await;
    let statements = [
        "CREATE RESOURCE UNIT uc_1 DRIVER_CPU 2, DRIVER_MEMORY '1G', MAX_ENGINES 100",
        "CREATE RESOURCE UNIT uc_2 DRIVER_CPU 4, DRIVER_MEMORY '1G', MAX_ENGINES 100",
        "CREATE RESOURCE POOL rp_1 NODE_LIST ('node-1', 'node-2'), UNIT_LIST ('uc_1', 'uc_2')",
        "CREATE TENANT t_a RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('ann')",
    ];
    let mut admin = installation.set_up(&statements).await;
    let mut ann = installation.session("ann").await;
    let row = async |session: &mut hs2::Session, unit: &str| {
        let table = run(session, &format!("EXPLAIN START ENGINE t_a rp_1 {unit}")).await;
        let at = column(&table, "resource").iter().position(|resource| resource == "nodes").unwrap();
        ["scope", "asked", "left", "verdict"].map(|name| column(&table, name).remove(at))
    };
    let scope = "nodes of resource pool \"rp_1\"";
    assert_eq!(row(&mut admin, "uc_1").await, [scope, "1", "1", "fits"]);
    assert_eq!(row(&mut admin, "uc_2").await, [scope, "1", "0", "never"]);
    let first = start(&mut ann, "t_a", 1).await.remove(0);
    // The master has reserved for it.
    ready(&mut ann, "t_a", 1, 0).await;
    run(&mut ann, "START ENGINE t_a rp_1 uc_1 NOWAIT").await;
    let error = try_run(&mut ann, "START ENGINE t_a rp_1 uc_1 NOWAIT").await.unwrap_err();
    assert_eq!((error.sqlstate(), error.error_code()), ("53000", 46_015), "{error}");
    let detail = "Resource pool \"rp_1\": asked nodes for 1 pod, left for 0 (POOL_NODES, retryable).";
    assert_eq!(error.detail.as_deref(), Some(detail));
    ready(&mut ann, "t_a", 2, 0).await;
    assert_eq!(row(&mut admin, "uc_1").await, [scope, "1", "0", "queued"]);
    assert_eq!(row(&mut ann, "uc_1").await, [scope, "1", "NULL", "queued"]);
    let error = try_run(&mut ann, "START ENGINE t_a rp_1 uc_1 NOWAIT").await.unwrap_err();
    assert_eq!(error.error_code(), 46_015, "{error}");

    // What STOP has waited for is free.
    run(&mut ann, &format!("STOP ENGINE rp_1 '{first}' FORCE WAIT")).await;
    run(&mut ann, "START ENGINE t_a rp_1 uc_1 NOWAIT").await;
    ready(&mut ann, "t_a", 2, 0).await;
    run(&mut ann, "START ENGINE t_a rp_1 uc_1").await;
    let reason =
        "queued at position 1: resource pool \"rp_1\": asked nodes for 1 pod, left for 0 (POOL_NODES, retryable)";
    assert_eq!(ready(&mut ann, "t_a", 2, 1).await, [reason]);
}
