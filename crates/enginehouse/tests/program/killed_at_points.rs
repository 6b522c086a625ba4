//! Whoever is killed at a failpoint of the proxy, the relay, the engine agent, DataFusion or the calls between roles: the
//! client is told what it may conclude, and afterwards everything that was promised is there.
//!
//! A point at which nobody was killed fails its test.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::installation::{Installation, eventually, text};

/// What a statement comes to whose engine is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// The client sees nothing of it.
    Nothing,
    /// The engine was lost, and which one.
    EngineLost,
}

/// A unit for many engines, and the pool of it.
const OBJECTS: [&str; 2] = [
    "CREATE RESOURCE UNIT u DRIVER_CPU 1, DRIVER_MEMORY '256M', MAX_ENGINES 40",
    "CREATE RESOURCE POOL p UNIT_LIST ('u')",
];

/// Says a statement for a tenant; what is printed.
fn say_for(server: &Installation, tenant: &str, statement: &str) -> Result<String, String> {
    let chosen = format!("SET enginehouse.tenant={tenant}");
    let output = server.sql().args(["-e", &chosen, "-e", statement]).output().unwrap();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// The only engine of a tenant that has none yet: its name.
fn start(server: &Installation, tenant: &str) -> String {
    server.say(&format!("CREATE TENANT {tenant} RESOURCE_POOL_LIST ('p')"));
    let started = server.say(&format!("START ENGINE {tenant} p u WAIT '1m'"));
    started.split(',').next().unwrap().to_owned()
}

/// A point, what is said before, the statement in which an engine is killed there, what its client is told, and a statement
/// afterwards with a word of its answer.
type Killed = (&'static str, &'static str, &'static str, Told, (&'static str, &'static str));

/// Kills a tenant's engine at each point.
fn killed_engines(points: &[Killed]) {
    let mut server = Installation::with_failpoints();
    server.say_all(&OBJECTS);
    let bystander = start(&server, "bystander");
    for (number, &(point, before, statement, told, after)) in points.iter().enumerate() {
        let tenant = format!("t{number}");
        let before_it: Vec<u32> = server.engines();
        let engine = start(&server, &tenant);
        let [pid] = server.engines().into_iter().filter(|pid| !before_it.contains(pid)).collect::<Vec<_>>()[..] else {
            panic!("{:?} after {before_it:?}", server.engines())
        };
        if !before.is_empty() {
            say_for(&server, &tenant, before).unwrap();
        }
        server.kill_at(point, Some(pid));
        let said = say_for(&server, &tenant, statement);
        assert_eq!(server.killed_at(point), Some(pid), "{point}: {said:?}");
        match (&said, told) {
            (Ok(rows), Told::Nothing) => assert!(rows.contains("42"), "{point}: {rows}"),
            (Err(error), Told::EngineLost) => {
                assert!(error.contains("error 08S01") && error.contains(&engine), "{point}: {error}");
                assert!(error.contains("Hint"), "{point}: {error}");
            }
            (said, told) => panic!("{point}: {told:?} and not {said:?}"),
        }
        // The slot is filled again, and what was promised holds.
        let (asked, expected) = after;
        let shown = say_for(&server, &tenant, asked).unwrap_or_else(|error| error);
        assert!(shown.contains(expected), "{point}: {shown}");
        assert!(!server.engines().contains(&pid));
    }
    let shown = server.say("SHOW ENGINES bystander");
    assert!(shown.contains(&bystander) && shown.contains(",ready,"), "{shown}");
    assert_eq!(say_for(&server, "bystander", "SELECT 1").unwrap().lines().last(), Some("1"));
    assert!(server.stop().success());
}

#[test]
fn an_engine_that_is_killed_fails_its_statement_alone_and_comes_back() {
    killed_engines(&[
        ("engine_agent.session.opened", "", "SELECT 42", Told::Nothing, ("SELECT 42", "42")),
        ("engine_agent.statement.accepted", "", "SELECT 42", Told::EngineLost, ("SELECT 42", "42")),
        ("datafusion.statement.started", "", "SELECT 42", Told::EngineLost, ("SELECT 42", "42")),
        ("datafusion.statement.planned", "", "SELECT 42", Told::EngineLost, ("SELECT 42", "42")),
        ("datafusion.rows.fetched", "", "SELECT 42", Told::EngineLost, ("SELECT 42", "42")),
    ]);
}

#[test]
fn an_engine_that_is_killed_while_it_writes_the_catalog_leaves_it_whole() {
    killed_engines(&[
        (
            "datafusion.catalog.definition_written",
            "",
            "CREATE VIEW v AS SELECT 1",
            Told::EngineLost,
            ("SELECT * FROM v", "42P01"),
        ),
        (
            "datafusion.catalog.definition_published",
            "",
            "CREATE VIEW v AS SELECT 7",
            Told::EngineLost,
            ("SELECT * FROM v", "7"),
        ),
        (
            "datafusion.catalog.schema_moved",
            "CREATE SCHEMA s",
            "DROP SCHEMA s CASCADE",
            Told::EngineLost,
            ("CREATE SCHEMA s", ""),
        ),
    ]);
}

#[test]
fn an_engine_that_is_killed_while_it_relays_fails_its_statement_alone_and_comes_back() {
    killed_engines(&[
        ("hs2.relay.request_sent", "", "SELECT 42", Told::EngineLost, ("SELECT 42", "42")),
        ("hs2.relay.reply_begun", "", "SELECT 42", Told::EngineLost, ("SELECT 42", "42")),
    ]);
}

#[test]
fn an_engine_that_is_killed_while_it_registers_or_drains_is_replaced_or_gone() {
    let mut server = Installation::with_failpoints();
    server.say_all(&OBJECTS);
    for (number, point) in ["engine_agent.register.before", "engine_agent.register.done"].into_iter().enumerate() {
        let tenant = format!("t{number}");
        server.kill_at(point, None);
        let before = server.engines();
        let engine = start(&server, &tenant);
        let killed = server.killed_at(point).unwrap_or_else(|| panic!("nobody was killed at {point}"));
        eventually("its successor", || {
            !server.engines().contains(&killed) && server.engines().len() == before.len() + 1
        });
        assert_eq!(say_for(&server, &tenant, "SELECT 1").unwrap().lines().last(), Some("1"));
        // Killed again, in the middle of its drain: it is gone, and the slot with it.
        if number == 0 {
            let shown = server.say(&format!("SHOW ENGINES {tenant}"));
            assert_eq!(shown.split(',').nth(3), Some(&*engine), "START ENGINE names the engine that came");
            server.kill_at("engine_agent.drain.begun", None);
            server.say(&format!("STOP ENGINE p '{engine}' WAIT '1m'"));
            assert!(server.killed_at("engine_agent.drain.begun").is_some());
            assert_eq!(server.engines(), before);
            assert_eq!(server.say(&format!("SHOW ENGINES {tenant}")), "");
        }
    }
    assert!(server.stop().success());
}

/// Kills `standalone` at each point, with every role but the engines in it.
fn killed(points: &[(&str, &str)]) {
    let mut server = Installation::with_failpoints();
    server.say_all(&crate::installation::ONE_ENGINE);
    assert_eq!(server.say("SELECT 1"), "1");
    let engines = server.engines();
    for (number, (point, statement)) in points.iter().enumerate() {
        let (pid, tenant) = (server.pid(), format!("x{number}"));
        server.kill_at(point, Some(pid));
        if !statement.is_empty() {
            let error = server.try_say(&statement.replace('?', &tenant)).unwrap_err();
            let told = error.contains("error 08S01") || error.contains("the connection was lost");
            assert!(told && !error.contains("panicked"), "{point}: {error}");
        }
        server.reap();
        assert_eq!(server.killed_at(point), Some(pid), "{point}");
        server.start_again();
        eventually("the engine is known again", || server.say("SHOW ENGINES t").contains(",ready,"));
        assert_eq!(server.engines(), engines, "{point}: the engine lives on");
        assert_eq!(server.say("SELECT 1"), "1");
        // What was said took effect or not, and can be said again.
        if statement.contains('?') {
            let again = server.try_say(&statement.replace('?', &tenant));
            let known = server.say("SHOW ALTERATIONS LIMIT 100").matches(&tenant).count();
            let took_effect = again.as_ref().is_err_and(|error| error.contains("42710"));
            assert!(again.is_ok() || took_effect, "{point}: {again:?}");
            assert!(known >= 1, "{point}");
            assert_eq!(server.say("SHOW TENANTS").matches(&tenant).count(), 1, "{point}");
            server.say(&format!("DROP TENANT {tenant}"));
        }
    }
    assert!(server.stop().success());
}

#[test]
fn a_proxy_that_is_killed_at_any_of_its_points_loses_connections_and_nothing_else() {
    killed(&[
        ("proxy.session.opened", "SELECT 1"),
        ("proxy.control.id_made", "CREATE TENANT ?"),
        ("proxy.control.sent", "CREATE TENANT ?"),
        ("proxy.bind.engine_chosen", "SELECT 1"),
        ("proxy.bind.session_opened", "SELECT 1"),
    ]);
}

#[test]
fn whoever_relays_or_calls_another_role_can_be_killed_at_any_point_of_it() {
    killed(&[
        ("hs2.relay.request_sent", "SELECT 1"),
        ("hs2.relay.reply_begun", "SELECT 1"),
        ("agent_api.client.send", ""),
        ("agent_api.server.read", ""),
        ("agent_api.server.done", ""),
        ("agent_api.client.answered", ""),
    ]);
}
