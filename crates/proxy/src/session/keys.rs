//! The entries of a session's configuration: ours, those that go on to the engine, those that never may.
//!
//! `?k=v` of a JDBC URL arrives as `set:hiveconf:k`, `#k=v` as `set:hivevar:k`, the path as `use:database`; `PyHive`
//! sends bare keys. Ours are taken out. `hive.server2.proxy.user` is taken out in every spelling, because Spark obeys
//! it blindly. Settings that choose code or files of an engine's launch are refused: an engine is launched from its
//! unit, never from what a client says.

use std::collections::BTreeMap;

use hs2::Handle;
use model::error::{ErrorKind, UserError};
use model::name::{PoolName, TenantName, UnitName};

use crate::settings::{MAX_REMEMBERED, MAX_SESSION_KEYS};

/// What a session was opened with and what it was told since.
#[derive(Debug, Default)]
pub(crate) struct SessionKeys {
    pub(crate) tenant: Option<TenantName>,
    pub(crate) pool: Option<PoolName>,
    pub(crate) unit: Option<UnitName>,
    /// The queue: another way to name a pool.
    pub(crate) queue: Option<String>,
    /// Goes on to the engine when its session is opened.
    pub(crate) forwarded: BTreeMap<String, String>,
    /// USE and SET, in order, to be replayed.
    pub(crate) remembered: Vec<Remembered>,
    /// What SET shows while no engine is bound.
    pub(crate) settings: BTreeMap<String, String>,
}

/// A statement to replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remembered {
    /// Later statements with the same subject replace earlier ones: `use`, or the key of a SET.
    pub(crate) subject: String,
    /// Its text, as it was sent.
    pub(crate) text: String,
    /// The engine's handle while it is not known how the statement ended there.
    pub(crate) pending: Option<Handle>,
}

/// The subject of USE.
pub(crate) const USE: &str = "use";
/// The entry that names the database of a new session.
const USE_DATABASE: &str = "use:database";
/// What may stand before a setting's name, as often as a client likes.
const PREFIXES: [&str; 6] = ["set:", "hiveconf:", "hivevar:", "system:", "metaconf:", "sparkconf:"];
const OURS: &str = "enginehouse.";
/// Our key for the queue, without its prefix.
pub(crate) const QUEUE: &str = "queue";
/// How sessions of a YARN cluster call it. It means nothing to our engines and never goes on.
const YARN_QUEUE: &str = "spark.yarn.queue";

/// The beginnings of keys that choose code or files of a launch.
const LAUNCH_KEYS: [&str; 10] = [
    "spark.jars",
    "spark.files",
    "spark.archives",
    "spark.plugins",
    "spark.submit.",
    "spark.driver.extra",
    "spark.executor.extra",
    "spark.driver.defaultjava",
    "spark.kubernetes.",
    "spark.extralisteners",
];

impl SessionKeys {
    /// Reads the configuration of an `OpenSession`.
    pub(crate) fn read(configuration: &BTreeMap<String, String>) -> Result<Self, UserError> {
        if configuration.len() > MAX_SESSION_KEYS {
            return Err(UserError::new(ErrorKind::ProgramLimit, "the session has too many settings")
                .detail(format!("it has {} and may have {MAX_SESSION_KEYS}", configuration.len())));
        }
        let mut keys = Self::default();
        let mut yarn_queue = None;
        for (spelled, value) in configuration {
            let lower = spelled.trim().to_ascii_lowercase();
            let bare = without_prefixes(&lower);
            if bare.starts_with("env:") {
                return Err(UserError::new(
                    ErrorKind::InsufficientPrivilege,
                    format!("setting \"{spelled}\" would change the engine's environment"),
                ));
            }
            if is_proxy_user(bare) {
                continue;
            }
            if let Some(ours) = bare.strip_prefix(OURS) {
                keys.set_own(ours, value)?;
                continue;
            }
            if bare == YARN_QUEUE {
                yarn_queue = Some(value);
                continue;
            }
            refuse_launch_key(bare)?;
            keys.forwarded.insert(spelled.clone(), value.clone());
        }
        // What names us is meant for us.
        if let Some(queue) = yarn_queue.filter(|_| keys.queue.is_none()) {
            keys.set_own(QUEUE, queue)?;
        }
        Ok(keys)
    }

    /// Sets one of our own keys, named without its prefix.
    pub(crate) fn set_own(&mut self, key: &str, value: &str) -> Result<(), UserError> {
        let given = given(value);
        match key {
            "tenant" => self.tenant = given.map(TenantName::new).transpose()?,
            "pool" => self.pool = given.map(PoolName::new).transpose()?,
            "unit" => self.unit = given.map(UnitName::new).transpose()?,
            QUEUE => self.queue = given.map(str::to_owned),
            _ => {
                return Err(UserError::new(ErrorKind::InvalidValue, format!("unknown setting \"{OURS}{key}\"")).hint(
                    "the settings are enginehouse.tenant, enginehouse.pool, enginehouse.unit and enginehouse.queue",
                ));
            }
        }
        self.settings.insert(format!("{OURS}{key}"), given.unwrap_or_default().to_owned());
        Ok(())
    }

    /// Remembers a statement for replay. Refused when there are too many: then the session could not be moved. One
    /// that an engine still works on (`pending`) does not replace what it would change before it has succeeded.
    pub(crate) fn remember(&mut self, subject: String, text: String, pending: Option<Handle>) -> Result<(), UserError> {
        if pending.is_none() {
            self.replaced(&subject);
        }
        if self.remembered.len() >= MAX_REMEMBERED {
            return Err(UserError::new(ErrorKind::ProgramLimit, "the session has too many settings")
                .detail(format!("{MAX_REMEMBERED} are remembered already")));
        }
        self.remembered.push(Remembered { subject, text, pending });
        Ok(())
    }

    /// What SET shows of a key; our own are found in every spelling.
    pub(crate) fn setting(&self, key: &str) -> Option<&str> {
        let own = own_key(key).and_then(|own| self.settings.get(&format!("{OURS}{own}")));
        own.or_else(|| self.settings.get(key)).map(String::as_str)
    }

    fn replaced(&mut self, subject: &str) {
        if subject == USE {
            // What was said when the session was opened counts no longer.
            self.forwarded.retain(|key, _| !key.eq_ignore_ascii_case(USE_DATABASE));
        }
        self.remembered.retain(|it| it.subject != subject || it.pending.is_some());
    }

    /// An engine has told how a statement ended: one that succeeded counts from now on, one that failed never did.
    /// The text of one that succeeded.
    pub(crate) fn settle(&mut self, handle: &Handle, succeeded: bool) -> Option<String> {
        let at = self.remembered.iter().position(|it| it.pending.as_ref() == Some(handle))?;
        let mut told = self.remembered.remove(at);
        if !succeeded {
            return None;
        }
        self.replaced(&told.subject);
        told.pending = None;
        let text = told.text.clone();
        self.remembered.push(told);
        Some(text)
    }

    /// Forgets a SET that an engine refused, so that it is the error of one statement and not of all. A USE stays: the
    /// next statement must not run in another database than the one that was asked for.
    pub(crate) fn forget_refused(&mut self, refused: &Remembered) {
        if refused.subject != USE {
            self.remembered.retain(|it| it != refused);
        }
    }
}

/// A value of a setting of ours without quotes and white space; nothing where it is empty.
pub(crate) fn given(value: &str) -> Option<&str> {
    let value = value.trim().trim_matches(['\'', '"', '`']);
    (!value.is_empty()).then_some(value)
}

fn without_prefixes(spelled: &str) -> &str {
    let mut bare = spelled;
    while let Some(rest) = PREFIXES.iter().find_map(|prefix| bare.strip_prefix(prefix)) {
        bare = rest.trim_start();
    }
    bare
}

/// Whether a setting's key, without its prefix, asks to act as another user.
pub(crate) fn is_proxy_user(bare: &str) -> bool {
    bare == "hive.server2.proxy.user"
}

/// Whether a SET is one of our own keys: the key without its prefix.
pub(crate) fn own_key(key: &str) -> Option<String> {
    let lower = key.trim().to_ascii_lowercase();
    match without_prefixes(&lower) {
        YARN_QUEUE => Some(QUEUE.to_owned()),
        bare => bare.strip_prefix(OURS).map(str::to_owned),
    }
}

/// Refuses a setting that would choose code or files of a launch.
pub(crate) fn refuse_launch_key(bare: &str) -> Result<(), UserError> {
    if !LAUNCH_KEYS.iter().any(|prefix| bare.starts_with(prefix)) {
        return Ok(());
    }
    Err(UserError::new(
        ErrorKind::InsufficientPrivilege,
        format!("setting \"{bare}\" chooses code or files of the engine"),
    )
    .detail("an engine is launched from its resource unit")
    .hint("an admin can set it with ALTER RESOURCE UNIT … PROPERTIES (…)"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn read(entries: &[(&str, &str)]) -> Result<SessionKeys, UserError> {
        SessionKeys::read(&entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
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
        let mut keys = SessionKeys::default();
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
        assert_eq!(keys.settle(&good, true), None, "told once");
        assert!(keys.forwarded.is_empty());
        assert_eq!(texts(&keys), ["SET k=1", "USE b"]);
    }

    #[test]
    fn a_set_that_is_refused_is_forgotten_and_a_use_is_not() {
        let mut keys = SessionKeys::default();
        keys.remember("k".to_owned(), "SET k=1".to_owned(), None).unwrap();
        keys.remember(USE.to_owned(), "USE b".to_owned(), None).unwrap();
        for refused in keys.remembered.clone() {
            keys.forget_refused(&refused);
        }
        assert_eq!(keys.remembered.len(), 1);
        assert_eq!(keys.remembered[0].subject, USE);
    }
}
