//! The chain of methods: tries each in its order, and delays the response to a failed login.

mod ticket;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hs2::{Credentials, HttpScheme, Limit, LimitHits, Principal};
use model::clock::SharedClock;
use model::error::{ErrorKind, UserError};
use model::user_name::is_user_name;
use parking_lot::Mutex;

pub use self::ticket::{TicketAcceptor, TicketContext, TicketFailure, TicketName, TicketStep};
use crate::refusal_log::{RefusalEvent, RefusalLog};
use crate::throttle::{Admission, Throttle};

/// The part of a delay that is random, so that responses reveal no more than their order of magnitude.
const JITTER: f64 = 0.2;
/// The most that a refusal waits so that it takes as long as one of another kind.
pub(crate) const MAX_EQUALIZED: Duration = Duration::from_secs(1);

/// What a method finds about a user and a password, or about a token.
#[derive(Debug)]
pub enum Verdict {
    /// The password is right.
    Accepted {
        /// The user's name as the method has it; `None`: as it was typed.
        user: Option<String>,
        groups: Vec<String>,
        /// When the proof expires, in milliseconds since 1970; `None` if it has no end of its own.
        expires_ms: Option<i64>,
    },
    /// The method knows the user, and the password is wrong: no other method is tried.
    Refused,
    /// The token is not valid, for this reason, which the log has: no other method is tried.
    Rejected(&'static str),
    /// The method does not know the user.
    Unknown,
    /// The password cannot be checked now: no other method is tried.
    Unavailable(UserError),
}

/// A method of authentication by user and password, by a token that names its user, or by a ticket.
#[async_trait]
pub trait Method: Send + Sync {
    /// Its word in `access.authentication`.
    fn name(&self) -> &'static str;

    /// What HTTP clients can send.
    fn http_schemes(&self) -> &'static [HttpScheme] {
        &[HttpScheme::Basic]
    }

    /// Whether the user is authenticated by this method alone.
    fn owns(&self, user: &str) -> bool {
        let _ = user;
        false
    }

    /// Whether the password is a token of this method, which no other method must see unless it owns the user.
    fn takes_as_token(&self, password: &str) -> bool {
        let _ = password;
        false
    }

    /// Whether a client that sends a token as its password may leave its user name empty.
    fn accepts_no_user_name(&self) -> bool {
        false
    }

    /// Whether the user may exist although [`Method::groups`] does not know it.
    fn may_have(&self, user: &str) -> bool {
        let _ = user;
        false
    }

    /// Checks a password, which is not empty.
    async fn login(&self, user: &str, password: &str) -> Verdict;

    /// Checks a token. [`Verdict::Unknown`] if the method takes none.
    async fn token(&self, token: &str) -> Verdict {
        let _ = token;
        Verdict::Unknown
    }

    /// What accepts tickets, if the method does.
    fn tickets(&self) -> Option<&dyn TicketAcceptor> {
        None
    }

    /// The groups that the user has now; `None` if the method does not know the user.
    async fn groups(&self, user: &str) -> Option<Vec<String>>;
}

/// The methods of a listener.
pub struct Chain {
    methods: Vec<Arc<dyn Method>>,
    throttle: Throttle,
    log: Arc<RefusalLog>,
    clock: SharedClock,
    hits: Arc<LimitHits>,
    /// How long all methods took for the last user whom none knew. A wrong password of a user whom the first method knows takes as
    /// long, so that the time does not reveal where a user is known.
    unknown_took: Mutex<Duration>,
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.methods.iter().map(|method| method.name())).finish()
    }
}

/// A login that is being checked. One that is dropped before its end counts as a failure, and is logged as one.
struct UnfinishedLogin<'a> {
    chain: &'a Chain,
    user: &'a str,
    address: IpAddr,
    has_ended: bool,
}

/// A login that failed.
#[derive(Debug)]
struct Failure {
    error: UserError,
    /// How long its response is delayed.
    delay: Duration,
}

impl Chain {
    pub fn new(methods: Vec<Arc<dyn Method>>, throttle: Throttle, clock: SharedClock) -> Self {
        let log = Arc::new(RefusalLog::new(RefusalEvent::Login, clock.clone()));
        Self { methods, throttle, log, clock, hits: Arc::default(), unknown_took: Mutex::default() }
    }

    /// Counts there the logins that are refused because too many others of their user and address run.
    #[must_use]
    pub fn with_limit_hits(self, hits: Arc<LimitHits>) -> Self {
        Self { hits, ..self }
    }

    /// Starts a task that logs the failures without a line of their own, until the chain is dropped.
    pub fn start_reporting(&self) {
        self.log.start_reporting();
    }

    /// The groups that the user has now, by the first method that knows the user; `None` if there is none.
    pub async fn groups(&self, user: &str) -> Option<Vec<String>> {
        for method in &self.methods {
            let groups = method.groups(user).await;
            if groups.is_some() {
                return groups;
            }
        }
        None
    }

    /// The groups that a user has now who has logged in by the method of that name; `None` if the user was removed. A method that does
    /// not know whom it may have removes none: its users have no groups if no other method knows them.
    pub async fn groups_since_login(&self, user: &str, method: &str) -> Option<Vec<String>> {
        let groups = self.groups(user).await;
        let may_have = || self.methods.iter().any(|known| known.name() == method && known.may_have(user));
        groups.or_else(|| may_have().then(Vec::new))
    }

    /// The groups of a user for whom another one acts; `None` if no method can have the user. A user whom only tokens name has no
    /// groups without one.
    pub async fn groups_if_possible(&self, user: &str) -> Option<Vec<String>> {
        let groups = self.groups(user).await;
        groups.or_else(|| self.methods.iter().any(|method| method.may_have(user)).then(Vec::new))
    }

    /// What HTTP clients can send.
    pub fn http_schemes(&self) -> Vec<HttpScheme> {
        let has = |scheme: &HttpScheme| self.methods.iter().any(|method| method.http_schemes().contains(scheme));
        [HttpScheme::Negotiate, HttpScheme::Basic, HttpScheme::Bearer].into_iter().filter(has).collect()
    }

    /// Whether a client may leave its user name empty.
    pub fn accepts_no_user_name(&self) -> bool {
        self.methods.iter().any(|method| method.accepts_no_user_name())
    }

    /// The words of the methods, in their order.
    pub fn method_names(&self) -> Vec<&'static str> {
        self.methods.iter().map(|method| method.name()).collect()
    }

    /// The principal of these credentials. 28000 for every failed login, after its delay; 57P03 if the login cannot be
    /// checked now, or waited too long for others of its user and address.
    pub async fn authenticate(&self, peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        delayed(self.attempt(peer.ip(), credentials).await).await
    }

    /// The principal of a token; errors as those of [`Chain::authenticate`].
    pub async fn authenticate_token(&self, peer: SocketAddr, token: &str) -> Result<Principal, UserError> {
        delayed(self.attempt_token(peer.ip(), token).await).await
    }

    /// Nothing is counted for a user, because none is known before the token is verified, and no guess finds a signature.
    async fn attempt_token(&self, address: IpAddr, token: &str) -> Result<Principal, Failure> {
        let unfinished = UnfinishedLogin { chain: self, user: "", address, has_ended: false };
        let (verdict, method) = self.check_token(token).await;
        unfinished.end();
        let reason = match verdict {
            Verdict::Accepted { user: Some(user), groups, expires_ms } => {
                return Ok(Principal::authenticated(user, groups, method).until(expires_ms));
            }
            Verdict::Unavailable(error) => return Err(Failure { error, delay: Duration::ZERO }),
            Verdict::Rejected(reason) => reason,
            Verdict::Accepted { user: None, .. } | Verdict::Refused | Verdict::Unknown => "unknown token",
        };
        Err(self.failed("", address, reason, self.throttle.fail_without_user(address)))
    }

    /// The verdict of the first method that takes the token, and its word. A user whom another method owns is not that one's.
    async fn check_token(&self, token: &str) -> (Verdict, &'static str) {
        for method in &self.methods {
            let verdict = method.token(token).await;
            let is_owned_by = |other: &Arc<dyn Method>, user: &str| other.name() != method.name() && other.owns(user);
            return match verdict {
                Verdict::Unknown => continue,
                Verdict::Accepted { user: Some(user), .. }
                    if self.methods.iter().any(|other| is_owned_by(other, &user)) =>
                {
                    (Verdict::Rejected("token of a user whom another method owns"), "")
                }
                verdict => (verdict, method.name()),
            };
        }
        (Verdict::Unknown, "")
    }

    async fn attempt(&self, address: IpAddr, credentials: &Credentials) -> Result<Principal, Failure> {
        let Credentials { user, password, .. } = credentials;
        if user.is_empty() && self.methods.iter().any(|method| method.takes_as_token(password)) {
            return self.attempt_token(address, password).await;
        }
        if !is_user_name(user) || password.is_empty() {
            // Such a login matches no user, whom it could lock out.
            return Err(self.failed("", address, "no user name or password", self.throttle.fail("", address)));
        }
        let attempt = match self.throttle.admit(user, address).await {
            Admission::Admitted(attempt) => attempt,
            Admission::LockedOut => {
                return Err(self.failed(user, address, "locked out", self.throttle.fail(user, address)));
            }
            Admission::Busy => {
                self.hits.hit(Limit::LoginsPerUser);
                return Err(Failure { error: too_many(), delay: Duration::ZERO });
            }
        };
        let unfinished = UnfinishedLogin { chain: self, user, address, has_ended: false };
        let (verdict, method) = self.check(user, password).await;
        unfinished.end();
        match verdict {
            Verdict::Accepted { user: name, groups, expires_ms } => {
                attempt.succeed();
                Ok(Principal::authenticated(name.as_deref().unwrap_or(user), groups, method).until(expires_ms))
            }
            Verdict::Refused => Err(self.failed(user, address, "wrong password", attempt.fail())),
            Verdict::Rejected(reason) => Err(self.failed(user, address, reason, attempt.fail())),
            Verdict::Unavailable(error) => {
                attempt.withdraw();
                Err(Failure { error, delay: Duration::ZERO })
            }
            Verdict::Unknown => Err(self.failed(user, address, "unknown user", attempt.fail())),
        }
    }

    /// The verdict of the first method that knows the user, and its word. A token is shown only to its method and to one that
    /// owns the user.
    async fn check(&self, user: &str, password: &str) -> (Verdict, &'static str) {
        let begun = self.clock.boottime();
        let took = || self.clock.boottime().saturating_sub(begun);
        let is_token = self.methods.iter().any(|method| method.takes_as_token(password));
        for method in &self.methods {
            if is_token && !method.takes_as_token(password) && !method.owns(user) {
                continue;
            }
            let verdict = method.login(user, password).await;
            if matches!(verdict, Verdict::Refused | Verdict::Rejected(_)) {
                tokio::time::sleep(self.left_to_wait(took())).await;
            }
            if !matches!(verdict, Verdict::Unknown) {
                return (verdict, method.name());
            }
        }
        *self.unknown_took.lock() = took();
        (Verdict::Unknown, "")
    }

    /// How long the refusal of a known user waits who took so long.
    fn left_to_wait(&self, took: Duration) -> Duration {
        self.unknown_took.lock().saturating_sub(took).min(MAX_EQUALIZED)
    }

    /// Logs a failure. Its error is the same for every reason.
    fn failed(&self, user: &str, address: IpAddr, reason: &str, delay: Duration) -> Failure {
        self.log_failure(user, address, reason);
        Failure { error: UserError::new(ErrorKind::InvalidAuthorization, "authentication failed"), delay }
    }

    fn log_failure(&self, user: &str, address: IpAddr, reason: &str) {
        if self.log.has_line(address) {
            tracing::info!(target: "audit", event = "login_failed", user, %address, reason, "login failed");
        }
    }
}

impl Drop for UnfinishedLogin<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.chain.log_failure(self.user, self.address, "not checked in time");
        }
    }
}

impl UnfinishedLogin<'_> {
    fn end(mut self) {
        self.has_ended = true;
    }
}

/// Delays the response to a failure.
async fn delayed(attempted: Result<Principal, Failure>) -> Result<Principal, UserError> {
    match attempted {
        Ok(principal) => Ok(principal),
        Err(Failure { error, delay }) => {
            sleep_about(delay).await;
            Err(error)
        }
    }
}

async fn sleep_about(delay: Duration) {
    tokio::time::sleep(delay.mul_f64(1.0 - JITTER * rand::random::<f64>())).await;
}

/// The error of a login that waited too long for the others of its user and address.
fn too_many() -> UserError {
    UserError::new(ErrorKind::Unavailable, "too many logins of the user at the same time").hint("Retry the login.")
}

#[cfg(test)]
mod tests;
