//! The orderly end of a standalone installation, in the order in which nothing is lost: nobody decides any more, engines
//! finish, their end is written down, then the rest goes.
//!
//! What is written down makes the next start an immediate one: an engine that was stopped with everything has not
//! failed, so its slot gets a new incarnation and no back-off. It is written under the epoch of the master that has just
//! ended; should that be stale, or the database fail, nothing is written, and the next master finds engines that
//! vanished, as after a kill.

use std::collections::BTreeSet;
use std::time::Duration;

use master::CandidateState;
use metadata::Store;
use model::engine_name::EngineName;
use model::labels;
use model::number::Epoch;
use model::observation::{EndedEngine, Report};
use model::slot::Renewal;
use orchestrator::process::inspect;
use orchestrator::{Observed, Orchestrator};
use tracing::{info, warn};

use super::Parts;
use crate::roles;

/// How long engines may finish their statements when everything ends.
pub const DRAIN: Duration = Duration::from_secs(10);
/// How long a killed engine may take to vanish.
const REAP: Duration = Duration::from_secs(5);
/// How often ending engines are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How the engines ended, as SHOW and DESCRIBE say it.
const REASON: &str = "standalone was stopped";

/// Ends everything; an error says what may be left.
pub async fn shut_down(parts: Parts) -> anyhow::Result<()> {
    let acting = match *parts.master.state().borrow() {
        CandidateState::Acting { epoch, .. } => Some(epoch),
        _ => None,
    };
    parts.master.shutdown().await;
    // Without a master that acts it is still we who have the folder: the state directory asks for the epoch that it knows.
    let epoch = match acting {
        Some(epoch) => epoch,
        None => inspect(parts.processes, roles::clock()).await.ok().and_then(|seen| seen.epoch).unwrap_or(Epoch(0)),
    };
    let (ended, left) = end_engines(&*parts.orchestrator, &parts.cluster, epoch).await;
    if acting.is_some()
        && !ended.is_empty()
        && let Err(error) = record_ends(&parts.store, epoch, &ended).await
    {
        info!(%error, "that the engines were stopped could not be written down: the next start takes them for vanished");
    }
    parts.proxy.shutdown().await;
    parts.agent.shutdown().await;
    parts.zookeeper.shutdown().await;
    left
}

/// Tells every engine to finish and end, and waits until none is left: after the grace they are killed. Answers those
/// that have ended, and what may be left.
async fn end_engines(
    orchestrator: &dyn Orchestrator,
    cluster: &str,
    epoch: Epoch,
) -> (BTreeSet<EngineName>, anyhow::Result<()>) {
    let selector = labels::selector(cluster);
    let until = tokio::time::Instant::now() + DRAIN + REAP;
    let (mut requested, mut ended) = (BTreeSet::new(), BTreeSet::new());
    loop {
        let (left, failure) = match orchestrator.list(&selector).await {
            Ok(listing) if listing.engines.is_empty() => return (ended, Ok(())),
            Ok(listing) => {
                let left: BTreeSet<EngineName> = listing.engines.iter().map(|engine| engine.name.clone()).collect();
                (left, request_ends(orchestrator, listing.engines, epoch, &mut requested, &mut ended).await)
            }
            // Whoever was told may have ended or not.
            Err(error) => (ended.clone(), Some(format!("the engines can't be listed: {error}"))),
        };
        if tokio::time::Instant::now() >= until {
            let names = left.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let failure = failure.map(|it| format!(": {it}")).unwrap_or_default();
            warn!(engines = names, failure, "engines are left that did not end");
            return (&ended - &left, Err(anyhow::anyhow!("engines may be left that did not end: {names}{failure}")));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Tells those to end that were not told yet; why one could not be told, which is tried again.
async fn request_ends(
    orchestrator: &dyn Orchestrator,
    engines: Vec<Observed>,
    epoch: Epoch,
    requested: &mut BTreeSet<String>,
    ended: &mut BTreeSet<EngineName>,
) -> Option<String> {
    let mut failure = None;
    for engine in engines {
        if requested.contains(&engine.uid) {
            continue;
        }
        match orchestrator.delete(&engine.name, &engine.uid, DRAIN, epoch).await {
            Ok(_) => {
                requested.insert(engine.uid);
                // What had ended before has its own reason, and what is left of it is the next master's to find.
                if engine.exit.is_none() {
                    ended.insert(engine.name);
                }
            }
            Err(error) => {
                failure = Some(format!("engine \"{}\" could not be asked to terminate: {error}", engine.name));
            }
        }
    }
    failure
}

/// Records the ends, and gives every slot whose present engine is among them a new incarnation.
async fn record_ends(store: &Store, epoch: Epoch, ended: &BTreeSet<EngineName>) -> Result<(), metadata::Error> {
    let snapshot = store.snapshot().await?;
    let lives = |name: &EngineName| snapshot.engines.iter().any(|it| it.name == *name && it.ended_at_ms.is_none());
    let ended: Vec<&EngineName> = ended.iter().filter(|name| lives(name)).collect();
    let ends =
        ended.iter().map(|name| EndedEngine { name: (*name).clone(), reason: REASON.to_owned(), log_tail: None });
    let gone = ended.iter().map(|name| (*name).clone()).collect();
    store.observed(epoch, &Report { ended: ends.collect(), gone, ..Report::default() }).await?;
    let slots = snapshot.slots.into_iter().filter(|slot| ended.contains(&&slot.engine()));
    let renewals: Vec<Renewal> =
        slots.map(|slot| Renewal { slot: slot.key, observed: slot.incarnation, failures: slot.failures }).collect();
    match store.new_incarnations(epoch, &renewals).await?.into_iter().find_map(Result::err) {
        Some(moved) => Err(metadata::Error::Conflict(moved)),
        None => Ok(()),
    }
}
