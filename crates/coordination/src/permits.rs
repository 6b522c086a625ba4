//! Permits: the persistent nodes `engines/<engine>`, below which an engine registers.
//!
//! Made by the master before the pod, without a uid; the uid follows when the orchestrator has given one. An engine
//! registers only below a permit with its own uid, so a permit without one admits nobody. Only the master writes
//! them, always in a multi with the check of its lock; an engine may create children below its own, which is why a
//! delete takes along whatever it saw there.
//!
//! What an engine that runs hostile code can do with that right: leave nodes of its own below its permit, *strays*. A look
//! counts them and never asks for their names, which may be as long as a request; so neither their number nor their
//! names, nor a registration that nobody else may read, hold up the reading of the others. A drain needs nothing but
//! that there are some. A few of them are deleted with the permit. What can't be deleted (ZooKeeper asks the list of the
//! parent, and a stray's own children have a parent whose list the engine wrote) stays, and the permit with it: it is
//! *left behind*, which is written into it, so that nobody tries again. It admits nobody, and ZooKeeper's super user may
//! delete it.
//!
//! Invariant: below a permit without the mark `answered` nobody has ever registered, and nobody ever registered below
//! an earlier permit of its uid. The first registration leaves the mark in its own multi; a permit that is made for an
//! engine that runs already has it from the beginning, because what stood below an earlier one may be lost. So a
//! delete of what was seen without a mark is refused when somebody came, even if he has gone again: a caller with a
//! stale reading ends nobody who served.

use std::collections::BTreeSet;

use model::{EngineName, PoolName, TenantName, UnitName};
use serde::{Deserialize, Serialize};

use crate::document;
use crate::election::Lock;
use crate::error::Error;
use crate::failpoints;
use crate::layout::{ANSWERED, LIVE};
use crate::registration::{RegistrationNode, read_registration};
use crate::session::{Session, read_children};
use crate::transaction::Transaction;

/// The most strays of one permit whose names are read, to delete them with it.
const MAX_STRAYS: usize = 16;
/// The most bytes that their names may have together: what deletes them must fit into one request.
const MAX_STRAY_BYTES: usize = 512 * 1024;
/// How often a permit is read again because a child came or went meanwhile.
const MAX_READS: usize = 3;

/// What a permit says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permit {
    /// The tenant whose engine it is.
    pub tenant: TenantName,
    /// The pool that it runs in.
    pub pool: PoolName,
    /// The unit that it is made from.
    pub unit: UnitName,
    /// The orchestrator's id of the pod or process, once known.
    pub uid: Option<String>,
}

/// What a permit says that nobody but ZooKeeper's super user can delete.
#[derive(Serialize, Deserialize)]
struct LeftBehind {
    left_behind: String,
}

/// A permit as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitNode {
    /// Whose permit it is.
    pub engine: EngineName,
    /// What it says, or why that can't be read.
    pub content: Result<Permit, String>,
    /// Counts the changes of its content.
    pub version: i32,
    /// When it was made, by the server's clock, in milliseconds since 1970.
    pub ctime_ms: i64,
    /// The registration below it.
    pub registration: Option<RegistrationNode>,
    /// Whether the mark is below it: somebody registered there once, or that can't be known.
    pub answered: bool,
    /// How many children are neither registration nor mark.
    pub strays: usize,
    /// Whether it stays for good, because of what its engine left below it: it is nobody's permit any more.
    pub left_behind: bool,
}

impl PermitNode {
    /// The uid that it admits.
    pub fn uid(&self) -> Option<&str> {
        self.content.as_ref().ok()?.uid.as_deref()
    }

    /// The registration below it that is of the permit's own uid: the engine is ready.
    pub fn ready(&self) -> Option<&RegistrationNode> {
        let registration = self.registration.as_ref()?;
        let of_uid = registration.content.as_ref().is_ok_and(|it| Some(it.uid.as_str()) == self.uid());
        of_uid.then_some(registration)
    }
}

/// Makes a permit; [`Error::NodeExists`] if there is one, unless it was left behind: then it is one again. With a uid it
/// is for an engine that runs already, and gets the mark in the same multi.
pub async fn create(lock: &Lock, engine: &EngineName, permit: &Permit) -> Result<(), Error> {
    let path = lock.session().layout().permit(engine);
    let transaction = creation(Transaction::under(lock), lock.session(), engine, permit)?;
    match transaction.commit().await {
        Err(Error::NodeExists { path: at }) if at == path => take_up(lock, engine, permit).await?,
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

/// Makes a permit of what was left behind under its name.
async fn take_up(lock: &Lock, engine: &EngineName, permit: &Permit) -> Result<(), Error> {
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
    let mut permit = seen.content.clone().map_err(|reason| Error::Unreadable { path: path.clone(), reason })?;
    permit.uid = Some(uid.to_owned());
    let data = document::write(&path, &permit)?;
    Transaction::under(lock).set(path, data, seen.version).commit().await?;
    model::failpoint!(failpoints::PERMIT_UID_SET);
    Ok(())
}

/// Writes the uid into a permit that was not read before: right after the pod was made.
pub async fn record_uid(lock: &Lock, engine: &EngineName, uid: &str) -> Result<(), Error> {
    match read(lock.session(), engine).await? {
        Some(seen) if seen.uid() == Some(uid) => Ok(()),
        Some(seen) => set_uid(lock, &seen, uid).await,
        None => Err(Error::NoNode { path: lock.session().layout().permit(engine) }),
    }
}

/// Deletes a permit without a drain, with what was seen below it: for an engine that has ended, or was never made. If
/// strays keep it where it is, it is left behind.
pub async fn delete(lock: &Lock, seen: &PermitNode) -> Result<(), Error> {
    let session = lock.session();
    let Some(strays) = strays(session, seen).await? else {
        return leave_behind(lock, seen, "its engine left more below it than is read").await;
    };
    let path = session.layout().permit(&seen.engine);
    let below = strays.iter().map(|name| format!("{path}/{name}"));
    match delete_seen(below.fold(Transaction::under(lock), Transaction::delete), session, seen).commit().await {
        Err(Error::NotEmpty { path: at }) if at != path => {
            return leave_behind(lock, seen, "its engine left below it what only that engine may delete").await;
        }
        other => other?,
    }
    model::failpoint!(failpoints::PERMIT_DELETED);
    Ok(())
}

/// The names of what stands below a permit besides registration and mark; `None` if they are too many or too long.
async fn strays(session: &Session, seen: &PermitNode) -> Result<Option<Vec<String>>, Error> {
    let path = session.layout().permit(&seen.engine);
    if seen.strays == 0 {
        return Ok(Some(Vec::new()));
    }
    // Counted again: a list of names has no limit of its own.
    let count = session.stat(&path).await?.map_or(0, |stat| stat.num_children);
    let known = usize::from(seen.registration.is_some()) + usize::from(seen.answered);
    if usize::try_from(count).unwrap_or(0) > MAX_STRAYS + known {
        return Ok(None);
    }
    let Some((mut names, _)) = session.children(&path).await? else { return Err(Error::NoNode { path }) };
    names.retain(|name| name != LIVE && name != ANSWERED);
    let bytes: usize = names.iter().map(|name| path.len() + name.len()).sum();
    Ok((bytes <= MAX_STRAY_BYTES).then_some(names))
}

/// Writes into a permit that it stays where it is, and is nobody's.
async fn leave_behind(lock: &Lock, seen: &PermitNode, why: &str) -> Result<(), Error> {
    let path = lock.session().layout().permit(&seen.engine);
    let data = document::write(&path, &LeftBehind { left_behind: why.to_owned() })?;
    Transaction::under(lock).set(path.clone(), data, seen.version).commit().await?;
    tracing::warn!(engine = %seen.engine, path, why, "a permit is left behind: only zookeeper's super user can delete it");
    Ok(())
}

/// Adds to a transaction the deletion of a permit as it was seen. If a registration came or went since, or came and
/// went for the first time, the transaction fails as a whole.
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

/// Adds to a transaction that from now on nobody registers below the permit as it was seen: its deletion, or, with
/// strays below it, that it names no uid any more. It fails as a whole in the same cases. `held`: registration or mark
/// can't be deleted, because the engine made them and something below them; then they stay, and admit nobody.
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
    let transaction = below.into_iter().fold(transaction, |transaction, (path, was_there)| {
        if !was_there {
            // There is no check that a node is absent; making it is one.
            return transaction.create(path.clone(), Vec::new(), access.read_only()).delete(path);
        }
        // Nor one that a node is there which nobody else may read.
        if held { transaction } else { transaction.delete(path) }
    });
    let data = match &seen.content {
        Ok(permit) => document::write(&path, &Permit { uid: None, ..permit.clone() })?,
        Err(_) => Vec::new(),
    };
    Ok(transaction.set(path, data, seen.version))
}

/// The permits with what is registered below them, by name, [`MAX_CHILDREN`](crate::MAX_CHILDREN) at most, and the engines
/// whose permits were not read. Nodes whose names can't be engines are passed over: they were made by hand and admit no
/// engine.
pub(crate) async fn list_in_part(session: &Session) -> Result<(Vec<PermitNode>, BTreeSet<EngineName>), Error> {
    let (engines, unread) = session.engines(&session.layout().engines()).await?;
    let nodes = read_children(engines, |engine| async move { read(session, &engine).await }).await?;
    Ok((nodes, unread))
}

/// The same without the names of the rest.
pub async fn list(session: &Session) -> Result<Vec<PermitNode>, Error> {
    list_in_part(session).await.map(|(read, _)| read)
}

/// One permit with what is registered below it, each asked for by its name.
pub async fn read(session: &Session, engine: &EngineName) -> Result<Option<PermitNode>, Error> {
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
        let known = usize::from(registration.is_some()) + usize::from(answered);
        let strays = usize::try_from(stat.num_children).unwrap_or(0).saturating_sub(known);
        if strays > 0 && left_behind.is_none() && reads < MAX_READS {
            // Or one of the two went between the count and the look at it.
            let Some(now) = session.stat(&path).await? else { return Ok(None) };
            if now.pzxid != stat.pzxid {
                reads += 1;
                continue;
            }
        }
        return Ok(Some(PermitNode {
            engine: engine.clone(),
            content: match &left_behind {
                Some(it) => Err(format!("it is left behind: {}", it.left_behind)),
                None => document::read(&data),
            },
            version: stat.version,
            ctime_ms: stat.ctime,
            registration,
            answered,
            strays,
            left_behind: left_behind.is_some(),
        }));
    }
}
