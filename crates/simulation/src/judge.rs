//! The judge: the invariants, checked after each event and each effect of a master.
//!
//! What is checked is in the table *Invariants* of `docs/simulation.md`. The judge knows the whole world, the master does not.

mod alterations;
mod charges;
mod differing;
mod ledger;
mod machines;
mod owners;
mod restored;
mod scaling;
pub mod seen;
mod shown;
mod slots;
mod sums;

use std::collections::BTreeSet;
use std::time::Duration;

use master::GuardedDecision;
use model::end::{EndClass, EndWord};
use model::engine_name::EngineName;
use model::shared::Shared;
use model::slot::{Link, Replacement, Slot};
use planner::Action;

use crate::activity::{Cause, Judge};
use crate::state::State;
pub use ledger::Excess;
use seen::{SeenRow, SeenSlot};

/// An engine that was cancelled while it registered may have sessions: only one that was registered this long before may not.
const REGISTERED_LONG: Duration = Duration::from_secs(2);
/// How many changes there are between two checks of everything.
const WHOLE: u64 = 61;

impl State {
    /// Checks what must hold at every moment. What has changed since the last time is checked each time, everything now and then.
    pub fn judge(&mut self, cause: Cause) {
        if cause == Cause::Other {
            if self.judge.seen.slots() != self.database.state().slots.len() {
                self.violated("slots changed without a statement or a call".to_owned());
            }
            return;
        }
        let changes = self.database.changes();
        if changes != std::mem::replace(&mut self.judge.seen.changes, changes) {
            self.judge_slots(cause);
            self.remember_rows();
            self.judge_ledger(cause);
            self.judge.seen.looks += 1;
            // A statement may change guarantees, on which sums depend that no reservation has changed.
            if cause == Cause::Statement || self.judge.seen.looks.is_multiple_of(WHOLE) {
                self.judge_whole();
            }
        }
        for engine in std::mem::take(&mut self.judge.registering) {
            self.judge.registered_at.entry(engine).or_insert(self.now);
        }
    }

    /// Checks everything that is left out while nothing seems to have changed of it.
    fn judge_whole(&mut self) {
        let snapshot = self.database.state();
        let seen = &self.judge.seen;
        let is_slot = |(seen, slot): (&SeenSlot, &Shared<Slot>)| seen.key == slot.key && seen.is(slot);
        let are_slots = seen.slots.len() == snapshot.slots.len() && seen.slots.iter().zip(&snapshot.slots).all(is_slot);
        let links: BTreeSet<Link> = snapshot.slots.iter().map(|slot| slot.key.link()).collect();
        let are_links =
            seen.links.keys().eq(&links) && links.iter().all(|link| seen.links[link] == seen.slots_of(link));
        let are_rows =
            seen.rows.iter().eq(snapshot.engines.iter().map(|record| SeenRow::new(record)).collect::<Vec<_>>().iter());
        let Judge { owners, lost_names, .. } = &self.judge;
        let is_owner =
            |slot: &SeenSlot| owners.get(&slot.engine) == Some(&slot.owner) || lost_names.contains(&slot.engine);
        if !are_slots || !are_links || !are_rows || !seen.slots.iter().all(is_owner) {
            self.violated("slots or rows of engines have changed unseen".to_owned());
        }
        self.judge_all_sums();
    }

    /// Checks a decision before it takes effect.
    pub fn judge_decision(&mut self, guarded: &GuardedDecision<'_>) {
        let decision = guarded.decision;
        let Some(engine) = &decision.engine else { return };
        match &decision.action {
            Action::CreateEngine(_) if !self.judge.is_late => {
                if self.judge.recorded.contains(engine) {
                    self.violated(format!("engine {engine} is created a second time"));
                }
                if !self.database.is_charged(engine) {
                    self.violated(format!("engine {engine} is created without a reservation"));
                }
            }
            Action::DeleteEngine { uid, .. } => {
                let is_alive = self.agents.get(engine).is_some_and(|agent| agent.uid == *uid && !agent.has_ended);
                let is_ordered = self
                    .nodes
                    .drains
                    .get(engine)
                    .is_some_and(|node| node.content.as_ref().is_ok_and(|order| order.uid.as_ref() == Some(uid)));
                if is_alive && !is_ordered {
                    self.violated(format!("engine {engine} runs and is deleted without a drain order"));
                }
            }
            Action::RecordEnd { .. } => {
                let uid = self.database.engine(engine).and_then(|record| record.uid.clone());
                let agent =
                    self.agents.get(engine).filter(|agent| !agent.has_ended && Some(&agent.uid) == uid.as_ref());
                if agent.is_some() {
                    self.violated(format!("engine {engine} runs and is recorded as ended"));
                }
            }
            Action::DrawIncarnation { ends: Some(EndClass { word: EndWord::NodeLost, .. }), .. }
                if !self.judge.is_late =>
            {
                self.judge_lost(engine);
            }
            _ => {}
        }
    }

    /// Checks a registration that was just written.
    pub fn judge_registration(&mut self, engine: &EngineName, uid: &str) {
        let is_of_uid = self.nodes.permit(engine).is_some_and(|permit| permit.uid.as_deref() == Some(uid));
        let order = self.nodes.drains.get(engine).and_then(|node| node.content.as_ref().ok());
        let is_ordered = order.is_some_and(|order| order.uid.as_deref() == Some(uid));
        if !is_of_uid {
            self.violated(format!("engine {engine} registers below a permit that does not have its uid"));
        }
        if is_ordered {
            self.violated(format!("engine {engine} registers again after its drain order"));
        }
    }

    /// Checks a drain order that was written.
    pub fn judge_drain(&mut self, engine: &EngineName, uid: &str) {
        let Some(agent) = self.agents.get(engine).filter(|agent| agent.uid == uid && !agent.has_ended) else { return };
        let open = agent.sessions.len();
        let is_retiring = agent.is_retiring(self.now);
        let Some(record) = self.database.engine(engine) else { return self.judge_unknown(engine) };
        if record.uid.as_deref() != Some(uid) {
            return;
        }
        if let Some(reason) = record.end_reason.clone() {
            let (registered, condemned) = (self.judge.registered_at.get(engine), self.judge.condemned_at.get(engine));
            let was_registered = registered.zip(condemned).is_some_and(|(at, end)| *at + REGISTERED_LONG <= *end);
            let is_busy = open > 0
                && !self.judge.forced.contains(engine)
                && (reason.starts_with("idle for") && is_retiring || reason == "no longer needed" && was_registered);
            if is_busy {
                self.violated(format!("engine {engine} is drained with {open} sessions: {reason}"));
            }
            return;
        }
        let Some(slot) = self.database.state().slots.iter().find(|slot| slot.key == record.slot) else { return };
        if slot.replacement != Replacement::StandIn || !self.judge.registered.contains(uid) {
            return;
        }
        let is_newer_registered = self.database.state().engines.iter().any(|newer| {
            newer.slot == record.slot
                && newer.incarnation > record.incarnation
                && newer.end_reason.is_none()
                && newer.uid.is_some()
                && self.nodes.registration(&newer.name).map(|live| &live.uid) == newer.uid.as_ref()
        });
        if !is_newer_registered {
            self.violated(format!("engine {engine} is drained before its replacement is registered"));
        }
    }
}
