//! The facts that the invariants compare: desired state, ZooKeeper's nodes and running engines.
//!
//! They are read in a master's order, observed state first: an engine that a newer snapshot does not contain is not mistaken
//! for one that was just requested.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_api::AgentApi as _;
use coordination::diagnose::{self, Candidate};
use coordination::{Agent, Observation, PermitNode, Session};
use metadata::{EngineDetail, Error, Store};
use model::alteration::{AlterationRecord, RequestId};
use model::demand_report::UnmetDemand;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::labels;
use model::ledger::ScopeKey;
use model::millis;
use model::number::Epoch;
use model::observation::{ObservedEngine, ObservedNode};
use model::snapshot::{EngineRecord, ProxySnapshot, Snapshot};
use orchestrator::process::{StateDirDiagnosis, diagnose};
use orchestrator::{Listing, Orchestrator as _};

use super::agents::client;
use super::target::{CALL_DEADLINE, Target, bounded};
use crate::orchestrators;

/// The limit of running engines without an open row that are looked up one by one.
const MAX_ASKED: usize = 50;

/// The source of the desired state if it was read directly.
pub const DATABASE: &str = "the database";

/// The desired state in the database.
pub struct Desired {
    /// Slots, engines, open alterations, the master's row, the clock.
    pub snapshot: Snapshot,
    /// The rows that the master last wrote, with their epoch where it is known.
    pub observed: Vec<(ObservedEngine, Option<Epoch>)>,
    /// The demand that no engine was found for, as the master last reported it.
    pub unmet: Vec<UnmetDemand>,
    /// The row of the alteration that has the alter node, if there is one.
    pub alteration_of_node: Option<AlterationRecord>,
    /// Rows of running engines without an open row; `None` for a name that was never issued.
    pub others: BTreeMap<EngineName, Option<EngineDetail>>,
    /// The nodes that the master last observed; `None` if they were not read.
    pub nodes: Option<Vec<ObservedNode>>,
    /// When less may have become left of each scope, in milliseconds since 1970; `None` if that was not read.
    pub reductions: Option<BTreeMap<ScopeKey, i64>>,
    /// The database, or the metadata agent that was asked.
    pub read_from: String,
}

/// The nodes in ZooKeeper.
pub struct Coordinated {
    /// Alter node, agents, permits, registrations, drain orders.
    pub nodes: Observation,
    /// The queue for the master's lock.
    pub queue: Vec<Candidate>,
}

/// The running engines.
pub struct RunningEngines {
    pub listing: Listing,
    pub source: Source,
}

/// The orchestrator that the engines were read from.
pub enum Source {
    /// The state directory of local processes, without its listing.
    Directory(StateDirDiagnosis),
    /// A cluster, with our missing permissions.
    Cluster(Vec<String>),
}

/// One reading of everything; an unreadable part has its reason.
pub struct Facts {
    pub desired: Result<Desired, String>,
    /// The nodes in ZooKeeper.
    pub coordinated: Result<Coordinated, String>,
    pub running: Result<RunningEngines, String>,
    /// This machine's clock, in milliseconds since 1970.
    pub wall_ms: i64,
}

/// Reads everything once: the desired state from the database if it is `readable`, otherwise from a metadata agent.
pub async fn read(target: &Target, session: Result<&Session, &String>, agents: &[Agent], readable: bool) -> Facts {
    let coordinated = match session {
        Ok(session) => bounded("reading zookeeper", coordinated(session)).await,
        Err(_) => Err("there is no session with ZooKeeper".to_owned()),
    };
    let running = running(target).await;
    let node = coordinated.as_ref().ok().and_then(Coordinated::alteration);
    let desired = if readable {
        bounded("reading the database", from_database(target, node, running.as_ref().ok())).await
    } else {
        from_agents(target, agents, node).await
    };
    Facts { desired, coordinated, running, wall_ms: target.clock.wall_ms() }
}

async fn coordinated(session: &Session) -> Result<Coordinated, coordination::Error> {
    Ok(Coordinated { nodes: coordination::observe(session).await?, queue: diagnose::queue(session).await? })
}

async fn running(target: &Target) -> Result<RunningEngines, String> {
    if let Some(why) = &target.no_orchestrator {
        return Err(why.clone());
    }
    if let Some(cluster) = &target.cluster {
        let pods = cluster.as_ref().map_err(Clone::clone)?;
        let selector = labels::selector(&target.configuration.cluster.name);
        let listing = bounded("reading the pods", pods.list(&selector)).await?;
        let missing = bounded("reviewing our permissions", pods.missing_permissions()).await?;
        return Ok(RunningEngines {
            listing,
            source: Source::Cluster(missing.iter().map(ToString::to_string).collect()),
        });
    }
    let config = orchestrators::process_config(&target.configuration).map_err(|error| error.to_string())?;
    let mut seen = bounded("reading the state directory", diagnose(config, target.clock.clone())).await?;
    Ok(RunningEngines { listing: std::mem::take(&mut seen.listing), source: Source::Directory(seen) })
}

async fn from_database(
    target: &Target,
    node: Option<&RequestId>,
    running: Option<&RunningEngines>,
) -> Result<Desired, Error> {
    let store = Store::open_to_read(&target.database(), target.clock.clone()).await?;
    let desired = from_store(target, &store, node, running).await;
    store.close().await;
    desired
}

async fn from_store(
    target: &Target,
    store: &Store,
    node: Option<&RequestId>,
    running: Option<&RunningEngines>,
) -> Result<Desired, Error> {
    let overview = store.overview(None).await?;
    let alteration_of_node = match node {
        Some(id) => store.outcome(id).await?,
        None => None,
    };
    let mut others = BTreeMap::new();
    let open = |name: &EngineName| overview.snapshot.engines.iter().any(|engine| engine.name == *name);
    let selector = labels::selector(&target.configuration.cluster.name);
    let running =
        running.into_iter().flat_map(|running| &running.listing.engines).filter(|engine| engine.matches(&selector));
    for engine in running.filter(|engine| !open(&engine.name)).take(MAX_ASKED) {
        others.insert(engine.name.clone(), store.engine(&engine.name).await?);
    }
    let nodes = Some(store.node_overview().await?.nodes);
    let observed = overview.observed.into_iter().map(|seen| (seen.engine, Some(seen.epoch))).collect();
    let read_from = DATABASE.to_owned();
    let reductions = Some(store.reductions().await?);
    let (_, unmet) = store.demand_overview().await?;
    let snapshot = overview.snapshot;
    Ok(Desired { snapshot, observed, unmet, alteration_of_node, others, nodes, reductions, read_from })
}

async fn from_agents(target: &Target, agents: &[Agent], node: Option<&RequestId>) -> Result<Desired, String> {
    let caller = target.keys.caller()?;
    let mut reason = "the desired state cannot be read: neither the database nor a metadata agent responds".to_owned();
    for agent in agents {
        let client = client(caller.clone(), agent, CALL_DEADLINE);
        let asked = async {
            let snapshot = client.snapshot().await?;
            let of_proxy = client.proxy_snapshot().await?;
            let alteration_of_node = match node {
                Some(id) => client.outcome(id).await?,
                None => None,
            };
            Ok::<_, agent_api::ApiError>((snapshot, of_proxy, alteration_of_node))
        };
        match bounded("a metadata agent's answer", asked).await {
            Ok((snapshot, ProxySnapshot { observed, unmet, .. }, alteration_of_node)) => {
                let observed = observed.into_iter().map(|engine| (engine, None)).collect();
                let read_from = format!("metadata agent {}", agent.address);
                let others = BTreeMap::new();
                return Ok(Desired {
                    snapshot,
                    observed,
                    unmet,
                    alteration_of_node,
                    others,
                    nodes: None,
                    reductions: None,
                    read_from,
                });
            }
            Err(error) => reason = format!("metadata agent {}: {error}", agent.address),
        }
    }
    Err(reason)
}

impl Facts {
    /// Why checks that need all facts are skipped.
    pub fn missing(&self) -> String {
        let running = self.running.as_ref().err().cloned();
        [self.missing_nodes(), running.unwrap_or_default()]
            .into_iter()
            .filter(|reason| !reason.is_empty())
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Why checks that need database and ZooKeeper are skipped.
    pub fn missing_nodes(&self) -> String {
        let reasons = [self.desired.as_ref().err(), self.coordinated.as_ref().err()];
        reasons.into_iter().flatten().cloned().collect::<Vec<_>>().join("; ")
    }
}

impl Desired {
    pub fn engine(&self, name: &EngineName) -> Option<&EngineRecord> {
        self.snapshot.engines.iter().find(|engine| engine.name == *name).map(AsRef::as_ref)
    }

    /// The row that the master last wrote for the engine.
    pub fn seen(&self, name: &EngineName) -> Option<&ObservedEngine> {
        self.observed.iter().map(|(engine, _)| engine).find(|engine| engine.name == *name)
    }

    /// Whether it is the current engine of a slot.
    pub fn is_present(&self, name: &EngineName) -> bool {
        self.snapshot.slots.iter().any(|slot| slot.engine() == *name)
    }
}

impl Coordinated {
    /// The id of the alteration that has the alter node.
    fn alteration(&self) -> Option<&RequestId> {
        Some(&self.nodes.alter.as_ref()?.children.first()?.id)
    }

    pub fn permit(&self, name: &EngineName) -> Option<&PermitNode> {
        self.nodes.permits.iter().find(|permit| permit.engine == *name).map(AsRef::as_ref)
    }

    /// Whether the engine is registered with its own uid.
    pub fn is_ready(&self, name: &EngineName) -> bool {
        self.permit(name).is_some_and(|permit| permit.ready().is_some())
    }
}

/// The time from one timestamp in milliseconds to another; zero if the other one is earlier.
pub fn elapsed(from_ms: i64, to_ms: i64) -> Duration {
    millis::to_duration(to_ms - from_ms)
}

/// Whether it serves or may still become ready.
pub fn is_alive(engine: &orchestrator::ObservedInstance) -> bool {
    engine.phase < Phase::Terminating
}
