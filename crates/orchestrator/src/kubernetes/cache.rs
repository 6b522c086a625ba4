//! What the watches said, and what our own calls said since: pods, their warnings, nodes.
//!
//! Invariants:
//!
//! - One entry for each (name, namespace); a newer uid takes the place of an older one, never the other way round.
//! - An answer to our own call is taken in at once, so that a `list` after an `ensure` shows the engine. Neither such an
//!   answer nor an event brings an older version back. What no watch has confirmed within a minute goes again.
//! - A uid that was seen to go stays gone, whatever a late event says. (A pod leaves a watch also when it loses a label; a
//!   newer version of it brings it back.)
//! - What is foreign is kept apart, and not all of it if there is much: others decide how many such pods there are.
//! - A reading of a scope that is complete removes what it did not contain; until it is, nothing is removed.
//!
//! A stale cache shows engines as they were. Nothing is decided here, and every effect asks the server.

mod gated;
mod room;
mod whereabouts;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use model::EngineName;
use model::labels::LabelMap;
use parking_lot::{Mutex, MutexGuard};

use super::marks::FILE_ANNOTATION;
use super::nodes::{self, Nodes};
use super::read::{self, Found, Seen, Warning, Warnings};
use super::signature::Signer;
use crate::observed::bears;
use crate::wake::{Ringer, WakeUps};
use crate::{Error, Foreign, Listing, Unreadable};

use whereabouts::Whereabouts;

/// How long what only our own call said is believed.
const UNCONFIRMED: Duration = Duration::from_mins(1);
/// How long a watch may be broken before a listing fails.
pub const BROKEN_FOR: Duration = Duration::from_secs(15);
/// Foreign pods that are kept at most.
pub const MAX_FOREIGN: usize = 1_000;
/// Uids that were seen to go and are remembered.
const MAX_GONE: usize = 10_000;

/// The cache. Everything under one lock, which is never held across a wait.
#[derive(Debug)]
pub(super) struct Cache {
    inner: Mutex<Inner>,
    ringer: Ringer,
    signer: Signer,
}

#[derive(Debug, Default)]
struct Inner {
    entries: BTreeMap<(String, String), Entry>,
    warnings: HashMap<String, Warnings>,
    scopes: Vec<Scope>,
    nodes: Nodes,
    foreign: BTreeMap<(String, String), (Foreign, LabelMap)>,
    /// With the version at which a watch said so; `None` where the server itself said that it is no more.
    gone: HashMap<String, Option<u64>>,
    gone_in_order: VecDeque<String>,
    whereabouts: Whereabouts,
    /// Rights that we need and have not.
    missing: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    /// Without what is never read again.
    pod: Pod,
    found: Found,
    /// CPU and memory that its containers ask for, in thousandths of a core and in bytes.
    asked: (u64, u64),
    /// Until when it is believed without a watch; `None` once one has told of it.
    unconfirmed_until: Option<Duration>,
    /// Since when it has been listed behind its gate, by the boot clock.
    gated_since: Option<Duration>,
}

/// What one watch covers.
#[derive(Debug, Default)]
struct Scope {
    /// `None`: the whole cluster.
    namespace: Option<String>,
    /// Whether it was ever read completely.
    filled: bool,
    /// What a reading that goes on has seen.
    seen: Option<HashSet<(String, String)>>,
    /// Since when it is broken, and how.
    broken: Option<(Duration, Error)>,
}

/// Whether a listing can be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Belief {
    /// It can.
    Complete,
    /// Something is being read for the first time.
    Unfilled,
    /// Nothing can be read, or has not been for too long.
    Broken(Error),
}

impl Scope {
    /// What makes what is known of it worth nothing: it was never read, or not for too long.
    fn trouble(&self, now: Duration) -> Option<&Error> {
        let (since, error) = self.broken.as_ref()?;
        (!self.filled || now.saturating_sub(*since) >= BROKEN_FOR).then_some(error)
    }
}

impl Cache {
    /// An empty cache; one scope for each namespace, or one over the whole cluster.
    pub(super) fn new(namespaces: Option<&[String]>, signer: Signer) -> Self {
        let scope = |namespace: Option<String>| Scope { namespace, ..Scope::default() };
        let scopes = match namespaces {
            None => vec![scope(None)],
            Some(listed) => listed.iter().map(|it| scope(Some(it.clone()))).collect(),
        };
        Self { inner: Mutex::new(Inner { scopes, ..Inner::default() }), ringer: Ringer::new(), signer }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    pub(super) fn watch(&self) -> WakeUps {
        self.ringer.watch()
    }

    /// Works on the nodes; rings if they changed.
    pub(super) fn with_nodes<T>(&self, work: impl FnOnce(&mut Nodes) -> (T, bool)) -> T {
        let (result, changed) = work(&mut self.lock().nodes);
        if changed {
            self.ringer.ring();
        }
        result
    }

    /// A watch begins to read its scope anew.
    pub(super) fn begin(&self, scope: usize) {
        if let Some(scope) = self.lock().scopes.get_mut(scope) {
            scope.seen = Some(HashSet::new());
        }
    }

    /// A watch tells of a pod, in a reading or as a change.
    pub(super) fn told(&self, scope: usize, pod: Pod) {
        let changed = {
            let mut inner = self.lock();
            if let Some(seen) = inner.scopes.get_mut(scope).and_then(|scope| scope.seen.as_mut()) {
                seen.insert(key(&pod));
            }
            inner.take_in(pod, None, &self.signer)
        };
        if changed {
            self.ringer.ring();
        }
    }

    /// A watch tells that a pod is gone.
    pub(super) fn removed(&self, pod: &Pod) {
        let (name, namespace) = key(pod);
        if let Some(uid) = pod.metadata.uid.as_deref() {
            self.went(&namespace, &name, uid, version(pod));
        }
    }

    /// A reading is complete: what it did not contain is not there.
    pub(super) fn done(&self, scope: usize, now: Duration) {
        {
            let mut inner = self.lock();
            let Some(scope) = inner.scopes.get_mut(scope) else { return };
            (scope.filled, scope.broken) = (true, None);
            let (seen, namespace) = (scope.seen.take().unwrap_or_default(), scope.namespace.clone());
            let stays = |key: &(String, String)| {
                seen.contains(key) || namespace.as_ref().is_some_and(|namespace| *namespace != key.1)
            };
            inner.entries.retain(|key, entry| stays(key) || entry.unconfirmed_until.is_some_and(|until| now < until));
            inner.foreign.retain(|key, _| stays(key));
            inner.forget_warnings();
        }
        self.ringer.ring();
    }

    /// A watch failed; when it began to and how is kept until it works again.
    pub(super) fn broke(&self, scope: usize, error: Error, now: Duration) {
        if let Some(scope) = self.lock().scopes.get_mut(scope) {
            let since = scope.broken.as_ref().map_or(now, |(since, _)| *since);
            scope.broken = Some((since, error));
            scope.seen = None;
        }
        self.ringer.ring();
    }

    /// The answer to a call of ours.
    pub(super) fn wrote(&self, pod: Pod, now: Duration) {
        let until = now.saturating_add(UNCONFIRMED);
        let changed = self.lock().take_in(pod, Some(until), &self.signer);
        if changed {
            self.ringer.ring();
        }
    }

    /// The pod of that uid is gone.
    pub(super) fn gone(&self, namespace: &str, name: &str, uid: &str) {
        self.went(namespace, name, uid, None);
    }

    fn went(&self, namespace: &str, name: &str, uid: &str, at: Option<u64>) {
        {
            let mut inner = self.lock();
            let key = (name.to_owned(), namespace.to_owned());
            if inner.entries.get(&key).is_some_and(|entry| entry.pod.metadata.uid.as_deref() == Some(uid)) {
                inner.entries.remove(&key);
            }
            if inner.foreign.get(&key).is_some_and(|(foreign, _)| foreign.uid == uid) {
                inner.foreign.remove(&key);
            }
            inner.warnings.remove(uid);
            if inner.gone.insert(uid.to_owned(), at).is_none() {
                inner.gone_in_order.push_back(uid.to_owned());
                if inner.gone_in_order.len() > MAX_GONE
                    && let Some(oldest) = inner.gone_in_order.pop_front()
                {
                    inner.gone.remove(&oldest);
                }
            }
        }
        self.ringer.ring();
    }

    /// A warning about the pod of that uid; of a pod that is not known, nothing is kept.
    pub(super) fn warned(&self, namespace: &str, name: &str, uid: &str, warning: Warning) {
        let changed = {
            let mut inner = self.lock();
            let Inner { entries, warnings, .. } = &mut *inner;
            let entry = entries.get_mut(&(name.to_owned(), namespace.to_owned()));
            let Some(entry) = entry.filter(|it| it.pod.metadata.uid.as_deref() == Some(uid)) else { return };
            let of_pod = warnings.entry(uid.to_owned()).or_default();
            let changed = of_pod.add(warning);
            if changed {
                entry.found = read::pod(&entry.pod, of_pod.all(), &self.signer);
            }
            changed
        };
        if changed {
            self.ringer.ring();
        }
    }

    /// The warnings of the pod of that uid.
    pub(super) fn warnings(&self, uid: &str) -> Vec<Warning> {
        self.lock().warnings.get(uid).map(|it| it.all().to_vec()).unwrap_or_default()
    }

    /// Whether the scope was ever read completely.
    pub(super) fn is_filled(&self, scope: usize) -> bool {
        self.lock().scopes.get(scope).is_some_and(|scope| scope.filled)
    }

    /// Whether a listing can be believed. One namespace of many that can't be read hides no other: a listing names it.
    pub(super) fn belief(&self, now: Duration) -> Belief {
        let inner = self.lock();
        if inner.scopes.iter().any(|scope| !scope.filled && scope.broken.is_none()) {
            return Belief::Unfilled;
        }
        let mut troubles = inner.scopes.iter().map(|scope| scope.trouble(now));
        match troubles.next().flatten() {
            Some(error) if troubles.all(|trouble| trouble.is_some()) => Belief::Broken(error.clone()),
            _ => Belief::Complete,
        }
    }

    /// What we may not do though we have to; rings if that is news, and answers whether it is.
    pub(super) fn set_missing(&self, missing: Vec<String>) -> bool {
        let is_news = {
            let mut inner = self.lock();
            let is_news = inner.missing != missing;
            inner.missing = missing;
            is_news
        };
        if is_news {
            self.ringer.ring();
        }
        is_news
    }

    /// The engines with the selector's labels, by name, and what is no engine beside them.
    pub(super) fn list(&self, selector: &LabelMap, now: Duration, now_ms: i64) -> Listing {
        let mut inner = self.lock();
        inner.entries.retain(|_, entry| entry.unconfirmed_until.is_none_or(|until| now < until));
        let mut listing = Listing { missing: inner.missing.clone(), ..Listing::default() };
        for scope in &inner.scopes {
            if let (Some(namespace), Some(error)) = (&scope.namespace, scope.trouble(now)) {
                listing
                    .unreadable
                    .push(Unreadable { name: format!("namespace {namespace}"), reason: error.to_string() });
            }
        }
        for entry in inner.entries.values_mut() {
            match &entry.found {
                Found::Engine(seen) if !seen.observed.matches(selector) => {}
                Found::Engine(seen) if !seen.observed.incomplete => listing.engines.push(seen.listed(None)),
                Found::Engine(seen) => {
                    let seen = seen.clone();
                    listing.engines.push(entry.listed(&seen, now, now_ms));
                }
                Found::Unreadable(unreadable) => listing.unreadable.push(unreadable.clone()),
                Found::Foreign(foreign) => listing.foreign.push(foreign.clone()),
            }
        }
        let foreign = inner.foreign.values().filter(|(_, labels)| bears(labels, selector));
        listing.foreign.extend(foreign.map(|(foreign, _)| foreign.clone()));
        listing
    }

    /// The engine of that name, as far as is known here.
    pub(super) fn find(&self, name: &EngineName) -> Option<Seen> {
        let inner = self.lock();
        let from = (name.to_string(), String::new());
        let mut of_name = inner.entries.range(from..).take_while(|(key, _)| key.0 == name.as_str());
        of_name.find_map(|(_, entry)| engine(entry)).cloned()
    }

    /// Where the engine of that name was seen last.
    pub(super) fn last_namespace(&self, name: &EngineName) -> Option<String> {
        self.lock().whereabouts.of(name.as_str()).map(str::to_owned)
    }

    /// How many engines there are, if that is as many as there may be. Asked before each create: they are counted only when
    /// there may be too many.
    pub(super) fn is_full(&self, most: usize) -> Option<usize> {
        let inner = self.lock();
        if inner.entries.len() < most {
            return None;
        }
        let count = inner.entries.values().filter(|entry| engine(entry).is_some()).count();
        (count >= most).then_some(count)
    }
}

fn engine(entry: &Entry) -> Option<&Seen> {
    match &entry.found {
        Found::Engine(seen) => Some(seen),
        _ => None,
    }
}

impl Inner {
    /// Takes a pod in, unless a newer one is known; whether anything that is told has changed.
    fn take_in(&mut self, pod: Pod, unconfirmed_until: Option<Duration>, signer: &Signer) -> bool {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        match (self.gone.get(&uid), version(&pod)) {
            (Some(Some(at)), Some(version)) if version > *at => {}
            (Some(_), _) => return false,
            (None, _) => {}
        }
        let key = key(&pod);
        if let Some(known) = self.entries.get_mut(&key) {
            if unconfirmed_until.is_none() && known.pod.metadata.uid == pod.metadata.uid {
                known.unconfirmed_until = None;
            }
            if is_older(&pod, &known.pod) {
                return false;
            }
        }
        let pod = trimmed(pod);
        let warnings = self.warnings.get(&uid).map(Warnings::all).unwrap_or_default();
        let found = read::pod(&pod, warnings, signer);
        if let Found::Foreign(foreign) = found {
            return self.take_foreign(key, foreign, pod.metadata.labels.unwrap_or_default());
        }
        self.foreign.remove(&key);
        if matches!(found, Found::Engine(_)) {
            self.whereabouts.note(&key.0, &key.1);
        }
        let before = self.entries.get(&key);
        // What a watch has told of once stays confirmed.
        let confirmed =
            before.is_some_and(|it| it.unconfirmed_until.is_none() && it.pod.metadata.uid == pod.metadata.uid);
        let changed = before.is_none_or(|before| before.found != found);
        let unconfirmed_until = unconfirmed_until.filter(|_| !confirmed);
        let same = before.filter(|it| it.pod.metadata.uid == pod.metadata.uid);
        let gated_since = same.and_then(|it| it.gated_since);
        let asked = nodes::asked_by(&pod);
        self.entries.insert(key, Entry { pod, found, asked, unconfirmed_until, gated_since });
        changed
    }

    fn take_foreign(&mut self, key: (String, String), foreign: Foreign, labels: LabelMap) -> bool {
        // It may be one of ours whose signature somebody took away.
        let was_ours = self.entries.remove(&key).is_some();
        let known = self.foreign.get(&key);
        let is_new = known.is_none_or(|(known, before)| *known != foreign || *before != labels);
        if known.is_none() && self.foreign.len() >= MAX_FOREIGN {
            return was_ours;
        }
        self.foreign.insert(key, (foreign, labels));
        was_ours || is_new
    }

    fn forget_warnings(&mut self) {
        let Self { entries, warnings, .. } = self;
        let there: HashSet<&str> = entries.values().filter_map(|it| it.pod.metadata.uid.as_deref()).collect();
        warnings.retain(|uid, _| there.contains(uid.as_str()));
    }
}

fn key(pod: &Pod) -> (String, String) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&pod.metadata.name), text(&pod.metadata.namespace))
}

/// Whether the first is an older version of the second. Versions are compared as the numbers that they are in every
/// server with etcd behind it; where they are none, the newest word counts.
fn is_older(one: &Pod, other: &Pod) -> bool {
    matches!((version(one), version(other)), (Some(one), Some(other)) if one < other)
}

fn version(pod: &Pod) -> Option<u64> {
    pod.metadata.resource_version.as_deref()?.parse().ok()
}

/// Without what is never read: a pod's volumes, environment and files are most of it, and files may be secret.
pub(super) fn trimmed(mut pod: Pod) -> Pod {
    pod.metadata.managed_fields = None;
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.retain(|key, _| !key.starts_with(FILE_ANNOTATION));
    }
    pod.spec = pod.spec.map(|spec| PodSpec {
        containers: spec
            .containers
            .into_iter()
            .map(|it| Container { name: it.name, resources: it.resources, ..Container::default() })
            .collect(),
        node_name: spec.node_name,
        scheduling_gates: spec.scheduling_gates,
        ..PodSpec::default()
    });
    pod
}

#[cfg(test)]
mod tests;
