//! Permits: the persistent nodes `engines/<engine>`, below which an engine registers.
//!
//! Made by the master before the pod, without a uid; the uid follows when the orchestrator has given one. An engine
//! registers only below a permit with its own uid, so a permit without one admits nobody. Only the master writes
//! them, always in a multi with the check of its lock; an engine may create children below its own, which is why a
//! delete takes along whatever it saw there.

use futures::stream::{self, StreamExt};
use model::{EngineName, PoolName, TenantName, UnitName};
use serde::{Deserialize, Serialize};

use crate::document;
use crate::election::Lock;
use crate::error::Error;
use crate::failpoints;
use crate::layout::LIVE;
use crate::registry::{LiveNode, read_live};
use crate::session::{MAX_IN_FLIGHT, Session};
use crate::transaction::Transaction;

/// The most foreign children of one permit that a delete takes along; the rest goes with the next one.
const MAX_STRAYS: usize = 100;

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
    /// Children that are no registration.
    pub strays: Vec<String>,
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

/// Makes a permit; [`Error::NodeExists`] if there is one.
pub async fn create(lock: &Lock, engine: &EngineName, permit: &Permit) -> Result<(), Error> {
    let (layout, access) = (lock.session().layout(), lock.session().access());
    let path = layout.permit(engine);
    let data = document::write(&path, permit)?;
    Transaction::under(lock).create(path, data, access.permit(engine)).commit().await?;
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
pub async fn delete(lock: &Lock, seen: &PermitNode) -> Result<(), Error> {
    delete_seen(Transaction::under(lock), lock.session(), seen).commit().await?;
    model::failpoint!(failpoints::PERMIT_DELETED);
    Ok(())
}

/// Adds to a transaction the deletion of a permit as it was seen. If a registration came or went since, the
/// transaction fails as a whole.
pub(crate) fn delete_seen<'a>(
    mut transaction: Transaction<'a>,
    session: &Session,
    seen: &PermitNode,
) -> Transaction<'a> {
    let path = session.layout().permit(&seen.engine);
    if seen.live.is_some() {
        transaction = transaction.delete(session.layout().live(&seen.engine));
    }
    for name in seen.strays.iter().take(MAX_STRAYS) {
        transaction = transaction.delete(format!("{path}/{name}"));
    }
    if seen.strays.len() > MAX_STRAYS { transaction } else { transaction.delete(path) }
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
    let path = session.layout().permit(engine);
    let Some((data, stat)) = session.get(&path).await? else { return Ok(None) };
    let live = if stat.num_children > 0 { read_live(session, engine).await? } else { None };
    let strays = if stat.num_children > i32::from(live.is_some()) {
        let names = session.children(&path).await?.map(|(names, _)| names).unwrap_or_default();
        names.into_iter().filter(|name| name != LIVE).collect()
    } else {
        Vec::new()
    };
    Ok(Some(PermitNode {
        engine: engine.clone(),
        content: document::read(&data),
        version: stat.version,
        ctime_ms: stat.ctime,
        live,
        strays,
    }))
}
