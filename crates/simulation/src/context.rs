//! The boundary of the real reconciler, over the world: what a master reads and changes, with its faults.
//!
//! A term that was deposed goes on: its calls reach the database, the orchestrator and ZooKeeper, which refuse them by epoch and
//! lock. The call in which it was deposed may arrive later, under its old epoch.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coordination::Observation as Coordination;
use master::{
    Applied, ControllerCtx, Effect, Expected, Failure, GuardedDecision, InstanceCache, InstanceList, Lease, LeaseState,
    Observation,
};
use model::alteration::{Abort, AlterationRecord, RequestId, Source};
use model::demand::Demand;
use model::engine_state::Phase;
use model::ledger::{LedgerRecord, LedgerRecorded};
use model::name::TenantName;
use model::number::{Epoch, Generation};
use model::observation::Publication;
use model::shared::Shared;
use model::slot::Link;
use model::snapshot::{MasterRecord, Snapshot};
use orchestrator::Orchestrator as _;
use parking_lot::{Mutex, MutexGuard};
use planner::{Decision, Instance, Probe};

use crate::activity::Cause;
use crate::database::aborted;
use crate::late_call::{Late, LateCall};
use crate::mutant::Mutant;
use crate::state::{STATUS_POLL, State, ready};

/// The context of one term.
pub struct Context {
    pub world: Arc<Mutex<State>>,
    /// The session that took the lock.
    pub lock: u64,
}

impl Context {
    /// The world after a call has been on its way for a moment.
    fn call(&self) -> MutexGuard<'_, State> {
        let mut world = self.world.lock();
        let took = world.rng.millis(1, 8);
        world.pass(took);
        world
    }

    /// The same for a call to a metadata agent.
    fn agent(&self) -> Result<MutexGuard<'_, State>, Failure> {
        let world = self.call();
        if world.now < world.faults.away_until {
            Err(Failure::Unavailable("no metadata agent".to_owned()))
        } else {
            Ok(world)
        }
    }
}

#[async_trait]
impl Lease for Context {
    fn state(&self) -> LeaseState {
        LeaseState::Valid
    }

    async fn raise_epoch(&self) -> Result<MasterRecord, Failure> {
        Err(Failure::Lost("an election raises the epoch".to_owned()))
    }
}

#[async_trait]
impl ControllerCtx for Context {
    fn clock(&self) -> Duration {
        self.world.lock().now
    }

    fn lease(&self) -> &dyn Lease {
        self
    }

    async fn wait(&self) {
        std::future::pending::<()>().await;
    }

    async fn observe(&self) -> Result<Observation, Failure> {
        let mut world = self.call();
        if world.nodes.lock != Some(self.lock) {
            return Err(Failure::Lost("the session has expired".to_owned()));
        }
        world.memory.settle();
        world.memory.clear_calls();
        world.notice_ended();
        if world.polled_at.is_none_or(|at| at + STATUS_POLL <= world.now) {
            world.poll();
            world.polled_at = Some(world.now);
        }
        let coordination = world.coordination();
        let list = ready(world.memory.list(&world.selector));
        let instances = match list {
            Some(Ok(mut listing)) => {
                // Only mutants read something else than what is listed.
                if world.mutant.is_some() {
                    for engine in &mut listing.engines {
                        engine.node = world.machine_read(engine.node.clone());
                        if world.is_taken_for_ended(&engine.name) {
                            engine.phase = Phase::Ended;
                        }
                    }
                }
                let nodes = Some(world.nodes_read());
                let mut list = InstanceList::new(listing, nodes, &mut world.instances);
                if world.mutant == Some(Mutant::NewerIsOrphan) {
                    list.instances.iter_mut().for_each(|instance| instance.generation = None);
                }
                Ok(list)
            }
            _ => Err(Failure::Unavailable("the API server is away".to_owned())),
        };
        world.judge_observation();
        Ok(Observation { coordination, instances, loads: world.loads.clone(), uses: world.uses() })
    }

    async fn probe(&self, probe: &Probe) -> Result<Option<Instance>, Failure> {
        let world = self.call();
        let found: Option<orchestrator::ObservedInstance> = if world.mutant == Some(Mutant::OutdatedProbe) {
            let listed = ready(world.memory.list(&world.selector)).and_then(Result::ok);
            listed.and_then(|listed| listed.find(&probe.engine).cloned())
        } else {
            ready(world.memory.get(&probe.engine, None)).and_then(Result::ok).flatten()
        };
        let engines = found.into_iter().map(Shared::from).collect();
        let listing = orchestrator::Listing { engines, ..orchestrator::Listing::default() };
        Ok(InstanceList::new(listing, None, &mut InstanceCache::default()).instances.pop().map(Shared::into_inner))
    }

    async fn snapshot(&self) -> Result<Snapshot, Failure> {
        let mut world = self.agent()?;
        world.waiting_when_read = None;
        let mut snapshot = world.database.snapshot();
        if matches!(world.mutant, Some(Mutant::RowOnlyWithNode | Mutant::LooksBeforeCommit)) {
            snapshot.alterations.retain(|record| world.nodes.has_alter_node(&record.id));
        }
        Ok(snapshot)
    }

    async fn demand(
        &self,
        observation: &mut Observation,
        tenants: &BTreeSet<TenantName>,
    ) -> Result<Vec<Demand>, Failure> {
        {
            let mut world = self.call();
            world.poll_some(|permit| tenants.contains(&permit.tenant));
            observation.loads = world.loads.clone();
            observation.uses = world.uses();
        }
        let mut world = self.agent()?;
        let links: Vec<Link> = links_of(world.database.state());
        let waiting = world.waiting_for(&links);
        let is_known = world.now >= world.faults.stale_until;
        world.waiting_when_read = is_known.then_some(waiting);
        Ok(world.database.demand())
    }

    async fn settle(&self, id: &RequestId, abort: Option<&Abort>) -> Result<Option<AlterationRecord>, Failure> {
        let mut world = self.agent()?;
        let record = match abort {
            Some(abort) if world.mutant == Some(Mutant::SilenceIsAbort) => Some(aborted(abort, 0)),
            Some(abort) => Some(world.database.abort(abort)),
            None => world.database.outcome(id),
        };
        if let Some(record) = &record {
            world.activity.settled += u64::from(abort.is_some());
            world.judge_outcome(id, record.outcome);
        } else if world.mutant == Some(Mutant::LooksBeforeCommit) {
            return Ok(Some(aborted(&unknown(id), 0)));
        }
        Ok(record)
    }

    async fn apply(&self, effect: Effect<'_>) -> Result<Applied, Failure> {
        let mut world = self.call();
        let (epoch, what) = match effect {
            Effect::Decision(GuardedDecision { decision, expected }) => {
                let Expected { epoch, generation, nodes, created } = expected;
                let created = created.map(str::to_owned);
                let nodes = nodes_of(decision, nodes);
                let what = Late::Decision(Box::new(decision.clone()), Box::new(nodes), generation, created);
                (epoch, what)
            }
            Effect::Ledger { epoch, changes } => (epoch, Late::Ledger(changes.to_vec())),
            Effect::DeleteAlterNode(node) => (Epoch(0), Late::DeleteNode(Box::new(node.clone()))),
        };
        let call = LateCall { what, epoch, lock: self.lock };
        world.effect(&call)
    }

    async fn record(&self, epoch: Epoch, record: &LedgerRecord) -> Result<LedgerRecorded, Failure> {
        let mut world = self.agent()?;
        let recorded = world.database.record_ledger(epoch, record)?;
        if let LedgerRecorded::Audited(drifts) = &recorded
            && let Some(drift) = drifts.first()
        {
            world.violated(format!("an audit corrects the ledger: {drift}"));
        }
        world.judge(Cause::Effect);
        Ok(recorded)
    }

    async fn publish(&self, epoch: Epoch, publication: &Publication) -> Result<(), Failure> {
        let mut world = self.agent()?;
        if !publication.part {
            world.database.end_tick(epoch)?;
        }
        let mutant = world.mutant;
        world.shown.publish(publication, mutant);
        if !publication.part {
            world.judge_shown();
        }
        Ok(())
    }
}

/// What an effect relies on of the nodes: the permit of its engine.
fn nodes_of(decision: &Decision, nodes: &Coordination) -> Coordination {
    let permits = nodes.permits.iter().filter(|node| decision.engine.as_ref() == Some(&node.engine));
    Coordination { permits: permits.cloned().collect(), ..Coordination::default() }
}

/// An alteration of which only the id is known.
fn unknown(id: &RequestId) -> Abort {
    Abort {
        id: id.clone(),
        object: None,
        base_generation: Generation(0),
        statement: String::new(),
        requested_by: String::new(),
        source: Source::default(),
        requested_at_ms: 0,
        decided_by: String::new(),
        reason: String::new(),
    }
}

/// The links of the catalog.
fn links_of(snapshot: &Snapshot) -> Vec<Link> {
    snapshot.catalog.links().into_iter().collect()
}
