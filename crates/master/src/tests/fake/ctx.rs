//! How the fake does what a master asks for.

use std::time::Duration;

use async_trait::async_trait;
use coordination::{AlterNode, Observation as Coordinated};
use model::alteration::{Abort, AlterationRecord, ObjectKind, ObjectRef, Outcome, RequestId};
use model::engine_name::EngineName;
use model::error::ErrorKind;
use model::number::Epoch;
use model::observation::Publication;
use model::snapshot::{MasterRecord, Snapshot};
use planner::{Action, Decision, EngineLoad, Instance};

use super::{Fake, record};
use crate::ctx::{ControllerCtx, Effect, Engines, Expected, Failure};

#[async_trait]
impl ControllerCtx for Fake {
    fn now(&self) -> Duration {
        let state = self.state();
        state.now + state.running_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn holds_lease(&self) -> bool {
        self.state().holds_lease
    }

    fn session_expired(&self) -> bool {
        self.state().over
    }

    async fn woken(&self) {
        std::future::pending::<()>().await;
    }

    async fn still_held(&self) -> Result<bool, Failure> {
        Ok(self.state().held)
    }

    async fn master(&self) -> Result<MasterRecord, Failure> {
        let state = self.state();
        state.reachable()?;
        Ok(state.master.clone())
    }

    async fn raise_epoch(&self, read: Epoch) -> Result<MasterRecord, Failure> {
        let mut state = self.state();
        state.guard(read)?;
        state.master.epoch = read.next();
        Ok(state.master.clone())
    }

    async fn coordinated(&self) -> Result<Coordinated, Failure> {
        let slow = self.state().slow;
        if !slow.is_zero() {
            tokio::time::sleep(slow).await;
        }
        let state = self.state();
        Ok(Coordinated {
            alter: state.alter.clone(),
            agents: state.agents.clone(),
            permits: state.permits(),
            drains: state.drains(),
            unread: state.unread.clone(),
        })
    }

    async fn engines(&self) -> Result<Engines, Failure> {
        let state = self.state();
        if !state.orchestrator {
            return Err(Failure::Unknown("it does not answer".to_owned()));
        }
        Ok(Engines {
            instances: state.simulation.observed.instances.iter().chain(&state.ghosts).cloned().collect(),
            cluster_warnings: state.cluster_warnings.clone(),
            nodes: Some(state.nodes.clone()),
            ..Engines::default()
        })
    }

    async fn engine(&self, name: &EngineName, namespace: Option<&str>) -> Result<Option<Instance>, Failure> {
        {
            let mut state = self.state();
            state.asked += 1;
            state.asked_in.push(namespace.map(str::to_owned));
        }
        let endless = self.state().endless;
        if endless {
            std::future::pending::<()>().await;
        }
        let mut state = self.state();
        if state.silent.contains(name) {
            return Err(Failure::Unknown("it does not answer".to_owned()));
        }
        state.ghosts.retain(|instance| instance.name != *name);
        Ok(state.simulation.observed.instances.iter().find(|instance| instance.name == *name).cloned())
    }

    async fn outcome(&self, id: &RequestId) -> Result<Option<AlterationRecord>, Failure> {
        let mut state = self.state();
        state.reachable()?;
        let known = state.records.get(id).cloned();
        if let Some(late) = state.late.take() {
            state.records.insert(late.id.clone(), late);
        }
        if state.stands_still {
            state.holds_lease = false;
        }
        Ok(known)
    }

    async fn abort(&self, abort: &Abort) -> Result<AlterationRecord, Failure> {
        let mut state = self.state();
        state.reachable()?;
        if state.unsettled {
            return Err(Failure::Unknown("a transaction holds the row".to_owned()));
        }
        state.aborts.push(abort.clone());
        if state.takes_no_statement && !abort.statement.is_empty() {
            return Err(Failure::Refused("the statement has a character that cannot be stored".to_owned()));
        }
        let aborted = record(abort.id.as_str(), ObjectRef { kind: ObjectKind::ResourceUnit, name: "uc_1".to_owned() });
        Ok(state.records.entry(abort.id.clone()).or_insert(aborted).clone())
    }

    async fn delete_alter_node(&self, seen: &AlterNode) -> Result<(), Failure> {
        let mut state = self.state();
        if state.alter.as_ref() != Some(seen) {
            return Err(Failure::Moved("the node has changed".to_owned()));
        }
        for child in &seen.children {
            let record = state.records.get(&child.id).unwrap_or_else(|| panic!("{} is undecided", child.id));
            let known = record.generation <= state.simulation.desired.snapshot.catalog.generation;
            assert!(
                record.outcome == Outcome::Aborted || known,
                "the node of an alteration that no tick acted on is deleted"
            );
        }
        state.alter = None;
        state.effects.push("delete alter node".to_owned());
        Ok(())
    }

    async fn snapshot(&self) -> Result<Snapshot, Failure> {
        let state = self.state();
        state.reachable()?;
        Ok(Snapshot { master: state.master.clone(), ..state.simulation.desired.snapshot.clone() })
    }

    async fn apply(&self, decision: &Decision, expected: &Expected<'_>) -> Result<Effect, Failure> {
        let words = format!("{} {}", decision.verb(), decision.engine.as_ref().map_or("", EngineName::as_str));
        let hangs = self.state().hanging.iter().any(|part| words.contains(part.as_str()));
        if hangs {
            std::future::pending::<()>().await;
        }
        let mut state = self.state();
        state.guard(expected.epoch)?;
        assert!(state.holds_lease, "an effect of a master that may not act");
        state.effects.push(words.clone());
        if let Some((_, failure)) = state.failing.iter().find(|(part, _)| words.contains(part.as_str())) {
            return Err(failure.clone());
        }
        if let Some(at) = state.before.iter().position(|(effect, _)| *effect == words) {
            let (_, happens) = state.before.remove(at);
            happens(&mut state, decision.engine.as_ref().unwrap());
        }
        if let Some(why) = state.moved(decision, expected.seen) {
            return Err(Failure::Moved(why));
        }
        let effect = if let Action::Finish { id, transition } = &decision.action {
            state.finish(decision, id, *transition)
        } else {
            let mut made = expected.made.map(str::to_owned);
            state.simulation.apply_one(decision, &mut made);
            match (&decision.action, made) {
                (Action::CreateEngine(_), Some(uid)) => Effect::Made { uid },
                _ => Effect::Done,
            }
        };
        if let Some(left) = &mut state.stop_after {
            *left = left.saturating_sub(1);
            if *left == 0 {
                state.holds_lease = false;
                state.stop_after = None;
            }
        }
        if state.losing.iter().any(|part| words.contains(part.as_str())) {
            return Err(Failure::Unknown("the answer was lost".to_owned()));
        }
        Ok(effect)
    }

    async fn publish(&self, epoch: Epoch, report: &Publication) -> Result<(), Failure> {
        let mut state = self.state();
        state.guard(epoch)?;
        if std::mem::take(&mut state.late_report) {
            state.master.last_tick_ms += 1;
        }
        if report.after_tick_ms != Some(state.master.last_tick_ms) {
            return Err(Failure::Moved("a later report was written".to_owned()));
        }
        if !report.part {
            state.master.last_tick_ms += 1;
        }
        state.reports.push(report.clone());
        Ok(())
    }

    async fn status(&self, engine: &EngineName, _: &str) -> Result<EngineLoad, Failure> {
        let (known, silent) = {
            let state = self.state();
            (state.statuses.get(engine).copied(), state.silent.contains(engine))
        };
        if let Some(status) = known {
            return Ok(status);
        }
        if silent {
            std::future::pending::<()>().await;
        }
        Err(Failure::Unavailable(ErrorKind::Unavailable.sqlstate().to_owned()))
    }
}
