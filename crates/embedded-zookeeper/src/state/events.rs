//! Delivery of events: to the watchers of a change, and for watches that are set again.

use super::path;
use super::watches::{ConnectionId, WatchKind};
use super::writes::Fired;
use super::{Output, State, acl};
use crate::proto::codes::{ErrorCode, EventKind};
use crate::proto::reply::{Reply, encode_event};
use crate::proto::request::Rewatch;

impl State {
    /// Notifies the watchers that may read the changed node.
    pub(super) fn notify(&mut self, fired: &[Fired], outputs: &mut Vec<Output>) {
        for event in fired {
            for connection in self.watches.trigger(event.kind, &event.path) {
                if acl::check(&event.acl, acl::READ, self.identities(connection)).is_ok() {
                    outputs.push(self.event(connection, event.kind, &event.path));
                }
            }
        }
    }

    fn event(&self, connection: ConnectionId, kind: EventKind, path: &str) -> Output {
        Output::Event { connection, path: path.to_owned(), frame: encode_event(kind, path, self.zxid) }
    }

    pub(super) fn watch(
        &mut self,
        connection: ConnectionId,
        wanted: bool,
        path: &str,
        kind: WatchKind,
    ) -> Result<(), ErrorCode> {
        if wanted { self.watches.add(connection, path, kind) } else { Ok(()) }
    }

    pub(super) fn add_watch(&mut self, connection: ConnectionId, path: &str, mode: i32) -> Result<Reply, ErrorCode> {
        let kind = match mode {
            0 => WatchKind::Persistent,
            1 => WatchKind::Recursive,
            _ => return Err(ErrorCode::BadArguments),
        };
        path::validate(path)?;
        self.watches.add(connection, path, kind)?;
        Ok(Reply::Number(ErrorCode::Ok.number()))
    }

    /// Sets the watches of the previous connection again; changes since then are delivered as events at once.
    pub(super) fn rewatch(
        &mut self,
        connection: ConnectionId,
        rewatch: &Rewatch,
        outputs: &mut Vec<Output>,
    ) -> Result<Reply, ErrorCode> {
        let since = rewatch.since_zxid;
        for path in &rewatch.data {
            match self.tree.get(path).map(|node| node.mzxid) {
                Err(_) => outputs.push(self.event(connection, EventKind::Deleted, path)),
                Ok(mzxid) if mzxid > since => {
                    outputs.push(self.event(connection, EventKind::DataChanged, path));
                }
                Ok(_) => self.watches.add(connection, path, WatchKind::Data)?,
            }
        }
        for path in &rewatch.exists {
            if self.tree.get(path).is_ok() {
                outputs.push(self.event(connection, EventKind::Created, path));
            } else {
                self.watches.add(connection, path, WatchKind::Data)?;
            }
        }
        for path in &rewatch.children {
            match self.tree.get(path).map(|node| node.pzxid) {
                Err(_) => outputs.push(self.event(connection, EventKind::Deleted, path)),
                Ok(pzxid) if pzxid > since => {
                    outputs.push(self.event(connection, EventKind::ChildrenChanged, path));
                }
                Ok(_) => self.watches.add(connection, path, WatchKind::Children)?,
            }
        }
        for path in &rewatch.persistent {
            self.watches.add(connection, path, WatchKind::Persistent)?;
        }
        for path in &rewatch.recursive {
            self.watches.add(connection, path, WatchKind::Recursive)?;
        }
        Ok(Reply::Empty)
    }
}
