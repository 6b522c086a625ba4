//! Kills at the failpoints of the proxy, the relay, the engine agent, DataFusion and the calls between roles: the client
//! receives a correct error, and afterwards every guarantee holds.
//!
//! A failpoint at which no process was killed fails its test.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::installation::{Installation, eventually, text};

/// The outcome of a statement whose engine is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The statement succeeds.
    Nothing,
    /// An error that names the lost engine.
    EngineLost,
}

/// A unit for many engines, and the pool of it.
const OBJECTS: [&str; 2] = [
    "CREATE RESOURCE UNIT u DRIVER_CPU 1, DRIVER_MEMORY '256M', MAX_ENGINES 40",
    "CREATE RESOURCE POOL p UNIT_LIST ('u')",
];

/// Runs a statement for a tenant; returns its output.
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

/// A failpoint, a statement before it, the statement during which the engine is killed there, its outcome, and a statement
/// afterwards with a word of its result.
type Killed = (&'static str, &'static str, &'static str, Outcome, (&'static str, &'static str));

/// Kills a tenant's engine at each point.
fn killed_engines(points: &[Killed]) {
    let mut server = Installation::with_failpoints();
    server.say_all(&OBJECTS);
    let bystander = start(&server, "bystander");
    for (number, &(point, before, statement, expected, after)) in points.iter().enumerate() {
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
        let result = say_for(&server, &tenant, statement);
        assert_eq!(server.killed_at(point), Some(pid), "{point}: {result:?}");
        match (&result, expected) {
            (Ok(rows), Outcome::Nothing) => assert!(rows.contains("42"), "{point}: {rows}"),
            (Err(error), Outcome::EngineLost) => {
                assert!(error.contains("error 08S01") && error.contains(&engine), "{point}: {error}");
                assert!(error.contains("Hint"), "{point}: {error}");
            }
            (result, expected) => panic!("{point}: expected {expected:?}, got {result:?}"),
        }
        // The slot is filled again, and what was promised holds.
        let (asked, word) = after;
        let shown = say_for(&server, &tenant, asked).unwrap_or_else(|error| error);
        assert!(shown.contains(word), "{point}: {shown}");
        assert!(!server.engines().contains(&pid));
    }
    let shown = server.say("SHOW ENGINES bystander");
    assert!(shown.contains(&bystander) && shown.contains(",ready,"), "{shown}");
    assert_eq!(say_for(&server, "bystander", "SELECT 1").unwrap().lines().last(), Some("1"));
    assert!(server.stop().success());
}

#[test]
fn a_killed_engine_fails_its_statement_only_and_is_replaced() {
    killed_engines(&[
        ("engine_agent.session.opened", "", "SELECT 42", Outcome::Nothing, ("SELECT 42", "42")),
        ("engine_agent.statement.accepted", "", "SELECT 42", Outcome::EngineLost, ("SELECT 42", "42")),
        ("datafusion.statement.started", "", "SELECT 42", Outcome::EngineLost, ("SELECT 42", "42")),
        ("datafusion.statement.planned", "", "SELECT 42", Outcome::EngineLost, ("SELECT 42", "42")),
        ("datafusion.rows.fetched", "", "SELECT 42", Outcome::EngineLost, ("SELECT 42", "42")),
    ]);
}

#[test]
fn an_engine_killed_during_a_catalog_write_leaves_it_intact() {
    killed_engines(&[
        (
            "datafusion.catalog.definition_written",
            "",
            "CREATE VIEW v AS SELECT 1",
            Outcome::EngineLost,
            ("SELECT * FROM v", "42P01"),
        ),
        (
            "datafusion.catalog.definition_published",
            "",
            "CREATE VIEW v AS SELECT 7",
            Outcome::EngineLost,
            ("SELECT * FROM v", "7"),
        ),
        (
            "datafusion.catalog.schema_moved",
            "CREATE SCHEMA s",
            "DROP SCHEMA s CASCADE",
            Outcome::EngineLost,
            ("CREATE SCHEMA s", ""),
        ),
    ]);
}

#[test]
fn an_engine_killed_during_a_relay_fails_its_statement_only() {
    killed_engines(&[
        ("hs2.relay.request_sent", "", "SELECT 42", Outcome::EngineLost, ("SELECT 42", "42")),
        ("hs2.relay.reply_begun", "", "SELECT 42", Outcome::EngineLost, ("SELECT 42", "42")),
    ]);
}

#[test]
fn an_engine_killed_during_registration_or_drain_is_replaced() {
    let mut server = Installation::with_failpoints();
    server.say_all(&OBJECTS);
    for (number, point) in ["engine_agent.register.before", "engine_agent.register.done"].into_iter().enumerate() {
        let tenant = format!("t{number}");
        server.kill_at(point, None);
        let before = server.engines();
        let engine = start(&server, &tenant);
        let killed = server.killed_at(point).unwrap_or_else(|| panic!("no process was killed at {point}"));
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
            let is_lost = error.contains("error 08S01") || error.contains("the connection was lost");
            assert!(is_lost && !error.contains("panicked"), "{point}: {error}");
        }
        server.reap();
        assert_eq!(server.killed_at(point), Some(pid), "{point}");
        server.start_again();
        eventually("the engine is known again", || server.say("SHOW ENGINES t").contains(",ready,"));
        assert_eq!(server.engines(), engines, "{point}: the engine lives on");
        assert_eq!(server.say("SELECT 1"), "1");
        // The statement took effect or not, and can be repeated.
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
fn a_kill_at_any_point_of_the_proxy_loses_connections_only() {
    killed(&[
        ("proxy.session.opened", "SELECT 1"),
        ("proxy.control.id_made", "CREATE TENANT ?"),
        ("proxy.control.sent", "CREATE TENANT ?"),
        ("proxy.bind.engine_chosen", "SELECT 1"),
        ("proxy.bind.session_opened", "SELECT 1"),
    ]);
}

#[test]
fn a_kill_at_any_point_of_a_relayed_call_loses_nothing_else() {
    killed(&[
        ("hs2.relay.request_sent", "SELECT 1"),
        ("hs2.relay.reply_begun", "SELECT 1"),
        ("agent_api.client.send", ""),
        ("agent_api.server.read", ""),
        ("agent_api.server.done", ""),
        ("agent_api.client.answered", ""),
    ]);
}
