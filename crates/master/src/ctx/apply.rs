//! The effects of decisions on the live context, and what guards each.
//!
//! | decision | where | guard |
//! | --- | --- | --- |
//! | permits, drain orders | ZooKeeper | a multi that checks the lock and the nodes as they were observed |
//! | create engine | orchestrator | the name, which is never used twice; the epoch, if the orchestrator keeps one |
//! | delete engine | orchestrator | the uid; the epoch, if the orchestrator keeps one |
//! | uids, ends, incarnations, reservations, progress | database | the epoch's row, locked in the same transaction |
//! | retire | engine agent, then database | the agent's session lock and the uid; then as an incarnation |
//! | scale | engine agents, then database | as retire; then the slots as they were planned, and the epoch's row |

use std::time::Duration;

use agent_api::AgentApi;
use coordination::permit_batch::{self, UidUpdate};
use coordination::{DrainOrder, Lock, Permit, PermitNode, drains, permits};
use model::alteration::RequestId;
use model::end::GivenUp;
use model::engine_name::EngineName;
use model::millis;
use model::observation::{CreatedEngine, EndedEngine, EngineFacts};
use model::owner::Owner;
use model::slot::{Renewal, SlotKey};
use planner::{Action, Decision, Transition};

use super::launch::{self, Launch};
use super::live::{LiveCtx, coordination, orchestration};
use super::{Applied, Expected, Failure};

impl LiveCtx {
    pub(super) async fn apply_decision(
        &self,
        decision: &Decision,
        expected: &Expected<'_>,
    ) -> Result<Applied, Failure> {
        if let Action::Finish { id, transition } = &decision.action {
            return self.finish(id, *transition, &decision.reason, expected).await;
        }
        if let Action::Scale(scaling) = &decision.action {
            return self.scale(scaling, expected).await;
        }
        let engine = decision.engine.as_ref().ok_or_else(|| unfit("no engine"))?;
        match &decision.action {
            Action::CreatePermit { uid, sessions, owner } => {
                let content = (uid.clone(), *sessions, owner.clone());
                self.create_permit(engine, decision.slot.as_ref(), content, expected).await
            }
            Action::CreateEngine(plan) => self.create_engine(engine, plan, expected).await,
            Action::RecordUid { uid, config } => {
                self.record_uid(engine, known(uid.as_deref(), expected)?, config, expected).await
            }
            Action::WritePermitUid { uid, sessions, owner } => {
                let content = (known(uid.as_deref(), expected)?.to_owned(), *sessions, owner.clone());
                self.write_permit_uid(engine, decision.slot.as_ref(), content, expected).await
            }
            Action::WritePermitSessions { sessions } => {
                let seen = permit(expected, engine).ok_or_else(|| unfit("no permit"))?;
                done(permits::set_sessions(&*self.lock()?, seen, *sessions).await)
            }
            Action::DrawIncarnation { observed, failures, replacement, ends } => {
                let slot = decision.slot.clone().ok_or_else(|| unfit("no slot"))?;
                self.draw_incarnation(
                    Renewal {
                        slot,
                        observed: *observed,
                        failures: *failures,
                        replacement: *replacement,
                        condemn: None,
                        ends: ends.map(|class| GivenUp { class, reason: decision.reason.clone() }),
                    },
                    expected,
                )
                .await
            }
            Action::RecordEnd { reason, class, log_tail } => {
                let (name, reason, log_tail) = (engine.clone(), reason.clone(), log_tail.clone());
                let ended = EndedEngine { name, reason, class: Some(*class), log_tail };
                let epoch = expected.epoch;
                let write = |ended: Vec<EndedEngine>| async move {
                    let count = ended.len();
                    let served = ended.iter().filter_map(|ended| self.statuses().served(&ended.name));
                    let facts = EngineFacts { served: served.collect(), ended, ..EngineFacts::default() };
                    vec![self.record_facts(epoch, &facts).await.map(drop); count]
                };
                self.batchers.ends.write(ended, epoch, write).await?;
                Ok(Applied::Done)
            }
            Action::Drain { uid, grace, withdraw, successor, namespace } => {
                let (uid, reason, namespace) = (Some(uid.clone()), decision.reason.clone(), namespace.clone());
                let order = DrainOrder { uid, grace_ms: millis::from_duration(*grace), reason, namespace };
                let seen = permit(expected, engine).filter(|_| *withdraw);
                done(drains::drain(&*self.lock()?, engine, seen, successor.as_ref(), &order).await)
            }
            Action::DeleteEngine { uid, grace } => self.delete_engine(engine, uid, *grace, expected).await,
            Action::DeletePermit => {
                let lock = self.lock()?;
                match permit(expected, engine) {
                    Some(seen) => done(permits::delete(&lock, seen).await),
                    None if expected.nodes.unread.permits.contains(engine) => {
                        delete_unread(&lock, engine, expected).await
                    }
                    None => Err(unfit("no permit")),
                }
            }
            Action::RemoveDrainOrder => done(drains::remove(&*self.lock()?, engine).await),
            Action::Retire { uid, observed, reclaimed_for } => {
                let slot = decision.slot.clone().ok_or_else(|| unfit("no slot"))?;
                self.retire((engine, uid), (slot, *observed), reclaimed_for, expected).await
            }
            Action::Ledger(_) => Err(unfit("a change of the ledger that does not lead its chain")),
            Action::Scale(_) | Action::Finish { .. } => Ok(Applied::Done),
        }
    }

    async fn create_permit(
        &self,
        engine: &EngineName,
        slot: Option<&SlotKey>,
        (uid, sessions, owner): (Option<String>, Option<u32>, Option<Owner>),
        expected: &Expected<'_>,
    ) -> Result<Applied, Failure> {
        let permit = permit_of(slot.ok_or_else(|| unfit("no slot"))?, uid, (sessions, owner));
        let create = |wanted: Vec<(EngineName, Permit)>| async move {
            match self.lock() {
                Ok(lock) => answers(permit_batch::create(&lock, &wanted).await),
                Err(failure) => vec![Err(failure); wanted.len()],
            }
        };
        self.batchers.permits.write((engine.clone(), permit), expected.epoch, create).await?;
        Ok(Applied::Done)
    }

    /// An unobserved permit was created by this chain: no other writer creates any under this lock.
    async fn write_permit_uid(
        &self,
        engine: &EngineName,
        slot: Option<&SlotKey>,
        (uid, sessions, owner): (String, Option<u32>, Option<Owner>),
        expected: &Expected<'_>,
    ) -> Result<Applied, Failure> {
        let (permit, version) = match (permit(expected, engine), slot) {
            (None, Some(slot)) => (permit_of(slot, Some(uid), (sessions, owner)), 0),
            (Some(PermitNode { content: Ok(permit), version, .. }), _) if permit.uid.as_ref() != Some(&uid) => {
                (Permit { uid: Some(uid), ..permit.clone() }, *version)
            }
            _ => return done(permits::record_uid(&*self.lock()?, engine, &uid).await),
        };
        let write = |known: Vec<UidUpdate>| async move {
            match self.lock() {
                Ok(lock) => answers(permit_batch::record_uids(&lock, &known).await),
                Err(failure) => vec![Err(failure); known.len()],
            }
        };
        let known = UidUpdate { engine: engine.clone(), permit, version };
        self.batchers.permit_uids.write(known, expected.epoch, write).await?;
        Ok(Applied::Done)
    }

    async fn create_engine(
        &self,
        engine: &EngineName,
        plan: &planner::DesiredEngine,
        expected: &Expected<'_>,
    ) -> Result<Applied, Failure> {
        let launch = Launch {
            engine,
            slot: &plan.labels.slot,
            incarnation: plan.labels.incarnation,
            labels: &plan.labels,
            configuration: &plan.configuration,
            charge: &plan.charge,
            nodes: plan.nodes.as_deref(),
            node_selector: &plan.node_selector,
            generation: expected.generation,
            epoch: expected.epoch,
            user: plan.user.as_deref(),
        };
        let spec = launch::complete(&*self.deps.launcher, &launch).map_err(|error| Failure::Refused(error.text()))?;
        let ensured =
            self.deps.orchestrator.ensure(&spec, expected.epoch).await.map_err(|error| orchestration(&error))?;
        Ok(Applied::Created { uid: ensured.uid })
    }

    /// The uid is recorded once: if another one is, the new instance is not the engine.
    async fn record_uid(
        &self,
        engine: &EngineName,
        uid: &str,
        config: &str,
        expected: &Expected<'_>,
    ) -> Result<Applied, Failure> {
        let created = CreatedEngine { name: engine.clone(), uid: uid.to_owned(), config: config.to_owned() };
        let epoch = expected.epoch;
        let write = |created: Vec<CreatedEngine>| async move {
            let count = created.len();
            vec![self.record_facts(epoch, &EngineFacts { created, ..EngineFacts::default() }).await; count]
        };
        let recorded = self.batchers.uids.write(created, epoch, write).await?;
        if let Some((_, other)) = recorded.other_uid.iter().find(|(name, _)| name == engine) {
            return Err(Failure::Moved(format!("uid {other} is recorded for engine {engine}")));
        }
        if recorded.unknown.contains(engine) {
            return Err(Failure::Moved(format!("the name {engine} was never issued")));
        }
        Ok(Applied::Done)
    }

    /// Batched, because a changed default renews thousands of slots in one tick and each transaction reads the whole catalog.
    pub(super) async fn draw_incarnation(&self, renewal: Renewal, expected: &Expected<'_>) -> Result<Applied, Failure> {
        let epoch = expected.epoch;
        let write = |renewals: Vec<Renewal>| async move {
            let all = &renewals;
            match self.deps.agents.call(|agent| async move { agent.new_incarnations(epoch, all).await }).await {
                Ok(drawn) => drawn.into_iter().map(|drawn| drawn.map(drop).map_err(Failure::Moved)).collect(),
                Err(failure) => vec![Err(failure); renewals.len()],
            }
        };
        self.batchers.incarnations.write(renewal, epoch, write).await?;
        Ok(Applied::Done)
    }

    async fn delete_engine(
        &self,
        engine: &EngineName,
        uid: &str,
        grace: Duration,
        expected: &Expected<'_>,
    ) -> Result<Applied, Failure> {
        match self.deps.orchestrator.delete(engine, uid, grace, expected.epoch).await {
            Ok(_) | Err(orchestrator::Error::Gone { .. }) => Ok(Applied::Done),
            Err(error) => Err(orchestration(&error)),
        }
    }

    async fn finish(
        &self,
        id: &RequestId,
        transition: Transition,
        reason: &str,
        expected: &Expected<'_>,
    ) -> Result<Applied, Failure> {
        let (epoch, generation) = (expected.epoch, expected.generation);
        let after = self.deps.alter_deadline();
        let agents = &self.deps.agents;
        let progress = match transition {
            Transition::Converged => {
                agents.call(|agent| async move { agent.finish(epoch, id, generation).await }).await?
            }
            Transition::Stalled => {
                agents.call(|agent| async move { agent.stalled(epoch, id, after, reason).await }).await?
            }
            Transition::Superseded => agents.call(|agent| async move { agent.superseded(epoch, id).await }).await?,
        };
        Ok(Applied::Progress(progress))
    }
}

/// The uid of the decision, or the one that the create before it returned.
fn known<'a>(uid: Option<&'a str>, expected: &Expected<'a>) -> Result<&'a str, Failure> {
    uid.or(expected.created).ok_or_else(|| unfit("no uid"))
}

pub(super) fn permit<'a>(expected: &Expected<'a>, engine: &EngineName) -> Option<&'a PermitNode> {
    // Sorted by name; there may be thousands, each with a decision.
    let at = expected.nodes.permits.binary_search_by(|permit| permit.engine.cmp(engine)).ok()?;
    expected.nodes.permits.get(at).map(AsRef::as_ref)
}

/// Deletes a permit of which only the name was read. The plan assumed that it is unregistered; if an engine is registered
/// below it, it stays, unless that engine has a drain order.
async fn delete_unread(lock: &Lock, engine: &EngineName, expected: &Expected<'_>) -> Result<Applied, Failure> {
    let seen = permits::read(lock.session(), engine).await.map_err(|error| coordination(&error))?;
    let Some(seen) = seen else { return Ok(Applied::Done) };
    let drains = expected.nodes.unread.drains.contains(engine)
        || expected.nodes.drains.iter().any(|drain| drain.engine == *engine);
    if seen.registration.is_some() && !drains {
        return Err(Failure::Moved(format!("engine {engine} is registered")));
    }
    done(permits::delete(lock, &seen).await)
}

fn permit_of(slot: &SlotKey, uid: Option<String>, (sessions, owner): (Option<u32>, Option<Owner>)) -> Permit {
    let SlotKey { tenant, pool, unit, .. } = slot.clone();
    Permit { tenant, pool, unit, uid, sessions, owner }
}

fn answers(results: Vec<Result<(), coordination::Error>>) -> Vec<Result<(), Failure>> {
    results.into_iter().map(|result| result.map_err(|error| coordination(&error))).collect()
}

fn done(result: Result<(), coordination::Error>) -> Result<Applied, Failure> {
    result.map(|()| Applied::Done).map_err(|error| coordination(&error))
}

/// A decision without what its effect needs: the next plan corrects it.
pub(super) fn unfit(what: &str) -> Failure {
    Failure::Moved(format!("the decision has {what}"))
}
