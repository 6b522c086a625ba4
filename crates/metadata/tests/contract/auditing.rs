//! Cases of the audit: a row for each statement, in the transaction of its effect.

use std::time::Duration;

use metadata::Caller;
use metadata::{AuditFilter, AuditOutcome, AuditRow, DeletedRows, MAX_AUDIT_STATEMENT_BYTES, MAX_DELETED, Refusal};
use model::alteration::{Abort, ObjectKind, Outcome, Source};
use model::change::Change;
use model::name::TenantName;
use model::number::Generation;

use super::bench::{
    AUDIT_KEEP, Bench, abort_of, admin, by, commit, create_tenant, create_unit, drop_object, id, link, memory,
};

fn all() -> AuditFilter {
    AuditFilter { limit: 1_000, ..AuditFilter::default() }
}

async fn rows(bench: &Bench) -> Vec<AuditRow> {
    bench.store.audit(&all()).await.unwrap()
}

/// The only row of the request.
async fn row(bench: &Bench, request: &str) -> AuditRow {
    let mut of_request = rows(bench).await;
    of_request.retain(|row| row.request == id(request));
    assert_eq!(of_request.len(), 1, "{request}: {of_request:?}");
    of_request.remove(0)
}

fn source() -> Source {
    let word = |text: &str| Some(text.to_owned());
    Source { via: word("superset"), method: word("file"), proxy: word("proxy-1:10000"), client: word("192.0.2.7") }
}

fn refusal(text: &str, user: &str) -> Refusal {
    Refusal {
        id: id(text),
        caller: Caller { source: source(), ..by(user) },
        statement: "DROP TENANT t_1".to_owned(),
        object: Some("tenant \"t_1\"".to_owned()),
        tenant: Some(TenantName::new("t_1").unwrap()),
        sqlstate: "42501".to_owned(),
    }
}

pub async fn each_statement_that_takes_effect_has_one_row(bench: Bench) {
    let bench = bench.founded(0).await;
    let engine = bench.start("s-1").await.unwrap().engine;
    let next = bench.restart("s-2", &engine, false).await.unwrap().engine;
    bench.stop("s-3", &next).await.unwrap();
    bench.alter("a-1", drop_object(ObjectKind::Tenant, "t_1")).await;
    let catalog = bench.store.catalog().await.unwrap();
    let audited = rows(&bench).await;
    assert_eq!(audited.len(), 7, "{audited:?}");
    assert!(audited.iter().all(|row| row.outcome == AuditOutcome::Committed && row.user == "admin"), "{audited:?}");
    assert!(audited.iter().all(|row| row.sqlstate.is_none() && row.at_ms > 1_700_000_000_000), "{audited:?}");
    let started = row(&bench, "s-1").await;
    let shown = (started.object, started.tenant, started.statement);
    let engine = format!("engine \"{engine}\"");
    assert_eq!(shown, (Some(engine), Some("t_1".to_owned()), "START ENGINE".to_owned()));
    let dropped = row(&bench, "a-1").await;
    assert_eq!(dropped.object.as_deref(), Some("tenant \"t_1\""));
    assert_eq!((dropped.tenant.as_deref(), dropped.generation), (Some("t_1"), Some(catalog.generation)));
    let unit = row(&bench, "found-1").await;
    assert_eq!((unit.object.as_deref(), unit.tenant), (Some("resource unit \"uc_1\""), None));
}

pub async fn a_row_names_the_caller_and_its_source(bench: Bench) {
    let bench = bench.founded(0).await;
    let caller = Caller { source: source(), ..by("alice") };
    bench.start_as("s-1", caller, link("t_1", "rp_1", "uc_1")).await.unwrap();
    let audited = row(&bench, "s-1").await;
    assert_eq!((audited.user.as_str(), audited.source), ("alice", source()));
    let base = bench.base(&memory("uc_1", "2G")).await;
    let mut request = commit("a-1", memory("uc_1", "2G"), Some(base), bench.soon());
    request.source = source();
    request.statement = "x".repeat(2 * MAX_AUDIT_STATEMENT_BYTES);
    bench.store.commit(&request).await.unwrap();
    let audited = row(&bench, "a-1").await;
    assert_eq!((audited.source, audited.statement.len()), (source(), MAX_AUDIT_STATEMENT_BYTES));
}

pub async fn a_repeated_request_is_audited_once(bench: Bench) {
    let bench = bench.founded(0).await;
    let change = create_unit("uc_2", 0, 1);
    let request = commit("a-1", change, Some(Generation(0)), bench.soon());
    for _ in 0..2 {
        bench.store.commit(&request).await.unwrap();
        bench.start("s-1").await.unwrap();
    }
    let (altered, started) = (row(&bench, "a-1").await, row(&bench, "s-1").await);
    assert_eq!((altered.outcome, started.outcome), (AuditOutcome::Committed, AuditOutcome::Committed));
    // A repeat after its row was deleted as too old would be a second effect.
    bench.raw("DELETE FROM request").await;
    let error = bench.start("s-1").await.unwrap_err();
    assert_eq!(error.user_error().sqlstate(), "22023", "{error}");
    assert_eq!(bench.present().await.len(), 1);
}

pub async fn statements_without_an_effect_are_audited_as_unchanged(bench: Bench) {
    let bench = bench.founded(0).await;
    let Change::Create { object, .. } = create_tenant("t_1", &[], &[]) else { unreachable!() };
    let again = Change::Create { if_not_exists: true, object };
    bench.store.commit(&commit("a-1", again, None, bench.soon())).await.unwrap();
    assert_eq!(row(&bench, "a-1").await.outcome, AuditOutcome::Unchanged);
    let old = bench.start("s-1").await.unwrap().engine;
    bench.restart("s-2", &old, false).await.unwrap();
    bench.restart("s-3", &old, false).await.unwrap();
    assert_eq!(row(&bench, "s-3").await.outcome, AuditOutcome::Unchanged);
}

pub async fn a_refused_transaction_leaves_no_row(bench: Bench) {
    let bench = bench.founded(0).await;
    let before = rows(&bench).await.len();
    bench.start_as("s-1", by("eve"), link("t_1", "rp_1", "uc_1")).await.unwrap_err();
    bench.try_alter("a-1", drop_object(ObjectKind::ResourceUnit, "uc_1")).await.unwrap_err();
    let stale = commit("a-2", memory("uc_1", "2G"), Some(Generation(0)), bench.soon());
    bench.store.commit(&stale).await.unwrap_err();
    assert_eq!(rows(&bench).await.len(), before);
}

pub async fn an_abort_is_audited_once_and_never_with_an_effect(bench: Bench) {
    let bench = bench.founded(0).await;
    for _ in 0..2 {
        bench.store.abort(&abort_of("a-1")).await.unwrap();
        // An effect that won stays the only row.
        bench.store.abort(&abort_of("found-1")).await.unwrap();
    }
    let aborted = row(&bench, "a-1").await;
    assert_eq!((aborted.outcome, aborted.sqlstate, aborted.generation), (AuditOutcome::Aborted, None, None));
    assert_eq!((aborted.user.as_str(), aborted.tenant.as_deref()), ("admin", Some("t_1")));
    assert_eq!(aborted.source, Source::default(), "the node of an earlier version has none");
    assert_eq!(row(&bench, "found-1").await.outcome, AuditOutcome::Committed);
    bench.store.abort_failed(&Abort { source: source(), ..abort_of("a-2") }, Some("55000")).await.unwrap();
    let failed = row(&bench, "a-2").await;
    assert_eq!((failed.sqlstate.as_deref(), failed.source), (Some("55000"), source()));
    // No duplicate key may fail an abort: its alter node would never be deleted.
    bench.raw("DELETE FROM alteration").await;
    assert_eq!(bench.store.abort(&abort_of("a-1")).await.unwrap().outcome, Outcome::Aborted);
    bench.start("s-1").await.unwrap();
    assert_eq!(bench.store.abort(&abort_of("s-1")).await.unwrap().outcome, Outcome::Aborted);
    assert_eq!(row(&bench, "a-1").await.outcome, AuditOutcome::Aborted);
}

pub async fn a_refusal_is_recorded_unless_its_statement_has_a_row(bench: Bench) {
    let bench = bench.founded(0).await;
    let of_effect = Refusal { statement: row(&bench, "found-3").await.statement, ..refusal("found-3", "admin") };
    for _ in 0..2 {
        bench.store.record_refusal(&refusal("s-1", "eve")).await.unwrap();
        bench.store.record_refusal(&of_effect).await.unwrap();
    }
    let refused = row(&bench, "s-1").await;
    assert_eq!((refused.outcome, refused.sqlstate.as_deref()), (AuditOutcome::Refused, Some("42501")));
    assert_eq!((refused.user.as_str(), refused.source, refused.generation), ("eve", source(), None));
    assert_eq!(row(&bench, "found-3").await.outcome, AuditOutcome::Committed);
    // A refusal does not keep a repeat of the request from taking effect.
    bench.start("s-1").await.unwrap();
    let mut outcomes: Vec<&str> =
        rows(&bench).await.iter().filter(|row| row.request == id("s-1")).map(|row| row.outcome.as_str()).collect();
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["committed", "refused"]);
}

/// A user who reuses an id cannot hide refusals behind its first row.
pub async fn each_statement_that_is_refused_under_a_used_id_has_a_row(bench: Bench) {
    let bench = bench.founded(0).await;
    let before = rows(&bench).await.len();
    let others = ["s-1", "found-3"].map(|used| ["DROP TENANT t_2", "DROP TENANT t_3"].map(|it| (used, it.to_owned())));
    bench.store.record_refusal(&refusal("s-1", "eve")).await.unwrap();
    for _ in 0..2 {
        for (used, statement) in others.iter().flatten() {
            bench
                .store
                .record_refusal(&Refusal { statement: statement.clone(), ..refusal(used, "eve") })
                .await
                .unwrap();
        }
        // The same statement of another user.
        bench.store.record_refusal(&refusal("s-1", "mallory")).await.unwrap();
    }
    let refused: Vec<AuditRow> =
        rows(&bench).await.into_iter().filter(|row| row.outcome == AuditOutcome::Refused).collect();
    assert_eq!((refused.len(), rows(&bench).await.len() - before), (6, 6), "{refused:?}");
    let mut of_request: Vec<_> = refused.iter().map(|row| (row.user.as_str(), row.statement.as_str())).collect();
    of_request.sort_unstable();
    assert_eq!(
        of_request,
        [
            ("eve", "DROP TENANT t_1"),
            ("eve", "DROP TENANT t_2"),
            ("eve", "DROP TENANT t_2"),
            ("eve", "DROP TENANT t_3"),
            ("eve", "DROP TENANT t_3"),
            ("mallory", "DROP TENANT t_1"),
        ]
    );
    // The ids of the further ones are no client's: the effect of a later request stays the first under its id.
    assert_eq!(refused.iter().filter(|row| row.request == id("s-1")).count(), 1);
    bench.start("s-1").await.unwrap();
}

pub async fn the_audit_is_read_by_user_tenant_and_age(bench: Bench) {
    let bench = bench.founded(0).await;
    bench.start_as("s-1", by("alice"), link("t_1", "rp_1", "uc_1")).await.unwrap();
    bench.raw("UPDATE audit SET at_ms = at_ms - 3600000 WHERE request = 'found-3'").await;
    let read = async |filter: AuditFilter| -> Vec<String> {
        bench.store.audit(&filter).await.unwrap().into_iter().map(|row| row.request.to_string()).collect()
    };
    let of_alice = AuditFilter { user: Some("alice".to_owned()), ..all() };
    assert_eq!(read(of_alice).await, ["s-1"]);
    assert!(read(AuditFilter { user: Some("ALICE".to_owned()), ..all() }).await.is_empty());
    let tenant = Some(TenantName::new("t_1").unwrap());
    let of_tenant = AuditFilter { tenant: tenant.clone(), ..all() };
    assert_eq!(read(of_tenant).await, ["s-1", "found-3"], "newest first");
    let recent = AuditFilter { tenant, since: Some(Duration::from_mins(30)), ..all() };
    assert_eq!(read(recent).await, ["s-1"]);
    let newest = read(AuditFilter { limit: 2, ..all() }).await;
    assert_eq!((newest.len(), newest[0].as_str()), (2, "s-1"));
    assert_eq!(read(AuditFilter { limit: u32::MAX, ..all() }).await.len(), 4);
}

pub async fn old_rows_of_the_audit_are_deleted(bench: Bench) {
    let bench = bench.founded(0).await;
    let many = MAX_DELETED + 100;
    let digits = |name: &str| format!("{name}(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM {name} WHERE i < 30)");
    bench
        .raw(&format!(
            "INSERT INTO audit (request, part, at_ms, user_name, statement, outcome) WITH RECURSIVE {}, {} \
             SELECT CONCAT('r-', a.i * 100 + b.i), 0, 1, 'admin', '', 'committed' FROM a CROSS JOIN b WHERE a.i <= {}",
            digits("a"),
            digits("b"),
            many / 30
        ))
        .await;
    assert_eq!(
        bench.store.housekeep(Duration::ZERO, metadata::REQUEST_KEEP).await.unwrap(),
        DeletedRows::default(),
        "zero keeps them"
    );
    let deleted = bench.store.housekeep(AUDIT_KEEP, metadata::REQUEST_KEEP).await.unwrap();
    assert_eq!(deleted, DeletedRows { audit: many, ..DeletedRows::default() });
    assert_eq!(rows(&bench).await.len(), 3, "recent rows stay");
    assert_eq!(bench.store.housekeep(AUDIT_KEEP, metadata::REQUEST_KEEP).await.unwrap(), DeletedRows::default());
}

/// So the user of the database needs no right to it.
pub async fn the_audit_is_never_updated(bench: Bench) {
    let bench = bench.founded(0).await;
    match bench.store.backend() {
        metadata::Backend::Sqlite => {
            bench.raw("CREATE TRIGGER frozen BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'updated'); END").await;
        }
        // A trigger would need a function.
        metadata::Backend::Postgres => {
            bench.raw("CREATE RULE frozen AS ON UPDATE TO audit DO INSTEAD SELECT 1 / 0").await;
        }
        metadata::Backend::Mariadb => {
            bench.raw("CREATE TRIGGER frozen BEFORE UPDATE ON audit FOR EACH ROW SIGNAL SQLSTATE '45000'").await;
        }
    }
    let engine = bench.start_as("s-1", admin(), link("t_1", "rp_1", "uc_1")).await.unwrap().engine;
    bench.stop("s-2", &engine).await.unwrap();
    bench.store.abort(&abort_of("a-1")).await.unwrap();
    bench.store.record_refusal(&refusal("s-3", "eve")).await.unwrap();
    bench.store.housekeep(AUDIT_KEEP, metadata::REQUEST_KEEP).await.unwrap();
    assert_eq!(rows(&bench).await.len(), 7);
}
