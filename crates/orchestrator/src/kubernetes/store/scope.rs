//! The scope of one watch: a namespace or the whole cluster, and whether its part of the store can be trusted.

use std::collections::HashSet;
use std::time::Duration;

use super::Key;
use crate::Error;

/// How long a watch may be broken before a listing fails.
pub const BROKEN_FOR: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub(super) struct Scope {
    /// `None`: the whole cluster.
    pub(super) namespace: Option<String>,
    /// Whether it was ever listed completely.
    synced: bool,
    /// The keys that the current resync has listed so far.
    resync: Option<HashSet<Key>>,
    /// Since when it is broken, and the latest error.
    broken: Option<(Duration, Error)>,
}

/// Whether the store can serve a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kubernetes) enum StoreState {
    Ready,
    /// A scope is being listed for the first time.
    Filling,
    /// No scope can be read, or none has been for too long.
    Broken(Error),
}

/// The state of a store with these scopes.
pub(super) fn state(scopes: &[Scope], now: Duration) -> StoreState {
    if scopes.iter().any(|scope| !scope.synced && scope.broken.is_none()) {
        return StoreState::Filling;
    }
    let mut failures = scopes.iter().map(|scope| scope.failure(now));
    match failures.next().flatten() {
        Some(error) if failures.all(|failure| failure.is_some()) => StoreState::Broken(error.clone()),
        _ => StoreState::Ready,
    }
}

impl Scope {
    pub(super) fn of_namespace(namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..Self::default() }
    }

    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// The error that makes its entries worthless: it was never listed, or its watch has been broken for too long.
    pub(super) fn failure(&self, now: Duration) -> Option<&Error> {
        let (since, error) = self.broken.as_ref()?;
        (!self.synced || now.saturating_sub(*since) >= BROKEN_FOR).then_some(error)
    }

    pub(super) fn begin_resync(&mut self) {
        self.resync = Some(HashSet::new());
    }

    /// Notes a listed or changed pod.
    pub(super) fn note(&mut self, key: Key) {
        if let Some(listed) = &mut self.resync {
            listed.insert(key);
        }
    }

    /// Returns the keys that were listed.
    pub(super) fn finish_resync(&mut self) -> HashSet<Key> {
        (self.synced, self.broken) = (true, None);
        self.resync.take().unwrap_or_default()
    }

    pub(super) fn mark_broken(&mut self, error: Error, now: Duration) {
        let since = self.broken.as_ref().map_or(now, |(since, _)| *since);
        self.broken = Some((since, error));
        self.resync = None;
    }
}
