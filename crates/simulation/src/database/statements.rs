//! Statements of users, each one transaction of a metadata agent.

use std::time::Duration;

use model::alteration::{Abort, AlterationProgress, AlterationRecord, Outcome, RequestId};
use model::change::{Applied, Change, Object};
use model::error::{ErrorKind, UserError};
use model::number::Generation;
use model::slot::{Link, Origin, Replacement, SlotKey, StartedFor};

use super::Database;
use crate::mutant::Mutant;

/// A statement. One that names an engine takes the slot at this place in the list, wherever it is then.
#[derive(Debug, Clone)]
pub enum Statement {
    /// CREATE, ALTER or DROP, and how engines with another configuration are replaced.
    Alter(Box<Change>, Replacement),
    /// START by this user.
    Start(Link, String),
    Stop(usize),
    Restart(usize, Replacement),
}

/// The COMMIT of an alteration.
#[derive(Debug, Clone, Copy)]
pub struct Commit<'a> {
    pub id: &'a RequestId,
    pub change: &'a Change,
    pub replacement: Replacement,
    /// The generation of the object from which the change was computed first.
    pub base: Generation,
    /// The object that was computed then.
    pub after: Option<&'a Object>,
}

impl Database {
    /// Runs a statement, which may be refused.
    pub fn run(&mut self, statement: &Statement) -> Result<(), UserError> {
        self.statements += 1;
        match statement {
            Statement::Alter(change, replacement) => self.alter(change, *replacement)?,
            Statement::Start(link, user) => self.start(link, user)?,
            Statement::Stop(place) => self.stop(*place)?,
            Statement::Restart(place, replacement) => self.restart(*place, *replacement)?,
        }
        self.end_charges_of_missing_slots();
        self.forget_ended();
        Ok(())
    }

    fn alter(&mut self, change: &Change, replacement: Replacement) -> Result<(), UserError> {
        let Applied::Object { base, after, .. } = change.apply(&self.state().catalog, &self.rules)? else {
            return Ok(());
        };
        let id = RequestId::new(format!("statement-{}", self.statements))?;
        self.commit(&Commit { id: &id, change, replacement, base, after: after.as_ref() })
    }

    /// The transaction of an alteration: everything is read and validated again.
    pub fn commit(&mut self, commit: &Commit<'_>) -> Result<(), UserError> {
        let Commit { id, change, replacement, .. } = *commit;
        if self.outcome(id).is_some() {
            return Err(refused("the alteration is decided"));
        }
        let (base, after) = if self.mutant == Some(Mutant::BaseUnchecked) {
            (commit.base, commit.after.cloned())
        } else {
            match change.apply(&self.state().catalog, &self.rules)? {
                Applied::Object { base, after, .. } if base == commit.base => (base, after),
                Applied::Object { .. } => return Err(refused("the object has changed")),
                Applied::Nothing { .. } => return Err(refused("nothing changes")),
            }
        };
        self.statements += 1;
        let reference = change.object();
        let generation = Generation(self.simulation_mut().next_number().get());
        let catalog = self.state().catalog.with(&reference, after.as_ref(), generation);
        self.simulation_mut().commit_catalog(catalog, replacement);
        let mutant = self.mutant;
        let snapshot = &mut self.simulation_mut().desired.snapshot;
        let (superseded, open) = std::mem::take(&mut snapshot.alterations)
            .into_iter()
            .partition(|one| one.object.as_ref() == Some(&reference) && mutant != Some(Mutant::NothingSuperseded));
        snapshot.alterations = open;
        snapshot.alterations.push(AlterationRecord {
            id: id.clone(),
            object: Some(reference),
            base_generation: base,
            generation: snapshot.catalog.generation,
            statement: String::new(),
            requested_by: "admin".to_owned(),
            requested_at_ms: snapshot.now_ms,
            outcome: Outcome::Committed,
            decided_by: "agent".to_owned(),
            decided_at_ms: snapshot.now_ms,
            progress: Some(AlterationProgress::Converging),
            reason: None,
            finished_at_ms: None,
        });
        let superseded: Vec<AlterationRecord> = superseded;
        for record in superseded {
            let record = AlterationRecord { progress: Some(AlterationProgress::Superseded), ..record };
            self.finished.insert(record.id.clone(), record);
        }
        if self.mutant == Some(Mutant::ConvergedTooEarly)
            && let Some(record) = self.simulation_mut().desired.snapshot.alterations.pop()
        {
            let record = AlterationRecord { progress: Some(AlterationProgress::Converged), ..record };
            self.finished.insert(record.id.clone(), record);
        }
        self.end_charges_of_missing_slots();
        self.forget_ended();
        Ok(())
    }

    /// Aborts an alteration, unless it was committed; returns its row.
    pub fn abort(&mut self, abort: &Abort) -> AlterationRecord {
        let overwrites = self.mutant == Some(Mutant::AbortOverwrites);
        if let Some(record) = self.outcome(&abort.id).filter(|_| !overwrites) {
            return record;
        }
        let record = aborted(abort, self.state().now_ms);
        self.simulation_mut().desired.snapshot.alterations.retain(|one| one.id != abort.id);
        self.finished.insert(abort.id.clone(), record.clone());
        record
    }

    fn start(&mut self, link: &Link, user: &str) -> Result<(), UserError> {
        let catalog = &self.state().catalog;
        let has_unit = catalog.pool(&link.pool).is_some_and(|pool| pool.units.contains(&link.unit));
        let is_linked = catalog.tenant(&link.tenant).is_some_and(|tenant| tenant.pools.contains(&link.pool));
        let unit = catalog.unit(&link.unit).filter(|_| has_unit && is_linked);
        let unit = unit.ok_or_else(|| refused("tenant, pool and unit are not linked"))?;
        let owner = unit.shared_by.owner_of(user, &[]).ok_or_else(|| refused("each session has its own engine"))?;
        if self.slots_of(link).count() >= unit.max_engines as usize {
            return Err(refused("MAX_ENGINES is reached"));
        }
        let started_for = StartedFor { user: user.to_owned(), creator: "hive".to_owned() };
        let slot = self.simulation.new_slot(link, Origin::Start, (owner, Some(started_for)));
        self.simulation_mut().insert_slot(slot);
        Ok(())
    }

    /// The key of the slot at a place.
    fn slot_at(&self, place: usize) -> Result<SlotKey, UserError> {
        let slots = &self.state().slots;
        slots.get(place % slots.len().max(1)).map(|slot| slot.key.clone()).ok_or_else(|| refused("there is no engine"))
    }

    fn stop(&mut self, place: usize) -> Result<(), UserError> {
        let key = self.slot_at(place)?;
        let min = self.state().catalog.unit(&key.unit).map_or(0, |unit| unit.min_engines);
        if self.slots_of(&key.link()).count() <= min as usize {
            return Err(refused("MIN_ENGINES would not be met"));
        }
        self.simulation_mut().next_number();
        self.simulation_mut().delete_slot(&key, "stopped by admin", 60_000);
        Ok(())
    }

    fn restart(&mut self, place: usize, replacement: Replacement) -> Result<(), UserError> {
        let key = self.slot_at(place)?;
        self.simulation_mut().restart(&key, replacement, Duration::from_mins(1));
        Ok(())
    }
}

/// The row of an alteration that is aborted.
pub fn aborted(abort: &Abort, now_ms: i64) -> AlterationRecord {
    AlterationRecord {
        id: abort.id.clone(),
        object: abort.object.clone(),
        base_generation: abort.base_generation,
        generation: Generation(0),
        statement: abort.statement.clone(),
        requested_by: abort.requested_by.clone(),
        requested_at_ms: abort.requested_at_ms,
        outcome: Outcome::Aborted,
        decided_by: abort.decided_by.clone(),
        decided_at_ms: now_ms,
        progress: None,
        reason: Some(abort.reason.clone()),
        finished_at_ms: None,
    }
}

fn refused(reason: &str) -> UserError {
    UserError::new(ErrorKind::InvalidValue, reason)
}
