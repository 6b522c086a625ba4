//! The entries of a session's configuration: ours, those that go on to the engine, those that never may.
//!
//! `?k=v` of a JDBC URL arrives as `set:hiveconf:k`, `#k=v` as `set:hivevar:k`, the path as `use:database`; `PyHive`
//! sends bare keys. Ours are taken out. `hive.server2.proxy.user` is taken out in every spelling, because Spark obeys
//! it blindly. Settings that choose code or files of an engine's launch are refused: an engine is launched from its
//! unit, never from what a client says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hs2::Handle;
use model::error::{ErrorKind, UserError};
use model::name::{PoolName, TenantName, UnitName};
use model::observation::cut;
use model::statement_timeout;

use crate::budget::{Budget, Held};
use crate::settings::{Limits, MAX_REMEMBERED, MAX_SESSION_KEYS};

/// What a session was opened with and what it was told since.
#[derive(Debug)]
pub(crate) struct SessionSettings {
    pub(crate) tenant: Option<TenantName>,
    pub(crate) pool: Option<PoolName>,
    pub(crate) unit: Option<UnitName>,
    /// The queue: another way to name a pool.
    pub(crate) queue: Option<String>,
    /// How long a statement of the session may take; `None`: as long as its unit lets it.
    pub(crate) statement_timeout: Option<Duration>,
    /// Goes on to the engine when its session is opened.
    pub(crate) forwarded: BTreeMap<String, String>,
    /// USE and SET, in order, to be replayed.
    pub(crate) remembered: Vec<Remembered>,
    /// What SET shows while no engine is bound.
    pub(crate) shown: BTreeMap<String, String>,
    /// The longest key, value or statement that is kept, in bytes.
    max_value_bytes: usize,
    /// All that is kept here at most, in bytes.
    max_bytes: usize,
    /// What is kept here, of the proxy's budget.
    held: Held,
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
/// The database of a session that names none.
pub(crate) const DEFAULT_DATABASE: &str = "default";
/// Settings of this family are HiveServer2's and its clients': fetch sizes, result formats.
const OF_CLIENT: &str = "hive.server2.";
/// What may stand before a setting's name, as often as a client likes.
const PREFIXES: [&str; 6] = ["set:", "hiveconf:", "hivevar:", "system:", "metaconf:", "sparkconf:"];
const OURS: &str = "enginehouse.";
/// Our key for the queue, without its prefix.
pub(crate) const QUEUE: &str = "queue";
/// Our key for the longest time of a statement, without its prefix.
const STATEMENT_TIMEOUT: &str = "statement_timeout";
/// The most of a key that an error repeats, in bytes.
const MAX_SHOWN_BYTES: usize = 128;
/// How sessions of a YARN cluster call it. It means nothing to our engines and never goes on.
const YARN_QUEUE: &str = "spark.yarn.queue";

/// The beginnings of settings that choose code or files of a launch.
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

impl SessionSettings {
    /// Without any setting.
    fn new(limits: &Limits, budget: &Arc<Budget>) -> Result<Self, UserError> {
        Ok(Self {
            tenant: None,
            pool: None,
            unit: None,
            queue: None,
            statement_timeout: None,
            forwarded: BTreeMap::new(),
            remembered: Vec::new(),
            shown: BTreeMap::new(),
            max_value_bytes: limits.setting_bytes,
            max_bytes: limits.session_settings_bytes,
            held: budget.hold(0)?,
        })
    }

    /// Reads the configuration of an `OpenSession`.
    pub(crate) fn read(
        configuration: &BTreeMap<String, String>,
        limits: &Limits,
        budget: &Arc<Budget>,
    ) -> Result<Self, UserError> {
        if configuration.len() > MAX_SESSION_KEYS {
            return Err(UserError::new(ErrorKind::ProgramLimit, "the session has too many settings")
                .detail(format!("it has {} and may have {MAX_SESSION_KEYS}", configuration.len())));
        }
        let mut settings = Self::new(limits, budget)?;
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
                settings.set_own(ours, value)?;
                continue;
            }
            if bare == YARN_QUEUE {
                yarn_queue = Some(value);
                continue;
            }
            refuse_launch_key(bare)?;
            settings.check_length(spelled)?;
            settings.check_length(value)?;
            settings.reserve(spelled.len() + value.len(), 0)?;
            settings.forwarded.insert(spelled.clone(), value.clone());
        }
        // What names us is meant for us.
        if let Some(queue) = yarn_queue.filter(|_| settings.queue.is_none()) {
            settings.set_own(QUEUE, queue)?;
        }
        Ok(settings)
    }

    /// Sets one of our own settings, named without its prefix. What is refused changes nothing.
    pub(crate) fn set_own(&mut self, key: &str, value: &str) -> Result<(), UserError> {
        self.check_length(value)?;
        let given = given(value).unwrap_or_default();
        let shown = format!("{OURS}{key}");
        let mut added = shown.len() + given.len();
        let mut replaced = self.shown.get(&shown).map_or(0, |old| shown.len() + old.len());
        if key == QUEUE {
            added += given.len();
            replaced += self.queue.as_ref().map_or(0, String::len);
        }
        self.reserve(added, replaced)?;
        let applied = self.apply_own(key, Some(given).filter(|given| !given.is_empty()));
        if applied.is_ok() {
            self.shown.insert(shown, given.to_owned());
        }
        self.recount();
        applied
    }

    fn apply_own(&mut self, key: &str, given: Option<&str>) -> Result<(), UserError> {
        match key {
            "tenant" => self.tenant = given.map(TenantName::new).transpose()?,
            "pool" => self.pool = given.map(PoolName::new).transpose()?,
            "unit" => self.unit = given.map(UnitName::new).transpose()?,
            QUEUE => self.queue = given.map(str::to_owned),
            STATEMENT_TIMEOUT => self.statement_timeout = given.map(statement_timeout::parse).transpose()?.flatten(),
            _ => {
                return Err(UserError::new(
                    ErrorKind::InvalidValue,
                    format!("unknown setting \"{OURS}{}\"", cut(key, MAX_SHOWN_BYTES)),
                )
                .hint(
                    "The settings are enginehouse.tenant, enginehouse.pool, enginehouse.unit, enginehouse.queue and \
                     enginehouse.statement_timeout.",
                ));
            }
        }
        Ok(())
    }

    /// Whether a key, value or statement is short enough to be kept.
    fn check_length(&self, text: &str) -> Result<(), UserError> {
        if text.len() <= self.max_value_bytes {
            return Ok(());
        }
        Err(UserError::new(ErrorKind::ProgramLimit, "session setting too long").detail(format!(
            "It has {} bytes and may have {}.",
            text.len(),
            self.max_value_bytes
        )))
    }

    /// Reserves `added` bytes, which take the place of `replaced` ones.
    fn reserve(&mut self, added: usize, replaced: usize) -> Result<(), UserError> {
        let bytes = (self.bytes() + added).saturating_sub(replaced);
        if bytes > self.max_bytes {
            return Err(UserError::new(ErrorKind::ProgramLimit, "the session has too many settings")
                .detail(format!("They would take {bytes} bytes of at most {}.", self.max_bytes)));
        }
        self.held.resize(bytes)
    }

    /// What is kept, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let pairs = self.forwarded.iter().chain(&self.shown).map(|(key, value)| key.len() + value.len());
        let remembered = self.remembered.iter().map(Remembered::bytes);
        pairs.chain(remembered).sum::<usize>() + self.queue.as_ref().map_or(0, String::len)
    }

    /// Returns what a reservation has too much of. Every change that adds bytes reserves them first.
    fn recount(&mut self) {
        // Less always fits.
        let _ = self.held.resize(self.bytes().min(self.held.bytes()));
    }

    /// Keeps a value for SET to show, which an engine has accepted. One that does not fit is left out: once an engine
    /// is bound, the engine shows its settings.
    pub(crate) fn show(&mut self, key: &str, value: &str) {
        let shown = self.shown.get(key).map_or(0, |old| key.len() + old.len());
        let is_new = !self.shown.contains_key(key);
        let fits = self.check_length(value).is_ok() && !(is_new && self.shown.len() >= MAX_SESSION_KEYS);
        if fits && self.reserve(key.len() + value.len(), shown).is_ok() {
            self.shown.insert(key.to_owned(), value.to_owned());
        }
    }

    /// Remembers a statement for replay. Refused when there are too many: then the session could not be moved. One
    /// that an engine still works on (`pending`) does not replace what it would change before it has succeeded.
    pub(crate) fn remember(&mut self, subject: String, text: String, pending: Option<Handle>) -> Result<(), UserError> {
        self.check_length(&text)?;
        let is_replaced = |it: &&Remembered| pending.is_none() && it.subject == subject && it.pending.is_none();
        let replaced: Vec<usize> = self.remembered.iter().filter(is_replaced).map(Remembered::bytes).collect();
        if self.remembered.len() - replaced.len() >= MAX_REMEMBERED {
            return Err(UserError::new(ErrorKind::ProgramLimit, "the session has too many settings")
                .detail(format!("{MAX_REMEMBERED} are remembered already")));
        }
        self.reserve(subject.len() + text.len(), replaced.iter().sum())?;
        if pending.is_none() {
            self.replaced(&subject);
        }
        self.remembered.push(Remembered { subject, text, pending });
        self.recount();
        Ok(())
    }

    /// Whether the session was opened with something that an engine could refuse: a database other than the default one,
    /// or a setting.
    pub(crate) fn may_be_refused(&self) -> bool {
        let is_default = |key: &str, value: &str| {
            key.eq_ignore_ascii_case(USE_DATABASE)
                && given(value).is_none_or(|name| name.eq_ignore_ascii_case(DEFAULT_DATABASE))
        };
        self.forwarded.iter().any(|(key, value)| !is_default(key, value) && !is_of_client(key))
    }

    /// What SET shows of a key; our own are found in every spelling.
    pub(crate) fn setting(&self, key: &str) -> Option<&str> {
        let own = own_key(key).and_then(|own| self.shown.get(&format!("{OURS}{own}")));
        own.or_else(|| self.shown.get(key)).map(String::as_str)
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
            self.recount();
            return None;
        }
        self.replaced(&told.subject);
        told.pending = None;
        let text = told.text.clone();
        self.remembered.push(told);
        self.recount();
        Some(text)
    }

    /// Forgets a SET that an engine refused, so that it is the error of one statement and not of all. A USE stays: the
    /// next statement must not run in another database than the one that was asked for.
    pub(crate) fn forget_refused(&mut self, refused: &Remembered) {
        if refused.subject != USE {
            self.remembered.retain(|it| it != refused);
            self.recount();
        }
    }
}

impl Remembered {
    fn bytes(&self) -> usize {
        self.subject.len() + self.text.len()
    }
}

/// A value of a setting of ours without quotes and white space; nothing where it is empty.
pub(crate) fn given(value: &str) -> Option<&str> {
    let value = value.trim().trim_matches(['\'', '"', '`']);
    (!value.is_empty()).then_some(value)
}

/// Whether a key is for the client's own use: drivers send some with every session, which no engine refuses.
fn is_of_client(key: &str) -> bool {
    let lower = key.trim().to_ascii_lowercase();
    lower.starts_with("set:hivevar:") || without_prefixes(&lower).starts_with(OF_CLIENT)
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

/// Whether a SET is one of our own settings: the key without its prefix.
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
mod tests;
