//! What transactions of the database do to slots, in memory: the rows, the names issued for them, and the order for engines that
//! end.
//!
//! A stale call changes nothing: the observed incarnation, or count and highest incarnation of a link, are compared.

use std::cell::LazyCell;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use model::desired::lowest_free_ordinal;
use model::end::{EndClass, EndOrder, EndWord, GivenUp};
use model::engine_name::EngineName;
use model::ledger::{Moment, engine_scopes, principal, reclaim_reason};
use model::millis;
use model::name::TenantName;
use model::number::{Generation, Incarnation};
use model::owner::Owner;
use model::scaling::{SlotAddition, SlotsSeen};
use model::shared::Shared;
use model::slot::{Link, Origin, Replacement, Slot, SlotKey, StartedFor};
use model::snapshot::{EngineRecord, Snapshot};

use super::Simulation;
use crate::decision::Scaling;
use crate::engine_request;

impl Simulation {
    pub(super) fn draw(
        &mut self,
        key: &SlotKey,
        observed: Incarnation,
        (failures, replacement): (u32, Replacement),
        ends: Option<GivenUp>,
    ) {
        let moved = |slot: &&mut Shared<Slot>| slot.key == *key && slot.incarnation == observed;
        if self.desired.snapshot.slots.iter_mut().find(moved).is_none() {
            return;
        }
        if let Some(GivenUp { class: EndClass { word, retryable }, reason }) = ends {
            let of_slot = |record: &&mut Shared<EngineRecord>| record.slot == *key && record.incarnation == observed;
            let engines = self.desired.snapshot.engines.iter_mut().filter(of_slot);
            for record in engines.filter(|record| record.ended_at_ms.is_none() && record.ended_word.is_none()) {
                (record.ended_word, record.retryable) = (Some(word), retryable);
                record.ended_reason = Some(reason.clone());
            }
        }
        self.renew(key, failures, replacement);
    }

    /// Draws a new incarnation that condemns the engine, which agreed to retire.
    pub(super) fn retire(&mut self, key: &SlotKey, observed: Incarnation, tenant: &TenantName) {
        let snapshot = &mut self.desired.snapshot;
        let Some(slot) = snapshot.slots.iter().find(|slot| slot.key == *key && slot.incarnation == observed) else {
            return;
        };
        let failures = slot.failures;
        for record in snapshot.engines.iter_mut().filter(|record| record.slot == *key && record.ended_at_ms.is_none()) {
            record.end_reason.get_or_insert_with(|| reclaim_reason(tenant));
            record.ended_word.get_or_insert(EndWord::Reclaimed);
        }
        self.renew(key, failures, Replacement::StandIn);
    }

    /// Adds and removes the slots of a link, all of whose agents agree. A slot that is short of capacity is not added.
    pub(super) fn scale(&mut self, Scaling { slots, release }: &Scaling) {
        let seen = SlotsSeen::of(self.desired.snapshot.slots.iter().filter(|slot| slot.key.is_of(&slots.link)));
        if !seen.are_those_of(&slots.seen) {
            return;
        }
        for removal in slots.remove.iter().chain(release.iter().map(|release| &release.slot)) {
            self.condemn_slot(&removal.slot, &EndOrder::new(removal.word, removal.reason.as_str()), 0);
        }
        let added = slots.add.iter().flat_map(|addition| std::iter::repeat_n(addition, addition.count as usize));
        for SlotAddition { owner, started_for, .. } in added {
            let slot = self.new_slot(&slots.link, Origin::Demand, (owner.clone(), started_for.clone()));
            let key = slot.key.clone();
            let name = self.insert_slot(slot);
            if !self.reserve(&key, &name) {
                self.desired.snapshot.slots.retain(|slot| slot.key != key);
                self.desired.snapshot.engines.pop();
            }
        }
    }

    /// Reserves for the current engine of the slot; returns whether there is capacity.
    fn reserve(&mut self, key: &SlotKey, name: &EngineName) -> bool {
        let slot = self.desired.snapshot.slots.iter().find(|slot| slot.key == *key);
        let request = slot.and_then(|slot| engine_request::of_engine(&self.desired, key, slot.incarnation, Some(slot)));
        let Some((mut request, _)) = request else { return false };
        Arc::make_mut(&mut request).id = name.clone().into();
        let snapshot = &mut self.desired.snapshot;
        let at = Moment { now_ms: snapshot.now_ms, epoch: snapshot.master.epoch };
        snapshot.ledger.reserve(&request, at).is_ok()
    }

    /// Draws a new incarnation for the slot, as the database's transactions do; returns the new name.
    pub fn renew(&mut self, key: &SlotKey, failures: u32, replacement: Replacement) -> Option<EngineName> {
        let incarnation = self.next_number();
        let snapshot = &mut self.desired.snapshot;
        let slot = snapshot.slots.iter_mut().find(|slot| slot.key == *key)?;
        let before = std::mem::replace(&mut slot.incarnation, incarnation);
        slot.failures = failures;
        slot.replacement = replacement;
        let before = snapshot.engines.iter().find(|record| record.slot == *key && record.incarnation == before);
        let failure_before = before.filter(|_| failures > 0).and_then(|record| record.ended_reason.clone());
        let name = self.issue(key, incarnation);
        if let Some(record) = self.desired.snapshot.engines.last_mut() {
            record.failure_before = failure_before;
        }
        self.forget_ended();
        Some(name)
    }

    /// The slot that would be inserted at the lowest free ordinal, with this owner and charged to this user.
    pub fn new_slot(
        &self,
        link: &Link,
        origin: Origin,
        (owner, started_for): (Option<Owner>, Option<StartedFor>),
    ) -> Slot {
        let Link { tenant, pool, unit } = link.clone();
        let ordinal = lowest_free_ordinal(link, &self.desired.snapshot.slots);
        Slot {
            key: SlotKey { tenant, pool, unit, ordinal },
            incarnation: Incarnation(0),
            origin,
            failures: 0,
            replacement: Replacement::StandIn,
            born: Incarnation(0),
            started_for,
            owner,
            asked_at_ms: self.desired.snapshot.now_ms,
        }
    }

    /// Inserts a slot with a new incarnation, as START does, and the rows of its user and creator; returns the engine's name.
    pub fn insert_slot(&mut self, mut slot: Slot) -> EngineName {
        let incarnation = self.next_number();
        (slot.incarnation, slot.born) = (incarnation, incarnation);
        let snapshot = &mut self.desired.snapshot;
        let scopes = engine_scopes(&slot.key, incarnation, Some(&slot));
        for key in scopes.policy().filter(|key| snapshot.ledger.scope(key).is_none()).collect::<Vec<_>>() {
            if let Some(scope) = principal(&snapshot.catalog, key) {
                snapshot.ledger.put_scope(key.clone(), scope);
            }
        }
        let key = slot.key.clone();
        snapshot.slots.push(slot.into());
        self.issue(&key, incarnation)
    }

    /// Draws a new incarnation for the slot, as RESTART does; returns the new name. With FORCE the older engines are condemned.
    pub fn restart(&mut self, key: &SlotKey, replacement: Replacement, grace: Duration) -> Option<EngineName> {
        let is_forced = replacement == Replacement::Force;
        let grace_ms = if is_forced { 0 } else { millis::from_duration(grace) };
        let older = self.desired.snapshot.engines.iter_mut().filter(|record| record.slot == *key);
        for record in older.filter(|record| record.ended_at_ms.is_none() && record.end_reason.is_none()) {
            record.end_grace_ms = Some(grace_ms);
            if is_forced {
                record.end_reason = Some("restarted with FORCE".to_owned());
                record.ended_word.get_or_insert(EndWord::Superseded);
            }
        }
        self.renew(key, 0, replacement)
    }

    /// Draws the next number of the catalog's counter.
    pub fn next_number(&mut self) -> Incarnation {
        let generation = &mut self.desired.snapshot.catalog.generation;
        *generation = Generation(generation.get() + 1);
        Incarnation(generation.get())
    }

    /// Adds the row of table `engine` that goes with a new incarnation.
    pub fn issue(&mut self, key: &SlotKey, incarnation: Incarnation) -> EngineName {
        let name = key.engine(incarnation);
        let record = EngineRecord {
            name: name.clone(),
            slot: key.clone(),
            incarnation,
            uid: None,
            config: String::new(),
            issued_at_ms: self.desired.snapshot.now_ms,
            started_at_ms: None,
            end_grace_ms: None,
            end_reason: None,
            ended_at_ms: None,
            ended_reason: None,
            ended_word: None,
            retryable: None,
            log_tail: None,
            failure_before: None,
        };
        self.desired.snapshot.engines.push(record.into());
        name
    }

    /// Deletes a slot row as STOP does; its engines are condemned.
    pub fn delete_slot(&mut self, key: &SlotKey, reason: &str, grace_ms: i64) {
        self.condemn_slot(key, &EndOrder::new(EndWord::Stopped, reason), grace_ms);
    }

    fn condemn_slot(&mut self, key: &SlotKey, order: &EndOrder, grace_ms: i64) {
        let Some(at) = self.desired.snapshot.slots.iter().position(|slot| slot.key == *key) else { return };
        let current = self.desired.snapshot.slots.remove(at).engine();
        for record in self.desired.snapshot.engines.iter_mut().filter(|record| record.slot == *key) {
            if record.ended_at_ms.is_none() && record.end_reason.is_none() {
                let order = order.of_engine(&record.name, &current);
                record.end_reason = Some(order.reason);
                record.end_grace_ms = Some(grace_ms);
                record.ended_word.get_or_insert(order.word);
            }
        }
        self.forget_ended();
    }

    /// A snapshot has only those ended engines that are the current one of their slot.
    pub(super) fn forget_ended(&mut self) {
        let Snapshot { slots, engines, .. } = &mut self.desired.snapshot;
        let before = engines.len();
        let is_current = |record: &Shared<EngineRecord>| {
            slots.iter().any(|slot| slot.incarnation == record.incarnation && slot.key == record.slot)
        };
        engines.retain(|record| record.ended_at_ms.is_none() || is_current(record));
        if engines.len() < before {
            self.forget_ended_reservations();
        }
    }

    /// A snapshot has only those ended reservations that are of its engines.
    pub(super) fn forget_ended_reservations(&mut self) {
        let Snapshot { engines, ledger, .. } = &mut self.desired.snapshot;
        // Most ledgers have no ended reservation.
        let names =
            LazyCell::new(|| engines.iter().map(|record| record.name.as_str()).collect::<HashSet<_, RandomState>>());
        ledger.forget_ended(|reservation| names.contains(&**reservation.id()));
    }
}
