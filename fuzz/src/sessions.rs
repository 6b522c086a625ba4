//! The target that reads the settings with which a client opens a session.

use std::collections::BTreeMap;

use proxy::fuzzing::{MAX_BYTES, open_session_keys, set_is_refused};

/// Settings that choose code or files of an engine's launch, and those that name a user: no engine may receive them.
const LAUNCH: [&str; 4] = ["spark.jars", "spark.submit.", "spark.driver.extra", "spark.kubernetes."];
const USERS: [&str; 2] = ["hive.server2.proxy.user", "kyuubi.session.proxy.user"];

/// The key behind the prefixes that engines know, each of which ends with a colon.
fn bare(key: &str) -> String {
    key.rsplit(':').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether a SET with this key has one spelling only.
fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':'))
}

/// Settings, one per line as `key=value`. What is forwarded to an engine chooses neither its code nor a user, and what is refused when
/// a session is opened is refused by SET, too.
pub fn session_keys(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let settings: BTreeMap<String, String> = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    if let Ok(keys) = open_session_keys(&settings) {
        for key in keys.forwarded.keys() {
            let bare = bare(key);
            assert!(!LAUNCH.iter().any(|prefix| bare.starts_with(prefix)), "{key:?} is forwarded");
            assert!(!USERS.contains(&&*bare), "{key:?} is forwarded");
            assert!(!key.trim().to_ascii_lowercase().starts_with("enginehouse."), "{key:?} is ours");
        }
        let named = settings.keys().filter(|key| USERS.contains(&&*bare(key))).count();
        assert!((1..=named).contains(&keys.proxy_users.len()) || named == 0, "{:?}", keys.proxy_users);
        assert!(keys.bytes <= MAX_BYTES, "{} bytes are kept", keys.bytes);
    }
    for (key, value) in settings.iter().filter(|(key, _)| is_plain(key)) {
        let alone = BTreeMap::from([(key.clone(), value.clone())]);
        let is_of_launch = open_session_keys(&alone).is_err_and(|error| error.sqlstate() == "42501");
        if is_of_launch || USERS.contains(&&*bare(key)) {
            assert!(set_is_refused(&format!("SET {key}={value}")), "SET {key}={value}");
        }
    }
}
