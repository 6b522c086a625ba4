//! Renewal of access lists: after the accepted generations of keys have changed, the master gives every node the list that
//! it would be created with now.
//!
//! The list of the root is renewed last, so that it shows whether the others are. A renewal that was interrupted is begun
//! again by the next master. Lists cannot be set in a multi, so these are the only writes of a master that do not check the
//! lock; a session that has lost it has usually ended, and a late list of an earlier generation is one that the processes of
//! that generation can still read, until the next renewal.

use std::sync::Weak;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use model::EngineName;
use tokio::time::sleep;
use zookeeper_client::Acl;

use crate::election::Lock;
use crate::error::Error;
use crate::layout::{ANSWERED, LIVE, base};
use crate::session::{MAX_IN_FLIGHT, Session};

/// The pause after a renewal that failed.
const RETRY: Duration = Duration::from_secs(10);

/// Renews the lists once, and again whenever the logins of the master change, until it has given up the lock. Nothing waits for
/// it: until it is done, processes with new keys only have to wait.
pub async fn keep_renewed(lock: Weak<Lock>) {
    let Some(mut identity) = lock.upgrade().map(|held| held.session().settings().identity.clone()) else { return };
    loop {
        // Before the renewal: logins that come meanwhile are the next ones.
        identity.latest();
        let Some(held) = lock.upgrade() else { return };
        let renewed = renew(&held).await;
        drop(held);
        match renewed {
            Ok(0) => {}
            Ok(nodes) => tracing::info!(nodes, "access lists name the accepted generations of keys"),
            Err(error) => {
                tracing::info!(%error, "could not renew access lists");
                sleep(RETRY).await;
                continue;
            }
        }
        if identity.changed().await.is_none() {
            return;
        }
    }
}

/// Renews the lists of all nodes if that of the root is not as expected; returns how many were renewed.
pub async fn renew(lock: &Lock) -> Result<usize, Error> {
    let (session, layout, access) = (lock.session(), lock.session().layout(), lock.session().access());
    let (root, expected) = (layout.root().to_owned(), access.root());
    if session.acl(&root).await?.is_some_and(|found| is_same(&found, &expected)) {
        return Ok(0);
    }
    let mut nodes = base(layout, &access);
    for name in children(session, &layout.master_lock()).await? {
        nodes.push((format!("{}/{name}", layout.master_lock()), access.master_only()));
    }
    for name in children(session, &layout.alter()).await? {
        nodes.push((format!("{}/{name}", layout.alter()), access.alter_child()));
    }
    nodes.push((layout.alter(), access.alter()));
    for name in children(session, &layout.agents()).await? {
        nodes.push((layout.agent(&name), access.metadata_agent()));
    }
    for name in children(session, layout.namespace()).await? {
        nodes.push((format!("{}/{name}", layout.namespace()), access.namespace()));
    }
    for engine in engines(session, &layout.engines()).await? {
        let permit = layout.permit(&engine);
        nodes.push((format!("{permit}/{LIVE}"), access.answered(&engine)));
        nodes.push((format!("{permit}/{ANSWERED}"), access.answered(&engine)));
        nodes.push((permit, access.permit(&engine)));
    }
    for engine in engines(session, &layout.drains()).await? {
        nodes.push((layout.drain(&engine), access.drain(&engine)));
    }
    let count = nodes.len() + 1;
    let set: Vec<Result<(), Error>> = stream::iter(nodes.into_iter().map(|(path, acl)| set(session, path, acl)))
        .buffered(MAX_IN_FLIGHT)
        .collect()
        .await;
    set.into_iter().collect::<Result<(), Error>>()?;
    session.set_acl(&root, &expected).await?;
    Ok(count)
}

async fn set(session: &Session, path: String, acl: Vec<Acl>) -> Result<(), Error> {
    match session.set_acl(&path, &acl).await {
        Err(Error::NoNode { .. }) => Ok(()),
        other => other,
    }
}

async fn children(session: &Session, path: &str) -> Result<Vec<String>, Error> {
    Ok(session.children(path).await?.map(|(names, _)| names).unwrap_or_default())
}

/// The nodes of engines; others are not ours.
async fn engines(session: &Session, path: &str) -> Result<Vec<EngineName>, Error> {
    Ok(children(session, path).await?.into_iter().filter_map(|name| EngineName::new(name).ok()).collect())
}

/// Whether two lists have the same entries, in any order.
fn is_same(one: &[Acl], other: &[Acl]) -> bool {
    one.len() == other.len() && one.iter().all(|entry| other.contains(entry))
}
