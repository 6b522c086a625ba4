//! Leader election of the master: ZooKeeper's lock recipe on a session of its own.
//!
//! Each candidate creates an ephemeral sequential node in `lock/master`; the lowest number holds the lock. Names are those of
//! kazoo's lock recipe (`<uuid>__lock__<number>`). Every child whose name ends in a number counts, so a lock that another tool
//! holds stops all masters. The lock is released by closing its session: a dropped future leaves no node behind, because the
//! node belongs to the session that the future owned.
//!
//! A deposed holder cannot write: [`Lock::lease_valid`] turns false before the server can grant the lock to another candidate,
//! and the server checks the lock's node, whose name is never reused, with every write under the lock.

use std::fmt;

use model::clock::SharedClock;
use tokio::time::{sleep, timeout};
use uuid::Uuid;
use zookeeper_client::CreateMode;

use crate::bootstrap::create_base_nodes;
use crate::error::{Error, LockLoss, ZkErrorKind};
use crate::failpoints;
use crate::session::{Session, SessionSettings, SessionState};
use crate::watches::{Target, Watches};

/// Separates the unique part of a candidate's name from its number.
const SEPARATOR: &str = "__lock__";
/// The minimum number of digits of a sequence number.
const SEQUENCE_DIGITS: usize = 10;

/// A candidate for master.
#[derive(Debug, Clone)]
pub struct Election {
    settings: SessionSettings,
    clock: SharedClock,
    holder: String,
}

impl Election {
    /// The settings must have the master's identity; `holder` is the candidate's name for display.
    pub fn new(settings: SessionSettings, clock: SharedClock, holder: impl Into<String>) -> Self {
        Self { settings, clock, holder: holder.into() }
    }

    /// Waits until this candidate holds the lock. Dropping the future leaves the queue, and so does an error; retry after a
    /// pause. [`ZkErrorKind::Lost`]: its session or its node in the queue is gone.
    pub async fn win(&self) -> Result<Lock, Error> {
        let session = Session::connect(&self.settings, &self.clock).await?;
        // From here on every exit but success closes the session.
        let mut lock = Lock { session, path: String::new() };
        lock.session.beat();
        create_base_nodes(&lock.session).await?;
        lock.path = self.queue(&lock.session).await?;
        model::failpoint!(failpoints::CANDIDATE_QUEUED);
        let mut watches = Watches::new(&lock.session);
        while !self.is_first(&lock, &mut watches).await? {
            tokio::select! {
                () = watches.next() => {}
                () = sleep(self.settings.reread) => {}
                () = lock.session.ended() => {}
            }
        }
        model::failpoint!(failpoints::LOCK_WON);
        tracing::info!(lock = lock.path, session = format_args!("{:#x}", lock.session_id()), "master lock won");
        Ok(lock)
    }

    /// Creates the candidate's node. If the outcome is unknown, the session is closed and the node with it.
    async fn queue(&self, session: &Session) -> Result<String, Error> {
        let path = format!("{}/{}{SEPARATOR}", session.layout().master_lock(), Uuid::new_v4().simple());
        let acl = session.access().master_only();
        session.create(&path, self.holder.as_bytes(), CreateMode::EphemeralSequential, &acl).await
    }

    /// Whether our node is the first of the queue. A lost connection is no reason to leave the queue.
    async fn is_first(&self, lock: &Lock, watches: &mut Watches) -> Result<bool, Error> {
        let queue = lock.session.layout().master_lock();
        let armed = watches.arm(vec![Target::Children(queue.clone())]).await;
        let read = match armed {
            Ok(_) => lock.session.children(&queue).await,
            Err(error) => Err(error),
        };
        match read {
            Ok(Some((names, _))) => match first(&names) {
                _ if !names.iter().any(|name| name == lock.name()) => Err(Error::LockLost(LockLoss::NodeGone)),
                Some(name) => Ok(name == lock.name()),
                None => Err(Error::LockLost(LockLoss::NoSequenceNumber)),
            },
            Ok(None) => Err(Error::LockLost(LockLoss::QueueGone)),
            Err(error)
                if error.kind() == ZkErrorKind::Unavailable && lock.session.state() == SessionState::Suspended =>
            {
                Ok(false)
            }
            Err(error) if lock.session.state() == SessionState::Expired => {
                Err(Error::LockLost(LockLoss::SessionEnded(error.into())))
            }
            Err(error) => Err(error),
        }
    }
}

/// The name of the candidate with that node; `None` if the node is gone.
pub async fn candidate(session: &Session, path: &str) -> Result<Option<String>, Error> {
    let read = session.get(path).await?;
    Ok(read.map(|(data, _)| String::from_utf8_lossy(&data).into_owned()))
}

/// The names that are in the queue, in its order.
pub(crate) fn in_order(names: Vec<String>) -> Vec<String> {
    let mut numbered: Vec<(i64, String)> =
        names.into_iter().filter_map(|name| Some((sequence(&name)?, name))).collect();
    numbered.sort();
    numbered.into_iter().map(|(_, name)| name).collect()
}

/// The lowest of the names that end in a sequence number.
fn first(names: &[String]) -> Option<&String> {
    names.iter().filter_map(|name| Some((sequence(name)?, name))).min().map(|(_, name)| name)
}

/// The sequence number at the end of the name. It becomes negative after 2^31 nodes, and newer servers use more digits.
fn sequence(name: &str) -> Option<i64> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    if digits < SEQUENCE_DIGITS {
        return None;
    }
    // The unique part never ends in a digit: ours and kazoo's end in the separator.
    let start = name.len() - digits;
    let number = name[start..].parse::<i64>().ok()?;
    let negative = name[..start].ends_with("_-") || name[..start].ends_with("--");
    Some(if negative { -number } else { number })
}

/// The master's lock. Dropping it closes its session, which releases the lock.
pub struct Lock {
    session: Session,
    path: String,
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("path", &self.path).field("session", &self.session).finish()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.session.give_up();
    }
}

impl Lock {
    /// The path of the lock's node, which is never reused.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    pub fn session_id(&self) -> i64 {
        self.session.id()
    }

    /// The holder as in the database's table `master`: path and session.
    pub fn holder(&self) -> String {
        format!("{} {:#x}", self.path, self.session.id())
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Whether the server cannot have granted the lock to another candidate yet. The master stops before its next effect when this
    /// is false; the writes of this crate that take a lock check it themselves.
    pub fn lease_valid(&self) -> bool {
        self.session.lease_valid()
    }

    /// Checks after a sync whether the lock's node still exists and is ours.
    pub async fn still_held(&self) -> Result<bool, Error> {
        if self.session.state() == SessionState::Expired {
            return Ok(false);
        }
        self.session.sync().await?;
        let stat = self.session.stat(&self.path).await?;
        Ok(stat.is_some_and(|stat| stat.ephemeral_owner == self.session.id()))
    }

    /// Waits until the connection is lost or the session has ended: from then on the master does not act.
    pub async fn lost(&self) {
        let mut states = self.session.states();
        // An error means that the session has ended.
        let _ = states.wait_for(|state| *state != SessionState::Connected).await;
    }

    /// Releases the lock and waits until the server confirms it, at most for the deadline of a request.
    pub async fn resign(self) {
        let session = self.session.clone();
        let limit = session.settings().request_timeout;
        drop(self);
        let _ = timeout(limit, session.ended()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_queue_is_ordered_by_number() {
        let queue = names(&["ffff__lock__0000000002", "aaaa__lock__0000000010", "_c_1-lock-0000000003"]);
        assert_eq!(first(&queue).map(String::as_str), Some("ffff__lock__0000000002"));
    }

    #[test]
    fn a_name_without_a_number_is_not_in_the_queue() {
        assert_eq!(first(&names(&["x", "y__lock__", "z-12"])), None);
        assert_eq!(sequence("aa__lock__0000000007"), Some(7));
    }

    #[test]
    fn wrapped_sequence_numbers_come_first() {
        assert_eq!(sequence("aa__lock__-2147483648"), Some(-2_147_483_648));
        assert_eq!(sequence("_c_1-lock-0000000003"), Some(3));
    }
}
