//! Who is told what. A watch belongs to a connection and is gone with it; a client that comes back sets its
//! watches again.
//!
//! One connection has at most one watch of each kind on a path, and is told of one event once, however many of its
//! watches match. One-shot watches go when they fire, persistent ones stay.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::path;
use crate::proto::codes::{ErrorCode, EventKind};

/// A connection's number, never used twice.
pub(crate) type ConnectionId = u64;

/// The most paths that one connection may watch; more are refused with *quota exceeded*.
pub(crate) const PATHS_PER_CONNECTION_MAX: usize = 100_000;

/// The kinds of watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One-shot: the node's data, or its coming into being.
    Data,
    /// One-shot: the node's children.
    Children,
    /// Lasting: both.
    Persistent,
    /// Lasting: the data of the node and of everything below it.
    Recursive,
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Kinds(u8);

impl Kinds {
    const ALL: Kinds = Kinds(15);

    fn of(kinds: &[Kind]) -> Self {
        Self(kinds.iter().fold(0, |bits, kind| bits | 1 << (*kind as u8)))
    }

    fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// All watches.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    by_path: HashMap<String, BTreeMap<ConnectionId, Kinds>>,
    by_connection: HashMap<ConnectionId, HashSet<String>>,
    /// Number of recursive watches: without any, no ancestor needs a look.
    recursive: usize,
}

impl Watches {
    /// Sets a watch; again is no change.
    pub(crate) fn add(&mut self, connection: ConnectionId, path: &str, kind: Kind) -> Result<(), ErrorCode> {
        let paths = self.by_connection.entry(connection).or_default();
        if !paths.contains(path) {
            if paths.len() >= PATHS_PER_CONNECTION_MAX {
                return Err(ErrorCode::QuotaExceeded);
            }
            paths.insert(path.to_owned());
        }
        let kinds = self.by_path.entry(path.to_owned()).or_default().entry(connection).or_default();
        let before = *kinds;
        kinds.0 |= Kinds::of(&[kind]).0;
        if kind == Kind::Recursive && *kinds != before {
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

    /// Takes away the watches on this path that the protocol's number `kind` means; whether there was one.
    pub(crate) fn remove(&mut self, connection: ConnectionId, path: &str, kind: i32) -> Result<bool, ErrorCode> {
        let wanted = Self::kinds_of_number(kind)?;
        Ok(self.take(connection, path, wanted))
    }

    /// Takes away every watch of a connection that is gone.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        for path in self.by_connection.remove(&connection).unwrap_or_default() {
            self.take(connection, &path, Kinds::ALL);
        }
    }

    /// Who is to be told of an event, each once. One-shot watches that it meets are gone with this call.
    pub(crate) fn trigger(&mut self, kind: EventKind, path: &str) -> BTreeSet<ConnectionId> {
        let wanted = match kind {
            EventKind::Created | EventKind::DataChanged => Kinds::of(&[Kind::Data, Kind::Persistent, Kind::Recursive]),
            EventKind::ChildrenChanged => Kinds::of(&[Kind::Children, Kind::Persistent]),
            EventKind::Deleted => Kinds::ALL,
        };
        let mut told: BTreeSet<ConnectionId> = self.watching(path, wanted).collect();
        for connection in &told {
            let one_shot = Kinds(wanted.0 & Kinds::of(&[Kind::Data, Kind::Children]).0);
            self.take(*connection, path, one_shot);
        }
        if self.recursive > 0 && kind != EventKind::ChildrenChanged {
            for ancestor in path::ancestors(path) {
                told.extend(self.watching(ancestor, Kinds::of(&[Kind::Recursive])));
            }
        }
        told
    }

    /// Number of (connection, path, kind) that are watched.
    pub(crate) fn len(&self) -> usize {
        self.by_path.values().flat_map(BTreeMap::values).map(|kinds| kinds.0.count_ones() as usize).sum()
    }

    fn watching(&self, path: &str, wanted: Kinds) -> impl Iterator<Item = ConnectionId> {
        let watchers = self.by_path.get(path).into_iter().flatten();
        watchers.filter(move |(_, kinds)| kinds.meets(wanted)).map(|(connection, _)| *connection)
    }

    /// Takes away some kinds of one connection's watches on a path, and what is empty then.
    fn take(&mut self, connection: ConnectionId, path: &str, unwanted: Kinds) -> bool {
        let Some(watchers) = self.by_path.get_mut(path) else { return false };
        let Some(kinds) = watchers.get_mut(&connection) else { return false };
        let taken = kinds.meets(unwanted);
        if Kinds(kinds.0 & unwanted.0).meets(Kinds::of(&[Kind::Recursive])) {
            self.recursive -= 1;
        }
        kinds.0 &= !unwanted.0;
        if *kinds == Kinds::default() {
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
    fn kinds_of_number(number: i32) -> Result<Kinds, ErrorCode> {
        match number {
            1 => Ok(Kinds::of(&[Kind::Children])),
            2 => Ok(Kinds::of(&[Kind::Data])),
            3 => Ok(Kinds::ALL),
            4 => Ok(Kinds::of(&[Kind::Persistent])),
            5 => Ok(Kinds::of(&[Kind::Recursive])),
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
        let table: &[(Kind, EventKind, usize, usize)] = &[
            (Kind::Data, Created, 1, 0),
            (Kind::Data, DataChanged, 1, 0),
            (Kind::Data, Deleted, 1, 0),
            (Kind::Data, ChildrenChanged, 0, 0),
            (Kind::Children, Created, 0, 0),
            (Kind::Children, DataChanged, 0, 0),
            (Kind::Children, Deleted, 1, 0),
            (Kind::Children, ChildrenChanged, 1, 0),
            (Kind::Persistent, DataChanged, 1, 1),
            (Kind::Persistent, ChildrenChanged, 1, 1),
            (Kind::Persistent, Deleted, 1, 1),
            (Kind::Recursive, DataChanged, 1, 1),
            (Kind::Recursive, Deleted, 1, 1),
            (Kind::Recursive, ChildrenChanged, 0, 0),
        ];
        for (kind, event, first, second) in table {
            let mut watches = Watches::default();
            watches.add(1, "/a", *kind).unwrap();
            assert_eq!(watches.trigger(*event, "/a").len(), *first, "{kind:?} {event:?}");
            assert_eq!(watches.trigger(*event, "/a").len(), *second, "{kind:?} {event:?} again");
        }
    }

    #[test]
    fn a_recursive_watch_hears_what_is_below_and_nothing_beside() {
        let mut watches = Watches::default();
        watches.add(1, "/a", Kind::Recursive).unwrap();
        watches.add(1, "/a", Kind::Recursive).unwrap();
        watches.add(2, "/a", Kind::Persistent).unwrap();
        assert_eq!(watches.trigger(EventKind::Created, "/a/b/c"), BTreeSet::from([1]));
        assert!(watches.trigger(EventKind::Created, "/ab").is_empty());
        watches.add(3, "/", Kind::Recursive).unwrap();
        assert_eq!(watches.trigger(EventKind::Created, "/ab"), BTreeSet::from([3]));
        watches.forget(1);
        watches.forget(3);
        assert_eq!((watches.recursive, watches.len()), (0, 1));
    }

    #[test]
    fn two_matching_watches_of_one_connection_are_one_event() {
        let mut watches = Watches::default();
        for kind in [Kind::Data, Kind::Children, Kind::Persistent, Kind::Recursive] {
            watches.add(1, "/a", kind).unwrap();
        }
        assert_eq!(watches.len(), 4);
        assert_eq!(watches.trigger(EventKind::Deleted, "/a"), BTreeSet::from([1]));
        assert_eq!(watches.len(), 2);
    }

    #[test]
    fn a_removed_watch_is_gone_and_removing_it_again_says_so() {
        let mut watches = Watches::default();
        watches.add(1, "/a", Kind::Data).unwrap();
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
            watches.add(1, &format!("/{number}"), Kind::Data).unwrap();
        }
        assert_eq!(watches.add(1, "/more", Kind::Data), Err(ErrorCode::QuotaExceeded));
        watches.add(1, "/1", Kind::Children).unwrap();
        watches.add(2, "/more", Kind::Data).unwrap();
    }
}
