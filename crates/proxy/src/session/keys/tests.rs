//! Keys of sessions: whose they are, and how many bytes of them are kept.

#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;

fn read(entries: &[(&str, &str)]) -> Result<SessionKeys, UserError> {
    let limits = Limits { session_settings_bytes: 100, setting_bytes: 60, ..Limits::default() };
    let configuration = entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    SessionKeys::read(&configuration, &limits, &Budget::new(1_000))
}

#[test]
fn settings_are_refused_beyond_their_bytes_and_replaced_within_them() {
    let mut keys = read(&[("a", &"x".repeat(59))]).unwrap();
    for too_long in [&[("a", &*"x".repeat(61))][..], &[("a", &"x".repeat(59)), ("b", &"x".repeat(59))]] {
        assert_eq!(read(too_long).unwrap_err().sqlstate(), "54000");
    }
    let set = |keys: &mut SessionKeys, bytes: usize| keys.remember("k".to_owned(), "x".repeat(bytes), None);
    set(&mut keys, 39).unwrap();
    assert_eq!(keys.bytes(), 100);
    assert_eq!(set(&mut keys, 40).unwrap_err().sqlstate(), "54000");
    assert_eq!(keys.bytes(), 100, "a refused SET replaces nothing");
    set(&mut keys, 38).unwrap();
    assert_eq!((keys.bytes(), keys.held.bytes()), (99, 99));
    keys.show("k", "v");
    assert_eq!(keys.setting("k"), None, "what does not fit is not shown");
    keys.forget_refused(&keys.remembered[0].clone());
    keys.show("k", "v");
    assert_eq!((keys.setting("k"), keys.held.bytes()), (Some("v"), 62));
}

#[test]
fn our_own_keys_count_in_the_budget_and_what_is_refused_changes_nothing() {
    let limits = Limits::default();
    let budget = Budget::new(300);
    let mut keys = SessionKeys::read(&BTreeMap::new(), &limits, &budget).unwrap();
    keys.set_own(QUEUE, &"q".repeat(100)).unwrap();
    assert_eq!((keys.bytes(), keys.held.bytes()), (217, 217), "the queue's name is kept twice");
    // Leading zeros make a short time a long text.
    let long = format!("{}30s", "0".repeat(100));
    assert_eq!(keys.set_own(STATEMENT_TIMEOUT, &long).unwrap_err().sqlstate(), "54000");
    assert_eq!((keys.statement_timeout, keys.held.bytes()), (None, 217));
    assert_eq!(keys.set_own(QUEUE, &"r".repeat(150)).unwrap_err().sqlstate(), "54000");
    assert_eq!(keys.queue.as_deref().map(str::len), Some(100));
    assert_eq!(keys.set_own("tenant", "no name").unwrap_err().sqlstate(), "42602");
    assert_eq!(keys.held.bytes(), 217);
    keys.set_own(QUEUE, "").unwrap();
    assert_eq!((keys.queue.as_deref(), keys.bytes(), keys.held.bytes()), (None, 17, 17));
}

#[test]
fn our_keys_are_found_in_every_form_and_do_not_go_on() {
    for key in ["set:hiveconf:enginehouse.tenant", "set:hivevar:enginehouse.tenant", "enginehouse.tenant"] {
        let keys = read(&[(key, "t_1"), ("set:hiveconf:a", "1")]).unwrap();
        assert_eq!(keys.tenant.unwrap().as_str(), "t_1", "{key}");
        assert_eq!(keys.forwarded.into_iter().collect::<Vec<_>>(), [("set:hiveconf:a".to_owned(), "1".to_owned())]);
    }
    assert!(read(&[("enginehouse.tennant", "t_1")]).unwrap_err().hint.is_some());
}

#[test]
fn a_queue_is_ours_under_both_names_and_our_name_counts_first() {
    for key in ["enginehouse.queue", "spark.yarn.queue", "set:hiveconf:spark.yarn.queue", "Spark.Yarn.Queue"] {
        let keys = read(&[(key, " 'etl.daily' "), ("a", "1")]).unwrap();
        assert_eq!(keys.queue.as_deref(), Some("etl.daily"), "{key}");
        assert_eq!(keys.setting("spark.yarn.queue"), Some("etl.daily"));
        assert_eq!(keys.forwarded.into_keys().collect::<Vec<_>>(), ["a"], "{key}");
    }
    let both = read(&[("set:hiveconf:spark.yarn.queue", "a"), ("set:hiveconf:enginehouse.queue", "b")]).unwrap();
    assert_eq!(both.queue.as_deref(), Some("b"));
    let mut keys = read(&[("enginehouse.queue", "")]).unwrap();
    assert_eq!(keys.queue, None);
    keys.set_own(QUEUE, "etl").unwrap();
    keys.set_own(QUEUE, "''").unwrap();
    assert_eq!(keys.queue, None);
}

#[test]
fn nobody_becomes_another_user_or_changes_a_launch() {
    let spellings = [
        "hive.server2.proxy.user",
        "set:hiveconf:hive.server2.proxy.user",
        "SET:HIVECONF:Hive.Server2.Proxy.User",
        "set:hivevar:hiveconf:hive.server2.proxy.user",
        "set:hive.server2.proxy.user",
        " set:hiveconf: hive.server2.proxy.user ",
    ];
    for key in spellings {
        assert!(read(&[(key, "ceo")]).unwrap().forwarded.is_empty(), "{key}");
    }
    for key in ["set:hiveconf:spark.jars", "spark.driver.extraJavaOptions", "set:hivevar:spark.kubernetes.x"] {
        assert_eq!(read(&[(key, "x")]).unwrap_err().sqlstate(), "42501", "{key}");
    }
    assert_eq!(read(&[("set:env:PATH", "x")]).unwrap_err().sqlstate(), "42501");
}

#[test]
fn the_last_of_each_subject_is_remembered_in_order() {
    let mut keys = read(&[]).unwrap();
    for (subject, text) in [("use", "USE a"), ("k", "SET k=1"), ("use", "USE b")] {
        keys.remember(subject.to_owned(), text.to_owned(), None).unwrap();
    }
    let texts: Vec<&str> = keys.remembered.iter().map(|it| it.text.as_str()).collect();
    assert_eq!(texts, ["SET k=1", "USE b"]);
}

#[test]
fn what_an_engine_refused_in_the_end_replaces_nothing() {
    let mut keys = read(&[("use:database", "a")]).unwrap();
    let texts = |keys: &SessionKeys| keys.remembered.iter().map(|it| it.text.clone()).collect::<Vec<_>>();
    let (bad, good) = (Handle::random(), Handle::random());
    keys.remember("k".to_owned(), "SET k=1".to_owned(), None).unwrap();
    keys.remember("k".to_owned(), "SET k=bad".to_owned(), Some(bad)).unwrap();
    keys.remember(USE.to_owned(), "USE b".to_owned(), Some(good)).unwrap();
    assert_eq!(texts(&keys), ["SET k=1", "SET k=bad", "USE b"]);
    assert_eq!(keys.settle(&bad, false), None);
    assert_eq!(texts(&keys), ["SET k=1", "USE b"]);
    assert_eq!(keys.forwarded.len(), 1, "USE has not succeeded yet");
    assert_eq!(keys.settle(&good, true).as_deref(), Some("USE b"));
    assert_eq!(keys.settle(&good, true), None, "reported once");
    assert!(keys.forwarded.is_empty());
    assert_eq!(texts(&keys), ["SET k=1", "USE b"]);
}

#[test]
fn a_set_that_is_refused_is_forgotten_and_a_use_is_not() {
    let mut keys = read(&[]).unwrap();
    keys.remember("k".to_owned(), "SET k=1".to_owned(), None).unwrap();
    keys.remember(USE.to_owned(), "USE b".to_owned(), None).unwrap();
    for refused in keys.remembered.clone() {
        keys.forget_refused(&refused);
    }
    assert_eq!(keys.remembered.len(), 1);
    assert_eq!(keys.remembered[0].subject, USE);
}
