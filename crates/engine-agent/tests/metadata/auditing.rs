//! SHOW AUDIT, and what the agent records about refused statements.

use std::collections::BTreeMap;

use crate::agents::{column, run, try_run, try_run_as, try_run_with};
use crate::bench::{Bench, among_others};

const SOURCE: [(&str, &str); 5] = [
    ("enginehouse.request.id", "from-a-proxy"),
    ("enginehouse.request.via", "superset"),
    ("enginehouse.request.method", "file"),
    ("enginehouse.request.proxy", "proxy-1:10000"),
    ("enginehouse.request.client", "192.0.2.7"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn show_audit_lists_each_statement_with_its_caller() {
    let _among = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let created = run(&mut admin, "SHOW AUDIT").await;
    assert!(column(&created, "outcome").iter().all(|outcome| outcome == "committed"), "{created:?}");
    // An overlay without these entries is that of an earlier version.
    assert!(column(&created, "client").iter().all(|client| client == "NULL"), "{created:?}");
    let overlay: BTreeMap<String, String> =
        SOURCE.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let mut ann = bench.session("ann").await;
    try_run_with(&mut ann, "START ENGINE t_1 rp_1 uc_1", overlay).await.unwrap();
    let shown = run(&mut admin, "SHOW AUDIT FOR USER 'ann' SINCE '1h' LIMIT 5").await;
    for (name, expected) in [
        ("user", "ann"),
        ("via", "superset"),
        ("method", "file"),
        ("proxy", "proxy-1:10000"),
        ("client", "192.0.2.7"),
        ("statement", "START ENGINE t_1 rp_1 uc_1"),
        ("outcome", "committed"),
        ("request", "from-a-proxy"),
        ("sqlstate", "NULL"),
    ] {
        assert_eq!(column(&shown, name), [expected], "{name}");
    }
    let of_tenant = run(&mut admin, "SHOW AUDIT FOR TENANT t_1").await;
    assert_eq!(column(&of_tenant, "request")[0], "from-a-proxy", "newest first");
    assert!(column(&of_tenant, "object").contains(&"tenant \"t_1\"".to_owned()), "{of_tenant:?}");
    assert_eq!(try_run(&mut ann, "SHOW AUDIT").await.unwrap_err().sqlstate(), "42501");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_statement_has_one_row_with_its_sqlstate() {
    let _among = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let mut eve = bench.session("eve").await;
    for (user, statement, request, outcome, sqlstate) in [
        ("admin", "DROP TENANT t_9", "no-tenant", "aborted", "42704"),
        ("eve", "DROP TENANT t_1", "not-permitted", "refused", "42501"),
        ("eve", "START ENGINE t_1 rp_1 uc_1", "not-listed", "refused", "42501"),
        ("eve", "ALTER RESOURCE UNIT uc_1 PROPERTIES ('my.password'='hunter2')", "masked", "refused", "42501"),
    ] {
        let session = if user == "admin" { &mut admin } else { &mut eve };
        for _ in 0..2 {
            try_run_as(session, statement, request, 10_000).await.unwrap_err();
        }
        let audited = bench.store.audit(&metadata::AuditFilter { limit: 100, ..Default::default() }).await.unwrap();
        let rows: Vec<_> = audited.iter().filter(|row| row.request.as_str() == request).collect();
        let [row] = rows[..] else { panic!("{request}: {rows:?}") };
        assert_eq!((row.outcome.as_str(), row.sqlstate.as_deref()), (outcome, Some(sqlstate)), "{row:?}");
        assert!(!row.statement.contains("hunter2"), "{row:?}");
    }
    // A statement that took effect and then waited too long was not refused.
    let waited = "START ENGINE t_1 rp_1 uc_1 WAIT '50ms'";
    assert_eq!(try_run_as(&mut admin, waited, "waited", 10_000).await.unwrap_err().sqlstate(), "HYT00");
    // Rows of one millisecond have no order.
    let shown = run(&mut admin, "SHOW AUDIT").await;
    let outcomes: Vec<_> = column(&shown, "request").into_iter().zip(column(&shown, "outcome")).collect();
    assert!(outcomes.contains(&("waited".into(), "committed".into())), "{outcomes:?}");
    // Statements that only read are not audited, nor is text that cannot be parsed and so not be masked.
    let before = run(&mut admin, "SHOW AUDIT").await.rows.len();
    try_run(&mut eve, "SHOW MASTER").await.unwrap_err();
    try_run(&mut eve, "DROP TENANT").await.unwrap_err();
    assert_eq!(run(&mut admin, "SHOW AUDIT").await.rows.len(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_of_a_user_cannot_fill_the_audit() {
    let _among = among_others().await;
    let bench = Bench::new().await;
    let mut eve = bench.session("eve").await;
    for _ in 0..250 {
        try_run(&mut eve, "DROP TENANT t_1").await.unwrap_err();
    }
    let filter = metadata::AuditFilter { user: Some("eve".to_owned()), limit: 1_000, ..Default::default() };
    let recorded = bench.store.audit(&filter).await.unwrap().len();
    // A minute may end meanwhile.
    assert!((100..=200).contains(&recorded), "{recorded}");
}
