//! The method `ldap`: passwords and groups of a directory.
//!
//! | file | content |
//! | --- | --- |
//! | `settings` | where the directory is, and how a user and its groups are found in it |
//! | `identity` | the identity for searches, whose password may change |
//! | `template` | filters and patterns with the user's name, which is escaped |
//! | `pool` | connections: a fixed number, each for one operation at a time |
//! | `directory` | the operations: find a user, check a password, read groups |
//! | `failure` | a directory that cannot say anything now |
//! | `accounts` | what was read of users a short time ago |
//!
//! A login finds the user's entry with one identity, and binds with the user's DN and password over another connection, because a bind
//! changes the identity of its connection. The name of the user is the one that the directory has, not the one that was typed: a
//! directory accepts `ALICE` for `alice`.
//!
//! What a directory sends is hostile input. Each operation is a task with a deadline: a response that the library cannot parse ends the
//! task, and counts as a directory that does not respond. Referrals are never followed.
//!
//! A stale caller has groups that are at most `access.login_cache` old; while the directory does not respond, at most
//! `access.stale`.

mod accounts;
mod directory;
mod failure;
mod identity;
mod pool;
mod settings;
mod template;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::clock::SharedClock;
use model::error::{ErrorKind, UserError};
use model::log_throttle::KeyedLogThrottle;
use parking_lot::Mutex;

use self::accounts::Accounts;
use self::directory::{Bound, Directory, Found};
use self::failure::Failure;
pub use self::identity::SearchIdentity;
pub use self::settings::{GroupSearch, LdapSettings, LdapUrl, SettingError, UserSource};
pub use self::template::{Template, TemplateError};
use crate::cache::LoginCache;
use crate::chain::{MAX_EQUALIZED, Method, Verdict};

/// The name of the method, as in `access.authentication`.
const NAME: &str = "ldap";

/// A refusal takes a whole number of these: a timer is exact to a millisecond, which an answer of a near directory takes, too.
const REFUSAL_STEP: Duration = Duration::from_millis(50);

/// Users of a directory.
pub struct LdapMethod {
    directory: Directory,
    accounts: Accounts,
    cache: Arc<LoginCache>,
    clock: SharedClock,
    /// How long the directory took for the last wrong password. The response to an unknown user takes as many steps.
    refusal_took: Mutex<Duration>,
    /// A directory that is away is one line each minute, and so is each user whose entry cannot be used: clients log in as often as
    /// they like.
    log: Mutex<KeyedLogThrottle<Condition>>,
}

/// What lasts, and is logged once a minute.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Condition {
    Away,
    SeveralEntries(String),
    NoName(String),
}

/// A user as the directory has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    /// The user's name.
    pub name: String,
    pub groups: Vec<String>,
}

impl LdapMethod {
    /// Connects when a user logs in.
    pub fn new(settings: LdapSettings, cache: Arc<LoginCache>, clock: SharedClock) -> Self {
        let accounts = Accounts::new(settings.refresh, settings.stale, clock.clone());
        let directory = Directory::new(settings);
        Self { directory, accounts, cache, clock, refusal_took: Mutex::default(), log: Mutex::default() }
    }

    /// Whether each directory can be used, in the order of the settings: it accepts a connection, its certificate is trusted, the
    /// identity for searches is accepted, and the entry below which users are searched exists.
    pub async fn probe(settings: &LdapSettings) -> Vec<(LdapUrl, Result<(), String>)> {
        let of_url = async |url: &LdapUrl| {
            let alone = LdapSettings { urls: vec![url.clone()], ..settings.clone() };
            (url.clone(), Directory::new(alone).probe().await.map_err(|failure| failure.to_string()))
        };
        futures::future::join_all(settings.urls.iter().map(of_url)).await
    }

    /// The verdict, without the time that it takes.
    async fn check(&self, user: &str, password: &str) -> Verdict {
        let parts = [NAME, user, password, ""];
        if self.cache.contains(parts)
            && let Some(account) = self.accounts.fresh(user)
        {
            return accepted(account);
        }
        let entry = match self.directory.find(user).await {
            Ok(Found::One(entry)) => entry,
            Ok(Found::None) => return Verdict::Unknown,
            Ok(Found::Several) => {
                if let Some(times) = self.hit(Condition::SeveralEntries(user.to_owned())) {
                    let text = "the directory has several entries for one user name: the login is refused";
                    tracing::warn!(user, times, "{text}");
                }
                return Verdict::Refused;
            }
            Err(error) => return self.unavailable(&error),
        };
        match self.directory.bind(&entry.dn, password).await {
            Ok(Bound::Accepted) => {}
            Ok(Bound::Refused) => return Verdict::Refused,
            Err(error) => return self.unavailable(&error),
        }
        match self.directory.account(user, entry).await {
            Ok(None) => {
                if let Some(times) = self.hit(Condition::NoName(user.to_owned())) {
                    let text = "the entry of a user has no name of a user in ldap.user_attribute: the login is refused";
                    tracing::warn!(user, times, "{text}");
                }
                Verdict::Refused
            }
            Ok(Some(account)) => {
                if let Some(times) = self.log.lock().clear(&Condition::Away) {
                    tracing::info!(times, "the directory responds again");
                }
                self.accounts.keep(&account.name, account.clone());
                self.accounts.keep(user, account.clone());
                self.cache.insert(parts);
                accepted(account)
            }
            Err(error) => self.unavailable(&error),
        }
    }

    /// How often the condition has occurred, if a line is due.
    fn hit(&self, condition: Condition) -> Option<u64> {
        self.log.lock().hit(condition, self.clock.boottime())
    }

    fn log_away(&self, error: &Failure) {
        if let Some(times) = self.hit(Condition::Away) {
            tracing::warn!(%error, times, "the directory does not respond");
        }
    }

    fn unavailable(&self, error: &Failure) -> Verdict {
        self.log_away(error);
        let text = "authentication is unavailable: the directory does not respond";
        Verdict::Unavailable(UserError::new(ErrorKind::Unavailable, text).hint("Retry the login later."))
    }
}

/// The next whole number of steps, at least one.
fn whole_steps(took: Duration) -> Duration {
    // A second has a whole number of steps.
    let begun = Duration::from_nanos(u64::from(took.subsec_nanos()) % REFUSAL_STEP.as_nanos() as u64);
    took + REFUSAL_STEP.saturating_sub(begun)
}

fn accepted(account: Account) -> Verdict {
    Verdict::Accepted { user: Some(account.name), groups: account.groups, expires_ms: None }
}

#[async_trait]
impl Method for LdapMethod {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn login(&self, user: &str, password: &str) -> Verdict {
        let begun = self.clock.boottime();
        let verdict = self.check(user, password).await;
        let took = self.clock.boottime().saturating_sub(begun);
        let as_long_as = match verdict {
            Verdict::Refused => {
                *self.refusal_took.lock() = took;
                took
            }
            Verdict::Unknown => self.refusal_took.lock().min(took + MAX_EQUALIZED).max(took),
            Verdict::Accepted { .. } | Verdict::Rejected(_) | Verdict::Unavailable(_) => return verdict,
        };
        tokio::time::sleep(whole_steps(as_long_as).saturating_sub(took)).await;
        verdict
    }

    async fn groups(&self, user: &str) -> Option<Vec<String>> {
        if let Some(account) = self.accounts.fresh(user) {
            return Some(account.groups);
        }
        match self.directory.read(user).await {
            Ok(Some(account)) => {
                self.accounts.keep(user, account.clone());
                Some(account.groups)
            }
            Ok(None) => None,
            Err(error) => {
                self.log_away(&error);
                self.accounts.stale(user).map(|account| account.groups)
            }
        }
    }
}
