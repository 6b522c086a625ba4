//! The limit of concurrent REST calls of a proxy, in total and per user.
//!
//! A call holds its admission until it is answered or dropped. A call beyond a limit is refused at once and has no effect.
//! A call that waits for the state of a reservation costs nothing meanwhile, and has a limit of its own.

use std::collections::HashMap;
use std::sync::Arc;

use hs2::{Limit, LimitHits};
use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The most REST calls that a proxy serves at once.
pub(crate) const MAX_API_CALLS: usize = 200;
/// The most of these of one user.
pub(crate) const MAX_API_CALLS_PER_USER: usize = 20;

/// The most calls that wait for the state of a reservation.
pub(crate) const MAX_API_WAITS: usize = 1_000;

/// The REST calls that are being served.
#[derive(Debug, Default)]
pub(crate) struct ApiCalls {
    hits: Arc<LimitHits>,
    counts: Mutex<Counts>,
    /// Notified when the last call has ended.
    ended: Notify,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    per_user: HashMap<String, usize>,
    /// Not among the others.
    waiting: usize,
}

impl Counts {
    fn add(&mut self, user: &str) {
        self.all += 1;
        *self.per_user.entry(user.to_owned()).or_default() += 1;
    }

    fn remove(&mut self, user: &str) {
        self.all -= 1;
        if let Some(count) = self.per_user.get_mut(user) {
            *count -= 1;
            if *count == 0 {
                self.per_user.remove(user);
            }
        }
    }
}

/// A call that is being served.
#[derive(Debug)]
pub(crate) struct Admitted {
    calls: Arc<ApiCalls>,
    user: String,
}

/// A call that waits. It counts as served again when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a Admitted);

impl ApiCalls {
    pub(crate) fn new(hits: Arc<LimitHits>) -> Self {
        Self { hits, ..Self::default() }
    }

    /// Counts a call until the guard is dropped.
    pub(crate) fn admit(self: &Arc<Self>, user: &str) -> Result<Admitted, UserError> {
        let mut counts = self.counts.lock();
        if counts.all >= MAX_API_CALLS {
            self.hits.hit(Limit::ApiCalls);
            return Err(UserError::new(ErrorKind::Unavailable, "the proxy serves too many API requests")
                .detail(format!("The limit is {MAX_API_CALLS} at a time."))
                .hint("Repeat the request later, or send it to another proxy."));
        }
        let of_user = counts.per_user.get(user).copied().unwrap_or(0);
        if of_user >= MAX_API_CALLS_PER_USER {
            self.hits.hit(Limit::ApiCallsPerUser);
            return Err(UserError::new(ErrorKind::ProgramLimit, format!("user \"{user}\" has too many API requests"))
                .detail(format!("The limit is {MAX_API_CALLS_PER_USER} at a time."))
                .hint("Repeat the request when an earlier one has been answered."));
        }
        counts.add(user);
        Ok(Admitted { calls: Arc::clone(self), user: user.to_owned() })
    }

    fn is_idle(&self) -> bool {
        let counts = self.counts.lock();
        counts.all == 0 && counts.waiting == 0
    }

    /// Waits until no call is being served.
    pub(crate) async fn none_left(&self) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // Enabled before the count is read, so that no notification is missed.
            ended.as_mut().enable();
            if self.is_idle() {
                return;
            }
            ended.await;
        }
    }
}

impl Admitted {
    /// Counts the call as a waiting one until the guard is dropped.
    pub(crate) fn wait(&self) -> Result<Waiting<'_>, UserError> {
        let mut counts = self.calls.counts.lock();
        if counts.waiting >= MAX_API_WAITS {
            self.calls.hits.hit(Limit::ApiCalls);
            return Err(UserError::new(ErrorKind::ProgramLimit, "too many API requests wait")
                .detail(format!("The limit is {MAX_API_WAITS} at a time."))
                .hint("Repeat the request later, or without a wait."));
        }
        counts.remove(&self.user);
        counts.waiting += 1;
        Ok(Waiting(self))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut counts = self.0.calls.counts.lock();
        counts.waiting -= 1;
        counts.add(&self.0.user);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.calls.counts.lock().remove(&self.user);
        if self.calls.is_idle() {
            self.calls.ended.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn calls_beyond_a_limit_are_refused_and_an_ended_one_makes_room() {
        let calls = Arc::new(ApiCalls::default());
        let mut of_ann: Vec<Admitted> = (0..MAX_API_CALLS_PER_USER).map(|_| calls.admit("ann").unwrap()).collect();
        assert_eq!(calls.admit("ann").unwrap_err().sqlstate(), "54000");
        drop(of_ann.pop());
        of_ann.push(calls.admit("ann").unwrap());
        let others: Vec<Admitted> =
            (of_ann.len()..MAX_API_CALLS).map(|user| calls.admit(&format!("user {user}")).unwrap()).collect();
        assert_eq!(calls.admit("bob").unwrap_err().sqlstate(), "57P03");
        drop((others, of_ann));
        assert!(calls.counts.lock().per_user.is_empty());
        calls.admit("bob").unwrap();
    }

    #[test]
    fn a_waiting_call_leaves_its_place_to_another() {
        let calls = Arc::new(ApiCalls::default());
        let of_ann: Vec<Admitted> = (0..MAX_API_CALLS_PER_USER).map(|_| calls.admit("ann").unwrap()).collect();
        let waiting = of_ann[0].wait().unwrap();
        let more = calls.admit("ann").unwrap();
        drop((waiting, more));
        assert_eq!(calls.counts.lock().per_user["ann"], MAX_API_CALLS_PER_USER);
        drop(of_ann);
        assert!(calls.is_idle());
    }

    #[tokio::test]
    async fn a_drain_waits_for_the_last_call() {
        let calls = Arc::new(ApiCalls::default());
        calls.none_left().await;
        let admitted = calls.admit("ann").unwrap();
        let mut waiting = tokio::spawn({
            let calls = Arc::clone(&calls);
            async move { calls.none_left().await }
        });
        assert!(tokio::time::timeout(std::time::Duration::from_millis(20), &mut waiting).await.is_err());
        drop(admitted);
        waiting.await.unwrap();
    }
}
