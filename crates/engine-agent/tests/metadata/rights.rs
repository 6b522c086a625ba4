//! The rights of each role at a metadata agent, and that a refusal does not reveal what exists.

use std::collections::BTreeMap;

use model::rights::RoleLists;

use crate::agents::{column, run, try_run, try_run_with};
use crate::bench::{Bench, among_others};
use crate::rights_matrix::{self, Engines};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_learns_nothing() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let engine = column(&run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await, "engine").remove(0);
    let mut eve = bench.session("eve").await;
    // The same statement about an existing and a missing object: the same error text.
    for (there, not_there) in [
        ("SHOW ENGINES t_1".to_owned(), "SHOW ENGINES t_9".to_owned()),
        ("SHOW ENGINES POOL t_1 rp_1".to_owned(), "SHOW ENGINES POOL t_9 rp_1".to_owned()),
        ("START ENGINE t_1 rp_1 uc_1".to_owned(), "START ENGINE t_9 rp_1 uc_1".to_owned()),
        (format!("STOP ENGINE rp_1 '{engine}'"), "STOP ENGINE rp_1 'nothing'".to_owned()),
        (format!("RESTART ENGINE rp_1 '{engine}'"), "RESTART ENGINE rp_1 'nothing'".to_owned()),
        (format!("DESCRIBE ENGINE rp_1 '{engine}'"), "DESCRIBE ENGINE rp_1 'nothing'".to_owned()),
        ("DESCRIBE TENANT t_1".to_owned(), "DESCRIBE TENANT t_9".to_owned()),
        ("SHOW CREATE RESOURCE UNIT uc_1".to_owned(), "SHOW CREATE RESOURCE UNIT uc_9".to_owned()),
        ("SHOW RESOURCE UNIT uc_1 FOR POOL".to_owned(), "SHOW RESOURCE UNIT uc_9 FOR POOL".to_owned()),
        ("SHOW RESOURCE POOL rp_1 FOR TENANT".to_owned(), "SHOW RESOURCE POOL rp_9 FOR TENANT".to_owned()),
        ("DROP TENANT t_1".to_owned(), "DROP TENANT t_9".to_owned()),
        ("CREATE TENANT t_1".to_owned(), "CREATE TENANT t_9".to_owned()),
        ("EXPLAIN DROP TENANT t_1".to_owned(), "EXPLAIN DROP TENANT t_9".to_owned()),
    ] {
        let words = |text: String| text.replace("t_9", "t_1").replace("nothing", &engine);
        let (one, other) =
            (try_run(&mut eve, &there).await.unwrap_err(), try_run(&mut eve, &not_there).await.unwrap_err());
        assert_eq!((one.sqlstate(), other.sqlstate()), ("42501", "42501"), "{there}");
        assert_eq!(words(one.text()), words(other.text()), "{there}");
    }
    for sql in ["SHOW ALTERATIONS", "SHOW AUDIT", "SHOW MASTER"] {
        assert_eq!(try_run(&mut eve, sql).await.unwrap_err().sqlstate(), "42501", "{sql}");
    }
    for sql in ["SHOW TENANTS", "SHOW RESOURCE POOLS", "SHOW RESOURCE UNITS"] {
        assert_eq!(run(&mut eve, sql).await.rows.len(), 0, "{sql}");
    }
    assert!(bench.store.alterations(100).await.unwrap().iter().all(|alteration| alteration.requested_by == "admin"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_reveals_no_more_to_a_user_of_the_tenant_than_show() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    bench.unused_pool(&mut admin).await;
    let mut ann = bench.session("ann").await;
    for (there, not_there) in [
        ("START ENGINE t_1 rp_2 uc_2", "START ENGINE t_1 rp_9 uc_2"),
        ("START ENGINE t_1 rp_2 uc_2", "START ENGINE t_1 rp_2 uc_9"),
        ("START ENGINE t_1 rp_1 uc_2", "START ENGINE t_1 rp_1 uc_9"),
    ] {
        let words = |text: String| text.replace("rp_9", "rp_2").replace("uc_9", "uc_2");
        let (one, other) =
            (try_run(&mut ann, there).await.unwrap_err(), try_run(&mut ann, not_there).await.unwrap_err());
        assert_eq!(words(one.text()), words(other.text()), "{not_there}");
        assert_eq!((one.sqlstate(), other.sqlstate()), ("55000", "55000"), "{not_there}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_the_tenant_may_manage_its_engines_and_nothing_else() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    {
        let _settling = bench.master.keep_settling();
        run(&mut admin, "CREATE TENANT t_2 RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('bob')").await;
    }
    let mut ann = bench.session("ann").await;
    let engine = column(&run(&mut ann, "START ENGINE t_1 rp_1 uc_1").await, "engine").remove(0);
    assert_eq!(column(&run(&mut ann, "SHOW ENGINES t_1").await, "engine"), [&*engine]);
    run(&mut ann, &format!("DESCRIBE ENGINE rp_1 '{engine}'")).await;
    assert_eq!(column(&run(&mut ann, "SHOW TENANTS").await, "tenant"), ["t_1"]);
    assert_eq!(column(&run(&mut ann, "SHOW RESOURCE POOL rp_1 FOR TENANT").await, "tenant"), ["t_1"]);
    for sql in [
        "SHOW ENGINES t_2",
        "START ENGINE t_2 rp_1 uc_1",
        "ALTER TENANT t_1 USER_LIST ('ann', 'eve')",
        "DROP TENANT t_1",
    ] {
        assert_eq!(try_run(&mut ann, sql).await.unwrap_err().sqlstate(), "42501", "{sql}");
    }
    run(&mut ann, &format!("STOP ENGINE rp_1 '{engine}'")).await;
    let mut admin = bench.session("admin").await;
    assert_eq!(column(&run(&mut admin, "SHOW TENANTS").await, "tenant"), ["t_1", "t_2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_decides_every_cell_of_the_rights_table() {
    let _gate = among_others().await;
    let bench = Bench::with(|settings| settings.roles = rights_matrix::role_lists()).await;
    let mut admin = bench.session("admin").await;
    let settling = bench.master.keep_settling();
    for statement in rights_matrix::OBJECTS {
        run(&mut admin, statement).await;
    }
    bench.settled().await;
    drop(settling);
    let engines = Engines::start(&mut admin).await;
    rights_matrix::check_control_statements(&engines, async |user| bench.session(user).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_the_caller_count_and_a_proxy_may_send_none() {
    let _gate = among_others().await;
    let operators = vec!["@ops".to_owned()];
    let bench = Bench::with(|settings| {
        settings.roles = RoleLists { operators, ..RoleLists::of_admins(&["admin"]) };
    })
    .await;
    let mut admin = bench.objects().await;
    {
        let _settling = bench.master.keep_settling();
        run(&mut admin, "ALTER TENANT t_1 USER_LIST ('ann', '@analysts'), ADMIN_LIST ('@leads')").await;
        bench.settled().await;
    }
    let start = "START ENGINE t_1 rp_1 uc_1";
    let mut zoe = bench.session("zoe").await;
    for (groups, sql, sqlstate) in [
        (None, "SHOW ENGINES t_1", Some("42501")),
        (Some(r#"["analysts"]"#), "SHOW ENGINES t_1", None),
        (Some(r#"["analysts"]"#), start, Some("42501")),
        (Some(r#"["analysts","leads"]"#), start, None),
        (Some(r#"["ops"]"#), "SHOW MASTER", None),
        (Some(r#"["ops"]"#), "DROP TENANT t_1", Some("42501")),
        (Some(r#"["@ops"]"#), "SHOW MASTER", Some("22023")),
        (Some("ops"), "SHOW MASTER", Some("22023")),
    ] {
        let groups = groups.map(|groups| ("enginehouse.request.groups".to_owned(), groups.to_owned()));
        let outcome = try_run_with(&mut zoe, sql, groups.clone().into_iter().collect::<BTreeMap<_, _>>()).await;
        assert_eq!(outcome.err().map(|error| error.sqlstate().to_owned()).as_deref(), sqlstate, "{groups:?} {sql}");
    }
    let described = run(&mut admin, "DESCRIBE TENANT t_1").await;
    assert_eq!(crate::agents::property(&described, "users"), "ann, @analysts");
    assert_eq!(crate::agents::property(&described, "admins"), "@leads");
    assert_eq!(column(&run(&mut admin, "SHOW TENANTS").await, "users"), ["ann, @analysts"]);
    let ann = try_run(&mut bench.session("ann").await, start).await.unwrap_err();
    assert!(ann.hint.is_some_and(|hint| hint.contains("ADMIN_LIST")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_name_in_a_list_of_users_is_refused() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    for (list, shown) in [("'@'", "group"), ("'@a,b'", "group"), ("'@ b'", "group"), ("' '", "user"), ("''", "user")] {
        for option in ["USER_LIST", "ADMIN_LIST"] {
            let error = try_run(&mut admin, &format!("ALTER TENANT t_1 {option} ({list})")).await.unwrap_err();
            assert_eq!(error.sqlstate(), "22023", "{list}");
            assert!(
                error.message.contains(option) && error.message.starts_with(&format!("invalid {shown} name")),
                "{}",
                error.message
            );
        }
    }
}
