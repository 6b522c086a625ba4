//! Who is master: the lock recipe, on a session of its own.
//!
//! A candidate puts an ephemeral sequential node into `lock/master`; the lowest number holds the lock. Names are as
//! kazoo's lock recipe makes them (`<uuid>__lock__<number>`), and every child whose name ends in a number counts, so
//! that a lock held by another tool keeps everybody from acting. The lock is given up by closing the session: a node
//! can't be left behind by a dropped future, because it goes with the session that the future owned.
//!
//! A holder with stale knowledge: [`Lock::lease_valid`] turns false before the server can have given the lock to
//! somebody else, and every write under the lock is checked by the server at the lock's node, whose name is never
//! used twice.

use std::fmt;

use model::clock::SharedClock;
use tokio::time::{sleep, timeout};
use uuid::Uuid;
use zookeeper_client::CreateMode;

use crate::bootstrap::create_base_nodes;
use crate::error::{Error, ZkErrorKind};
use crate::failpoints;
use crate::session::{Session, SessionSettings, SessionState};
use crate::watches::{Target, Watches};

/// Between the candidate's unique part and its number.
const MARK: &str = "__lock__";
/// The fewest digits of a sequence number.
const SEQUENCE_DIGITS: usize = 10;

/// A candidate for master.
#[derive(Debug, Clone)]
pub struct Election {
    settings: SessionSettings,
    clock: SharedClock,
    holder: String,
}

impl Election {
    /// A candidate. The settings' identity must be the master's; `holder` tells people who it is.
    pub fn new(settings: SessionSettings, clock: SharedClock, holder: impl Into<String>) -> Self {
        Self { settings, clock, holder: holder.into() }
    }

    /// Waits until this candidate holds the lock. Dropping the future gives up the place in the queue. After an error
    /// nothing is left behind either; wait a moment and call again. [`ZkErrorKind::Lost`]: it stood in the queue and does so no
    /// more, because its session or its node has gone.
    pub async fn win(&self) -> Result<Lock, Error> {
        let session = Session::connect(&self.settings, &self.clock).await?;
        // From here on the session is closed on every way out but success.
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

    /// Puts the node into the queue. If it is unknown whether that happened, the session is closed and with it the
    /// node.
    async fn queue(&self, session: &Session) -> Result<String, Error> {
        let path = format!("{}/{}{MARK}", session.layout().master_lock(), Uuid::new_v4().simple());
        let acl = session.access().master_only();
        session.create(&path, self.holder.as_bytes(), CreateMode::EphemeralSequential, &acl).await
    }

    /// Whether our node is the lowest of the queue. A connection that is lost for a while is no reason to leave it.
    async fn is_first(&self, lock: &Lock, watches: &mut Watches) -> Result<bool, Error> {
        let queue = lock.session.layout().master_lock();
        let armed = watches.arm(vec![Target::Children(queue.clone())]).await;
        let read = match armed {
            Ok(_) => lock.session.children(&queue).await,
            Err(error) => Err(error),
        };
        match read {
            Ok(Some((names, _))) => match first(&names) {
                _ if !names.iter().any(|name| name == lock.name()) => Err(Error::lock_lost("our node is gone")),
                Some(name) => Ok(name == lock.name()),
                None => Err(Error::lock_lost("our node has no number")),
            },
            Ok(None) => Err(Error::lock_lost("the queue is gone")),
            Err(error)
                if error.kind() == ZkErrorKind::Unavailable && lock.session.state() == SessionState::Suspended =>
            {
                Ok(false)
            }
            Err(_) if lock.session.state() == SessionState::Expired => Err(Error::lock_lost("our session has ended")),
            Err(error) => Err(error),
        }
    }
}

/// Who the candidate is, for people, whose node in the queue has this path; `None` if the node is gone.
pub async fn candidate(session: &Session, path: &str) -> Result<Option<String>, Error> {
    let read = session.get(path).await?;
    Ok(read.map(|(data, _)| String::from_utf8_lossy(&data).into_owned()))
}

/// Those of the names that hold or wait for a lock, in the order of the queue.
pub(crate) fn in_order(names: Vec<String>) -> Vec<String> {
    let mut numbered: Vec<(i64, String)> = names.into_iter().filter_map(|it| Some((sequence(&it)?, it))).collect();
    numbered.sort();
    numbered.into_iter().map(|(_, name)| name).collect()
}

/// The lowest of the names that end in a sequence number.
fn first(names: &[String]) -> Option<&String> {
    names.iter().filter_map(|name| Some((sequence(name)?, name))).min().map(|(_, name)| name)
}

/// The number that the server put at the end of the name. It gets negative after 2^31 nodes, and longer in newer
/// servers.
fn sequence(name: &str) -> Option<i64> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    if digits < SEQUENCE_DIGITS {
        return None;
    }
    // A part before the number may end in digits only if it is one of ours or kazoo's, which end in a mark.
    let start = name.len() - digits;
    let number = name[start..].parse::<i64>().ok()?;
    let negative = name[..start].ends_with("_-") || name[..start].ends_with("--");
    Some(if negative { -number } else { number })
}

/// The master's lock. Dropping it closes its session, which gives the lock up.
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
    /// The path of the lock's node: never the same twice.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The session that holds the lock.
    pub fn session_id(&self) -> i64 {
        self.session.id()
    }

    /// What the database's `master` row calls the holder: path and session.
    pub fn holder(&self) -> String {
        format!("{} {:#x}", self.path, self.session.id())
    }

    /// The session that the master reads and waits on.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Whether the lock can't have gone to somebody else yet. False is reason enough to stop before the next effect;
    /// the writes of this crate that take a lock refuse by themselves.
    pub fn lease_valid(&self) -> bool {
        self.session.lease_valid()
    }

    /// Asks, after a sync, whether the lock's node is still there and ours.
    pub async fn still_held(&self) -> Result<bool, Error> {
        if self.session.state() == SessionState::Expired {
            return Ok(false);
        }
        self.session.sync().await?;
        let stat = self.session.stat(&self.path).await?;
        Ok(stat.is_some_and(|stat| stat.ephemeral_owner == self.session.id()))
    }

    /// Waits until the connection is lost or the session ended: from then on the master does not act.
    pub async fn lost(&self) {
        let mut states = self.session.states();
        // An error means that the session has ended.
        let _ = states.wait_for(|state| *state != SessionState::Connected).await;
    }

    /// Gives the lock up and waits until the server knows, at most as long as one request may take.
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

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_number_decides_and_not_the_name() {
        let queue = names(&["ffff__lock__0000000002", "aaaa__lock__0000000010", "_c_1-lock-0000000003"]);
        assert_eq!(first(&queue).map(String::as_str), Some("ffff__lock__0000000002"));
    }

    #[test]
    fn a_name_without_a_number_holds_no_lock() {
        assert_eq!(first(&names(&["x", "y__lock__", "z-12"])), None);
        assert_eq!(sequence("aa__lock__0000000007"), Some(7));
    }

    #[test]
    fn numbers_that_wrapped_around_come_first() {
        assert_eq!(sequence("aa__lock__-2147483648"), Some(-2_147_483_648));
        assert_eq!(sequence("_c_1-lock-0000000003"), Some(3));
    }
}
