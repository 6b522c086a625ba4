//! The fake as a context.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use coordination::{AlterNode, Observation as Coordination};
use model::alteration::{Abort, AlterationRecord, ObjectKind, ObjectRef, Outcome, RequestId};
use model::demand::Demand;
use model::engine_name::EngineName;
use model::ledger::{LedgerRecord, LedgerRecorded};
use model::name::TenantName;
use model::number::Epoch;
use model::observation::Publication;
use model::snapshot::{MasterRecord, Snapshot};
use planner::{Action, Instance, Probe};

use super::journal::Entry;
use super::{Fake, record};
use crate::ctx::{
    Applied, ControllerCtx, Effect, Failure, GuardedDecision, InstanceList, Lease, LeaseState, Observation,
};

#[async_trait]
impl Lease for Fake {
    fn state(&self) -> LeaseState {
        self.state().lease
    }

    async fn raise_epoch(&self) -> Result<MasterRecord, Failure> {
        let mut state = self.state();
        state.begin("database: raise epoch")?;
        let master = state.master();
        master.epoch = master.epoch.next();
        Ok(master.clone())
    }
}

#[async_trait]
impl ControllerCtx for Fake {
    fn clock(&self) -> Duration {
        let state = self.state();
        state.now() + state.script.elapsed()
    }

    fn lease(&self) -> &dyn Lease {
        self
    }

    async fn wait(&self) {
        std::future::pending::<()>().await;
    }

    async fn observe(&self) -> Result<Observation, Failure> {
        self.delay("zookeeper: read").await;
        let mut state = self.state();
        let coordination = Coordination { permits: state.permits(), drains: state.drains(), ..state.zookeeper.clone() };
        let instances = state.begin("orchestrator: list").map(|()| InstanceList {
            instances: state.simulation.observed.instances.iter().chain(&state.list.instances).cloned().collect(),
            ..state.list.clone()
        });
        let uses = state.simulation.observed.scaling.uses.clone();
        Ok(Observation { coordination, instances, loads: state.simulation.observed.loads.clone(), uses })
    }

    async fn probe(&self, probe: &Probe) -> Result<Option<Instance>, Failure> {
        let call = format!("orchestrator: probe {}", probe.engine);
        self.state().journal.push(Entry::Probe(probe.namespace.clone()));
        self.delay(&call).await;
        let mut state = self.state();
        state.begin(&call)?;
        state.list.instances.retain(|instance| instance.name != probe.engine);
        let found = state.simulation.observed.instances.iter().find(|instance| instance.name == probe.engine);
        Ok(found.map(|instance| Instance::clone(instance)))
    }

    async fn snapshot(&self) -> Result<Snapshot, Failure> {
        let mut state = self.state();
        state.begin("database: snapshot")?;
        Ok(state.simulation.desired.snapshot.clone())
    }

    async fn demand(&self, _: &mut Observation, _: &BTreeSet<TenantName>) -> Result<Vec<Demand>, Failure> {
        let mut state = self.state();
        state.begin("database: demand")?;
        Ok(state.simulation.desired.snapshot.demand.clone())
    }

    async fn settle(&self, id: &RequestId, abort: Option<&Abort>) -> Result<Option<AlterationRecord>, Failure> {
        let mut state = self.state();
        if let Some(abort) = abort {
            return state.abort(abort).map(Some);
        }
        let call = format!("database: outcome {id}");
        state.begin(&call)?;
        let known = state.records.get(id).cloned();
        state.end(&call)?;
        Ok(known)
    }

    async fn apply(&self, effect: Effect<'_>) -> Result<Applied, Failure> {
        match effect {
            Effect::Decision(guarded) => self.apply_decision(guarded).await,
            Effect::Ledger { epoch, changes } => self.change_ledger(epoch, changes).await,
            Effect::DeleteAlterNode(node) => self.delete_alter_node(node),
        }
    }

    async fn record(&self, epoch: Epoch, record: &LedgerRecord) -> Result<LedgerRecorded, Failure> {
        self.record_ledger(epoch, record)
    }

    async fn publish(&self, epoch: Epoch, publication: &Publication) -> Result<(), Failure> {
        let mut state = self.state();
        state.guard(epoch)?;
        state.begin("database: publish")?;
        if publication.after_tick_ms != Some(state.master().last_tick_ms) {
            return Err(Failure::Moved("a later report was written".to_owned()));
        }
        if !publication.part {
            state.master().last_tick_ms += 1;
        }
        state.journal.push(Entry::Publication(publication.clone()));
        Ok(())
    }
}

impl super::State {
    fn abort(&mut self, abort: &Abort) -> Result<AlterationRecord, Failure> {
        self.journal.push(Entry::Abort(abort.clone()));
        self.begin(&format!("database: abort {} {}", abort.id, abort.statement))?;
        let object = ObjectRef { kind: ObjectKind::ResourceUnit, name: "uc_1".to_owned() };
        let aborted = record(abort.id.as_str(), object);
        Ok(self.records.entry(abort.id.clone()).or_insert(aborted).clone())
    }
}

impl Fake {
    fn delete_alter_node(&self, seen: &AlterNode) -> Result<Applied, Failure> {
        let mut state = self.state();
        if state.zookeeper.alter.as_ref() != Some(seen) {
            return Err(Failure::Moved("the node has changed".to_owned()));
        }
        for child in &seen.children {
            let record = state.records.get(&child.id).unwrap_or_else(|| panic!("{} is in doubt", child.id));
            let acted_on = record.generation <= state.simulation.desired.snapshot.catalog.generation;
            assert!(
                record.outcome == Outcome::Aborted || acted_on,
                "the node of an alteration that no tick acted on is deleted"
            );
        }
        state.zookeeper.alter = None;
        state.journal.push(Entry::Effect("delete alter node".to_owned()));
        Ok(Applied::Done)
    }

    async fn apply_decision(&self, guarded: GuardedDecision<'_>) -> Result<Applied, Failure> {
        let GuardedDecision { decision, expected } = guarded;
        let effect = format!("{} {}", decision.verb(), decision.engine.as_ref().map_or("", EngineName::as_str));
        let call = format!("effect: {effect}");
        self.delay(&call).await;
        let mut state = self.state();
        state.guard(expected.epoch)?;
        assert!(state.lease.is_valid(), "an effect without a valid lease");
        state.journal.push(Entry::Effect(effect));
        state.begin(&call)?;
        if let Some(reason) = state.moved(decision, expected.nodes) {
            return Err(Failure::Moved(reason));
        }
        if state.declines && matches!(decision.action, Action::Retire { .. } | Action::Scale(_)) {
            return Ok(Applied::Declined);
        }
        let applied = if let Action::Finish { id, transition } = &decision.action {
            state.finish(decision, id, *transition)
        } else {
            let mut created = expected.created.map(str::to_owned);
            assert!(state.simulation.apply_one(decision, &mut created), "a change of the ledger within a chain");
            match (&decision.action, created) {
                (Action::CreateEngine(_), Some(uid)) => Applied::Created { uid },
                _ => Applied::Done,
            }
        };
        state.end(&call)?;
        Ok(applied)
    }
}
