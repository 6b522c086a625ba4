//! Memory, disk and threads: a statement that exceeds the unit's limits spills or fails alone.

use crate::fixture::{DEADLINE, Fixture, RunningEngine, one, refusal, state};

#[tokio::test]
async fn an_order_by_over_more_than_the_memory_spills_and_is_right() {
    let fixture = Fixture::new();
    let mut config = fixture.config("e-1");
    config.memory_bytes = 24 << 20;
    let engine = RunningEngine::start(config).await;
    let mut session = engine.session().await;
    // About 90 MB of rows in pseudo-random order.
    let sql = "SELECT value * 7919 % 1000003 AS k, repeat('x', 80) AS pad FROM generate_series(1, 1000002) ORDER BY k";
    let mut statement = session.execute(sql).await.unwrap();
    let (mut next, mut spilled) = (1_i64, 0);
    loop {
        let rows = statement.fetch(10_000).await.unwrap_or_else(|error| panic!("{error}"));
        spilled = spilled.max(engine.engine.resources().runtime.disk_manager.used_disk_space());
        if rows.is_empty() {
            break;
        }
        for row in rows {
            assert_eq!(row[0].as_i64(), Some(next));
            next += 1;
        }
    }
    assert_eq!(next, 1_000_003);
    assert!(spilled > 20 << 20, "{spilled} bytes spilled");
    statement.close().await.unwrap();
    assert_eq!(one(&mut session, "SELECT 1").await, "1");
    let scratch = fixture.root().join("scratch/e-1/spill");
    assert!(scratch.exists());
    engine.stop().await;
}

#[tokio::test]
async fn an_operator_that_cannot_spill_fails_with_53200() {
    let fixture = Fixture::new();
    let mut config = fixture.config("e-1");
    config.memory_bytes = 8 << 20;
    let engine = RunningEngine::start(config).await;
    let mut session = engine.session().await;
    for sql in [
        "SELECT array_agg(value) FROM generate_series(1, 50000000)",
        "CREATE TEMPORARY TABLE t AS SELECT value, repeat('x', 100) FROM generate_series(1, 10000000)",
        "SELECT sum(a.value * b.value) FROM generate_series(1, 3000000) a CROSS JOIN generate_series(1, 3000000) b",
    ] {
        let (state, text) = refusal(&mut session, sql).await;
        assert_eq!(state, "53200", "{sql}: {text}");
        assert!(text.contains("DRIVER_MEMORY"), "{text}");
        assert_eq!(one(&mut session, "SELECT count(*) FROM generate_series(1, 1000)").await, "1000");
    }
    assert_eq!(engine.engine.resources().runtime.memory_pool.reserved(), 0);
    engine.stop().await;
}

#[tokio::test]
async fn a_full_scratch_folder_fails_the_statement_alone() {
    let fixture = Fixture::new();
    let mut config = fixture.config("e-1");
    (config.memory_bytes, config.limits.spill_bytes) = (16 << 20, 1 << 20);
    let engine = RunningEngine::start(config).await;
    let mut session = engine.session().await;
    let sql = "SELECT value, repeat('x', 100) AS pad FROM generate_series(1, 1000000) ORDER BY value DESC";
    assert_eq!(state(&mut session, sql).await, "53100");
    assert_eq!(one(&mut session, "SELECT 1").await, "1");
    engine.stop().await;
}

#[tokio::test]
async fn the_executor_has_the_units_threads_and_does_not_block_the_protocol() {
    let fixture = Fixture::new();
    let mut config = fixture.config("e-1");
    config.cpu_threads = 1;
    let engine = RunningEngine::start(config).await;
    let mut session = engine.session().await;
    assert_eq!(
        one(
            &mut session,
            "SELECT value FROM information_schema.df_settings WHERE name = 'datafusion.execution.target_partitions'"
        )
        .await,
        "1"
    );
    // One thread and two endless statements: the status of both can be read, and both can be cancelled.
    let mut second = engine.session().await;
    let mut busy = session.execute("SELECT count(*) FROM generate_series(1, 100000000000)").await.unwrap();
    let mut also = second.execute("SELECT count(*) FROM generate_series(1, 100000000000)").await.unwrap();
    let asked = std::time::Instant::now();
    busy.poll().await.unwrap();
    also.poll().await.unwrap();
    assert!(asked.elapsed() < DEADLINE, "the protocol waits for the executor");
    busy.cancel().await.unwrap();
    also.cancel().await.unwrap();
    assert_eq!(one(&mut session, "SELECT 1").await, "1");
    engine.stop().await;
}

#[tokio::test]
async fn a_row_above_the_limit_fails_its_statement() {
    let fixture = Fixture::new();
    let mut config = fixture.config("e-1");
    config.limits.row_bytes = 1 << 20;
    let engine = RunningEngine::start(config).await;
    let mut session = engine.session().await;
    assert_eq!(one(&mut session, "SELECT length(repeat('x', 2000000))").await, "2000000");
    assert_eq!(one(&mut session, "SELECT repeat('x', 1048576)").await.len(), 1 << 20);
    let (state, text) = refusal(&mut session, "SELECT repeat('x', 1048577)").await;
    assert_eq!(state, "54000", "{text}");
    assert!(text.contains("Row 1 has 1048577 bytes; the limit is 1048576."), "{text}");
    // Many shorter rows are fetched in several calls.
    let sql = "SELECT repeat('x', 500000) FROM generate_series(1, 40)";
    assert_eq!(crate::fixture::rows(&mut session, sql).await.len(), 40);
    engine.stop().await;
}

#[tokio::test]
async fn a_row_that_is_too_long_is_refused_also_among_short_ones() {
    let fixture = Fixture::new();
    let mut config = fixture.config("e-1");
    config.limits.row_bytes = 9 << 20;
    let engine = RunningEngine::start(config).await;
    let mut session = engine.session().await;
    let sql = |length: usize| {
        format!("SELECT CASE WHEN value = 3 THEN repeat('x', {length}) ELSE 'y' END FROM generate_series(1, 10)")
    };
    let lengths: Vec<_> =
        crate::fixture::rows(&mut session, &sql(9 << 20)).await.iter().map(|row| row[0].len()).collect();
    assert_eq!(lengths, [1, 1, 9 << 20, 1, 1, 1, 1, 1, 1, 1]);
    let (state, text) = refusal(&mut session, &sql((9 << 20) + 1)).await;
    assert_eq!(state, "54000", "{text}");
    assert!(text.contains("Row 3 has 9437185 bytes; the limit is 9437184."), "{text}");
    engine.stop().await;
}

#[tokio::test]
async fn leftovers_in_the_scratch_folder_are_removed() {
    let fixture = Fixture::new();
    let left = fixture.root().join("scratch/e-1/spill/left/behind");
    std::fs::create_dir_all(&left).unwrap();
    let engine = fixture.start("e-1").await;
    assert!(!left.exists());
    engine.stop().await;
    tokio::task::yield_now().await;
}
