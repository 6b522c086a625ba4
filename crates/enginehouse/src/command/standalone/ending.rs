//! The orderly end of a standalone installation, in the order in which nothing is lost: nobody decides any more, engines
//! finish, their end is written down, then the rest goes.
//!
//! What is written down makes the next start an immediate one: an engine that was stopped with everything has not
//! failed, so its slot gets a new incarnation and no back-off. It is written under the epoch of the master that has just
//! ended; should that be stale, or the database fail, nothing is written, and the next master finds engines that
//! vanished, as after a kill.

use std::collections::BTreeSet;
use std::time::Duration;

use master::State;
use metadata::Store;
use model::engine_name::EngineName;
use model::labels;
use model::number::Epoch;
use model::observation::{EndedEngine, Report};
use model::slot::Renewal;
use orchestrator::Orchestrator;
use tracing::{info, warn};

use super::Parts;

/// How long engines may finish their statements when everything ends.
pub const DRAIN: Duration = Duration::from_secs(10);
/// How long a killed engine may take to vanish.
const REAP: Duration = Duration::from_secs(5);
/// How often ending engines are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How the engines ended, as SHOW and DESCRIBE say it.
const REASON: &str = "standalone was stopped";

/// Ends everything.
pub async fn end(parts: Parts) {
    let epoch = match *parts.master.state().borrow() {
        State::Acting { epoch, .. } => Some(epoch),
        _ => None,
    };
    parts.master.shutdown().await;
    let ended = end_engines(&*parts.orchestrator, &parts.cluster, epoch.unwrap_or(Epoch(0))).await;
    if let Some(epoch) = epoch
        && !ended.is_empty()
        && let Err(error) = write_down(&parts.store, epoch, &ended).await
    {
        info!(%error, "that the engines were stopped could not be written down: the next start takes them for vanished");
    }
    parts.proxy.shutdown().await;
    parts.agent.shutdown().await;
    parts.zookeeper.shutdown().await;
}

/// Tells every engine to finish and end, and waits until none is left: after the grace they are killed. Answers those
/// that have ended.
async fn end_engines(orchestrator: &dyn Orchestrator, cluster: &str, epoch: Epoch) -> BTreeSet<EngineName> {
    let selector = labels::selector(cluster);
    let until = tokio::time::Instant::now() + DRAIN + REAP;
    let (mut told, mut ended) = (BTreeSet::new(), BTreeSet::new());
    loop {
        let engines = match orchestrator.list(&selector).await {
            Ok(listing) => listing.engines,
            Err(error) => {
                warn!(%error, "the engines can't be listed");
                return BTreeSet::new();
            }
        };
        let left: BTreeSet<EngineName> = engines.iter().map(|engine| engine.name.clone()).collect();
        if left.is_empty() {
            return ended;
        }
        for engine in engines {
            if !told.insert(engine.uid.clone()) {
                continue;
            }
            match orchestrator.delete(&engine.name, &engine.uid, DRAIN, epoch).await {
                // What had ended before has its own reason, and what is left of it is the next master's to find.
                Ok(_) if engine.exit.is_none() => drop(ended.insert(engine.name)),
                Ok(_) => {}
                Err(error) => warn!(engine = %engine.name, %error, "an engine could not be told to end"),
            }
        }
        if tokio::time::Instant::now() >= until {
            warn!("engines are left that did not end");
            return &ended - &left;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Records the ends, and gives every slot whose present engine is among them a new incarnation.
async fn write_down(store: &Store, epoch: Epoch, ended: &BTreeSet<EngineName>) -> Result<(), metadata::Error> {
    let snapshot = store.snapshot().await?;
    let lives = |name: &EngineName| snapshot.engines.iter().any(|it| it.name == *name && it.ended_at_ms.is_none());
    let ended: Vec<&EngineName> = ended.iter().filter(|name| lives(name)).collect();
    let ends =
        ended.iter().map(|name| EndedEngine { name: (*name).clone(), reason: REASON.to_owned(), log_tail: None });
    let gone = ended.iter().map(|name| (*name).clone()).collect();
    store.observed(epoch, &Report { ended: ends.collect(), gone, ..Report::default() }).await?;
    for slot in snapshot.slots {
        let engine = slot.engine();
        if ended.contains(&&engine) {
            let renewal = Renewal { slot: slot.key, observed: slot.incarnation, failures: slot.failures };
            store.new_incarnation(epoch, &renewal).await?;
        }
    }
    Ok(())
}
