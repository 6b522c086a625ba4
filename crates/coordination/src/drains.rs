//! Drain orders: the persistent nodes `drains/<engine>`, the only order to drain, irrevocable.
//!
//! One multi checks the master's lock (and for a superseded engine the newer one's registration), writes the fact and
//! takes registration and permit away, each if it was seen. If a registration came or went in between, nothing
//! happens and the next tick repeats it from what it sees then.

use std::collections::BTreeSet;

use model::EngineName;
use serde::{Deserialize, Serialize};

use crate::document;
use crate::election::Lock;
use crate::error::Error;
use crate::failpoints;
use crate::permits::{PermitNode, withdraw_seen};
use crate::session::{Session, read_children};
use crate::transaction::Transaction;

/// What a drain fact says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainOrder {
    /// The orchestrator's id of the pod or process that drains, if it ever had one.
    pub uid: Option<String>,
    /// How long what runs may go on, in milliseconds, from when the engine first sees the fact; 0 ends it now.
    pub grace_ms: i64,
    /// Why.
    pub reason: String,
    /// The namespace of its pod, where there is one: where to look whether it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// A drain fact as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainOrderNode {
    /// Whose it is.
    pub engine: EngineName,
    /// What it says, or why that can't be read.
    pub content: Result<DrainOrder, String>,
    /// When it was written, by the server's clock, in milliseconds since 1970.
    pub ctime_ms: i64,
}

/// Orders an engine to drain.
///
/// `seen` is its permit as it was observed (`None`: there was none; the fact is written all the same).
/// `newer` names the engine whose registration must be there, for a superseded one.
/// [`Error::NodeExists`] at the fact: it was written before. Other conflicts: something moved, nothing happened.
pub async fn drain(
    lock: &Lock,
    engine: &EngineName,
    seen: Option<&PermitNode>,
    newer: Option<&EngineName>,
    fact: &DrainOrder,
) -> Result<(), Error> {
    let (layout, access) = (lock.session().layout(), lock.session().access());
    let path = layout.drain(engine);
    let data = document::write(&path, fact)?;
    let order = |held: bool| {
        let mut transaction = Transaction::under(lock);
        if let Some(newer) = newer {
            transaction = transaction.check(layout.registration(newer));
        }
        transaction = transaction.create(path.clone(), data.clone(), access.drain(engine));
        match seen {
            Some(seen) => withdraw_seen(transaction, lock.session(), seen, held),
            None => Ok(transaction),
        }
    };
    let of_the_engine = [layout.registration(engine), layout.answered(engine)];
    model::failpoint!(failpoints::DRAIN_BEFORE);
    match order(false)?.commit().await {
        // An engine that runs hostile code can make both itself, and something below them.
        Err(Error::NotEmpty { path }) if of_the_engine.contains(&path) => order(true)?.commit().await?,
        other => other?,
    }
    model::failpoint!(failpoints::DRAIN_WRITTEN);
    Ok(())
}

/// Removes a fact, when the engine is gone for good.
pub async fn remove(lock: &Lock, engine: &EngineName) -> Result<(), Error> {
    Transaction::under(lock).delete(lock.session().layout().drain(engine)).commit().await?;
    model::failpoint!(failpoints::DRAIN_REMOVED);
    Ok(())
}

/// The facts, by engine, [`MAX_CHILDREN`](crate::MAX_CHILDREN) at most, and the engines whose facts were not read. Nodes whose
/// names can't be engines are passed over: no engine obeys them.
pub(crate) async fn list_in_part(session: &Session) -> Result<(Vec<DrainOrderNode>, BTreeSet<EngineName>), Error> {
    let (engines, unread) = session.engines(&session.layout().drains()).await?;
    let nodes = read_children(engines, |engine| async move { read(session, &engine).await }).await?;
    Ok((nodes, unread))
}

/// The same without the names of the rest.
pub async fn list(session: &Session) -> Result<Vec<DrainOrderNode>, Error> {
    list_in_part(session).await.map(|(read, _)| read)
}

/// The engines that have a fact, whatever it says.
pub(crate) async fn names(session: &Session) -> Result<Vec<EngineName>, Error> {
    let (read, unread) = session.engines(&session.layout().drains()).await?;
    Ok(read.into_iter().chain(unread).collect())
}

/// One engine's fact.
pub async fn read(session: &Session, engine: &EngineName) -> Result<Option<DrainOrderNode>, Error> {
    let read = session.get(&session.layout().drain(engine)).await?;
    Ok(read.map(|(data, stat)| DrainOrderNode {
        engine: engine.clone(),
        content: document::read(&data),
        ctime_ms: stat.ctime,
    }))
}
