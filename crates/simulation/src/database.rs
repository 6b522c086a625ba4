//! The metadata database in memory: the calls of a metadata agent that masters and proxies use, and the statements of users.
//!
//! The rules are those that the database's transactions call: `model::change` for alterations, `model::desired` for the slots
//! that follow them, `model::ledger` for reservations. What only the transactions check (epoch, expected slots, minimum,
//! number of a report) is repeated here, and compared with the real store call by call (`tests/database`).
//!
//! A call is one transaction: it changes everything or nothing.

mod ledger;
mod scaling;
mod statements;

use std::collections::BTreeMap;
use std::time::Duration;

use master::{Applied, Failure};
use model::alteration::{AlterationProgress, AlterationRecord, RequestId};
use model::change::Rules;
use model::demand::{Demand, DemandKey};
use model::demand_report::{DemandRecorded, DemandReport};
use model::engine_name::EngineName;
use model::ledger::{Scope, ScopeKey};
use model::number::{Epoch, Generation};
use model::snapshot::{EngineRecord, MasterRecord, Snapshot};
use planner::{Action, Decision, DesiredState, ObservedState, Simulation, Transition};

use crate::clock::BEGINNING_MS;
use crate::mutant::Mutant;

pub use statements::{Commit, Statement, aborted};

/// The database.
#[derive(Debug, Clone)]
pub struct Database {
    /// Only its desired state is used.
    simulation: Simulation,
    /// How often the desired state was handed out to be changed.
    changes: u64,
    pub rules: Rules,
    /// How far its clock is ahead of that of the machines, in milliseconds.
    pub ahead_ms: i64,
    demand: BTreeMap<String, Reported>,
    /// The alterations that are no longer in the snapshot.
    finished: BTreeMap<RequestId, AlterationRecord>,
    statements: u64,
    pub mutant: Option<Mutant>,
}

/// What a proxy has recorded.
#[derive(Debug, Clone, Default)]
struct Reported {
    seq: i64,
    until_ms: i64,
    keys: BTreeMap<DemandKey, (u64, i64)>,
}

impl Database {
    pub fn new(desired: DesiredState, rules: Rules, mutant: Option<Mutant>) -> Self {
        let mut database = Self {
            simulation: Simulation::new(desired, ObservedState::default()),
            changes: 0,
            rules,
            ahead_ms: 0,
            demand: BTreeMap::new(),
            finished: BTreeMap::new(),
            statements: 0,
            mutant,
        };
        database.set_now(Duration::ZERO);
        database
    }

    /// Moves its clock.
    pub fn set_now(&mut self, now: Duration) {
        self.simulation.desired.snapshot.now_ms = BEGINNING_MS + now.as_millis() as i64 + self.ahead_ms;
    }

    /// The cluster of the desired state, to be changed. What was remembered of the state is looked up again afterwards.
    pub fn simulation_mut(&mut self) -> &mut Simulation {
        self.changes += 1;
        &mut self.simulation
    }

    /// As long as it is equal, nothing of the state has changed but its clock.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Goes back to an older state; the ids of statements are not used again.
    pub fn restore(&mut self, older: Self) {
        let now_ms = self.state().now_ms;
        let scopes: Vec<(ScopeKey, Scope)> = match self.mutant {
            Some(Mutant::RestoredInParts) => {
                self.state().ledger.scopes().map(|(key, scope)| (key.clone(), *scope)).collect()
            }
            _ => Vec::new(),
        };
        let simulation = self.simulation_mut();
        *simulation = older.simulation;
        simulation.desired.snapshot.now_ms = now_ms;
        for (key, scope) in scopes {
            simulation.desired.snapshot.ledger.put_scope(key, scope);
        }
        (self.demand, self.finished) = (older.demand, older.finished);
    }

    /// The state as it is, without demand.
    pub fn state(&self) -> &Snapshot {
        &self.simulation.desired.snapshot
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot { demand: self.demand(), ..self.state().clone() }
    }

    pub fn master(&self) -> &MasterRecord {
        &self.state().master
    }

    /// Raises the epoch.
    pub fn raise_epoch(&mut self, holder: &str) -> MasterRecord {
        let master = &mut self.simulation_mut().desired.snapshot.master;
        *master = MasterRecord { epoch: master.epoch.next(), holder: holder.to_owned(), ..master.clone() };
        master.clone()
    }

    /// The check with which a transaction of a master begins.
    fn check(&self, epoch: Epoch) -> Result<(), Failure> {
        let current = self.master().epoch;
        if epoch == current || self.mutant == Some(Mutant::EpochUnchecked) {
            return Ok(());
        }
        Err(Failure::Deposed(format!("the epoch is {current}")))
    }

    /// The sessions that wait, added up by key.
    pub fn demand(&self) -> Vec<Demand> {
        let now_ms = self.state().now_ms;
        let mut all: BTreeMap<&DemandKey, Demand> = BTreeMap::new();
        let is_counted = |row: &&Reported| now_ms < row.until_ms || self.mutant == Some(Mutant::DemandWithoutLease);
        for row in self.demand.values().filter(is_counted) {
            let until_ms = if now_ms < row.until_ms { row.until_ms } else { now_ms + 1 };
            for (key, (waiting, since_ms)) in &row.keys {
                let of_key = all.entry(key).or_insert_with(|| Demand {
                    key: key.clone(),
                    waiting: 0,
                    since_ms: *since_ms,
                    until_ms,
                });
                of_key.waiting += waiting;
                of_key.since_ms = of_key.since_ms.min(*since_ms);
                of_key.until_ms = of_key.until_ms.max(until_ms);
            }
        }
        let mut all: Vec<Demand> = all.into_values().collect();
        if self.mutant == Some(Mutant::DemandOfOneUser) {
            all.iter_mut().filter_map(|demand| demand.key.user.as_mut()).for_each(|user| "ann".clone_into(user));
        }
        all
    }

    /// The number of the last report of a proxy that is recorded.
    pub fn report_number(&self, proxy: &str) -> Option<i64> {
        self.demand.get(proxy).map(|row| row.seq)
    }

    /// Replaces what a proxy has recorded.
    pub fn record_demand(&mut self, report: &DemandReport) -> DemandRecorded {
        let now_ms = self.state().now_ms;
        let is_numbered = self.mutant != Some(Mutant::ReportsWithoutNumber);
        let none = || Reported { seq: i64::MIN, until_ms: 0, keys: BTreeMap::new() };
        let row = self.demand.entry(report.proxy.clone()).or_insert_with(none);
        if is_numbered && report.seq <= row.seq {
            return DemandRecorded::Superseded;
        }
        let (mut keys, mut is_increased) = (BTreeMap::new(), false);
        for waiting in report.demand.iter().filter(|waiting| waiting.sessions > 0) {
            let before = row.keys.get(&waiting.key);
            is_increased |= before.is_none_or(|(sessions, _)| *sessions < waiting.sessions);
            let since_ms = before.map_or(now_ms - waiting.waited_ms, |(_, since_ms)| *since_ms);
            keys.insert(waiting.key.clone(), (waiting.sessions, since_ms));
        }
        *row = Reported { seq: report.seq, until_ms: now_ms + report.lease_ms, keys };
        if is_increased { DemandRecorded::Increased } else { DemandRecorded::Recorded }
    }

    /// The row of an engine whose end is not recorded, or of the current engine of a slot.
    pub fn engine(&self, name: &EngineName) -> Option<&EngineRecord> {
        self.state().engines.iter().find(|record| record.name == *name).map(AsRef::as_ref)
    }

    /// Applies a decision that is one transaction of the master.
    pub fn apply(
        &mut self,
        decision: &Decision,
        (epoch, generation): (Epoch, Generation),
        created: Option<&str>,
    ) -> Result<Applied, Failure> {
        self.check(epoch)?;
        match &decision.action {
            Action::Finish { id, transition } => {
                return self.finish(id, *transition, generation, decision).map(Applied::Progress);
            }
            Action::RecordUid { uid, .. } => {
                let uid = uid.as_deref().or(created);
                let row = decision.engine.as_ref().and_then(|engine| self.engine(engine));
                let row = row.ok_or_else(|| Failure::Moved("the name was never issued".to_owned()))?;
                if row.uid.as_deref().is_some_and(|recorded| Some(recorded) != uid) {
                    return Err(Failure::Moved(format!("another uid is recorded for {}", row.name)));
                }
            }
            Action::DrawIncarnation { observed, .. } | Action::Retire { observed, .. } => {
                let mut slots = self.state().slots.iter();
                if !slots.any(|slot| Some(&slot.key) == decision.slot.as_ref() && slot.incarnation == *observed) {
                    return Err(Failure::Moved("the slot has changed".to_owned()));
                }
            }
            _ => {}
        }
        let mut created = created.map(str::to_owned);
        let before = self.state().catalog.generation;
        self.simulation_mut().apply_one(decision, &mut created);
        self.use_numbers_again(before);
        Ok(Applied::Done)
    }

    /// Only a mutant draws a number twice.
    fn use_numbers_again(&mut self, before: Generation) {
        if self.mutant == Some(Mutant::NameUsedAgain) && self.statements > 10 {
            self.simulation_mut().desired.snapshot.catalog.generation = before;
        }
    }

    fn finish(
        &mut self,
        id: &RequestId,
        transition: Transition,
        plan: Generation,
        decision: &Decision,
    ) -> Result<AlterationProgress, Failure> {
        let (now_ms, deadline) = (self.state().now_ms, self.simulation.desired.limits.alter_deadline);
        let open = self.state().alterations.iter().find(|record| record.id == *id).cloned();
        let Some(mut record) = open else {
            let finished = self.finished.get(id).and_then(|record| record.progress);
            return finished.ok_or_else(|| Failure::Moved("no such alteration".to_owned()));
        };
        let progress = match transition {
            Transition::Converged if plan < record.generation => {
                return Err(Failure::Moved("the plan is older than the alteration".to_owned()));
            }
            Transition::Converged => AlterationProgress::Converged,
            Transition::Stalled if now_ms < record.decided_at_ms + deadline.as_millis() as i64 => {
                return Ok(AlterationProgress::Converging);
            }
            Transition::Stalled => AlterationProgress::Stalled,
            Transition::Superseded => AlterationProgress::Superseded,
        };
        self.simulation_mut().apply_one(decision, &mut None);
        record.progress = Some(progress);
        self.finished.insert(id.clone(), record);
        Ok(progress)
    }

    /// The outcome of an alteration, which is always known: a statement is one transaction.
    pub fn outcome(&self, id: &RequestId) -> Option<AlterationRecord> {
        let open = self.state().alterations.iter().find(|record| record.id == *id);
        open.or_else(|| self.finished.get(id)).cloned()
    }

    /// The end of a tick.
    pub fn end_tick(&mut self, epoch: Epoch) -> Result<(), Failure> {
        self.check(epoch)?;
        self.simulation.desired.snapshot.master.last_tick_ms += 1;
        Ok(())
    }
}
