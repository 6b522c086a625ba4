//! Session settings: which are ours, which are refused, and how many bytes are kept.

#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;

fn read(entries: &[(&str, &str)]) -> Result<SessionSettings, UserError> {
    let limits = Limits { session_settings_bytes: 100, setting_bytes: 60, ..Limits::default() };
    let configuration = entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    SessionSettings::read(&configuration, &limits, &Budget::new(1_000, Arc::default()))
}

#[test]
fn settings_are_refused_beyond_their_bytes_and_replaced_within_them() {
    let mut settings = read(&[("a", &"x".repeat(59))]).unwrap();
    for too_long in [&[("a", &*"x".repeat(61))][..], &[("a", &"x".repeat(59)), ("b", &"x".repeat(59))]] {
        assert_eq!(read(too_long).unwrap_err().sqlstate(), "54000");
    }
    let set = |settings: &mut SessionSettings, bytes: usize| settings.remember("k".to_owned(), "x".repeat(bytes), None);
    set(&mut settings, 39).unwrap();
    assert_eq!(settings.bytes(), 100);
    assert_eq!(set(&mut settings, 40).unwrap_err().sqlstate(), "54000");
    assert_eq!(settings.bytes(), 100, "a refused SET replaces nothing");
    set(&mut settings, 38).unwrap();
    assert_eq!((settings.bytes(), settings.budget_guard.bytes()), (99, 99));
    settings.show("k", "v");
    assert_eq!(settings.setting("k"), None, "a value that does not fit is not shown");
    settings.forget_refused(&settings.replay_log[0].clone());
    settings.show("k", "v");
    assert_eq!((settings.setting("k"), settings.budget_guard.bytes()), (Some("v"), 62));
}

#[test]
fn own_settings_count_in_the_budget() {
    let limits = Limits::default();
    let budget = Budget::new(300, Arc::default());
    let mut settings = SessionSettings::read(&BTreeMap::new(), &limits, &budget).unwrap();
    settings.set_own(QUEUE, &"q".repeat(100)).unwrap();
    assert_eq!((settings.bytes(), settings.budget_guard.bytes()), (217, 217), "the queue's name is kept twice");
    // Leading zeros make a short time a long text.
    let long = format!("{}30s", "0".repeat(100));
    assert_eq!(settings.set_own(STATEMENT_TIMEOUT, &long).unwrap_err().sqlstate(), "54000");
    assert_eq!((settings.statement_timeout, settings.budget_guard.bytes()), (None, 217));
    assert_eq!(settings.set_own(QUEUE, &"r".repeat(150)).unwrap_err().sqlstate(), "54000");
    assert_eq!(settings.queue.as_deref().map(str::len), Some(100));
    assert_eq!(settings.set_own("tenant", "no name").unwrap_err().sqlstate(), "42602");
    assert_eq!(settings.budget_guard.bytes(), 217);
    settings.set_own(QUEUE, "").unwrap();
    assert_eq!((settings.queue.as_deref(), settings.bytes(), settings.budget_guard.bytes()), (None, 17, 17));
}

#[test]
fn own_settings_are_found_in_every_form_and_not_forwarded() {
    for key in ["set:hiveconf:enginehouse.tenant", "set:hivevar:enginehouse.tenant", "enginehouse.tenant"] {
        let settings = read(&[(key, "t_1"), ("set:hiveconf:a", "1")]).unwrap();
        assert_eq!(settings.tenant.unwrap().as_str(), "t_1", "{key}");
        assert_eq!(settings.forwarded.into_iter().collect::<Vec<_>>(), [("set:hiveconf:a".to_owned(), "1".to_owned())]);
    }
    assert!(read(&[("enginehouse.tennant", "t_1")]).unwrap_err().hint.is_some());
}

#[test]
fn a_queue_is_ours_under_both_names_and_our_name_takes_precedence() {
    for key in ["enginehouse.queue", "spark.yarn.queue", "set:hiveconf:spark.yarn.queue", "Spark.Yarn.Queue"] {
        let settings = read(&[(key, " 'etl.daily' "), ("a", "1")]).unwrap();
        assert_eq!(settings.queue.as_deref(), Some("etl.daily"), "{key}");
        assert_eq!(settings.setting("spark.yarn.queue"), Some("etl.daily"));
        assert_eq!(settings.forwarded.into_keys().collect::<Vec<_>>(), ["a"], "{key}");
    }
    let both = read(&[("set:hiveconf:spark.yarn.queue", "a"), ("set:hiveconf:enginehouse.queue", "b")]).unwrap();
    assert_eq!(both.queue.as_deref(), Some("b"));
    let mut settings = read(&[("enginehouse.queue", "")]).unwrap();
    assert_eq!(settings.queue, None);
    settings.set_own(QUEUE, "etl").unwrap();
    settings.set_own(QUEUE, "''").unwrap();
    assert_eq!(settings.queue, None);
}

#[test]
fn the_creator_is_named_by_the_session_else_by_its_client() {
    let creator = |entries: &[(&str, &str)]| read(entries).unwrap().creator().map(str::to_owned);
    assert_eq!(creator(&[("a", "1")]), None);
    assert_eq!(creator(&[("set:hivevar:wmapp", "DBeaver")]).as_deref(), Some("DBeaver"));
    assert_eq!(creator(&[("spark.app.name", "etl"), ("set:hivevar:wmapp", "IDE")]).as_deref(), Some("IDE"));
    assert_eq!(creator(&[("set:hivevar:wmapp", "a\u{7}"), ("spark.app.name", "etl")]).as_deref(), Some("etl"));
    assert_eq!(creator(&[("enginehouse.creator", "ours"), ("wmapp", "IDE")]).as_deref(), Some("ours"));
    let mut settings = read(&[("wmapp", "IDE")]).unwrap();
    settings.set_own("creator", "'etl'").unwrap();
    assert_eq!(settings.creator(), Some("etl"));
    assert_eq!(settings.set_own("creator", "@etl").unwrap_err().sqlstate(), "22023");
    assert_eq!(settings.creator(), Some("etl"), "a refused SET changes nothing");
    settings.set_own("creator", "''").unwrap();
    assert_eq!(settings.creator(), Some("IDE"));
}

#[test]
fn an_engine_type_has_an_optional_version_and_an_unknown_one_is_refused() {
    let mut settings = read(&[("set:hiveconf:enginehouse.engine_type", "Spark-3.5")]).unwrap();
    let asked = |settings: &SessionSettings| settings.engine_type.as_ref().map(ToString::to_string);
    assert_eq!(asked(&settings).as_deref(), Some("spark-3.5"));
    for refused in ["presto", "spark-", "spark 3.5"] {
        assert_eq!(settings.set_own("engine_type", refused).unwrap_err().sqlstate(), "22023", "{refused}");
    }
    assert_eq!(asked(&settings).as_deref(), Some("spark-3.5"), "a refused SET changes nothing");
    settings.set_own("engine_type", "''").unwrap();
    assert_eq!(asked(&settings), None);
    assert_eq!(read(&[("enginehouse.engine_type", "presto")]).unwrap_err().sqlstate(), "22023");
}

#[test]
fn impersonation_and_launch_settings_are_not_forwarded() {
    let spellings = [
        "hive.server2.proxy.user",
        "set:hiveconf:hive.server2.proxy.user",
        "SET:HIVECONF:Hive.Server2.Proxy.User",
        "set:hivevar:hiveconf:hive.server2.proxy.user",
        "set:hive.server2.proxy.user",
        " set:hiveconf: hive.server2.proxy.user ",
        "kyuubi.session.proxy.user",
        "set:hiveconf:Kyuubi.Session.Proxy.User",
        "other:hive.server2.proxy.user",
    ];
    for key in spellings {
        let settings = read(&[(key, " ceo ")]).unwrap();
        assert!(settings.forwarded.is_empty() && settings.proxy_users.iter().eq(["ceo"]), "{key}");
    }
    for key in ["set:hiveconf:spark.jars", "spark.driver.extraJavaOptions", "set:hivevar:spark.kubernetes.x"] {
        assert_eq!(read(&[(key, "x")]).unwrap_err().sqlstate(), "42501", "{key}");
    }
    assert_eq!(read(&[("set:env:PATH", "x")]).unwrap_err().sqlstate(), "42501");
}

#[test]
fn the_replay_log_keeps_the_last_statement_of_each_subject() {
    let mut settings = read(&[]).unwrap();
    for (subject, text) in [("use", "USE a"), ("k", "SET k=1"), ("use", "USE b")] {
        settings.remember(subject.to_owned(), text.to_owned(), None).unwrap();
    }
    let texts: Vec<&str> = settings.replay_log.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(texts, ["SET k=1", "USE b"]);
}

#[test]
fn a_statement_that_failed_at_the_engine_replaces_nothing() {
    let mut settings = read(&[("use:database", "a")]).unwrap();
    let texts =
        |settings: &SessionSettings| settings.replay_log.iter().map(|entry| entry.text.clone()).collect::<Vec<_>>();
    let (bad, good) = (Handle::random(), Handle::random());
    settings.remember("k".to_owned(), "SET k=1".to_owned(), None).unwrap();
    settings.remember("k".to_owned(), "SET k=bad".to_owned(), Some(bad)).unwrap();
    settings.remember(USE.to_owned(), "USE b".to_owned(), Some(good)).unwrap();
    assert_eq!(texts(&settings), ["SET k=1", "SET k=bad", "USE b"]);
    assert_eq!(settings.confirm(&bad, false), None);
    assert_eq!(texts(&settings), ["SET k=1", "USE b"]);
    assert_eq!(settings.forwarded.len(), 1, "USE has not succeeded yet");
    assert_eq!(settings.confirm(&good, true).as_deref(), Some("USE b"));
    assert_eq!(settings.confirm(&good, true), None, "reported once");
    assert!(settings.forwarded.is_empty());
    assert_eq!(texts(&settings), ["SET k=1", "USE b"]);
}

#[test]
fn a_refused_set_leaves_the_replay_log_and_a_use_does_not() {
    let mut settings = read(&[]).unwrap();
    settings.remember("k".to_owned(), "SET k=1".to_owned(), None).unwrap();
    settings.remember(USE.to_owned(), "USE b".to_owned(), None).unwrap();
    for refused in settings.replay_log.clone() {
        settings.forget_refused(&refused);
    }
    assert_eq!(settings.replay_log.len(), 1);
    assert_eq!(settings.replay_log[0].subject, USE);
}
