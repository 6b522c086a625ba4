//! The rights of each role through the proxy, and groups from a users file.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use authentication::{
    Chain, FileMethod, HashQueue, ImpersonationRules, LoginCache, PasswordHash, Throttle, Users, UsersFile,
};
use hs2::Auth;
use model::clock::{SharedClock, SystemClock};
use model::rights::StatementKind;

use crate::agents::{column, run, try_run};
use crate::cluster::Cluster;
use crate::fixture::eventually;
use crate::rights_matrix::{self, Engines, Outcome};

/// The password of every user.
pub const PASSWORD: &str = "correct horse";

/// Writes a users file with these users and groups.
pub fn write_users(path: &Path, users: &[(&str, &[&str])]) {
    let hash = PasswordHash::of(PASSWORD).unwrap();
    let mut file = Users::default();
    for (user, groups) in users {
        file.set(user, hash.clone(), Some(groups.iter().map(|group| (*group).to_owned()).collect()));
    }
    let new = path.with_extension("new");
    std::fs::write(&new, file.to_string()).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(&new, path).unwrap();
}

/// The method `file` with that file, which is read again.
pub fn method_file(path: &Path) -> Arc<Chain> {
    let clock: SharedClock = SystemClock::shared();
    let file = Arc::new(UsersFile::open(path).unwrap());
    file.start_rereading(clock.clone());
    let cache = Arc::new(LoginCache::new(Duration::from_mins(1), clock.clone()));
    let method = FileMethod::new(file, HashQueue::default(), cache).unwrap();
    Arc::new(Chain::new(vec![Arc::new(method)], Throttle::new(Duration::from_mins(5), clock.clone()), clock))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_cell_of_the_rights_table_holds_through_the_proxy() {
    let lists = rights_matrix::role_lists;
    let cluster = Cluster::with_agents(1, |agent| agent.roles = lists(), |proxy| proxy.roles = lists()).await;
    let mut admin = cluster.session("admin").await;
    {
        let _settling = cluster.master.keep_settling();
        for statement in rights_matrix::OBJECTS {
            run(&mut admin, statement).await;
        }
    }
    // Queries first: a tenant without an engine refuses them at once, and one whose engine starts lets them wait.
    let queries = rights_matrix::cases().into_iter().filter(|case| case.kind == StatementKind::Query).collect();
    rights_matrix::check_all(queries, async |case| {
        let tenant = format!("t_{}", case.tenant());
        let key = [("enginehouse.tenant", tenant.as_str())];
        let mut session = cluster.try_session(rights_matrix::user_of(case.role), &key).await.unwrap();
        let error = try_run(&mut session, "SELECT 1").await.unwrap_err();
        match error.sqlstate() {
            "55000" => Outcome::Permitted,
            "42501" => Outcome::Refused,
            _ => Outcome::Unexpected(error.text()),
        }
    })
    .await;
    let engines = Engines::start(&mut admin).await;
    rights_matrix::check_control_statements(&engines, async |user| cluster.session(user).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_the_users_file_reach_sessions_and_statements() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    write_users(&path, &[("admin", &[]), ("ann", &["analysts"]), ("bob", &["etl"])]);
    let chain = method_file(&path);
    let cluster = Cluster::with(1, |settings| settings.authentication = Some(chain)).await;
    let login = |user: &str| Auth::user(user, PASSWORD);
    let mut admin = cluster.try_session_as(login("admin"), &[]).await.unwrap();
    {
        let _settling = cluster.master.keep_settling();
        for statement in [
            "CREATE RESOURCE UNIT uc_1",
            "CREATE RESOURCE POOL rp_1 UNIT_LIST ('uc_1')",
            "CREATE TENANT t_1 RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('@analysts')",
        ] {
            run(&mut admin, statement).await;
        }
    }
    let mut ann = cluster.try_session_as(login("ann"), &[]).await.unwrap();
    let mut bob = cluster.try_session_as(login("bob"), &[]).await.unwrap();
    assert_eq!(try_run(&mut ann, "SELECT 1").await.unwrap_err().sqlstate(), "55000", "it has no engine");
    assert_eq!(try_run(&mut bob, "SELECT 1").await.unwrap_err().sqlstate(), "42501");
    assert_eq!(try_run(&mut bob, "SHOW ENGINES t_1").await.unwrap_err().sqlstate(), "42501");
    let started = run(&mut ann, "START ENGINE t_1 rp_1 uc_1").await;
    run(&mut ann, &format!("STOP ENGINE rp_1 '{}'", column(&started, "engine")[0])).await;
    let audited = run(&mut admin, "SHOW AUDIT FOR USER 'ann'").await;
    assert_eq!(column(&audited, "method"), ["file", "file"]);
    assert_eq!(column(&audited, "via"), ["NULL", "NULL"]);
    // The groups of an open session are those of the file.
    write_users(&path, &[("admin", &[]), ("ann", &[]), ("bob", &["analysts"])]);
    eventually("bob in the group", async || run_or_refused(&mut bob).await.is_none().then_some(())).await;
    assert_eq!(run_or_refused(&mut ann).await.as_deref(), Some("42501"));
    assert_eq!(try_run(&mut ann, "SELECT 1").await.unwrap_err().sqlstate(), "42501");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_was_removed_runs_no_further_statement_in_an_open_session() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    write_users(&path, &[("admin", &[]), ("ann", &[]), ("bob", &[]), ("hue", &[])]);
    let chain = method_file(&path);
    let rules = ["hue: bob".to_owned()];
    let cluster = Cluster::with(1, |settings| {
        settings.authentication = Some(chain);
        settings.impersonation = ImpersonationRules::parse(&rules).unwrap();
    })
    .await;
    let login = |user: &str| Auth::user(user, PASSWORD);
    let mut admin = cluster.try_session_as(login("admin"), &[]).await.unwrap();
    {
        let _settling = cluster.master.keep_settling();
        for statement in [
            "CREATE RESOURCE UNIT uc_1",
            "CREATE RESOURCE POOL rp_1 UNIT_LIST ('uc_1')",
            "CREATE TENANT t_1 RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('ann', 'bob')",
        ] {
            run(&mut admin, statement).await;
        }
    }
    let engine = cluster.engine(&mut admin).await;
    // One session is bound to an engine, the others are not.
    let mut bound = cluster.try_session_as(login("ann"), &[]).await.unwrap();
    run(&mut bound, "SELECT 1").await;
    let mut unbound = cluster.try_session_as(login("ann"), &[]).await.unwrap();
    let mut through_hue = cluster.try_session_as(login("hue"), &[("hive.server2.proxy.user", "bob")]).await.unwrap();
    run(&mut unbound, "SHOW ENGINES t_1").await;
    run(&mut through_hue, "SHOW ENGINES t_1").await;

    write_users(&path, &[("admin", &[]), ("bob", &[])]);
    eventually("ann is removed", async || run_or_refused(&mut unbound).await.map(drop)).await;
    for (session, statements) in [
        (&mut unbound, ["SHOW ENGINES t_1", "SELECT 1"]),
        (&mut bound, ["SHOW ENGINES t_1", "START ENGINE t_1 rp_1 uc_1"]),
        // The impersonator was removed.
        (&mut through_hue, ["SHOW ENGINES t_1", "SELECT 1"]),
    ] {
        for statement in statements {
            let error = try_run(session, statement).await.unwrap_err();
            assert_eq!(error.sqlstate(), "28000", "{statement}: {}", error.text());
        }
    }
    // The bound engine stays until the session moves.
    run(&mut bound, "SELECT 1").await;
    drop(engine);
}

/// The SQLSTATE with which SHOW ENGINES is refused; `None` if it is permitted.
async fn run_or_refused(session: &mut hs2::Session) -> Option<String> {
    try_run(session, "SHOW ENGINES t_1").await.err().map(|error| error.sqlstate().to_owned())
}
