//! The effects of a master: what a call changes in ZooKeeper, in the orchestrator and in the database, and the faults of the call
//! itself.
//!
//! A call of a master that was deposed arrives like any other; what it changes is refused by epoch, lock and uid.

use std::time::Duration;

use coordination::{DrainOrder, Permit, PermitNode};
use master::{Applied, Expected, Failure, GuardedDecision};
use model::alteration::AlterationProgress;
use model::engine_name::EngineName;
use model::number::{Epoch, Generation};
use model::owner::Owner;
use model::scaling::SlotsSeen;
use model::slot::SlotKey;
use orchestrator::memory::{Behaviour, End};
use orchestrator::{Orchestrator as _, Spec};
use planner::{Action, Decision, DesiredEngine, Scaling};

use crate::activity::Cause;
use crate::event::Event;
use crate::in_effect::take;
use crate::judge::Excess;
use crate::late_call::{Late, LateCall};
use crate::mutant::Mutant;
use crate::state::{State, ready};

impl State {
    /// An effect arrives, unless a fault intervenes.
    pub fn effect(&mut self, call: &LateCall) -> Result<Applied, Failure> {
        if let Some((effects, late)) = self.faults.depose {
            self.faults.depose = effects.checked_sub(1).map(|left| (left, late));
            if effects == 0 {
                if let Some(after) = late {
                    self.schedule(after, Event::Late(Box::new(call.clone())));
                }
                self.nodes.lock = None;
                let after = self.rng.millis(1, 12_000);
                self.schedule(after, Event::Elect);
                return Err(Failure::Lost("the session has expired".to_owned()));
            }
        }
        let is_lost = match self.faults.reply_lost {
            Some((0, after)) => {
                self.faults.reply_lost = None;
                if let Some(after) = after {
                    self.schedule(after, Event::Late(Box::new(call.clone())));
                }
                true
            }
            Some((effects, after)) => {
                self.faults.reply_lost = Some((effects - 1, after));
                false
            }
            None => false,
        };
        let applied = self.arrives(call);
        if is_lost && applied.is_ok() { Err(Failure::Unknown("the answer is lost".to_owned())) } else { applied }
    }

    /// A call of a deposed master arrives, or one is repeated.
    pub fn arrives_late(&mut self, call: &LateCall) {
        self.activity.late_calls += 1;
        let current = self.database.master().epoch;
        let is_of_database = match &call.what {
            Late::Ledger(_) => true,
            Late::DeleteNode(_) => false,
            Late::Decision(decision, ..) => matches!(
                decision.action,
                Action::RecordUid { .. } | Action::RecordEnd { .. } | Action::DrawIncarnation { .. } | Action::Scale(_)
            ),
        };
        self.waiting_when_read = None;
        self.judge.is_late = true;
        let is_outdated = match &call.what {
            Late::Decision(decision, ..) => match &decision.action {
                Action::Scale(scaling) => {
                    !SlotsSeen::of(self.database.slots_of(&scaling.slots.link)).are_those_of(&scaling.slots.seen)
                }
                _ => false,
            },
            Late::Ledger(_) | Late::DeleteNode(_) => false,
        };
        let arrived = self.arrives(call);
        self.judge.is_late = false;
        if is_outdated && arrived == Ok(Applied::Done) {
            self.violated("a late call scales slots that are not those of its plan".to_owned());
        }
        if arrived.is_ok_and(|applied| applied != Applied::Declined) && is_of_database && call.epoch < current {
            self.violated(format!("a write of epoch {} takes effect under epoch {current}", call.epoch));
        }
    }

    fn arrives(&mut self, call: &LateCall) -> Result<Applied, Failure> {
        match &call.what {
            Late::Ledger(changes) => {
                if self.now < self.faults.away_until {
                    return Err(Failure::Unavailable("no metadata agent".to_owned()));
                }
                let before = Excess::new(&self.database.state().ledger);
                let decided = self.database.change_ledger(call.epoch, changes)?;
                self.judge_grants(&before, changes);
                self.judge(Cause::Effect);
                Ok(Applied::Decided(decided))
            }
            Late::DeleteNode(seen) => {
                if self.mutant == Some(Mutant::ConvergedWaitsForReadiness) && !self.is_ready(seen) {
                    return Err(Failure::Moved("an engine is not registered".to_owned()));
                }
                let node = self.nodes.alter.clone();
                self.nodes.delete_alter(call.lock, seen)?;
                if self.nodes.alter.is_none() {
                    self.judge_deleted_node(node.as_ref());
                    self.alter_node_deleted();
                }
                Ok(Applied::Done)
            }
            Late::Decision(decision, nodes, generation, created) => {
                let expected =
                    Expected { epoch: call.epoch, generation: *generation, nodes, created: created.as_deref() };
                let guarded = GuardedDecision { decision, expected };
                let applied = self.decide(&guarded, call.lock);
                let cause = if matches!(decision.action, Action::Scale(_)) { Cause::Scale } else { Cause::Effect };
                self.judge(cause);
                applied
            }
        }
    }

    fn decide(&mut self, guarded: &GuardedDecision<'_>, lock: u64) -> Result<Applied, Failure> {
        let GuardedDecision { decision, expected } = guarded;
        let numbers = (expected.epoch, expected.generation);
        if let Action::Scale(scaling) = &decision.action {
            return self.scale(scaling, expected.epoch);
        }
        let Some(engine) = &decision.engine else {
            self.check_agents()?;
            let applied = self.database.apply(decision, numbers, None);
            if let (Action::Finish { id, .. }, Ok(Applied::Progress(AlterationProgress::Converged))) =
                (&decision.action, &applied)
            {
                self.judge_converged(id);
            }
            return applied;
        };
        let seen = expected.nodes.permits.iter().find(|permit| permit.engine == *engine);
        let done = |result: Result<(), Failure>| result.map(|()| Applied::Done);
        match &decision.action {
            Action::CreatePermit { uid, sessions, owner } => {
                let slot = decision.slot.as_ref().ok_or_else(|| Failure::Moved("no slot".to_owned()))?;
                let permit = permit_of(slot, (uid.clone(), *sessions), owner.clone());
                done(self.nodes.create_permit(lock, engine, permit))
            }
            Action::CreateEngine(desired) => {
                self.judge_decision(guarded);
                self.create(engine, desired, numbers)
            }
            Action::WritePermitUid { uid, .. } => {
                let uid = uid.as_deref().or(expected.created).map(str::to_owned);
                done(self.nodes.change_permit(lock, engine, seen.map(|seen| seen.version), |permit| permit.uid = uid))
            }
            Action::WritePermitSessions { sessions } => {
                let version = seen.map(|seen| seen.version);
                done(self.nodes.change_permit(lock, engine, version, |permit| permit.sessions = *sessions))
            }
            Action::Drain { .. } if self.mutant == Some(Mutant::KilledWithoutOrder) => {
                self.kill(engine, decision, guarded, expected.epoch)
            }
            Action::Drain { uid, grace, withdraw, successor, namespace } => {
                let order = DrainOrder {
                    uid: Some(uid.clone()),
                    grace_ms: grace.as_millis() as i64,
                    reason: decision.reason.clone(),
                    namespace: namespace.clone(),
                };
                let seen: Option<&PermitNode> = seen.filter(|_| *withdraw).map(AsRef::as_ref);
                self.disturb_drain(engine, successor.as_ref());
                let drained = self.nodes.drain(lock, engine, seen, successor.as_ref(), order);
                if self.nodes.drains.contains_key(engine) {
                    self.judge_drain(engine, uid);
                }
                drained?;
                let after = self.rng.millis(10, 200);
                let is_expiry = self.mutant == Some(Mutant::DrainIsExpiry);
                let noticed = if is_expiry {
                    Event::Register(engine.clone(), uid.clone())
                } else {
                    Event::DrainRead(engine.clone())
                };
                self.schedule(after, noticed);
                Ok(Applied::Done)
            }
            Action::DeleteEngine { uid, grace } => {
                self.judge_decision(guarded);
                self.delete(engine, uid, *grace, expected.epoch)
            }
            Action::DeletePermit => {
                let seen = seen.ok_or_else(|| Failure::Moved("no permit".to_owned()))?;
                done(self.nodes.delete_permit(lock, seen))
            }
            Action::RemoveDrainOrder => done(self.nodes.remove_drain(lock, engine)),
            Action::Retire { uid, .. } => {
                if !self.agrees(engine, uid) {
                    return Ok(Applied::Declined);
                }
                self.check_agents()?;
                self.database.apply(decision, numbers, None)
            }
            _ => {
                self.judge_decision(guarded);
                self.check_agents()?;
                self.database.apply(decision, numbers, expected.created)
            }
        }
    }

    fn check_agents(&self) -> Result<(), Failure> {
        let is_away = self.now < self.faults.away_until;
        if is_away { Err(Failure::Unavailable("no metadata agent".to_owned())) } else { Ok(()) }
    }

    fn create(
        &mut self,
        engine: &EngineName,
        desired: &DesiredEngine,
        (epoch, generation): (Epoch, Generation),
    ) -> Result<Applied, Failure> {
        let mut spec = Spec::new(engine.clone(), vec!["/opt/engine".to_owned()]);
        spec.labels.extend(desired.labels.encode());
        spec.generation = generation;
        spec.charge = desired.charge;
        spec.nodes.clone_from(&desired.nodes);
        let is_slow = self.now < self.faults.slow_until;
        let starts_after = if is_slow { self.rng.millis(30_000, 290_000) } else { self.rng.millis(500, 8_000) };
        let starts_after = self.start_takes.unwrap_or(starts_after);
        let mut behaviour = Behaviour { starts_after, ..Behaviour::default() };
        if take(&mut self.faults.early_exits) {
            let after = self.rng.millis(100, 20_000);
            behaviour.ends = Some((after, End::code(1).with_reason("the catalog is not reachable")));
        }
        self.memory.behave_as(engine, behaviour);
        self.disturb_create();
        let ensured =
            ready(self.memory.ensure(&spec, epoch)).unwrap_or_else(|| Err(orchestrator::Error::transient("")));
        let found = ready(self.memory.get(engine, None)).and_then(Result::ok).flatten();
        // A reply may be lost: the instance is there all the same.
        if let Some(found) = found.filter(|found| self.agents.get(engine).is_none_or(|agent| agent.uid != found.uid)) {
            let machine = found.node.as_deref().unwrap_or_default();
            self.engine_created(engine, (&found.uid, machine), generation, starts_after);
        }
        ensured.map(|ensured| Applied::Created { uid: ensured.uid }).map_err(|error| failure(&error))
    }

    fn delete(&mut self, engine: &EngineName, uid: &str, grace: Duration, epoch: Epoch) -> Result<Applied, Failure> {
        if self.is_down(engine) && self.agents.get(engine).is_some_and(|agent| agent.uid == uid && !agent.has_ended) {
            self.delete_unreachable(engine);
            return Ok(Applied::Done);
        }
        let deleted = ready(self.memory.delete(engine, uid, grace, epoch));
        self.memory.settle();
        self.notice_ended();
        match deleted {
            Some(Ok(_) | Err(orchestrator::Error::Gone { .. })) => Ok(Applied::Done),
            Some(Err(error)) => Err(failure(&error)),
            None => Err(Failure::Unavailable("the API server is away".to_owned())),
        }
    }

    /// Deletes the engine that should be drained, which only a mutant does.
    fn kill(
        &mut self,
        engine: &EngineName,
        decision: &Decision,
        guarded: &GuardedDecision<'_>,
        epoch: Epoch,
    ) -> Result<Applied, Failure> {
        let Action::Drain { uid, .. } = &decision.action else { return Ok(Applied::Done) };
        let action = Action::DeleteEngine { uid: uid.clone(), grace: Duration::ZERO };
        let deletion = Decision { action, ..decision.clone() };
        self.judge_decision(&GuardedDecision { decision: &deletion, expected: guarded.expected });
        self.delete(engine, uid, Duration::ZERO, epoch)
    }

    /// Asks an agent to retire, with the idle time that it last reported.
    fn agrees(&mut self, engine: &EngineName, uid: &str) -> bool {
        let (now, mutant) = (self.now, self.mutant);
        let Some((seen, _)) = self.agents.get(engine).and_then(|agent| agent.reported) else { return false };
        let idle = seen.idle_for;
        let is_registered = self.nodes.registration(engine).is_some_and(|live| live.uid == uid);
        let agent = self.agents.get_mut(engine).filter(|agent| is_registered && agent.uid == uid && agent.answers(now));
        agent.is_some_and(|agent| agent.retire(idle, now, mutant))
    }

    fn scale(&mut self, scaling: &Scaling, epoch: Epoch) -> Result<Applied, Failure> {
        self.judge_scaling(scaling);
        let mut slots = scaling.slots.clone();
        for release in &scaling.release {
            if self.agrees(&release.engine, &release.uid) {
                slots.remove.push(release.slot.clone());
            }
        }
        if slots.added() == 0 && slots.remove.is_empty() {
            return Ok(Applied::Declined);
        }
        // The agents of engines have answered; the transaction follows.
        if let Some(event) = self.faults.before_scaling.take() {
            self.happen_at_once(*event);
        }
        let took = self.rng.millis(1, 15);
        self.pass(took);
        self.check_agents()?;
        self.database.scale(epoch, &slots)?;
        let released = slots.remove.len() - scaling.slots.remove.len();
        self.activity.released += released as u64;
        self.activity.cancelled += scaling.slots.remove.len() as u64;
        Ok(Applied::Done)
    }
}

fn permit_of(slot: &SlotKey, (uid, sessions): (Option<String>, Option<u32>), owner: Option<Owner>) -> Permit {
    let SlotKey { tenant, pool, unit, .. } = slot.clone();
    Permit { tenant, pool, unit, uid, sessions, owner }
}

fn failure(error: &orchestrator::Error) -> Failure {
    match error {
        orchestrator::Error::Deposed { .. } => Failure::Deposed(error.to_string()),
        orchestrator::Error::Refused { .. } => Failure::Refused(error.to_string()),
        orchestrator::Error::Limit { .. } | orchestrator::Error::Unreadable { .. } => {
            Failure::Blocked(error.to_string())
        }
        orchestrator::Error::Conflict { .. } | orchestrator::Error::Gone { .. } => Failure::Moved(error.to_string()),
        orchestrator::Error::Transient { .. } => Failure::Unavailable(error.to_string()),
    }
}
