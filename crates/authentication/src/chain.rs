//! The chain of methods: tries each in its order, and delays the response to a failed login.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hs2::{Credentials, Principal};
use model::clock::SharedClock;
use model::error::{ErrorKind, UserError};
use model::user_name::is_user_name;
use parking_lot::Mutex;

use crate::refusal_log::{RefusalEvent, RefusalLog};
use crate::throttle::{Admission, Throttle};

/// The part of a delay that is random, so that responses reveal no more than their order of magnitude.
const JITTER: f64 = 0.2;
/// The most that a refusal waits so that it takes as long as one of another kind.
pub(crate) const MAX_EQUALIZED: Duration = Duration::from_secs(1);

/// What a method finds about a user and a password.
#[derive(Debug)]
pub enum Verdict {
    /// The password is right.
    Accepted {
        /// The user's name as the method has it; `None`: as it was typed.
        user: Option<String>,
        groups: Vec<String>,
    },
    /// The method knows the user, and the password is wrong: no other method is tried.
    Refused,
    /// The method does not know the user.
    Unknown,
    /// The password cannot be checked now: no other method is tried.
    Unavailable(UserError),
}

/// A method of authentication by user and password.
#[async_trait]
pub trait Method: Send + Sync {
    /// Its word in `access.authentication`.
    fn name(&self) -> &'static str;

    /// Checks a password, which is not empty.
    async fn login(&self, user: &str, password: &str) -> Verdict;

    /// The groups that the user has now; `None` if the method does not know the user.
    async fn groups(&self, user: &str) -> Option<Vec<String>>;
}

/// The methods of a listener.
pub struct Chain {
    methods: Vec<Arc<dyn Method>>,
    throttle: Throttle,
    log: Arc<RefusalLog>,
    clock: SharedClock,
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
        Self { methods, throttle, log, clock, unknown_took: Mutex::default() }
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

    /// The words of the methods, in their order.
    pub fn method_names(&self) -> Vec<&'static str> {
        self.methods.iter().map(|method| method.name()).collect()
    }

    /// The principal of these credentials. 28000 for every failed login, after its delay; 57P03 if the login cannot be
    /// checked now, or waited too long for others of its user and address.
    pub async fn authenticate(&self, peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        match self.attempt(peer.ip(), credentials).await {
            Ok(principal) => Ok(principal),
            Err(Failure { error, delay }) => {
                tokio::time::sleep(delay.mul_f64(1.0 - JITTER * rand::random::<f64>())).await;
                Err(error)
            }
        }
    }

    async fn attempt(&self, address: IpAddr, credentials: &Credentials) -> Result<Principal, Failure> {
        let Credentials { user, password, .. } = credentials;
        if !is_user_name(user) || password.is_empty() {
            // Such a login matches no user, whom it could lock out.
            return Err(self.failed("", address, "no user name or password", self.throttle.fail("", address)));
        }
        let attempt = match self.throttle.admit(user, address).await {
            Admission::Admitted(attempt) => attempt,
            Admission::LockedOut => {
                return Err(self.failed(user, address, "locked out", self.throttle.fail(user, address)));
            }
            Admission::Busy => return Err(Failure { error: too_many(), delay: Duration::ZERO }),
        };
        let unfinished = UnfinishedLogin { chain: self, user, address, has_ended: false };
        let (verdict, method) = self.check(user, password).await;
        unfinished.end();
        match verdict {
            Verdict::Accepted { user: name, groups } => {
                attempt.succeed();
                Ok(Principal::authenticated(name.as_deref().unwrap_or(user), groups, method))
            }
            Verdict::Refused => Err(self.failed(user, address, "wrong password", attempt.fail())),
            Verdict::Unavailable(error) => {
                attempt.withdraw();
                Err(Failure { error, delay: Duration::ZERO })
            }
            Verdict::Unknown => Err(self.failed(user, address, "unknown user", attempt.fail())),
        }
    }

    /// The verdict of the first method that knows the user, and its word.
    async fn check(&self, user: &str, password: &str) -> (Verdict, &'static str) {
        let begun = self.clock.boottime();
        let took = || self.clock.boottime().saturating_sub(begun);
        for method in &self.methods {
            let verdict = method.login(user, password).await;
            if matches!(verdict, Verdict::Refused) {
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
    fn failed(&self, user: &str, address: IpAddr, reason: &'static str, delay: Duration) -> Failure {
        self.log_failure(user, address, reason);
        Failure { error: UserError::new(ErrorKind::InvalidAuthorization, "authentication failed"), delay }
    }

    fn log_failure(&self, user: &str, address: IpAddr, reason: &'static str) {
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

/// The error of a login that waited too long for the others of its user and address.
fn too_many() -> UserError {
    UserError::new(ErrorKind::Unavailable, "too many logins of the user at the same time").hint("Retry the login.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hs2::Mechanism;
    use model::clock::ManualClock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Knows one user, with the password `right`, and counts its calls.
    struct OneUser(&'static str, &'static str, AtomicUsize);

    #[async_trait]
    impl Method for OneUser {
        fn name(&self) -> &'static str {
            self.1
        }

        async fn login(&self, user: &str, password: &str) -> Verdict {
            self.2.fetch_add(1, Ordering::Relaxed);
            match password {
                _ if user != self.0 => Verdict::Unknown,
                "right" => Verdict::Accepted { user: None, groups: vec![self.1.to_owned()] },
                "down" => {
                    Verdict::Unavailable(UserError::new(ErrorKind::Unavailable, "the directory does not respond"))
                }
                _ => Verdict::Refused,
            }
        }

        async fn groups(&self, user: &str) -> Option<Vec<String>> {
            (user == self.0).then(|| vec![self.1.to_owned()])
        }
    }

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn chain(users: &[(&'static str, &'static str)]) -> (Chain, Vec<Arc<OneUser>>) {
        let clock = ManualClock::at(0);
        let methods: Vec<Arc<OneUser>> =
            users.iter().map(|(user, name)| Arc::new(OneUser(user, name, AtomicUsize::new(0)))).collect();
        let throttle = Throttle::new(Duration::from_mins(5), clock.clone());
        let chain = Chain::new(methods.iter().map(|method| Arc::clone(method) as _).collect(), throttle, clock);
        (chain, methods)
    }

    async fn attempt(chain: &Chain, user: &str, password: &str) -> Result<Principal, Failure> {
        let credentials = Credentials {
            mechanism: Mechanism::SaslPlain,
            authzid: String::new(),
            user: user.to_owned(),
            password: password.to_owned(),
        };
        chain.attempt(ADDRESS, &credentials).await
    }

    #[tokio::test]
    async fn the_first_method_that_knows_the_user_decides() {
        let (chain, methods) = chain(&[("ann", "file"), ("ann", "ldap"), ("bob", "jwt")]);
        let principal = attempt(&chain, "ann", "right").await.unwrap();
        assert_eq!((principal.user.as_str(), principal.method), ("ann", "file"));
        assert_eq!(principal.groups, ["file"]);
        assert_eq!(attempt(&chain, "ann", "wrong").await.unwrap_err().error.sqlstate(), "28000");
        assert_eq!(attempt(&chain, "ann", "down").await.unwrap_err().error.sqlstate(), "57P03");
        assert_eq!(methods[1].2.load(Ordering::Relaxed), 0);
        assert_eq!(attempt(&chain, "bob", "right").await.unwrap().method, "jwt");
    }

    #[tokio::test]
    async fn every_failure_has_the_same_text_and_a_delay() {
        let (chain, _) = chain(&[("ann", "file")]);
        let long = "x".repeat(10_000);
        for user in ["ann", "eve", "@admins", "ann\nroot", "", &long] {
            let failure = attempt(&chain, user, "wrong").await.unwrap_err();
            assert_eq!(failure.error, UserError::new(ErrorKind::InvalidAuthorization, "authentication failed"));
            assert!(failure.delay >= Duration::from_millis(100), "{user}");
        }
    }

    #[tokio::test]
    async fn no_method_sees_an_empty_password_or_a_locked_out_user() {
        let (chain, methods) = chain(&[("ann", "file")]);
        attempt(&chain, "ann", "").await.unwrap_err();
        assert_eq!(methods[0].2.load(Ordering::Relaxed), 0);
        for _ in 0..100 {
            attempt(&chain, "ann", "wrong").await.unwrap_err();
        }
        assert_eq!(methods[0].2.load(Ordering::Relaxed), 40);
        assert_eq!(attempt(&chain, "ann", "right").await.unwrap_err().error.sqlstate(), "28000");
    }

    #[tokio::test]
    async fn groups_are_those_of_the_first_method_that_knows_the_user() {
        let (chain, _) = chain(&[("ann", "file"), ("ann", "ldap"), ("bob", "jwt")]);
        assert_eq!(chain.groups("ann").await, Some(vec!["file".to_owned()]));
        assert_eq!(chain.groups("bob").await, Some(vec!["jwt".to_owned()]));
        assert_eq!(chain.groups("eve").await, None);
    }

    /// Refuses every login once it gets a permit. Counts the logins that were started.
    struct Slow(tokio::sync::Semaphore, AtomicUsize);

    #[async_trait]
    impl Method for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        async fn login(&self, _: &str, _: &str) -> Verdict {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.acquire().await.unwrap().forget();
            Verdict::Refused
        }

        async fn groups(&self, _: &str) -> Option<Vec<String>> {
            None
        }
    }

    /// Takes a time of the clock for each user, and knows none but `ann`.
    struct Takes(Arc<ManualClock>, Duration);

    #[async_trait]
    impl Method for Takes {
        fn name(&self) -> &'static str {
            "takes"
        }

        async fn login(&self, user: &str, _: &str) -> Verdict {
            self.0.advance(self.1);
            if user == "ann" { Verdict::Refused } else { Verdict::Unknown }
        }

        async fn groups(&self, _: &str) -> Option<Vec<String>> {
            None
        }
    }

    #[tokio::test]
    async fn a_refusal_by_the_first_method_takes_as_long_as_asking_all() {
        let clock = ManualClock::at(0);
        let takes = |time| Arc::new(Takes(Arc::clone(&clock), Duration::from_millis(time))) as Arc<dyn Method>;
        let throttle = Throttle::new(Duration::from_mins(5), clock.clone());
        let chain = Chain::new(vec![takes(20), takes(200)], throttle, clock.clone());
        assert_eq!(chain.left_to_wait(Duration::ZERO), Duration::ZERO);
        chain.check("eve", "wrong").await;
        assert_eq!(chain.left_to_wait(Duration::from_millis(20)), Duration::from_millis(200));
        let begun = std::time::Instant::now();
        chain.check("ann", "wrong").await;
        assert!(begun.elapsed() >= Duration::from_millis(200), "after its own 20 ms");
        *chain.unknown_took.lock() = Duration::from_mins(1);
        assert_eq!(chain.left_to_wait(Duration::ZERO), MAX_EQUALIZED, "a directory that is slow delays no one else");
    }

    /// A client that leaves, or whose time is up, while its password is checked.
    #[tokio::test]
    async fn a_login_that_is_cut_is_logged_like_one_that_fails() {
        let clock = ManualClock::at(0);
        let slow = Arc::new(Slow(tokio::sync::Semaphore::new(0), AtomicUsize::new(0)));
        let chain = Chain::new(vec![slow as _], Throttle::new(Duration::from_mins(5), clock.clone()), clock);
        for _ in 0..10 {
            let mut login = Box::pin(attempt(&chain, "ann", "wrong"));
            assert!(futures::poll!(&mut login).is_pending());
        }
        assert!(!chain.log.has_line(ADDRESS), "the lines of this minute are written");
    }

    #[tokio::test]
    async fn parallel_attempts_are_no_more_than_the_failures_that_lock_out() {
        let clock = ManualClock::at(0);
        let slow = Arc::new(Slow(tokio::sync::Semaphore::new(0), AtomicUsize::new(0)));
        let throttle = Throttle::new(Duration::from_mins(5), clock.clone());
        let chain = Chain::new(vec![Arc::clone(&slow) as _], throttle, clock);
        let attempts = (0..200).map(|_| attempt(&chain, "ann", "wrong"));
        let release = async {
            while slow.1.load(Ordering::Relaxed) < 40 {
                tokio::task::yield_now().await;
            }
            slow.0.add_permits(200);
        };
        let (failures, ()) = tokio::join!(futures::future::join_all(attempts), release);
        assert!(failures.iter().all(|failure| failure.as_ref().unwrap_err().error.sqlstate() == "28000"));
        assert_eq!(slow.1.load(Ordering::Relaxed), 40);
    }
}
