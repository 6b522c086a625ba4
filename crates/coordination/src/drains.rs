//! Drain orders: the persistent nodes `drains/<engine>`. A drain order is irrevocable, and nothing else orders an engine to
//! drain.
//!
//! One multi checks the master's lock (and the registration of the newer engine, if the engine is superseded), writes the
//! order, and deletes registration and permit as they were read. If a registration was created or deleted in between, the
//! multi fails as a whole, and the next tick decides again.

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

/// The content of a drain order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainOrder {
    /// The uid of the instance that is to drain, if there ever was one.
    pub uid: Option<String>,
    /// How long running statements may continue, in milliseconds, from when the engine first reads the order; 0 cancels them.
    pub grace_ms: i64,
    pub reason: String,
    /// Where the orchestrator has namespaces: the one to look the instance up in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// A drain order as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainOrderNode {
    pub engine: EngineName,
    /// The content, or why it is unreadable.
    pub content: Result<DrainOrder, String>,
    /// When it was written, by the server's clock, in milliseconds since 1970.
    pub ctime_ms: i64,
}

/// Orders an engine to drain.
///
/// `seen` is its permit as it was read (`None`: there was none). `newer` is the engine that supersedes it and must be
/// registered. [`Error::NodeExists`] at the drain order: it was written before. Other conflicts: the reading was stale and
/// nothing was written.
pub async fn drain(
    lock: &Lock,
    engine: &EngineName,
    seen: Option<&PermitNode>,
    newer: Option<&EngineName>,
    drain_order: &DrainOrder,
) -> Result<(), Error> {
    let (layout, access) = (lock.session().layout(), lock.session().access());
    let path = layout.drain(engine);
    let data = document::write(&path, drain_order)?;
    let transaction = |held: bool| {
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
    let engine_nodes = [layout.registration(engine), layout.answered(engine)];
    model::failpoint!(failpoints::DRAIN_BEFORE);
    match transaction(false)?.commit().await {
        // A hostile engine can create both nodes itself, with children below them.
        Err(Error::NotEmpty { path }) if engine_nodes.contains(&path) => transaction(true)?.commit().await?,
        other => other?,
    }
    model::failpoint!(failpoints::DRAIN_WRITTEN);
    Ok(())
}

/// Removes a drain order after its engine has ended.
pub async fn remove(lock: &Lock, engine: &EngineName) -> Result<(), Error> {
    Transaction::under(lock).delete(lock.session().layout().drain(engine)).commit().await?;
    model::failpoint!(failpoints::DRAIN_REMOVED);
    Ok(())
}

/// The drain orders by engine, at most [`MAX_CHILDREN`](crate::MAX_CHILDREN), and the engines whose orders were not read. Nodes
/// whose names are no engine names are skipped.
pub(crate) async fn list_in_part(session: &Session) -> Result<(Vec<DrainOrderNode>, BTreeSet<EngineName>), Error> {
    let (engines, unread) = session.engines(&session.layout().drains()).await?;
    let nodes = read_children(engines, |engine| async move { read(session, &engine).await }).await?;
    Ok((nodes, unread))
}

/// Like `list_in_part`, without the names of those that were not read.
pub async fn list(session: &Session) -> Result<Vec<DrainOrderNode>, Error> {
    list_in_part(session).await.map(|(read, _)| read)
}

/// The engines that have a drain order, readable or not.
pub(crate) async fn names(session: &Session) -> Result<Vec<EngineName>, Error> {
    let (read, unread) = session.engines(&session.layout().drains()).await?;
    Ok(read.into_iter().chain(unread).collect())
}

pub async fn read(session: &Session, engine: &EngineName) -> Result<Option<DrainOrderNode>, Error> {
    let read = session.get(&session.layout().drain(engine)).await?;
    Ok(read.map(|(data, stat)| DrainOrderNode {
        engine: engine.clone(),
        content: document::read(&data),
        ctime_ms: stat.ctime,
    }))
}
