//! Permits: the persistent nodes `engines/<engine>`, below which an engine registers.
//!
//! Made by the master before the pod, without a uid; the uid follows when the orchestrator has given one. An engine
//! registers only below a permit with its own uid, so a permit without one admits nobody. Only the master writes
//! them, always in a multi with the check of its lock; an engine may create children below its own, which is why a
//! delete takes along whatever it saw there.
//!
//! What an engine that runs hostile code can do with that right: leave nodes behind, below its own permit. More of them
//! than are read, or a registration that nobody else may read, don't hold up the reading of the others, and one with
//! children that only the engine may delete keeps nobody from draining it: its permit then stays, and admits nobody.
//!
//! Invariant: below a permit without the mark `answered` nobody has ever registered, and nobody ever registered below
//! an earlier permit of its uid. The first registration leaves the mark in its own multi; a permit that is made for an
//! engine that runs already has it from the beginning, because what stood below an earlier one may be lost. So a
//! delete of what was seen without a mark is refused when somebody came, even if he has gone again: a caller with a
//! stale reading ends nobody who served.

use futures::stream::{self, StreamExt};
use model::{EngineName, PoolName, TenantName, UnitName};
use serde::{Deserialize, Serialize};

use crate::document;
use crate::election::Lock;
use crate::error::Error;
use crate::failpoints;
use crate::layout::{ANSWERED, LIVE};
use crate::registry::{LiveNode, read_live};
use crate::session::{MAX_IN_FLIGHT, Session};
use crate::transaction::Transaction;

/// The most foreign children of one permit that a delete takes along; the rest goes with the next one.
const MAX_STRAYS: usize = 100;
/// The most children of one permit that are read. With more it is *crowded*: what is registered is asked for by name.
const MAX_BELOW: i32 = 1_000;

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
    pub live: Option<LiveNode>,
    /// Whether the mark is below it: somebody registered there once, or that can't be known.
    pub answered: bool,
    /// Children that are neither registration nor mark; of a crowded permit none are known.
    pub strays: Vec<String>,
    /// Whether there are more children than are read.
    pub crowded: bool,
}

impl PermitNode {
    /// The uid that it admits.
    pub fn uid(&self) -> Option<&str> {
        self.content.as_ref().ok()?.uid.as_deref()
    }

    /// The registration below it that is of the permit's own uid: the engine is ready.
    pub fn ready(&self) -> Option<&LiveNode> {
        let live = self.live.as_ref()?;
        let of_uid = live.content.as_ref().is_ok_and(|it| Some(it.uid.as_str()) == self.uid());
        of_uid.then_some(live)
    }
}

/// Makes a permit; [`Error::NodeExists`] if there is one. With a uid it is for an engine that runs already, and gets
/// the mark in the same multi.
pub async fn create(lock: &Lock, engine: &EngineName, permit: &Permit) -> Result<(), Error> {
    let (layout, access) = (lock.session().layout(), lock.session().access());
    let path = layout.permit(engine);
    let data = document::write(&path, permit)?;
    let mut transaction = Transaction::under(lock).create(path, data, access.permit(engine));
    if permit.uid.is_some() {
        transaction = transaction.create(layout.answered(engine), Vec::new(), access.answered(engine));
    }
    transaction.commit().await?;
    model::failpoint!(failpoints::PERMIT_CREATED);
    Ok(())
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

/// Deletes a permit without a drain, with what was seen below it: for an engine that has ended, or was never made. A
/// permit with more foreign children than one multi takes stays until a later call has found the rest.
/// [`Error::Refused`]: it is crowded, and only an operator can help.
pub async fn delete(lock: &Lock, seen: &PermitNode) -> Result<(), Error> {
    if seen.crowded {
        let path = lock.session().layout().permit(&seen.engine);
        return Err(Error::Refused { path, reason: format!("it has more than {MAX_BELOW} children") });
    }
    delete_seen(Transaction::under(lock), lock.session(), seen).commit().await?;
    model::failpoint!(failpoints::PERMIT_DELETED);
    Ok(())
}

/// Adds to a transaction the deletion of a permit as it was seen. If a registration came or went since, or came and
/// went for the first time, the transaction fails as a whole.
pub(crate) fn delete_seen<'a>(
    mut transaction: Transaction<'a>,
    session: &Session,
    seen: &PermitNode,
) -> Transaction<'a> {
    let path = session.layout().permit(&seen.engine);
    if seen.live.is_some() {
        transaction = transaction.delete(session.layout().live(&seen.engine));
    }
    if seen.answered {
        transaction = transaction.delete(session.layout().answered(&seen.engine));
    }
    for name in seen.strays.iter().take(MAX_STRAYS) {
        transaction = transaction.delete(format!("{path}/{name}"));
    }
    if seen.strays.len() > MAX_STRAYS { transaction } else { transaction.delete(path) }
}

/// Adds to a transaction that from now on nobody registers below the permit as it was seen: its deletion, or, with
/// foreign children below it, that it names no uid any more. It fails as a whole in the same cases.
pub(crate) fn withdraw_seen<'a>(
    transaction: Transaction<'a>,
    session: &Session,
    seen: &PermitNode,
) -> Result<Transaction<'a>, Error> {
    if seen.strays.is_empty() && !seen.crowded {
        return Ok(delete_seen(transaction, session, seen));
    }
    let (layout, access) = (session.layout(), session.access());
    let path = layout.permit(&seen.engine);
    let below = [(layout.live(&seen.engine), seen.live.is_some()), (layout.answered(&seen.engine), seen.answered)];
    let transaction = below.into_iter().fold(transaction, |transaction, (path, was_there)| {
        // There is no check that a node is absent; making it is one.
        let there =
            if was_there { transaction } else { transaction.create(path.clone(), Vec::new(), access.read_only()) };
        there.delete(path)
    });
    let data = match &seen.content {
        Ok(permit) => document::write(&path, &Permit { uid: None, ..permit.clone() })?,
        Err(_) => Vec::new(),
    };
    Ok(transaction.set(path, data, seen.version))
}

/// All permits with what is registered below them, by name. Nodes whose names can't be engines are passed over: they
/// were made by hand and admit nobody.
pub async fn list(session: &Session) -> Result<Vec<PermitNode>, Error> {
    let Some((mut names, _)) = session.children(&session.layout().engines()).await? else { return Ok(Vec::new()) };
    names.sort();
    let engines = names.into_iter().filter_map(|name| EngineName::new(name).ok());
    let reads: Vec<_> = {
        let reads = engines.map(|engine| async move { read(session, &engine).await });
        stream::iter(reads).buffered(MAX_IN_FLIGHT).collect().await
    };
    reads.into_iter().filter_map(Result::transpose).collect()
}

/// One permit with what is registered below it.
pub async fn read(session: &Session, engine: &EngineName) -> Result<Option<PermitNode>, Error> {
    let layout = session.layout();
    let path = layout.permit(engine);
    let Some((data, stat)) = session.get(&path).await? else { return Ok(None) };
    let mut below = Vec::new();
    let mut crowded = stat.num_children > MAX_BELOW;
    if stat.num_children > 0 && !crowded {
        match session.children(&path).await {
            Ok(read) => below = read.map(|(names, _)| names).unwrap_or_default(),
            // They have become so many since.
            Err(Error::TooMany { .. }) => crowded = true,
            Err(error) => return Err(error),
        }
    }
    let has = |name: &str| crowded || below.iter().any(|it| it == name);
    let live = if has(LIVE) { read_live(session, engine).await? } else { None };
    let answered = has(ANSWERED) && (!crowded || session.stat(&layout.answered(engine)).await?.is_some());
    below.retain(|name| name != LIVE && name != ANSWERED);
    Ok(Some(PermitNode {
        engine: engine.clone(),
        content: document::read(&data),
        version: stat.version,
        ctime_ms: stat.ctime,
        live,
        answered,
        strays: below,
        crowded,
    }))
}
