//! Permits: the persistent nodes `engines/<engine>`, below which engines register.
//!
//! The master creates a permit before the instance, without a uid, and adds the uid when the orchestrator has assigned one. An
//! engine registers only below a permit with its own uid, so a permit without a uid admits no engine. Only the master writes
//! permits, always in a multi with the check of its lock. An engine may create children below its own permit; a delete
//! therefore includes the children that were read.
//!
//! A hostile engine can abuse that permission to create *strays*: other nodes below its permit. A read counts strays but does
//! not list their names, which may be as long as a request, so neither they nor an unreadable registration delay the reading
//! of other permits. A few strays are deleted with the permit. Some cannot be deleted: the children of a stray have a parent
//! whose ACL the engine wrote. Then the permit stays and is *left behind*. This is recorded in the permit, so that the delete
//! is not retried. It admits no engine, and ZooKeeper's super user can delete it.
//!
//! Every reader reads all permits again and again, so a `PermitCache` keeps what one session has read. ZooKeeper changes the stat of a
//! permit with its content and whenever a child comes or goes, so one with an unchanged stat is not read again with its children. An
//! engine cannot overwrite its registration, unless it has created it with an ACL of its own; that is not noticed until the next change.
//!
//! Invariant: below a permit without the mark `answered` no engine has ever registered, nor below an earlier permit of its uid.
//! The first registration leaves the mark in its own multi. A permit that is created for a running engine has the mark from
//! the beginning, because an earlier permit may be lost. So deleting a permit last read without the mark fails if an engine has
//! registered since, even if it has since left; a stale caller never removes an engine that has served.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::mem;

use futures::stream::{self, StreamExt, TryStreamExt};
use model::owner::Owner;
use model::shared::Shared;
use model::{EngineName, PoolName, TenantName, UnitName};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use zookeeper_client::Stat;

use crate::document;
use crate::election::Lock;
use crate::error::Error;
use crate::failpoints;
use crate::layout::{ANSWERED, LIVE};
use crate::registration::{RegistrationNode, read_registration};
use crate::session::{MAX_IN_FLIGHT, Session, read_children};
use crate::transaction::Transaction;

/// The maximum number of strays whose names are read, to delete them with their permit.
const MAX_STRAYS: usize = 16;
/// The maximum length of their paths in total, in bytes: the delete must fit into one request.
const MAX_STRAY_BYTES: usize = 512 * 1024;
/// How often a permit is read again because its children changed meanwhile.
const MAX_READS: usize = 3;

/// The number of permits whose stats are read by one request. Masters write permits, so they are short.
const STATS_AT_ONCE: usize = 256;

/// The content of a permit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permit {
    pub tenant: TenantName,
    pub pool: PoolName,
    pub unit: UnitName,
    /// The uid of the instance, once the orchestrator has assigned one.
    pub uid: Option<String>,
    /// The sessions that the engine may have at the same time; `None`: the limit of its agent. The agent follows changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// Whose sessions the engine serves; `None`: the tenant's. Its agent opens sessions of no other. Never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

/// The content of a permit that only ZooKeeper's super user can delete.
#[derive(Serialize, Deserialize)]
struct LeftBehind {
    left_behind: String,
}

/// A permit as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitNode {
    pub engine: EngineName,
    /// The content, or why it is unreadable.
    pub content: Result<Permit, String>,
    /// The version of its content, as ZooKeeper counts it.
    pub version: i32,
    /// When it was created, by the server's clock, in milliseconds since 1970.
    pub ctime_ms: i64,
    pub registration: Option<RegistrationNode>,
    /// Whether it has the mark: an engine has registered there, or that is unknown.
    pub answered: bool,
    /// The number of children that are neither registration nor mark.
    pub strays: usize,
    /// Whether it cannot be deleted because of its strays. It is a permit of no engine then.
    pub left_behind: bool,
}

impl PermitNode {
    pub fn uid(&self) -> Option<&str> {
        self.content.as_ref().ok()?.uid.as_deref()
    }

    /// The registration, if it has the permit's own uid: the engine is ready.
    pub fn ready(&self) -> Option<&RegistrationNode> {
        let registration = self.registration.as_ref()?;
        let of_uid = registration.content.as_ref().is_ok_and(|content| Some(content.uid.as_str()) == self.uid());
        of_uid.then_some(registration)
    }
}

/// What ZooKeeper changes with the content of a permit, and whenever a child of it comes or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Revision {
    czxid: i64,
    mzxid: i64,
    pzxid: i64,
    cversion: i32,
}

impl From<&Stat> for Revision {
    fn from(stat: &Stat) -> Self {
        Self { czxid: stat.czxid, mzxid: stat.mzxid, pzxid: stat.pzxid, cversion: stat.cversion }
    }
}

/// A permit as it was at a revision, or later: then its revision has changed since.
#[derive(Debug, Clone)]
struct SeenPermit {
    at: Revision,
    node: Shared<PermitNode>,
}

/// The permits that one session has read. Of no use to another one: a server that was restored may use revisions again.
#[derive(Debug, Default)]
pub(crate) struct PermitCache(Mutex<HashMap<EngineName, SeenPermit>>);

/// Creates a permit; [`Error::NodeExists`] if there is one. One that was left behind is reused. A permit with a uid is for a
/// running engine and has the mark.
pub async fn create(lock: &Lock, engine: &EngineName, permit: &Permit) -> Result<(), Error> {
    let path = lock.session().layout().permit(engine);
    let transaction = creation(Transaction::under(lock), lock.session(), engine, permit)?;
    match transaction.commit().await {
        Err(Error::NodeExists { path: at }) if at == path => reuse(lock, engine, permit).await?,
        other => other?,
    }
    model::failpoint!(failpoints::PERMIT_CREATED);
    Ok(())
}

/// Adds the creation of a permit to a transaction.
pub(crate) fn creation<'a>(
    transaction: Transaction<'a>,
    session: &Session,
    engine: &EngineName,
    permit: &Permit,
) -> Result<Transaction<'a>, Error> {
    let (layout, access) = (session.layout(), session.access());
    let path = layout.permit(engine);
    let data = document::write(&path, permit)?;
    let transaction = transaction.create(path, data, access.permit(engine));
    if permit.uid.is_none() {
        return Ok(transaction);
    }
    Ok(transaction.create(layout.answered(engine), Vec::new(), access.answered(engine)))
}

/// Writes the permit into the one that was left behind under its name.
async fn reuse(lock: &Lock, engine: &EngineName, permit: &Permit) -> Result<(), Error> {
    let (session, layout) = (lock.session(), lock.session().layout());
    let path = layout.permit(engine);
    let data = document::write(&path, permit)?;
    let seen = match read(session, engine).await? {
        Some(seen) if seen.left_behind => seen,
        _ => return Err(Error::NodeExists { path }),
    };
    let mut transaction = Transaction::under(lock);
    if permit.uid.is_some() && session.stat(&layout.answered(engine)).await?.is_none() {
        transaction = transaction.create(layout.answered(engine), Vec::new(), session.access().answered(engine));
    }
    transaction.set(path, data, seen.version).commit().await
}

/// Writes the uid into a permit that has not changed since it was read.
pub async fn set_uid(lock: &Lock, seen: &PermitNode, uid: &str) -> Result<(), Error> {
    let path = lock.session().layout().permit(&seen.engine);
    let mut permit =
        seen.content.clone().map_err(|reason| Error::Unreadable { path: path.clone(), cause: reason.into() })?;
    permit.uid = Some(uid.to_owned());
    let data = document::write(&path, &permit)?;
    Transaction::under(lock).set(path, data, seen.version).commit().await?;
    model::failpoint!(failpoints::PERMIT_UID_SET);
    Ok(())
}

/// Writes the number of sessions into a permit that has not changed since it was read. Its engine's agent follows it.
pub async fn set_sessions(lock: &Lock, seen: &PermitNode, sessions: Option<u32>) -> Result<(), Error> {
    let path = lock.session().layout().permit(&seen.engine);
    let permit =
        seen.content.clone().map_err(|reason| Error::Unreadable { path: path.clone(), cause: reason.into() })?;
    let data = document::write(&path, &Permit { sessions, ..permit })?;
    Transaction::under(lock).set(path, data, seen.version).commit().await
}

/// Reads a permit and writes the uid into it.
pub async fn record_uid(lock: &Lock, engine: &EngineName, uid: &str) -> Result<(), Error> {
    match read(lock.session(), engine).await? {
        Some(seen) if seen.uid() == Some(uid) => Ok(()),
        Some(seen) => set_uid(lock, &seen, uid).await,
        None => Err(Error::NoNode { path: lock.session().layout().permit(engine) }),
    }
}

/// Deletes a permit with the children that were read, without a drain: for an engine that has ended or was never created. If
/// its strays cannot be deleted, it is left behind.
pub async fn delete(lock: &Lock, seen: &PermitNode) -> Result<(), Error> {
    let session = lock.session();
    let Some(strays) = strays(session, seen).await? else {
        return leave_behind(lock, seen, "its engine left too many nodes below it").await;
    };
    let path = session.layout().permit(&seen.engine);
    let below = strays.iter().map(|name| format!("{path}/{name}"));
    match delete_seen(below.fold(Transaction::under(lock), Transaction::delete), session, seen).commit().await {
        Err(Error::NotEmpty { path: at }) if at != path => {
            return leave_behind(lock, seen, "its engine left nodes below it that only that engine may delete").await;
        }
        other => other?,
    }
    model::failpoint!(failpoints::PERMIT_DELETED);
    Ok(())
}

/// The names of the strays; `None` if there are too many, or the names are too long.
async fn strays(session: &Session, seen: &PermitNode) -> Result<Option<Vec<String>>, Error> {
    let path = session.layout().permit(&seen.engine);
    if seen.strays == 0 {
        return Ok(Some(Vec::new()));
    }
    // Counted again, because a list of children has no limit of its own.
    let count = session.stat(&path).await?.map_or(0, |stat| stat.num_children);
    let expected = usize::from(seen.registration.is_some()) + usize::from(seen.answered);
    if usize::try_from(count).unwrap_or(0) > MAX_STRAYS + expected {
        return Ok(None);
    }
    let Some((mut names, _)) = session.children(&path).await? else { return Err(Error::NoNode { path }) };
    names.retain(|name| name != LIVE && name != ANSWERED);
    let bytes: usize = names.iter().map(|name| path.len() + name.len()).sum();
    Ok((bytes <= MAX_STRAY_BYTES).then_some(names))
}

/// Records in a permit that it cannot be deleted.
async fn leave_behind(lock: &Lock, seen: &PermitNode, reason: &str) -> Result<(), Error> {
    let path = lock.session().layout().permit(&seen.engine);
    let data = document::write(&path, &LeftBehind { left_behind: reason.to_owned() })?;
    Transaction::under(lock).set(path.clone(), data, seen.version).commit().await?;
    tracing::warn!(engine = %seen.engine, path, reason, "permit left behind; only zookeeper's super user can delete it");
    Ok(())
}

/// Adds the deletion of a permit as it was read. The transaction fails as a whole if the registration was created or deleted
/// since, or if the first registration came and went.
fn delete_seen<'a>(mut transaction: Transaction<'a>, session: &Session, seen: &PermitNode) -> Transaction<'a> {
    let layout = session.layout();
    if seen.registration.is_some() {
        transaction = transaction.delete(layout.registration(&seen.engine));
    }
    if seen.answered {
        transaction = transaction.delete(layout.answered(&seen.engine));
    }
    transaction.delete(layout.permit(&seen.engine))
}

/// Adds the withdrawal of a permit as it was read, so that no engine registers below it: its deletion or, if it has strays, the
/// removal of its uid. The transaction fails in the same cases. `held`: registration and mark cannot be deleted, because the
/// engine created them with children below; they stay and have no effect.
pub(crate) fn withdraw_seen<'a>(
    transaction: Transaction<'a>,
    session: &Session,
    seen: &PermitNode,
    held: bool,
) -> Result<Transaction<'a>, Error> {
    if seen.strays == 0 && !held {
        return Ok(delete_seen(transaction, session, seen));
    }
    let (layout, access) = (session.layout(), session.access());
    let path = layout.permit(&seen.engine);
    let below = [
        (layout.registration(&seen.engine), seen.registration.is_some()),
        (layout.answered(&seen.engine), seen.answered),
    ];
    let transaction = below.into_iter().fold(transaction, |transaction, (path, existed)| {
        if !existed {
            // ZooKeeper has no check that a node is absent; create-then-delete in the multi serves as one.
            return transaction.create(path.clone(), Vec::new(), access.read_only()).delete(path);
        }
        // Nor can we check a node that we may not read.
        if held { transaction } else { transaction.delete(path) }
    });
    let data = match &seen.content {
        Ok(permit) => document::write(&path, &Permit { uid: None, ..permit.clone() })?,
        Err(_) => Vec::new(),
    };
    Ok(transaction.set(path, data, seen.version))
}

/// The permits with their registrations by engine, at most [`MAX_CHILDREN`](crate::MAX_CHILDREN), and the engines whose permits
/// were not read. Nodes whose names are no engine names are skipped: they were created by hand and admit no engine.
pub(crate) async fn list_in_part(
    session: &Session,
    cache: &PermitCache,
) -> Result<(Vec<Shared<PermitNode>>, BTreeSet<EngineName>), Error> {
    let (engines, unread) = session.engines(&session.layout().engines()).await?;
    // What a reader does not finish is forgotten: the next one reads everything.
    let known = mem::take(&mut *cache.0.lock());
    let unchanged = unchanged(session, &engines, &known).await?;
    let read = |engine: EngineName| {
        let known = known.get(&engine).filter(|_| unchanged.contains(&engine));
        async move {
            match known {
                Some(seen) => Ok(Some(seen.clone())),
                None => read_seen(session, &engine).await,
            }
        }
    };
    let seen = read_children(engines.clone(), read).await?;
    let nodes = seen.iter().map(|seen| seen.node.clone()).collect();
    *cache.0.lock() = seen.into_iter().map(|seen| (seen.node.engine.clone(), seen)).collect();
    Ok((nodes, unread))
}

/// The engines whose permits are still what is known of them.
async fn unchanged(
    session: &Session,
    engines: &[EngineName],
    known: &HashMap<EngineName, SeenPermit>,
) -> Result<HashSet<EngineName>, Error> {
    let known: Vec<&SeenPermit> = engines.iter().filter_map(|engine| known.get(engine)).collect();
    let requests = known.chunks(STATS_AT_ONCE).map(|known| async move {
        let paths: Vec<String> = known.iter().map(|seen| session.layout().permit(&seen.node.engine)).collect();
        let stats = session.stats(&paths).await?;
        let read = known.iter().zip(stats);
        let unchanged = read.filter(|(seen, stat)| stat.as_ref().map(Revision::from) == Some(seen.at));
        Ok::<_, Error>(unchanged.map(|(seen, _)| seen.node.engine.clone()).collect::<Vec<_>>())
    });
    let requests: Vec<_> = requests.collect();
    let unchanged: Vec<Vec<EngineName>> = stream::iter(requests).buffered(MAX_IN_FLIGHT).try_collect().await?;
    Ok(unchanged.into_iter().flatten().collect())
}

/// Like `list_in_part`, without the names of those that were not read and without a cache.
pub async fn list(session: &Session) -> Result<Vec<Shared<PermitNode>>, Error> {
    list_in_part(session, &PermitCache::default()).await.map(|(read, _)| read)
}

/// Reads one permit and its registration, each by its path.
pub async fn read(session: &Session, engine: &EngineName) -> Result<Option<PermitNode>, Error> {
    Ok(read_seen(session, engine).await?.map(|seen| Shared::into_inner(seen.node)))
}

async fn read_seen(session: &Session, engine: &EngineName) -> Result<Option<SeenPermit>, Error> {
    let layout = session.layout();
    let path = layout.permit(engine);
    let mut reads = 1;
    loop {
        let Some((data, stat)) = session.get(&path).await? else { return Ok(None) };
        let left_behind = document::read::<LeftBehind>(&data).ok();
        let (mut registration, mut answered) = (None, false);
        if stat.num_children > 0 && left_behind.is_none() {
            registration = read_registration(session, engine).await?;
            answered = session.stat(&layout.answered(engine)).await?.is_some();
        }
        let expected = usize::from(registration.is_some()) + usize::from(answered);
        let strays = usize::try_from(stat.num_children).unwrap_or(0).saturating_sub(expected);
        if strays > 0 && left_behind.is_none() && reads < MAX_READS {
            // Either there are strays, or one of the two was deleted between the count and its read.
            let Some(now) = session.stat(&path).await? else { return Ok(None) };
            if now.pzxid != stat.pzxid {
                reads += 1;
                continue;
            }
        }
        let node = PermitNode {
            engine: engine.clone(),
            content: match &left_behind {
                Some(node) => Err(format!("it is left behind: {}", node.left_behind)),
                None => document::read(&data),
            },
            version: stat.version,
            ctime_ms: stat.ctime,
            registration,
            answered,
            strays,
            left_behind: left_behind.is_some(),
        };
        return Ok(Some(SeenPermit { at: Revision::from(&stat), node: node.into() }));
    }
}
