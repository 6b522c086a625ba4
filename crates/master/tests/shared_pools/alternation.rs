//! Tenants without quotas take turns.

use crate::agents::{column, run};
use crate::installation::{Database, Installation, queued, ready, start};
use crate::programs::Program;

on_each_database! {
    tenants_without_quotas_alternate_engine_by_engine,
}

async fn tenants_without_quotas_alternate_engine_by_engine(database: Database) {
    let installation = Installation::of_processes(database).await;
    let statements = [
        "CREATE RESOURCE UNIT uc_1 DRIVER_CPU 1, DRIVER_MEMORY '1G', MAX_ENGINES 100",
        "CREATE RESOURCE POOL rp_1 UNIT_LIST ('uc_1'), CAPACITY (CPU 12)",
        "CREATE TENANT t_a RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('ann')",
        "CREATE TENANT t_b RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('bob')",
        "CREATE TENANT t_c RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('carol')",
    ];
    let mut admin = installation.set_up(&statements).await;
    installation.ticks().await;
    // A program has all of it, so that what is started now waits.
    let program = Program::of(&installation, "carol", "t_c");
    let claims = [program.reserve(4_000).await, program.reserve(4_000).await, program.reserve(4_000).await];
    let (mut ann, mut bob) = (installation.session("ann").await, installation.session("bob").await);
    start(&mut ann, "t_a", 12).await;
    start(&mut bob, "t_b", 8).await;
    queued(&mut admin, 20).await;
    ready(&mut ann, "t_a", 0, 12).await;
    ready(&mut bob, "t_b", 0, 8).await;
    let shown = run(&mut admin, "SHOW RESERVATIONS POOL rp_1").await;
    let mut turns: Vec<(u64, String)> = column(&shown, "position")
        .into_iter()
        .zip(column(&shown, "tenant"))
        .filter_map(|(position, tenant)| Some((position.parse().ok()?, tenant)))
        .collect();
    turns.sort();
    assert_eq!(turns.iter().map(|(position, _)| *position).collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());

    // All of A's requests are older than B's, and whatever is returned, both receive the same.
    for (claim, each) in claims.iter().zip([2, 4, 6]) {
        program.release(claim).await;
        ready(&mut ann, "t_a", each, 12 - each).await;
        ready(&mut bob, "t_b", each, 8 - each).await;
        queued(&mut admin, 20 - 2 * each).await;
    }
}
