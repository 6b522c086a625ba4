//! The graceful shutdown of a standalone: the master stops, engines drain, their ends are recorded, then the other parts
//! stop.
//!
//! The records make the next start immediate: an engine that was stopped with the installation has not failed, so its slot
//! gets a new incarnation without a back-off. They are written under the epoch of the master that has just stopped. If the
//! epoch is stale or the database fails, nothing is recorded, and the next master finds vanished engines, as after a kill.

use std::collections::BTreeSet;
use std::time::Duration;

use master::CandidateState;
use metadata::Store;
use model::end::{EndClass, EndWord};
use model::engine_name::EngineName;
use model::labels;
use model::number::Epoch;
use model::observation::{EndedEngine, EngineFacts, Publication};
use model::shared::Shared;
use model::slot::Renewal;
use orchestrator::process::diagnose;
use orchestrator::{ObservedInstance, Orchestrator};
use tokio::time::Instant;
use tracing::{info, warn};

use super::Parts;
use crate::roles;

/// The grace of engines at shutdown.
pub const DRAIN: Duration = Duration::from_secs(10);
/// The time after which a killed engine must have vanished.
const REAP: Duration = Duration::from_secs(5);
/// The interval between two lists of the terminating engines.
const LOOK: Duration = Duration::from_millis(100);
/// The reason in SHOW and DESCRIBE.
const REASON: &str = "standalone was stopped";

/// Shuts everything down; the error names engines that may be left.
pub async fn shut_down(parts: Parts) -> anyhow::Result<()> {
    let began = Instant::now();
    // An operator who waits for a shutdown finds in the log what it waited for.
    let done = |part: &'static str| info!(part, after_ms = began.elapsed().as_millis(), "part has shut down");
    let acting = match *parts.master.state().borrow() {
        CandidateState::Acting { epoch, .. } => Some(epoch),
        _ => None,
    };
    parts.master.shutdown().await;
    done("master");
    // Without an acting master this process still owns the folder, and the state directory requires its own epoch.
    let epoch = match acting {
        Some(epoch) => epoch,
        None => diagnose(parts.processes, roles::clock()).await.ok().and_then(|seen| seen.epoch).unwrap_or(Epoch(0)),
    };
    let (ended, left) = end_engines(&*parts.orchestrator, &parts.cluster, epoch).await;
    done("engines");
    if acting.is_some()
        && !ended.is_empty()
        && let Err(error) = record_ends(&parts.store, epoch, &ended).await
    {
        info!(%error, "could not record engine shutdown; next start will report the engines as vanished");
    }
    parts.proxy.shutdown().await;
    done("proxy");
    parts.agent.shutdown().await;
    done("metadata agent");
    parts.zookeeper.shutdown().await;
    done("ZooKeeper");
    left
}

/// Terminates every engine with a grace and waits until none is left. Returns the ended engines, and an error with those that
/// may be left.
async fn end_engines(
    orchestrator: &dyn Orchestrator,
    cluster: &str,
    epoch: Epoch,
) -> (BTreeSet<EngineName>, anyhow::Result<()>) {
    let selector = labels::selector(cluster);
    let until = Instant::now() + DRAIN + REAP;
    let (mut requested, mut ended) = (BTreeSet::new(), BTreeSet::new());
    loop {
        let (left, failure) = match orchestrator.list(&selector).await {
            Ok(listing) if listing.engines.is_empty() => return (ended, Ok(())),
            Ok(listing) => {
                let left: BTreeSet<EngineName> = listing.engines.iter().map(|engine| engine.name.clone()).collect();
                (left, request_ends(orchestrator, listing.engines, epoch, &mut requested, &mut ended).await)
            }
            // The requested engines may have ended or not.
            Err(error) => (ended.clone(), Some(format!("cannot list the engines: {error}"))),
        };
        if Instant::now() >= until {
            let names = left.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let failure = failure.map(|failure| format!(": {failure}")).unwrap_or_default();
            warn!(engines = names, failure, "engines did not terminate");
            return (&ended - &left, Err(anyhow::anyhow!("these engines may still run: {names}{failure}")));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Requests the end of engines that were not requested yet. Returns the last failure, which the caller retries.
async fn request_ends(
    orchestrator: &dyn Orchestrator,
    engines: Vec<Shared<ObservedInstance>>,
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
                requested.insert(engine.uid.clone());
                // An engine that had ended before has its own reason; the next master removes its remains.
                if engine.exit.is_none() {
                    ended.insert(engine.name.clone());
                }
            }
            Err(error) => {
                failure = Some(format!("engine \"{}\" could not be asked to terminate: {error}", engine.name));
            }
        }
    }
    failure
}

/// Records the ends, and draws a new incarnation for every slot whose current engine is among them.
async fn record_ends(store: &Store, epoch: Epoch, ended: &BTreeSet<EngineName>) -> Result<(), metadata::Error> {
    let snapshot = store.snapshot().await?;
    let lives =
        |name: &EngineName| snapshot.engines.iter().any(|engine| engine.name == *name && engine.ended_at_ms.is_none());
    let ended: Vec<&EngineName> = ended.iter().filter(|name| lives(name)).collect();
    let ends = ended.iter().map(|name| EndedEngine {
        name: (*name).clone(),
        reason: REASON.to_owned(),
        class: Some(EndClass::of(EndWord::Stopped)),
        log_tail: None,
    });
    let gone = ended.iter().map(|name| (*name).clone()).collect();
    store.record(epoch, &EngineFacts { ended: ends.collect(), ..EngineFacts::default() }).await?;
    store.publish(epoch, &Publication { gone, ..Publication::default() }).await?;
    let ledger = &snapshot.ledger;
    let has_registered = |name: &EngineName| {
        ledger.reservation(name.as_str()).is_some_and(|reservation| reservation.used_at_ms.is_some())
    };
    let slots = snapshot.slots.iter().filter(|slot| ended.contains(&&slot.engine()));
    let renewals: Vec<Renewal> = slots
        .map(|slot| Renewal {
            slot: slot.key.clone(),
            observed: slot.incarnation,
            failures: slot.failures,
            replacement: slot.next_replacement(has_registered(&slot.engine())),
            condemn: None,
            ends: None,
        })
        .collect();
    match store.new_incarnations(epoch, &renewals).await?.into_iter().find_map(Result::err) {
        Some(moved) => Err(metadata::Error::Conflict(moved)),
        None => Ok(()),
    }
}
