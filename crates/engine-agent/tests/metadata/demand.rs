//! SHOW DEMAND, and what STOP, DESCRIBE and EXPLAIN say of engines on demand.

use std::time::Duration;

use hs2::Session;
use hs2::session::Table;
use model::demand::DemandKey;
use model::demand_report::{DemandReport, UnmetDemand, WaitingSessions};
use model::engine_state::Phase;
use model::name::{PoolName, TenantName, UnitName};
use model::number::Generation;
use model::observation::Publication;
use model::scaling::{LinkScale, LinkScaled, ScaleRequest, SlotAddition, SlotsSeen};
use model::slot::Link;

use crate::agents::{column, property, ready, run, try_run};
use crate::bench::{Bench, among_others};
use crate::reservations::{log_of, reserved};

const MINUTE_MS: i64 = 60_000;
const NOT_PLANNED: &str = "the next decision of the master";

fn key(tenant: &str, pool: Option<&str>, creator: &str) -> DemandKey {
    DemandKey {
        tenant: TenantName::new(tenant).unwrap(),
        pool: pool.map(|pool| PoolName::new(pool).unwrap()),
        unit: None,
        engine_type: None,
        creator: creator.to_owned(),
        user: None,
        group: None,
        session: None,
    }
}

/// What a proxy records: sessions under each key, and for how many minutes the first of them has waited.
async fn record(bench: &Bench, proxy: &str, seq: i64, demand: &[(&DemandKey, u64, i64)]) {
    let demand = demand.iter().map(|(key, sessions, minutes)| WaitingSessions {
        key: (*key).clone(),
        sessions: *sessions,
        waited_ms: minutes * MINUTE_MS,
    });
    let report = DemandReport { proxy: proxy.to_owned(), seq, lease_ms: 10 * MINUTE_MS, demand: demand.collect() };
    bench.store.record_demand(&report).await.unwrap();
}

/// What a master reports of demand.
async fn unmet(bench: &Bench, unmet: &[(&DemandKey, u64, &str, Option<usize>)]) {
    let unmet = unmet.iter().map(|(key, sessions, reason, position)| UnmetDemand {
        key: (*key).clone(),
        sessions: *sessions,
        reason: (*reason).to_owned(),
        position: *position,
        is_futile: false,
        generation: Generation::default(),
    });
    bench.master.report(Publication { unmet: Some(unmet.collect()), ..Publication::default() }).await;
}

/// Tenant, pool, unit, creator, waiting, unmet, what it waits for, position.
fn rows(table: &Table) -> Vec<String> {
    let columns = ["tenant", "pool", "unit", "creator", "waiting", "unmet", "waits_for", "position"];
    let columns = columns.map(|name| column(table, name));
    let row = |at: usize| columns.iter().map(|column| column[at].as_str()).collect::<Vec<_>>().join("|");
    (0..table.rows.len()).map(row).collect()
}

async fn started(session: &mut Session) -> String {
    column(&run(session, "START ENGINE t_1 rp_1 uc_1").await, "engine").remove(0)
}

/// Adds a slot on demand as a master does; returns the name of its engine.
async fn scaled(bench: &Bench) -> String {
    let link = Link {
        tenant: TenantName::new("t_1").unwrap(),
        pool: PoolName::new("rp_1").unwrap(),
        unit: UnitName::new("uc_1").unwrap(),
    };
    let seen = SlotsSeen::of(&bench.store.snapshot().await.unwrap().slots);
    let links = vec![LinkScale { link, seen, add: vec![SlotAddition::of_tenant(1)], remove: Vec::new() }];
    let request = ScaleRequest { links, reservation_ttl_ms: MINUTE_MS, grace_ms: MINUTE_MS };
    let results = bench.store.scale(bench.master.epoch, &request).await.unwrap();
    let [LinkScaled::Scaled { added, .. }] = results.as_slice() else { panic!("{results:?}") };
    added[0].slot.engine(added[0].incarnation).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_listed_by_age_with_what_they_wait_for() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    assert!(run(&mut admin, "SHOW DEMAND").await.rows.is_empty());
    let (any, of_pool) = (key("t_1", None, "IDE"), key("t_1", Some("rp_1"), "default"));
    record(&bench, "p-1", 1, &[(&of_pool, 2, 1), (&any, 3, 5)]).await;
    record(&bench, "p-2", 1, &[(&any, 1, 2)]).await;
    let shown = run(&mut admin, "SHOW DEMAND TENANT t_1").await;
    let planned = |waiting: &str| format!("{waiting}|0|{NOT_PLANNED}|NULL");
    let expected = [planned("t_1|NULL|NULL|IDE|4"), planned("t_1|rp_1|NULL|default|2")];
    assert_eq!(rows(&shown), expected, "proxies together, and the oldest first");
    let since = column(&shown, "since");
    assert!(since[0] < since[1] && since.iter().all(|time| time.len() == 24 && time.ends_with('Z')), "{since:?}");

    // The report is older than the demand: fewer sessions wait than it counted.
    let reason = "all engines are full, and MAX_ENGINES is 2";
    unmet(&bench, &[(&any, 9, reason, None), (&key("t_2", None, "IDE"), 1, "gone", None)]).await;
    let expected = [format!("t_1|NULL|NULL|IDE|4|4|{reason}|NULL"), planned("t_1|rp_1|NULL|default|2")];
    assert_eq!(rows(&run(&mut admin, "SHOW DEMAND").await), expected);
    let short = "queued: resource pool \"rp_1\": asked 1, left 0.5 of 4 (POOL_CPU, retryable)";
    unmet(&bench, &[(&any, 1, short, Some(3))]).await;
    assert_eq!(rows(&run(&mut admin, "SHOW DEMAND").await)[0], format!("t_1|NULL|NULL|IDE|4|1|{short}|3"));

    record(&bench, "p-1", 2, &[]).await;
    record(&bench, "p-2", 2, &[]).await;
    assert!(run(&mut admin, "SHOW DEMAND").await.rows.is_empty(), "no session waits, whatever the master reported");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demand_names_the_owners_of_the_engines_that_may_serve_it() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let any = key("t_1", None, "IDE");
    let user = |user: &str| DemandKey { user: Some(user.to_owned()), ..any.clone() };
    let group = |group: &str| DemandKey { group: Some(group.to_owned()), ..any.clone() };
    let either = DemandKey { group: Some("etl".to_owned()), ..user("ann") };
    let session = DemandKey { session: Some("5e551".to_owned()), ..user("ann") };
    let (ann, etl, single) = (user("ann"), group("etl"), group("user:bob"));
    let keys = [&any, &ann, &etl, &single, &either, &session];
    let rows: Vec<(&DemandKey, u64, i64)> = keys.into_iter().zip([9, 8, 7, 6, 5, 4]).map(|(k, n)| (k, 1, n)).collect();
    record(&bench, "p-1", 1, &rows).await;
    let owners = [
        "NULL",
        "user \"ann\"",
        "group \"etl\"",
        "user \"bob\" as a group",
        "group \"etl\", user \"ann\"",
        "session \"5e551\" of user \"ann\"",
    ];
    assert_eq!(column(&run(&mut admin, "SHOW DEMAND").await, "owner"), owners);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demand_that_is_met_names_the_engine_on_its_way() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let (any, other) = (key("t_1", None, "IDE"), key("t_1", Some("rp_2"), "IDE"));
    record(&bench, "p-1", 1, &[(&any, 4, 5), (&other, 1, 1)]).await;
    let mut waits_for = async || column(&run(&mut admin, "SHOW DEMAND").await, "waits_for");
    assert_eq!(waits_for().await, [NOT_PLANNED, NOT_PLANNED]);
    let mut starter = bench.session("admin").await;
    let first = started(&mut starter).await;
    assert_eq!(waits_for().await, [NOT_PLANNED; 2], "an engine without a reservation is not on its way");
    reserved(&bench, &first).await;
    assert_eq!(waits_for().await, [&format!("engine \"{first}\": is starting"), NOT_PLANNED], "not in pool rp_2");

    let mut starting = ready(&first, "");
    (starting.phase, starting.registered, starting.address) = (Phase::Starting, false, None);
    starting.answered = false;
    starting.reason = Some("pulls its image".to_owned());
    bench.master.seen(starting).await;
    assert_eq!(waits_for().await[0], format!("engine \"{first}\": pulls its image"));
    let second = started(&mut starter).await;
    reserved(&bench, &second).await;
    let both = format!("engine \"{first}\": pulls its image; and 1 more engine is starting");
    assert_eq!(waits_for().await[0], both);
    bench.master.seen(ready(&first, "127.0.0.1:7")).await;
    assert_eq!(waits_for().await[0], format!("engine \"{second}\": is starting"));
    run(&mut starter, &format!("STOP ENGINE rp_1 '{second}'")).await;
    assert_eq!(waits_for().await[0], NOT_PLANNED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demand_for_a_type_waits_for_no_engine_of_another() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let typed = |engine_type: &str| DemandKey { engine_type: Some(engine_type.to_owned()), ..key("t_1", None, "IDE") };
    let (fusion, versioned, spark) = (typed("datafusion"), typed("datafusion-46"), typed("spark-3.5"));
    record(&bench, "p-1", 1, &[(&fusion, 1, 3), (&versioned, 1, 2), (&spark, 1, 1)]).await;
    let engine = started(&mut bench.session("admin").await).await;
    reserved(&bench, &engine).await;
    let shown = run(&mut admin, "SHOW DEMAND").await;
    assert_eq!(column(&shown, "engine_type"), ["datafusion", "datafusion-46", "spark-3.5"]);
    let on_its_way = format!("engine \"{engine}\": is starting");
    assert_eq!(column(&shown, "waits_for"), [&on_its_way, NOT_PLANNED, NOT_PLANNED]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_see_the_demand_of_their_tenants() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    {
        let _settling = bench.master.keep_settling();
        run(&mut admin, "CREATE TENANT t_2 USER_LIST ('bob')").await;
    }
    let (one, two, gone) = (key("t_1", None, "IDE"), key("t_2", None, "IDE"), key("t_3", None, "IDE"));
    record(&bench, "p-1", 1, &[(&one, 1, 3), (&two, 1, 2), (&gone, 1, 1)]).await;
    let tenants = async |user: &str, sql: &str| column(&run(&mut bench.session(user).await, sql).await, "tenant");
    assert_eq!(tenants("admin", "SHOW DEMAND").await, ["t_1", "t_2", "t_3"]);
    assert_eq!(tenants("ann", "SHOW DEMAND").await, ["t_1"]);
    assert_eq!(tenants("bob", "SHOW DEMAND TENANT t_2").await, ["t_2"]);
    assert!(tenants("eve", "SHOW DEMAND").await.is_empty());
    for tenant in ["t_1", "t_9"] {
        let sql = format!("SHOW DEMAND TENANT {tenant}");
        let error = try_run(&mut bench.session("bob").await, &sql).await.unwrap_err();
        assert_eq!(error.sqlstate(), "42501", "{error}");
    }
    assert_eq!(try_run(&mut admin, "SHOW DEMAND TENANT t_9").await.unwrap_err().sqlstate(), "42704");
    assert_eq!(tenants("admin", "SHOW DEMAND LIMIT 2").await, ["t_1", "t_2"]);
    let lines = log_of(&mut admin, "SHOW DEMAND LIMIT 2").await;
    assert!(lines.iter().any(|line| line == "2 rows are shown; LIMIT shows more"), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_on_demand_is_described_and_stopped() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    {
        let _settling = bench.master.keep_settling();
        run(&mut admin, "ALTER RESOURCE UNIT uc_1 START_ON_DEMAND TRUE").await;
    }
    let engines = [scaled(&bench).await, scaled(&bench).await];
    assert_eq!(column(&run(&mut admin, "SHOW ENGINES t_1").await, "origin"), ["demand", "demand"]);
    let described = run(&mut admin, &format!("DESC ENGINE rp_1 '{}'", engines[0])).await;
    assert_eq!(property(&described, "origin"), "demand");
    let says = |lines: &[String]| lines.iter().filter(|line| line.contains("on demand")).cloned().collect::<Vec<_>>();
    let lines = log_of(&mut admin, &format!("STOP ENGINE rp_1 '{}'", engines[0])).await;
    assert!(says(&lines).is_empty(), "no session waits: {lines:?}");
    let described = run(&mut admin, &format!("DESC ENGINE rp_1 '{}'", engines[0])).await;
    assert_eq!(property(&described, "origin"), "", "its slot is gone");

    let (of_pool, of_another) = (key("t_1", Some("rp_1"), "IDE"), key("t_1", Some("rp_2"), "IDE"));
    record(&bench, "p-1", 1, &[(&of_pool, 3, 1), (&of_another, 7, 1)]).await;
    let lines = log_of(&mut admin, &format!("STOP ENGINE rp_1 '{}'", engines[1])).await;
    let expected = "3 sessions wait for an engine, and resource unit \"uc_1\" starts engines on demand: another one may start \
                    at once";
    assert_eq!(says(&lines), [expected], "{lines:?}");
    assert!(bench.store.snapshot().await.unwrap().slots.is_empty());

    let third = started(&mut admin).await;
    {
        let _settling = bench.master.keep_settling();
        run(&mut admin, "ALTER RESOURCE UNIT uc_1 START_ON_DEMAND FALSE").await;
    }
    let lines = log_of(&mut admin, &format!("STOP ENGINE rp_1 '{third}'")).await;
    assert!(says(&lines).is_empty(), "nothing starts another one: {lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_includes_the_engines_for_waiting_sessions() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    {
        let _settling = bench.master.keep_settling();
        run(&mut admin, "ALTER RESOURCE UNIT uc_1 SESSIONS_PER_ENGINE 1").await;
    }
    let (one, two) = (key("t_1", None, "IDE"), key("t_2", None, "IDE"));
    record(&bench, "p-1", 1, &[(&one, 3, 1), (&two, 1, 1)]).await;
    let explain = "EXPLAIN ALTER RESOURCE UNIT uc_1 START_ON_DEMAND TRUE";
    let shown = run(&mut admin, explain).await;
    let decisions = column(&shown, "decision");
    let count = |decision: &str| decisions.iter().filter(|other| *other == decision).count();
    assert_eq!((count("scale"), count("create engine")), (1, 2), "at most MAX_ENGINES: {decisions:?}");
    let row = |decision: &str, name: &str| {
        let at = decisions.iter().position(|other| other == decision).unwrap();
        column(&shown, name).swap_remove(at)
    };
    assert_eq!((row("scale", "engine").as_str(), row("scale", "slot").as_str()), ("", "t_1/rp_1/uc_1"));
    let because = row("scale", "because");
    assert!(because.ends_with("adds 2 engines, because 3 sessions wait"), "{because}");
    assert_eq!(row("wait", "because"), "1 session waits: all engines are full, and MAX_ENGINES is 2");
    let lines = log_of(&mut admin, explain).await;
    let expected = "4 sessions wait for an engine: the plan assumes that they go on waiting";
    assert!(lines.iter().any(|line| line == expected), "{lines:?}");

    // A user of the tenant sees what concerns the tenant.
    let mut ann = bench.session("ann").await;
    {
        let _settling = bench.master.keep_settling();
        run(&mut admin, "ALTER RESOURCE UNIT uc_1 START_ON_DEMAND TRUE").await;
    }
    let shown = run(&mut ann, "EXPLAIN START ENGINE t_1 rp_1 uc_1").await;
    assert!(column(&shown, "decision").iter().any(|decision| decision == "scale"), "{shown:?}");
    let lines = log_of(&mut ann, "EXPLAIN START ENGINE t_1 rp_1 uc_1").await;
    let expected = "3 sessions wait for an engine: the plan assumes that they go on waiting";
    assert!(lines.iter().any(|line| line == expected), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_engine_is_shown_with_what_becomes_of_it() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let _settling = bench.master.keep_settling();
    let idle_for = |engine: &str, span: Duration| {
        let mut row = ready(engine, "127.0.0.1:7");
        row.idle_since_ms = Some(bench.fixture.clock.wall_ms() - i64::try_from(span.as_millis()).unwrap());
        (row.sessions, row.running, row.stateful) = (Some(0), Some(0), Some(0));
        row
    };
    let engine = column(&run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await, "engine").remove(0);
    // By START: what is idle is kept, and that is shown once others would have been released.
    for (span, shown) in [(4, None), (6, Some("idle for 6 min, kept by START ENGINE"))] {
        bench.master.seen(idle_for(&engine, Duration::from_mins(span))).await;
        let reason = column(&run(&mut admin, "SHOW ENGINES t_1").await, "reason").remove(0);
        assert!(shown.map_or(reason == "NULL", |shown| without_seconds(&reason) == shown), "{reason}");
    }
    let describe = format!("DESCRIBE ENGINE rp_1 '{engine}'");
    let described = run(&mut admin, &describe).await;
    assert_eq!(property(&described, "release at"), "never, by START ENGINE");
    assert_eq!((property(&described, "seats"), property(&described, "stateful sessions")), ("2000".into(), "0".into()));
    assert!(property(&described, "idle since").ends_with('Z'));
    assert!(property(&described, "age").contains(" d"), "it was started in 1970");

    run(&mut admin, &format!("STOP ENGINE rp_1 '{engine}'")).await;
    run(&mut admin, "ALTER RESOURCE UNIT uc_1 START_ON_DEMAND TRUE").await;
    let engine = scaled(&bench).await;
    let describe = format!("DESCRIBE ENGINE rp_1 '{engine}'");
    for (minutes, options, shown) in [
        (2, "IDLE_TIMEOUT '5m'", "idle for 2 min, released in 2 min"),
        (6, "IDLE_TIMEOUT '5m'", "idle for 6 min, longer than IDLE_TIMEOUT 5m"),
        (6, "SPARE_ENGINES 1", "idle for 6 min; SPARE_ENGINES is 1"),
        (6, "IDLE_TIMEOUT NEVER", "NULL"),
    ] {
        run(&mut admin, &format!("ALTER RESOURCE UNIT uc_1 {options}")).await;
        bench.master.seen(idle_for(&engine, Duration::from_mins(minutes) + Duration::from_secs(1))).await;
        let listed = run(&mut admin, "SHOW ENGINES t_1").await;
        let at = column(&listed, "engine").iter().position(|name| *name == engine).unwrap();
        let reason = column(&listed, "reason").remove(at);
        assert_eq!(without_seconds(&reason), shown, "{options}");
    }
    assert_eq!(property(&run(&mut admin, &describe).await, "release at"), "never, by IDLE_TIMEOUT");
    bench.master.seen(ready(&engine, "127.0.0.1:7")).await;
    let described = run(&mut admin, &describe).await;
    assert_eq!(property(&described, "idle since"), "", "sessions are open");
}

/// Ages without their seconds, which pass while the test runs.
fn without_seconds(text: &str) -> String {
    let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    while let Some(at) = words.iter().position(|word| word.trim_end_matches([',', ';']) == "s") {
        let minutes = words[at].replace('s', "min");
        words.splice(at - 2..=at, [minutes]);
    }
    words.join(" ")
}
