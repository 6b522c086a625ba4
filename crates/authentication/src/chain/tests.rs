//! The chain with methods of the tests.
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
            "right" => Verdict::Accepted { user: None, groups: vec![self.1.to_owned()], expires_ms: None },
            "down" => Verdict::Unavailable(UserError::new(ErrorKind::Unavailable, "the directory does not respond")),
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

#[tokio::test]
async fn a_login_that_waits_too_long_for_others_of_its_user_is_counted() {
    let clock = ManualClock::at(0);
    let slow = Arc::new(Slow(tokio::sync::Semaphore::new(0), AtomicUsize::new(0)));
    let mut throttle = Throttle::new(Duration::from_mins(5), clock.clone());
    throttle.admission_deadline = Duration::from_millis(10);
    let hits = Arc::new(LimitHits::default());
    let chain = Chain::new(vec![slow as _], throttle, clock).with_limit_hits(Arc::clone(&hits));
    let mut running: Vec<_> = (0..40).map(|_| Box::pin(attempt(&chain, "ann", "right"))).collect();
    for login in &mut running {
        assert!(futures::poll!(login).is_pending());
    }
    for refusals in 1..=2 {
        let error = attempt(&chain, "ann", "right").await.unwrap_err().error;
        assert_eq!((error.sqlstate(), hits.count(Limit::LoginsPerUser)), ("57P03", refusals));
    }
    let mut of_bob = Box::pin(attempt(&chain, "bob", "right"));
    assert!(futures::poll!(&mut of_bob).is_pending(), "the limit is of one user");
    assert_eq!(hits.count(Limit::LoginsPerUser), 2);
}

/// Takes tokens such as `token-ann`, also as passwords.
struct Tokens;

#[async_trait]
impl Method for Tokens {
    fn name(&self) -> &'static str {
        "jwt"
    }

    fn takes_as_token(&self, password: &str) -> bool {
        password.starts_with("token")
    }

    async fn login(&self, user: &str, password: &str) -> Verdict {
        match self.token(password).await {
            Verdict::Accepted { user: Some(of_token), .. } if of_token != user => Verdict::Rejected("another user's"),
            verdict => verdict,
        }
    }

    async fn token(&self, token: &str) -> Verdict {
        match token.strip_prefix("token-") {
            Some("down") => Verdict::Unavailable(UserError::new(ErrorKind::Unavailable, "no keys")),
            Some(user) => Verdict::Accepted { user: Some(user.to_owned()), groups: Vec::new(), expires_ms: Some(5) },
            None => Verdict::Rejected("no token"),
        }
    }

    async fn groups(&self, _: &str) -> Option<Vec<String>> {
        None
    }
}

#[tokio::test]
async fn a_token_is_shown_to_its_method_alone() {
    let clock = ManualClock::at(0);
    let ann = Arc::new(OneUser("ann", "ldap", AtomicUsize::new(0)));
    let methods: Vec<Arc<dyn Method>> = vec![Arc::clone(&ann) as _, Arc::new(Tokens)];
    let chain = Chain::new(methods, Throttle::new(Duration::from_mins(5), clock.clone()), clock);
    for user in ["", "ann"] {
        let principal = attempt(&chain, user, "token-ann").await.unwrap();
        assert_eq!((principal.user.as_str(), principal.method, principal.expires_ms), ("ann", "jwt", Some(5)));
    }
    for (user, password) in [("bob", "token-ann"), ("", "token"), ("", "secret"), ("ann", "token")] {
        let failure = attempt(&chain, user, password).await.unwrap_err();
        assert_eq!(failure.error.text(), "authentication failed", "{user} {password}");
    }
    assert_eq!(attempt(&chain, "ann", "token-down").await.unwrap_err().error.sqlstate(), "57P03");
    assert_eq!(ann.2.load(Ordering::Relaxed), 0);
    assert_eq!(attempt(&chain, "ann", "right").await.unwrap().method, "ldap");
}

#[tokio::test]
async fn tokens_that_fail_are_delayed_by_their_address_and_lock_nothing_out() {
    let clock = ManualClock::at(0);
    let chain = Chain::new(vec![Arc::new(Tokens) as _], Throttle::new(Duration::from_mins(5), clock.clone()), clock);
    let mut delays = Vec::new();
    for _ in 0..100 {
        delays.push(chain.attempt_token(ADDRESS, "no token").await.unwrap_err().delay);
    }
    assert_eq!(
        (delays[0], delays[1], delays[99]),
        (Duration::from_millis(100), Duration::from_millis(200), Duration::from_secs(5))
    );
    let elsewhere = chain.attempt_token(IpAddr::from([127, 0, 0, 2]), "no token").await.unwrap_err();
    assert_eq!(elsewhere.delay, Duration::from_millis(100));
    assert_eq!(chain.attempt_token(ADDRESS, "token-ann").await.unwrap().user, "ann");
    assert!(!chain.log.has_line(ADDRESS), "the lines of this minute are written");
}
