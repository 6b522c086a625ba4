//! Resource quotas: what an admin reads of them, and what other users see.

use model::instance::InstanceKind;

use crate::agents::{column, property, run, try_run};
use crate::bench::{Bench, among_others};

/// The names in SHOW QUOTAS, each once.
async fn listed(session: &mut hs2::Session, sql: &str) -> Vec<String> {
    let mut names = column(&run(session, sql).await, "quota");
    names.dedup();
    names
}

/// The warnings in the log of a statement.
async fn warnings(session: &mut hs2::Session, sql: &str) -> Vec<String> {
    let mut statement = session.execute(sql).await.unwrap();
    statement.wait(crate::fixture::WAIT).await.unwrap();
    let lines = statement.logs().await.unwrap();
    statement.close().await.unwrap();
    lines.into_iter().filter_map(|line| line.strip_prefix("warning: ").map(str::to_owned)).collect()
}

/// A second tenant of the same pool, of bob, and a quota of each kind.
async fn with_quotas(bench: &Bench) -> hs2::Session {
    let mut admin = bench.objects().await;
    let _settling = bench.master.keep_settling();
    for statement in [
        "CREATE TENANT t_2 RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('bob')",
        "CREATE RESOURCE QUOTA q_1 TENANT t_1, POOL rp_1, GUARANTEE (CPU 18, MEMORY '64G', ENGINES 5), \
         BORROW_LIMIT (CPU 2.5)",
        "CREATE RESOURCE QUOTA q_2 TENANT t_2, POOL rp_1, WEIGHT 3",
        "CREATE RESOURCE QUOTA q_3 USER 'ann', LIMIT (CPU 8, ENGINES 1, 'nvidia.com/gpu' 2)",
        "CREATE RESOURCE QUOTA q_4 USER DEFAULT, LIMIT (MEMORY '32G')",
        "CREATE RESOURCE QUOTA q_5 CREATOR 'IDE'",
    ] {
        run(&mut admin, statement).await;
    }
    admin
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_are_shown_with_readable_amounts() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = with_quotas(&bench).await;
    let shown = run(&mut admin, "SHOW QUOTAS").await;
    let tenant = "tenant t_1 on pool rp_1";
    let expected = [
        [tenant, "q_1", "CPU", "18", "2.5", "20.5", "0", "20.5"],
        [tenant, "q_1", "MEMORY", "64G", "unlimited", "unlimited", "0G", "unlimited"],
        [tenant, "q_1", "ENGINES", "5", "unlimited", "unlimited", "0", "unlimited"],
        ["tenant t_2 on pool rp_1", "q_2", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL"],
        ["user ann", "q_3", "CPU", "NULL", "NULL", "8", "0", "8"],
        ["user ann", "q_3", "ENGINES", "NULL", "NULL", "1", "0", "1"],
        ["user ann", "q_3", "nvidia.com/gpu", "NULL", "NULL", "2", "NULL", "NULL"],
        ["all other users", "q_4", "MEMORY", "NULL", "NULL", "32G", "NULL", "NULL"],
        ["creator IDE", "q_5", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL"],
    ];
    let names = ["scope", "quota", "resource", "guarantee", "borrow_limit", "limit", "used", "left"];
    for (at, name) in names.into_iter().enumerate() {
        assert_eq!(column(&shown, name), expected.map(|row| row[at]), "{name}");
    }
    let described = run(&mut admin, "DESCRIBE RESOURCE QUOTA q_1").await;
    for (name, value) in [
        ("resource quota", "q_1"),
        ("scope", "tenant t_1 on pool rp_1"),
        ("guarantee", "18 CPU, 64 GiB, 5 engines"),
        ("borrow limit", "2.5 CPU"),
        ("lend limit", "unlimited"),
        ("weight", "1"),
    ] {
        assert_eq!(property(&described, name), value, "{name}");
    }
    assert_eq!(property(&run(&mut admin, "DESC RESOURCE QUOTA q_5").await, "limit"), "unlimited");
    let created = column(&run(&mut admin, "SHOW CREATE RESOURCE QUOTA q_1").await, "statement").remove(0);
    assert_eq!(
        created,
        "CREATE RESOURCE QUOTA q_1\n  TENANT t_1,\n  POOL rp_1,\n  GUARANTEE (CPU 18, MEMORY '64G', ENGINES 5),\n  \
         BORROW_LIMIT (CPU '2500m'),\n  LEND_LIMIT UNLIMITED,\n  WEIGHT 1"
    );
    for (sql, expected) in [
        ("SHOW QUOTAS LIKE 'q%4'", &["q_4"][..]),
        ("SHOW QUOTAS TENANT t_1", &["q_1"]),
        ("SHOW QUOTAS POOL rp_1", &["q_1", "q_2"]),
        ("SHOW QUOTAS USER 'ann'", &["q_3"]),
        // The quota that applies to a user without one.
        ("SHOW QUOTAS USER 'bob'", &["q_4"]),
        ("SHOW QUOTAS CREATOR 'IDE'", &["q_5"]),
        ("SHOW QUOTAS CREATOR 'other'", &[]),
    ] {
        assert_eq!(listed(&mut admin, sql).await, expected, "{sql}");
    }
    for sql in ["SHOW QUOTAS TENANT t_9", "SHOW QUOTAS POOL rp_9", "DESCRIBE RESOURCE QUOTA q_9"] {
        assert_eq!(try_run(&mut admin, sql).await.unwrap_err().sqlstate(), "42704", "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_see_the_quotas_of_their_tenants_and_of_themselves() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = with_quotas(&bench).await;
    let (mut ann, mut bob) = (bench.session("ann").await, bench.session("bob").await);
    assert_eq!(listed(&mut ann, "SHOW QUOTAS").await, ["q_1", "q_3"]);
    assert_eq!(listed(&mut bob, "SHOW QUOTAS").await, ["q_2", "q_4"]);
    assert_eq!(listed(&mut bob, "SHOW QUOTAS USER 'bob'").await, ["q_4"]);
    assert_eq!(listed(&mut ann, "SHOW QUOTAS POOL rp_1").await, ["q_1"]);
    for sql in [
        "SHOW QUOTAS TENANT t_2",
        "SHOW QUOTAS TENANT t_9",
        "SHOW QUOTAS POOL rp_9",
        "SHOW QUOTAS USER 'bob'",
        "SHOW QUOTAS CREATOR 'IDE'",
        "DESCRIBE RESOURCE QUOTA q_1",
        "SHOW CREATE RESOURCE QUOTA q_3",
        "CREATE RESOURCE QUOTA q_9 USER 'eve'",
        "ALTER RESOURCE QUOTA q_3 LIMIT DEFAULT",
        "DROP RESOURCE QUOTA q_3",
    ] {
        assert_eq!(try_run(&mut ann, sql).await.unwrap_err().sqlstate(), "42501", "{sql}");
    }
    // Rows of one millisecond have no order.
    let audited = run(&mut admin, "SHOW AUDIT FOR USER 'ann'").await;
    let dropped = column(&audited, "statement").iter().position(|sql| sql == "DROP RESOURCE QUOTA q_3").unwrap();
    assert_eq!(column(&audited, "object")[dropped], "resource quota \"q_3\"");
    assert_eq!(column(&audited, "outcome")[dropped], "refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_effect_is_warned_of() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = with_quotas(&bench).await;
    let _settling = bench.master.keep_settling();
    assert_eq!(warnings(&mut admin, "ALTER RESOURCE QUOTA q_3 LIMIT (CPU 9)").await, Vec::<String>::new());
    let excess = "guarantees on resource pool \"rp_1\" exceed its capacity: 18 CPU of 10 CPU are guaranteed";
    let declared = "ALTER RESOURCE POOL rp_1 CAPACITY (CPU 12, MEMORY '128G'), PROTECTED (CPU 2)";
    assert_eq!(warnings(&mut admin, declared).await, [excess]);
    assert_eq!(warnings(&mut admin, "ALTER RESOURCE UNIT uc_1 PRIORITY 10, CHARGE 'min'").await, Vec::<String>::new());
    let unused = "resource quota \"q_1\" has no effect while tenant \"t_1\" does not list resource pool \"rp_1\"";
    assert_eq!(warnings(&mut admin, "ALTER TENANT t_1 RESOURCE_POOL_LIST ()").await, [unused]);
    assert_eq!(warnings(&mut admin, "ALTER RESOURCE UNIT uc_1 MAX_ENGINES 3").await, Vec::<String>::new());
    assert_eq!(warnings(&mut admin, "DROP RESOURCE QUOTA q_2").await, Vec::<String>::new());
    assert_eq!(warnings(&mut admin, "SHOW QUOTAS").await, Vec::<String>::new());
    assert_eq!(warnings(&mut admin, "SHOW QUOTAS LIKE 'x'").await, Vec::<String>::new());
    let described = run(&mut admin, "DESCRIBE RESOURCE QUOTA q_1").await;
    let rows = column(&described, "property").into_iter().zip(column(&described, "value"));
    let warned: Vec<String> = rows.filter(|(name, _)| name == "warning").map(|(_, value)| value).collect();
    assert_eq!(warned, [unused, excess]);
    // The options and the warning are also with the pool and the unit.
    let pool = run(&mut admin, "DESCRIBE RESOURCE POOL rp_1").await;
    for (name, value) in [
        ("capacity", "12 CPU, 128 GiB"),
        ("protected", "2 CPU"),
        ("resource kind", "DriverAndExecutor"),
        ("reclaim", "idle"),
        ("warning", excess),
    ] {
        assert_eq!(property(&pool, name), value, "{name}");
    }
    let unit = run(&mut admin, "DESCRIBE RESOURCE UNIT uc_1").await;
    assert_eq!((property(&unit, "priority"), property(&unit, "charge")), ("10".to_owned(), "min".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_quota_ends_at_once() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let _settling = bench.master.keep_settling();
    // A slot without an engine: a wait for the tenant would last.
    run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await;
    let created = run(&mut admin, "CREATE RESOURCE QUOTA q_1 TENANT t_1, POOL rp_1, GUARANTEE (CPU 0) WAIT '1h'").await;
    assert_eq!(
        (column(&created, "state"), column(&created, "object")),
        (vec!["done".to_owned()], vec!["resource quota \"q_1\"".to_owned()])
    );
    let error = try_run(&mut admin, "DROP TENANT t_1").await.unwrap_err();
    assert_eq!((error.sqlstate(), error.hint.as_deref()), ("2BP01", Some("Use DROP RESOURCE QUOTA q_1 first.")));
    let again = run(&mut admin, "CREATE RESOURCE QUOTA IF NOT EXISTS q_1 TENANT t_1, POOL rp_1").await;
    assert_eq!(column(&again, "state"), ["resource quota \"q_1\" exists already, nothing was created"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_pods_have_a_capacity_of_nodes() {
    let _gate = among_others().await;
    for (instances, sqlstate) in [(InstanceKind::Process, Some("55000")), (InstanceKind::Pod, None)] {
        let bench = Bench::with(|settings| settings.rules.defaults.instances = instances).await;
        let mut admin = bench.objects().await;
        let _settling = bench.master.keep_settling();
        let explained = try_run(&mut admin, "EXPLAIN ALTER RESOURCE POOL rp_1 CAPACITY NODES").await;
        assert_eq!(explained.err().map(|error| error.sqlstate().to_owned()).as_deref(), sqlstate, "{instances:?}");
    }
}
