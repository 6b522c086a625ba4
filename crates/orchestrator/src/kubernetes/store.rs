//! The store: a cache of pods, their warnings and the nodes, kept up to date by the reflectors ([`super::watch`]) and by the
//! replies to our own calls.
//!
//! Invariants:
//!
//! - There is one entry for each (name, namespace). A newer uid replaces an older one, never the other way round.
//! - The reply to our own call is applied at once, so that a `list` after an `ensure` shows the engine. Neither a reply nor
//!   an event restores an older version. An entry that no watch confirms within a minute expires.
//! - A uid that was deleted stays deleted, also when late events arrive. (A pod also leaves a watch when it loses a label; a
//!   newer version restores it.)
//! - Executors and foreign pods are kept separately, up to a limit, because others decide how many of them exist.
//! - A complete resync of a scope removes the entries that it did not contain; until it completes, nothing is removed.
//!
//! A stale store shows engines as they were. Nothing is decided here, and every effect asks the server.

mod capacity;
mod executors;
mod foreign;
mod gated;
mod last_namespaces;
mod scope;
mod tombstones;
mod warnings;

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use model::EngineName;
use model::cause::chain;
use model::labels::LabelMap;
use model::shared::Shared;
use parking_lot::{Mutex, MutexGuard};

use super::nodes::Nodes;
use super::read::{self, Classified, EnginePod, Warning};
use super::signature::Signer;
use super::trimmed::TrimmedPod;
use crate::wake::{Notifier, WakeUps};
use crate::{Error, Listing, ObservedInstance, Unreadable};

use executors::{Executors, is_executor};
use foreign::ForeignPods;
use last_namespaces::LastNamespaces;
use scope::Scope;
pub(super) use scope::StoreState;
use tombstones::Tombstones;
use warnings::WarningTable;

/// How long an entry that only our own call reported is kept.
const UNCONFIRMED_FOR: Duration = Duration::from_mins(1);

/// Name and namespace of a pod.
type Key = (String, String);

/// The store. Everything is under one lock, which is never held across an await.
#[derive(Debug)]
pub(super) struct Store {
    inner: Mutex<Inner>,
    notifier: Notifier,
    signer: Signer,
}

#[derive(Debug, Default)]
struct Inner {
    entries: BTreeMap<Key, Entry>,
    executors: Executors,
    foreign: ForeignPods,
    tombstones: Tombstones,
    warnings: WarningTable,
    last_namespaces: LastNamespaces,
    scopes: Vec<Scope>,
    nodes: Nodes,
    /// Permissions that we need and lack.
    missing_permissions: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    pod: TrimmedPod,
    classified: Classified,
    /// When it expires unless a watch confirms it; `None` once one has.
    unconfirmed_until: Option<Duration>,
    /// Since when it has been listed behind its scheduling gate, on the boot-time clock.
    gated_since: Option<Duration>,
    /// As it was listed last, and is listed again until something changes: readers compare listings of thousands of engines.
    listed: Option<ListedEngine>,
}

/// An engine as a listing had it.
#[derive(Debug)]
struct ListedEngine {
    /// Without its executors.
    engine: Shared<ObservedInstance>,
    /// [`Executors::changes`] at that time.
    executors: u64,
    observed: Shared<ObservedInstance>,
}

impl Entry {
    fn engine(&self) -> Option<&EnginePod> {
        match &self.classified {
            Classified::Engine(engine) => Some(engine),
            _ => None,
        }
    }

    fn has_uid(&self, uid: &str) -> bool {
        self.pod.uid() == uid
    }

    fn is_expired(&self, now: Duration) -> bool {
        self.unconfirmed_until.is_some_and(|until| now >= until)
    }
}

impl Store {
    /// An empty store; one scope for each namespace, or one over the whole cluster.
    pub(super) fn new(namespaces: Option<&[String]>, signer: Signer) -> Self {
        let scopes = match namespaces {
            None => vec![Scope::default()],
            Some(listed) => listed.iter().map(|namespace| Scope::of_namespace(namespace)).collect(),
        };
        Self { inner: Mutex::new(Inner { scopes, ..Inner::default() }), notifier: Notifier::new(), signer }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    fn notify_if(&self, changed: bool) {
        if changed {
            self.notifier.notify();
        }
    }

    pub(super) fn watch(&self) -> WakeUps {
        self.notifier.watch()
    }

    /// Runs `work` on the nodes; it returns its result and whether the nodes changed.
    pub(super) fn with_nodes<T>(&self, work: impl FnOnce(&mut Nodes) -> (T, bool)) -> T {
        let (result, changed) = work(&mut self.lock().nodes);
        self.notify_if(changed);
        result
    }

    /// A watch begins to list its scope again.
    pub(super) fn begin_resync(&self, scope: usize) {
        if let Some(scope) = self.lock().scopes.get_mut(scope) {
            scope.begin_resync();
        }
    }

    /// Applies a pod of a watch, from a resync or from an event.
    pub(super) fn apply_event(&self, scope: usize, pod: TrimmedPod) {
        let changed = {
            let mut inner = self.lock();
            if let Some(scope) = inner.scopes.get_mut(scope) {
                scope.note(pod.key());
            }
            if is_executor(&pod) { inner.apply_executor(&pod) } else { inner.apply(pod, None, &self.signer) }
        };
        self.notify_if(changed);
    }

    /// Applies the delete event of a watch.
    pub(super) fn apply_delete(&self, pod: &TrimmedPod) {
        let key = pod.key();
        if is_executor(pod) {
            // No tombstone: there are more executors than tombstones, and no reply to a call of ours restores one.
            let changed = self.lock().executors.remove(&key, pod.uid());
            self.notify_if(changed);
        } else if !pod.uid().is_empty() {
            self.forget(&key.1, &key.0, pod.uid(), pod.version());
        }
    }

    /// A resync is complete: removes the entries that it did not contain.
    pub(super) fn finish_resync(&self, scope: usize, now: Duration) {
        {
            let mut inner = self.lock();
            let Some(scope) = inner.scopes.get_mut(scope) else { return };
            let listed = scope.finish_resync();
            let namespace = scope.namespace.clone();
            let stays =
                |key: &Key| listed.contains(key) || namespace.as_ref().is_some_and(|namespace| *namespace != key.1);
            let is_unconfirmed = |entry: &Entry| entry.unconfirmed_until.is_some() && !entry.is_expired(now);
            inner.entries.retain(|key, entry| stays(key) || is_unconfirmed(entry));
            inner.executors.retain(stays);
            inner.foreign.retain(stays);
            let Inner { entries, warnings, .. } = &mut *inner;
            let uids: HashSet<&str> = entries.values().map(|entry| entry.pod.uid()).collect();
            warnings.retain(&uids);
        }
        self.notifier.notify();
    }

    /// A watch failed; keeps since when it fails and the latest error until it works again.
    pub(super) fn mark_broken(&self, scope: usize, error: Error, now: Duration) {
        if let Some(scope) = self.lock().scopes.get_mut(scope) {
            scope.mark_broken(error, now);
        }
        self.notifier.notify();
    }

    /// Applies the reply to one of our own calls.
    pub(super) fn apply_reply(&self, pod: Pod, now: Duration) {
        let until = now.saturating_add(UNCONFIRMED_FOR);
        let changed = self.lock().apply(TrimmedPod::from(pod), Some(until), &self.signer);
        self.notify_if(changed);
    }

    /// The server itself reported that this uid does not exist.
    pub(super) fn remove(&self, namespace: &str, name: &str, uid: &str) {
        self.forget(namespace, name, uid, None);
    }

    fn forget(&self, namespace: &str, name: &str, uid: &str, version: Option<u64>) {
        self.lock().forget(&(name.to_owned(), namespace.to_owned()), uid, version);
        self.notifier.notify();
    }

    /// Adds a warning about the pod with this uid; ignored if the pod is unknown.
    pub(super) fn add_warning(&self, namespace: &str, name: &str, uid: &str, warning: Warning) {
        let changed = {
            let mut inner = self.lock();
            let Inner { entries, warnings, .. } = &mut *inner;
            let entry = entries.get_mut(&(name.to_owned(), namespace.to_owned()));
            let Some(entry) = entry.filter(|entry| entry.has_uid(uid)) else { return };
            let changed = warnings.add(uid, warning);
            if changed {
                entry.classified = read::classify(&entry.pod.0, warnings.get(uid), &self.signer);
            }
            changed
        };
        self.notify_if(changed);
    }

    /// The warnings of the pod with this uid.
    pub(super) fn warnings(&self, uid: &str) -> Vec<Warning> {
        self.lock().warnings.get(uid).to_vec()
    }

    /// Whether the scope was ever listed completely.
    pub(super) fn is_synced(&self, scope: usize) -> bool {
        self.lock().scopes.get(scope).is_some_and(Scope::is_synced)
    }

    /// Whether a listing can be served. One unreadable namespace of several does not fail the others: a listing names it.
    pub(super) fn state(&self, now: Duration) -> StoreState {
        scope::state(&self.lock().scopes, now)
    }

    /// Sets the permissions that we lack; returns whether they changed.
    pub(super) fn set_missing_permissions(&self, missing: Vec<String>) -> bool {
        let changed = {
            let mut inner = self.lock();
            let changed = inner.missing_permissions != missing;
            inner.missing_permissions = missing;
            changed
        };
        self.notify_if(changed);
        changed
    }

    /// The engines with the selector's labels, by name, and the other objects that were found.
    pub(super) fn list(&self, selector: &LabelMap, now: Duration, now_ms: i64) -> Listing {
        let mut inner = self.lock();
        inner.entries.retain(|_, entry| !entry.is_expired(now));
        let mut listing = Listing { missing_permissions: inner.missing_permissions.clone(), ..Listing::default() };
        for scope in &inner.scopes {
            if let (Some(namespace), Some(error)) = (&scope.namespace, scope.failure(now)) {
                listing
                    .unreadable
                    .push(Unreadable { name: format!("namespace {namespace}"), reason: chain(error).to_string() });
            }
        }
        let inner = &mut *inner;
        let (changes, executors) = (inner.executors.changes(), LazyCell::new(|| inner.executors.by_engine()));
        for entry in inner.entries.values_mut() {
            match &entry.classified {
                Classified::Engine(engine) if !engine.observed.matches(selector) => {}
                Classified::Engine(engine) if !engine.observed.incomplete => {
                    let is_same = |listed: &ListedEngine| {
                        listed.executors == changes && Shared::is_same(&listed.engine, &engine.observed)
                    };
                    if !entry.listed.as_ref().is_some_and(is_same) {
                        let observed = executors.complete(engine.observed.clone(), &engine.namespace);
                        let engine = engine.observed.clone();
                        entry.listed = Some(ListedEngine { engine, executors: changes, observed });
                    }
                    listing.engines.extend(entry.listed.as_ref().map(|listed| listed.observed.clone()));
                }
                Classified::Engine(engine) => {
                    let engine = engine.clone();
                    let observed = entry.as_gated(&engine, now, now_ms);
                    listing.engines.push(executors.complete(observed, &engine.namespace));
                }
                Classified::Unreadable(unreadable) => listing.unreadable.push(unreadable.clone()),
                Classified::Foreign(foreign) => listing.foreign.push(foreign.clone()),
            }
        }
        listing.foreign.extend(inner.foreign.list(selector));
        listing
    }

    /// The engine of that name, if the store has it.
    pub(super) fn find(&self, name: &EngineName) -> Option<EnginePod> {
        let inner = self.lock();
        let from = (name.to_string(), String::new());
        let mut of_name = inner.entries.range(from..).take_while(|(key, _)| key.0 == name.as_str());
        of_name.find_map(|(_, entry)| entry.engine()).cloned()
    }

    /// The namespace in which the engine of that name was last observed.
    pub(super) fn last_namespace(&self, name: &EngineName) -> Option<String> {
        self.lock().last_namespaces.get(name.as_str()).map(str::to_owned)
    }

    /// The number of engines if it has reached the limit. Called before each create, so the engines are only counted when
    /// there are enough entries.
    pub(super) fn count_if_full(&self, limit: usize) -> Option<usize> {
        let inner = self.lock();
        if inner.entries.len() < limit {
            return None;
        }
        let count = inner.entries.values().filter(|entry| entry.engine().is_some()).count();
        (count >= limit).then_some(count)
    }
}

impl Inner {
    fn forget(&mut self, key: &Key, uid: &str, version: Option<u64>) {
        if self.entries.get(key).is_some_and(|entry| entry.has_uid(uid)) {
            self.entries.remove(key);
        }
        self.executors.remove(key, uid);
        self.foreign.remove(key, uid);
        self.warnings.remove(uid);
        self.tombstones.add(uid, version);
    }

    /// Applies a pod with the labels of an executor; returns whether anything changed.
    fn apply_executor(&mut self, pod: &TrimmedPod) -> bool {
        let key = pod.key();
        let was_listed =
            self.entries.get(&key).is_some_and(|entry| entry.has_uid(pod.uid()) && !pod.is_older_than(&entry.pod))
                || self.foreign.has(&key, pod.uid());
        if was_listed {
            // Its label was changed: it left what the listing selects.
            self.forget(&key, pod.uid(), pod.version());
        }
        self.executors.apply(pod) || was_listed
    }

    /// Applies a pod unless a newer version is known; returns whether a listing changed.
    fn apply(&mut self, pod: TrimmedPod, unconfirmed_until: Option<Duration>, signer: &Signer) -> bool {
        let uid = pod.uid().to_owned();
        if self.tombstones.cover(&uid, pod.version()) {
            return false;
        }
        let key = pod.key();
        self.executors.remove(&key, &uid);
        if let Some(known) = self.entries.get_mut(&key) {
            if unconfirmed_until.is_none() && known.has_uid(&uid) {
                known.unconfirmed_until = None;
            }
            if pod.is_older_than(&known.pod) {
                return false;
            }
        }
        let classified = read::classify(&pod.0, self.warnings.get(&uid), signer);
        if let Classified::Foreign(foreign) = classified {
            // It may be an engine of ours that has lost its signature.
            let was_ours = self.entries.remove(&key).is_some();
            return self.foreign.insert(key, foreign, pod.into_labels()) || was_ours;
        }
        self.foreign.forget(&key);
        if matches!(classified, Classified::Engine(_)) {
            self.last_namespaces.set(&key.0, &key.1);
        }
        let before = self.entries.get(&key);
        let changed = before.is_none_or(|before| before.classified != classified);
        let same_pod = before.filter(|before| before.has_uid(&uid));
        // An entry that a watch has confirmed stays confirmed.
        let is_confirmed = same_pod.is_some_and(|before| before.unconfirmed_until.is_none());
        let unconfirmed_until = unconfirmed_until.filter(|_| !is_confirmed);
        let gated_since = same_pod.and_then(|before| before.gated_since);
        self.entries.insert(key, Entry { pod, classified, unconfirmed_until, gated_since, listed: None });
        changed
    }
}

#[cfg(test)]
mod tests;
