//! The watches, by path and connection. A watch ends with its connection; a client that reconnects sets its watches
//! again.
//!
//! A connection has at most one watch of each kind on a path, and receives each event once, however many of its
//! watches match. One-shot watches are removed when they fire, persistent ones stay.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::path;
use crate::proto::codes::{ErrorCode, EventKind};

/// A connection's number, never used twice.
pub(crate) type ConnectionId = u64;

/// The most paths that one connection may watch; more are refused with *quota exceeded*.
pub(crate) const PATHS_PER_CONNECTION_MAX: usize = 100_000;

/// The kinds of watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchKind {
    /// One-shot: the node's data, or its creation.
    Data,
    /// One-shot: the node's children.
    Children,
    /// Persistent: data and children.
    Persistent,
    /// Persistent: the data of the node and of all its descendants.
    Recursive,
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WatchKinds(u8);

impl WatchKinds {
    const ALL: WatchKinds = WatchKinds(15);

    fn from_kinds(kinds: &[WatchKind]) -> Self {
        Self(kinds.iter().fold(0, |bits, kind| bits | 1 << (*kind as u8)))
    }

    fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// All watches.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    by_path: HashMap<String, BTreeMap<ConnectionId, WatchKinds>>,
    by_connection: HashMap<ConnectionId, HashSet<String>>,
    /// Number of recursive watches; if there are none, ancestors are not searched.
    recursive: usize,
}

impl Watches {
    /// Sets a watch. Idempotent.
    pub(crate) fn add(&mut self, connection: ConnectionId, path: &str, kind: WatchKind) -> Result<(), ErrorCode> {
        let paths = self.by_connection.entry(connection).or_default();
        if !paths.contains(path) {
            if paths.len() >= PATHS_PER_CONNECTION_MAX {
                return Err(ErrorCode::QuotaExceeded);
            }
            paths.insert(path.to_owned());
        }
        let kinds = self.by_path.entry(path.to_owned()).or_default().entry(connection).or_default();
        let before = *kinds;
        kinds.0 |= WatchKinds::from_kinds(&[kind]).0;
        if kind == WatchKind::Recursive && *kinds != before {
            self.recursive += 1;
        }
        Ok(())
    }

    /// Whether the connection has a watch on this path that the protocol's number `kind` means.
    pub(crate) fn has(&self, connection: ConnectionId, path: &str, kind: i32) -> Result<bool, ErrorCode> {
        let wanted = Self::kinds_of_number(kind)?;
        let kinds = self.by_path.get(path).and_then(|watchers| watchers.get(&connection));
        Ok(kinds.is_some_and(|kinds| kinds.meets(wanted)))
    }

    /// Removes the watches on this path that the protocol's number `kind` means. Returns whether there was one.
    pub(crate) fn remove(&mut self, connection: ConnectionId, path: &str, kind: i32) -> Result<bool, ErrorCode> {
        let wanted = Self::kinds_of_number(kind)?;
        Ok(self.take(connection, path, wanted))
    }

    /// Removes every watch of a closed connection.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        for path in self.by_connection.remove(&connection).unwrap_or_default() {
            self.take(connection, &path, WatchKinds::ALL);
        }
    }

    /// The connections to notify of an event, each once. Matching one-shot watches are removed.
    pub(crate) fn trigger(&mut self, kind: EventKind, path: &str) -> BTreeSet<ConnectionId> {
        let wanted = match kind {
            EventKind::Created | EventKind::DataChanged => {
                WatchKinds::from_kinds(&[WatchKind::Data, WatchKind::Persistent, WatchKind::Recursive])
            }
            EventKind::ChildrenChanged => WatchKinds::from_kinds(&[WatchKind::Children, WatchKind::Persistent]),
            EventKind::Deleted => WatchKinds::ALL,
        };
        let mut notified: BTreeSet<ConnectionId> = self.watching(path, wanted).collect();
        for connection in &notified {
            let one_shot = WatchKinds(wanted.0 & WatchKinds::from_kinds(&[WatchKind::Data, WatchKind::Children]).0);
            self.take(*connection, path, one_shot);
        }
        if self.recursive > 0 && kind != EventKind::ChildrenChanged {
            for ancestor in path::ancestors(path) {
                notified.extend(self.watching(ancestor, WatchKinds::from_kinds(&[WatchKind::Recursive])));
            }
        }
        notified
    }

    /// Number of (connection, path, kind) that are watched.
    pub(crate) fn len(&self) -> usize {
        self.by_path.values().flat_map(BTreeMap::values).map(|kinds| kinds.0.count_ones() as usize).sum()
    }

    fn watching(&self, path: &str, wanted: WatchKinds) -> impl Iterator<Item = ConnectionId> {
        let watchers = self.by_path.get(path).into_iter().flatten();
        watchers.filter(move |(_, kinds)| kinds.meets(wanted)).map(|(connection, _)| *connection)
    }

    /// Removes some kinds of one connection's watches on a path, and empty map entries.
    fn take(&mut self, connection: ConnectionId, path: &str, unwanted: WatchKinds) -> bool {
        let Some(watchers) = self.by_path.get_mut(path) else { return false };
        let Some(kinds) = watchers.get_mut(&connection) else { return false };
        let taken = kinds.meets(unwanted);
        if WatchKinds(kinds.0 & unwanted.0).meets(WatchKinds::from_kinds(&[WatchKind::Recursive])) {
            self.recursive -= 1;
        }
        kinds.0 &= !unwanted.0;
        if *kinds == WatchKinds::default() {
            watchers.remove(&connection);
            if watchers.is_empty() {
                self.by_path.remove(path);
            }
            if let Some(paths) = self.by_connection.get_mut(&connection) {
                paths.remove(path);
            }
        }
        taken
    }

    /// The kinds that a request to check or remove watches names.
    fn kinds_of_number(number: i32) -> Result<WatchKinds, ErrorCode> {
        match number {
            1 => Ok(WatchKinds::from_kinds(&[WatchKind::Children])),
            2 => Ok(WatchKinds::from_kinds(&[WatchKind::Data])),
            3 => Ok(WatchKinds::ALL),
            4 => Ok(WatchKinds::from_kinds(&[WatchKind::Persistent])),
            5 => Ok(WatchKinds::from_kinds(&[WatchKind::Recursive])),
            _ => Err(ErrorCode::BadArguments),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    #[test]
    fn each_kind_hears_its_events_and_one_shot_watches_only_one() {
        use EventKind::{ChildrenChanged, Created, DataChanged, Deleted};
        let table: &[(WatchKind, EventKind, usize, usize)] = &[
            (WatchKind::Data, Created, 1, 0),
            (WatchKind::Data, DataChanged, 1, 0),
            (WatchKind::Data, Deleted, 1, 0),
            (WatchKind::Data, ChildrenChanged, 0, 0),
            (WatchKind::Children, Created, 0, 0),
            (WatchKind::Children, DataChanged, 0, 0),
            (WatchKind::Children, Deleted, 1, 0),
            (WatchKind::Children, ChildrenChanged, 1, 0),
            (WatchKind::Persistent, DataChanged, 1, 1),
            (WatchKind::Persistent, ChildrenChanged, 1, 1),
            (WatchKind::Persistent, Deleted, 1, 1),
            (WatchKind::Recursive, DataChanged, 1, 1),
            (WatchKind::Recursive, Deleted, 1, 1),
            (WatchKind::Recursive, ChildrenChanged, 0, 0),
        ];
        for (kind, event, first, second) in table {
            let mut watches = Watches::default();
            watches.add(1, "/a", *kind).unwrap();
            assert_eq!(watches.trigger(*event, "/a").len(), *first, "{kind:?} {event:?}");
            assert_eq!(watches.trigger(*event, "/a").len(), *second, "{kind:?} {event:?} again");
        }
    }

    #[test]
    fn a_recursive_watch_covers_descendants_and_no_siblings() {
        let mut watches = Watches::default();
        watches.add(1, "/a", WatchKind::Recursive).unwrap();
        watches.add(1, "/a", WatchKind::Recursive).unwrap();
        watches.add(2, "/a", WatchKind::Persistent).unwrap();
        assert_eq!(watches.trigger(EventKind::Created, "/a/b/c"), BTreeSet::from([1]));
        assert!(watches.trigger(EventKind::Created, "/ab").is_empty());
        watches.add(3, "/", WatchKind::Recursive).unwrap();
        assert_eq!(watches.trigger(EventKind::Created, "/ab"), BTreeSet::from([3]));
        watches.forget(1);
        watches.forget(3);
        assert_eq!((watches.recursive, watches.len()), (0, 1));
    }

    #[test]
    fn two_matching_watches_of_one_connection_are_one_event() {
        let mut watches = Watches::default();
        for kind in [WatchKind::Data, WatchKind::Children, WatchKind::Persistent, WatchKind::Recursive] {
            watches.add(1, "/a", kind).unwrap();
        }
        assert_eq!(watches.len(), 4);
        assert_eq!(watches.trigger(EventKind::Deleted, "/a"), BTreeSet::from([1]));
        assert_eq!(watches.len(), 2);
    }

    #[test]
    fn removing_a_watch_twice_reports_no_watcher() {
        let mut watches = Watches::default();
        watches.add(1, "/a", WatchKind::Data).unwrap();
        assert!(!watches.has(1, "/a", 1).unwrap());
        assert!(watches.has(1, "/a", 2).unwrap());
        assert!(!watches.remove(2, "/a", 3).unwrap());
        assert!(watches.remove(1, "/a", 3).unwrap());
        assert!(!watches.remove(1, "/a", 3).unwrap());
        assert_eq!(watches.remove(1, "/a", 9), Err(ErrorCode::BadArguments));
        assert!(watches.by_path.is_empty());
    }

    #[test]
    fn a_connection_can_watch_only_so_many_paths() {
        let mut watches = Watches::default();
        for number in 0..PATHS_PER_CONNECTION_MAX {
            watches.add(1, &format!("/{number}"), WatchKind::Data).unwrap();
        }
        assert_eq!(watches.add(1, "/more", WatchKind::Data), Err(ErrorCode::QuotaExceeded));
        watches.add(1, "/1", WatchKind::Children).unwrap();
        watches.add(2, "/more", WatchKind::Data).unwrap();
    }
}
