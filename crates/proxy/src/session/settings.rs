//! The settings of a session: ours, those that are forwarded to the engine, and the replay log.
//!
//! `?k=v` of a JDBC URL arrives as `set:hiveconf:k`, `#k=v` as `set:hivevar:k`, the path as `use:database`; `PyHive`
//! sends bare keys. Our own settings are never forwarded, nor is the user to impersonate, in any spelling: Spark would
//! apply it without a check. Settings that choose code or files of an engine's launch are refused: an engine is
//! launched from its resource unit, never from a client's settings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ddl::SessionStatement;
use hs2::{Handle, Limit};
use model::error::{ErrorKind, UserError};
use model::name::{PoolName, TenantName, UnitName};
use model::statement_timeout;
use model::text::cut;
use model::type_selector::TypeSelector;
use model::user_name::{MAX_USER_NAME_BYTES, is_user_name};

use crate::budget::{Budget, BudgetGuard};
use crate::settings::{Limits, MAX_REMEMBERED, MAX_SESSION_KEYS};

#[derive(Debug)]
pub(crate) struct SessionSettings {
    pub(crate) tenant: Option<TenantName>,
    pub(crate) pool: Option<PoolName>,
    pub(crate) unit: Option<UnitName>,
    /// The engine type, optionally with a version.
    pub(crate) engine_type: Option<TypeSelector>,
    /// The queue: another way to name a pool.
    pub(crate) queue: Option<String>,
    /// The users that the session asks to impersonate: one, unless its settings contradict each other.
    pub(crate) proxy_users: BTreeSet<String>,
    /// The statement timeout of the session; `None`: only that of its unit counts.
    pub(crate) statement_timeout: Option<Duration>,
    /// Sent to the engine when its session is opened.
    pub(crate) forwarded: BTreeMap<String, String>,
    /// USE and SET, in order, replayed at each binding.
    pub(crate) replay_log: Vec<ReplayedStatement>,
    /// The settings that SET shows while no engine is bound.
    pub(crate) shown: BTreeMap<String, String>,
    /// The longest key, value or statement that is kept, in bytes.
    max_value_bytes: usize,
    /// The most bytes that are kept in all.
    max_bytes: usize,
    /// The bytes that are kept, of the proxy's budget.
    budget_guard: BudgetGuard,
}

/// An entry of the replay log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplayedStatement {
    /// `use`, or the key of a SET: a later statement with the same subject replaces an earlier one.
    pub(crate) subject: String,
    pub(crate) text: String,
    /// The engine's handle while the engine runs the statement.
    pub(crate) pending: Option<Handle>,
}

/// The subject of USE.
pub(crate) const USE: &str = "use";
/// The entry that names the database of a new session.
const USE_DATABASE: &str = "use:database";
/// The database of a session that names none.
pub(crate) const DEFAULT_DATABASE: &str = "default";
/// Settings of HiveServer2 and its clients, such as fetch sizes and result formats.
const OF_CLIENT: &str = "hive.server2.";
/// Prefixes of a setting's name; clients may repeat them.
const PREFIXES: [&str; 6] = ["set:", "hiveconf:", "hivevar:", "system:", "metaconf:", "sparkconf:"];
const OURS: &str = "enginehouse.";
/// Our key for the queue, without [`OURS`].
pub(crate) const QUEUE: &str = "queue";
/// Our key for the engine type, without [`OURS`].
const ENGINE_TYPE: &str = "engine_type";
/// Our key for the statement timeout, without [`OURS`].
const STATEMENT_TIMEOUT: &str = "statement_timeout";
/// Our key for the creator, the client application that engines are started for, without [`OURS`].
const CREATOR: &str = "creator";
/// The keys in which clients send the name of their application, the most specific first: `applicationName` of Hive
/// JDBC arrives as the first.
const APPLICATION_KEYS: [&str; 2] = ["wmapp", "spark.app.name"];
/// The most bytes of a key that an error shows.
const MAX_SHOWN_BYTES: usize = 128;
/// The key for the queue in clients of YARN clusters. Never forwarded: it means nothing to our engines.
const YARN_QUEUE: &str = "spark.yarn.queue";

/// The keys that name a user to impersonate: of HiveServer2 and of Kyuubi.
const PROXY_USER_KEYS: [&str; 2] = ["hive.server2.proxy.user", "kyuubi.session.proxy.user"];

/// The prefix of a variable of the environment.
const ENVIRONMENT: &str = "env";

/// Prefixes of settings that choose code or files of a launch.
const LAUNCH_KEYS: [&str; 13] = [
    "spark.jars",
    "spark.files",
    "spark.archives",
    "spark.plugins",
    "spark.submit.",
    "spark.driver.extra",
    "spark.executor.extra",
    "spark.driver.defaultjava",
    "spark.executor.defaultjava",
    "spark.executorenv.",
    "spark.yarn.dist.",
    "spark.kubernetes.",
    "spark.extralisteners",
];

impl SessionSettings {
    fn new(limits: &Limits, budget: &Arc<Budget>) -> Result<Self, UserError> {
        Ok(Self {
            tenant: None,
            pool: None,
            unit: None,
            engine_type: None,
            queue: None,
            proxy_users: BTreeSet::new(),
            statement_timeout: None,
            forwarded: BTreeMap::new(),
            replay_log: Vec::new(),
            shown: BTreeMap::new(),
            max_value_bytes: limits.setting_bytes,
            max_bytes: limits.session_settings_bytes,
            budget_guard: budget.acquire(0)?,
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
                .detail(format!("It has {} settings, and the limit is {MAX_SESSION_KEYS}.", configuration.len())));
        }
        let mut settings = Self::new(limits, budget)?;
        let mut yarn_queue = None;
        for (spelled, value) in configuration {
            let lower = spelled.trim().to_ascii_lowercase();
            let bare = without_prefixes(&lower);
            if is_proxy_user(bare) {
                settings.check_length(value)?;
                settings.proxy_users.insert(value.trim().to_owned());
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
            check_not_of_launch(spelled)?;
            settings.check_length(spelled)?;
            settings.check_length(value)?;
            settings.acquire(spelled.len() + value.len(), 0)?;
            settings.forwarded.insert(spelled.clone(), value.clone());
        }
        // The key with our own prefix takes precedence.
        if let Some(queue) = yarn_queue.filter(|_| settings.queue.is_none()) {
            settings.set_own(QUEUE, queue)?;
        }
        Ok(settings)
    }

    /// Applies one of our own settings, named without its prefix. Has no effect if it is refused.
    pub(crate) fn set_own(&mut self, key: &str, value: &str) -> Result<(), UserError> {
        self.check_length(value)?;
        let unquoted = unquoted(value).unwrap_or_default();
        let shown = format!("{OURS}{key}");
        let mut added = shown.len() + unquoted.len();
        let mut replaced = self.shown.get(&shown).map_or(0, |old| shown.len() + old.len());
        if key == QUEUE {
            added += unquoted.len();
            replaced += self.queue.as_ref().map_or(0, String::len);
        }
        self.acquire(added, replaced)?;
        let applied = self.apply_own(key, Some(unquoted).filter(|value| !value.is_empty()));
        if applied.is_ok() {
            self.shown.insert(shown, unquoted.to_owned());
        }
        self.recount();
        applied
    }

    fn apply_own(&mut self, key: &str, value: Option<&str>) -> Result<(), UserError> {
        match key {
            "tenant" => self.tenant = value.map(TenantName::new).transpose()?,
            "pool" => self.pool = value.map(PoolName::new).transpose()?,
            "unit" => self.unit = value.map(UnitName::new).transpose()?,
            ENGINE_TYPE => self.engine_type = value.map(str::parse).transpose()?,
            QUEUE => self.queue = value.map(str::to_owned),
            STATEMENT_TIMEOUT => self.statement_timeout = value.map(statement_timeout::parse).transpose()?.flatten(),
            // Read from what SET shows.
            CREATOR => value.map_or(Ok(()), check_creator)?,
            _ => {
                return Err(UserError::new(
                    ErrorKind::InvalidValue,
                    format!("unknown setting \"{OURS}{}\"", cut(key, MAX_SHOWN_BYTES)),
                )
                .hint(
                    "The settings are enginehouse.tenant, enginehouse.pool, enginehouse.unit, enginehouse.engine_type, \
                     enginehouse.queue, enginehouse.creator and enginehouse.statement_timeout.",
                ));
            }
        }
        Ok(())
    }

    /// Refuses a key, value or statement that is too long to be kept.
    fn check_length(&self, text: &str) -> Result<(), UserError> {
        if text.len() <= self.max_value_bytes {
            return Ok(());
        }
        Err(UserError::new(ErrorKind::ProgramLimit, "session setting too long").detail(format!(
            "It has {} bytes, and the limit is {}.",
            text.len(),
            self.max_value_bytes
        )))
    }

    /// Acquires `added` bytes, which replace `replaced` ones.
    fn acquire(&mut self, added: usize, replaced: usize) -> Result<(), UserError> {
        let bytes = (self.bytes() + added).saturating_sub(replaced);
        if bytes > self.max_bytes {
            self.budget_guard.budget().limit_reached(Limit::SessionSettingBytes);
            return Err(UserError::new(ErrorKind::ProgramLimit, "the session has too many settings")
                .detail(format!("They would take {bytes} bytes of at most {}.", self.max_bytes)));
        }
        self.budget_guard.resize(bytes)
    }

    /// The bytes that are kept.
    pub(crate) fn bytes(&self) -> usize {
        let pairs = self.forwarded.iter().chain(&self.shown).map(|(key, value)| key.len() + value.len());
        let replay_log = self.replay_log.iter().map(ReplayedStatement::bytes);
        pairs.chain(replay_log).sum::<usize>() + self.queue.as_ref().map_or(0, String::len)
    }

    /// Releases surplus bytes. Every change that adds bytes acquires them first.
    fn recount(&mut self) {
        // Fewer bytes always succeed.
        let _ = self.budget_guard.resize(self.bytes().min(self.budget_guard.bytes()));
    }

    /// Records a value for SET to show. One that does not fit is left out: a bound engine shows its settings itself.
    pub(crate) fn show(&mut self, key: &str, value: &str) {
        let shown = self.shown.get(key).map_or(0, |old| key.len() + old.len());
        let is_new = !self.shown.contains_key(key);
        let fits = self.check_length(value).is_ok() && !(is_new && self.shown.len() >= MAX_SESSION_KEYS);
        if fits && self.acquire(key.len() + value.len(), shown).is_ok() {
            self.shown.insert(key.to_owned(), value.to_owned());
        }
    }

    /// Appends USE or SET to the replay log. `pending`: an engine still runs it, under this handle.
    pub(crate) fn remember_statement(
        &mut self,
        text: &str,
        statement: &SessionStatement<'_>,
        pending: Option<Handle>,
    ) -> Result<(), UserError> {
        let subject = match statement {
            SessionStatement::Use { .. } => USE.to_owned(),
            SessionStatement::Set { key, .. } => format!("set {key}"),
            SessionStatement::ShowSetting { .. } | SessionStatement::ListSettings { .. } => return Ok(()),
        };
        self.remember(subject, text.to_owned(), pending)
    }

    /// Appends a statement to the replay log. Refused when the log is full: then the session cannot be moved. A pending
    /// statement replaces earlier ones of its subject only when it has succeeded.
    pub(crate) fn remember(&mut self, subject: String, text: String, pending: Option<Handle>) -> Result<(), UserError> {
        self.check_length(&text)?;
        let is_replaced =
            |entry: &&ReplayedStatement| pending.is_none() && entry.subject == subject && entry.pending.is_none();
        let replaced: Vec<usize> = self.replay_log.iter().filter(is_replaced).map(ReplayedStatement::bytes).collect();
        if self.replay_log.len() - replaced.len() >= MAX_REMEMBERED {
            return Err(UserError::new(ErrorKind::ProgramLimit, "the session has too many settings")
                .detail(format!("{MAX_REMEMBERED} statements are in the replay log.")));
        }
        self.acquire(subject.len() + text.len(), replaced.iter().sum())?;
        if pending.is_none() {
            self.drop_replaced(&subject);
        }
        self.replay_log.push(ReplayedStatement { subject, text, pending });
        self.recount();
        Ok(())
    }

    /// Whether an engine could refuse something that the session was opened with: a database other than `default`, or a
    /// setting.
    pub(crate) fn may_be_refused(&self) -> bool {
        let is_default = |key: &str, value: &str| {
            key.eq_ignore_ascii_case(USE_DATABASE)
                && unquoted(value).is_none_or(|name| name.eq_ignore_ascii_case(DEFAULT_DATABASE))
        };
        self.forwarded.iter().any(|(key, value)| !is_default(key, value) && !is_of_client(key))
    }

    /// The client application: the one that the session names, else the name that the client sent. A name that no quota
    /// can have is ignored.
    pub(crate) fn creator(&self) -> Option<&str> {
        let own = self.shown.get(&format!("{OURS}{CREATOR}")).map(String::as_str).filter(|name| !name.is_empty());
        let sent = |application: &&str| {
            let key = |spelled: &str| without_prefixes(&spelled.trim().to_ascii_lowercase()) == *application;
            let (_, value) = self.forwarded.iter().find(|(spelled, _)| key(spelled))?;
            unquoted(value).filter(|name| check_creator(name).is_ok())
        };
        own.or_else(|| APPLICATION_KEYS.iter().find_map(sent))
    }

    /// The value that SET shows for a key; our own keys are found in every spelling.
    pub(crate) fn setting(&self, key: &str) -> Option<&str> {
        let own = own_key(key).and_then(|own| self.shown.get(&format!("{OURS}{own}")));
        own.or_else(|| self.shown.get(key)).map(String::as_str)
    }

    fn drop_replaced(&mut self, subject: &str) {
        if subject == USE {
            // It overrides the database of `OpenSession`.
            self.forwarded.retain(|key, _| !key.eq_ignore_ascii_case(USE_DATABASE));
        }
        self.replay_log.retain(|entry| entry.subject != subject || entry.pending.is_some());
    }

    /// Applies the outcome of a pending statement: a failed one leaves the log, a successful one is appended. Returns the
    /// text of a successful one.
    pub(crate) fn confirm(&mut self, handle: &Handle, succeeded: bool) -> Option<String> {
        let position = self.replay_log.iter().position(|entry| entry.pending.as_ref() == Some(handle))?;
        let mut ended = self.replay_log.remove(position);
        if !succeeded {
            self.recount();
            return None;
        }
        self.drop_replaced(&ended.subject);
        ended.pending = None;
        let text = ended.text.clone();
        self.replay_log.push(ended);
        self.recount();
        Some(text)
    }

    /// Removes a SET that an engine refused, so that it fails only one statement. A USE stays: no later statement may run
    /// in another database.
    pub(crate) fn forget_refused(&mut self, refused: &ReplayedStatement) {
        if refused.subject != USE {
            self.replay_log.retain(|entry| entry != refused);
            self.recount();
        }
    }
}

impl ReplayedStatement {
    fn bytes(&self) -> usize {
        self.subject.len() + self.text.len()
    }
}

/// The value of a setting without quotes and white space; `None` if it is empty.
pub(crate) fn unquoted(value: &str) -> Option<&str> {
    let value = value.trim().trim_matches(['\'', '"', '`']);
    (!value.is_empty()).then_some(value)
}

fn check_creator(name: &str) -> Result<(), UserError> {
    if is_user_name(name) && !name.trim().is_empty() {
        return Ok(());
    }
    let shown = cut(name, MAX_SHOWN_BYTES).escape_debug().to_string();
    Err(UserError::new(ErrorKind::InvalidValue, format!("invalid creator name \"{shown}\"")).detail(format!(
        "A creator name has 1 to {MAX_USER_NAME_BYTES} bytes, is not blank, has no control characters and does not begin \
         with @."
    )))
}

/// Whether a key is one that drivers send for their own use; no engine refuses these.
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

/// Whether a setting's key asks for impersonation, after any prefix that ends with a colon.
pub(crate) fn is_proxy_user(key: &str) -> bool {
    let bare = key.rsplit(':').next().unwrap_or(key).trim();
    PROXY_USER_KEYS.iter().any(|proxy_user| bare.eq_ignore_ascii_case(proxy_user))
}

/// The key without [`OURS`], if it is one of our own settings.
pub(crate) fn own_key(key: &str) -> Option<String> {
    let lower = key.trim().to_ascii_lowercase();
    match without_prefixes(&lower) {
        YARN_QUEUE => Some(QUEUE.to_owned()),
        bare => bare.strip_prefix(OURS).map(str::to_owned),
    }
}

/// Refuses a setting that would choose code, files or the environment of a launch, after any prefix that ends with a colon.
pub(crate) fn check_not_of_launch(key: &str) -> Result<(), UserError> {
    let lower = key.to_ascii_lowercase();
    let mut parts = lower.rsplit(':').map(|part| unquoted(part).unwrap_or_default());
    let bare = parts.next().unwrap_or_default();
    let what = if LAUNCH_KEYS.iter().any(|prefix| bare.starts_with(prefix)) {
        "choose code or files of the engine"
    } else if parts.any(|prefix| prefix == ENVIRONMENT) {
        "change the engine's environment"
    } else {
        return Ok(());
    };
    let shown = cut(key.trim(), MAX_SHOWN_BYTES).escape_debug();
    Err(UserError::new(ErrorKind::InsufficientPrivilege, format!("setting \"{shown}\" must not {what}"))
        .detail("An engine is launched from its resource unit.")
        .hint("An admin can set it with ALTER RESOURCE UNIT … PROPERTIES (…)."))
}

#[cfg(test)]
mod tests;
