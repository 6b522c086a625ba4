//! The judge: the invariants, checked after each event and each effect of a master.
//!
//! What is checked is in the table *Invariants* of `docs/simulation.md`. The judge knows the whole world, the master does not.

mod alterations;
mod machines;
mod owners;
mod shown;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use master::GuardedDecision;
use model::demand::ScalingGroup;
use model::end::{EndClass, EndWord};
use model::engine_name::EngineName;
use model::ledger::{Change, Ledger, Role, ScopedChange};
use model::owner::Owner;
use model::resource::Component;
use model::slot::{Link, Origin, Replacement, Slot, SlotKey};
use planner::{Action, Scaling};

use crate::activity::{Cause, Slots};
use crate::state::State;

/// An engine that was cancelled while it registered may have sessions: only one that was registered this long before may not.
const REGISTERED_LONG: Duration = Duration::from_secs(2);
/// For how long an instance may run without a charge.
const UNCHARGED: Duration = Duration::from_mins(1);

impl State {
    /// Checks what must hold at every moment.
    pub fn judge(&mut self, cause: Cause) {
        if cause == Cause::Other {
            if self.judge.slots != self.database.state().slots.len() {
                self.violated("slots changed without a statement or a call".to_owned());
            }
            return;
        }
        let mut links: BTreeMap<Link, Slots> = BTreeMap::new();
        for slot in &self.database.state().slots {
            let of_link = links.entry(slot.key.link()).or_default();
            let of_origin = if slot.origin == Origin::Demand { &mut of_link.on_demand } else { &mut of_link.others };
            of_origin.insert(slot.key.clone());
        }
        let before = std::mem::take(&mut self.judge.links);
        let none = Slots::default();
        for link in before.keys().chain(links.keys()).collect::<BTreeSet<_>>() {
            let (was, is) = (before.get(link).unwrap_or(&none), links.get(link).unwrap_or(&none));
            if let Some(what) = self.violation_of_slots(link, (was, is), cause) {
                self.violated(what);
            }
            let mut new = is.on_demand.difference(&was.on_demand);
            let added = &self.database.state().slots;
            let is_charged = |key: &SlotKey| {
                added.iter().filter(|slot| slot.key == *key).all(|slot| self.database.is_charged(&slot.engine()))
            };
            if cause == Cause::Scale && !new.all(is_charged) {
                self.violated(format!("a slot is added to {link:?} without a reservation"));
            }
            if cause == Cause::Scale {
                let added: BTreeSet<SlotKey> = is.on_demand.difference(&was.on_demand).cloned().collect();
                self.activity.added += added.len() as u64;
                self.judge_added_owners(&added);
            }
        }
        self.judge.slots = self.database.state().slots.len();
        self.judge.links = links;
        let running = self.agents.iter().filter(|(_, agent)| !agent.has_ended).map(|(name, _)| name);
        let charged: BTreeSet<EngineName> = running.filter(|name| self.database.is_charged(name)).cloned().collect();
        let before = std::mem::replace(&mut self.judge.charged, charged);
        let is_running = |name: &&EngineName| self.agents.get(*name).is_some_and(|agent| !agent.has_ended);
        let ended = before.difference(&self.judge.charged).find(is_running).cloned();
        if let Some(engine) = ended.filter(|_| matches!(cause, Cause::Scale | Cause::Statement)) {
            self.violated(format!("the charge of engine {engine} ends while it runs"));
        }
        self.remember();
        self.judge_owners();
        self.judge_sums();
    }

    fn violation_of_slots(&self, link: &Link, (was, is): (&Slots, &Slots), cause: Cause) -> Option<String> {
        let spec = self.database.state().catalog.unit(&link.unit);
        let (min, max) = spec.map_or((0, 0), |unit| (unit.min_engines as usize, unit.max_engines as usize));
        if is.count() > was.count() && is.count() > max {
            return Some(format!("{link:?} has {} slots, and MAX_ENGINES is {max}", is.count()));
        }
        if cause == Cause::Scale && is.count() < was.count() && is.count() < min {
            return Some(format!("{link:?} is scaled to {} slots, and MIN_ENGINES is {min}", is.count()));
        }
        if cause == Cause::Scale && was.others != is.others {
            return Some(format!("a slot of {link:?} that does not follow demand is scaled"));
        }
        (cause == Cause::Effect && was != is).then(|| format!("the slots of {link:?} changed by another effect"))
    }

    fn remember(&mut self) {
        let now = self.now;
        for record in &self.database.simulation.desired.snapshot.engines {
            if record.uid.is_some() {
                self.judge.recorded.insert(record.name.clone());
            }
            if record.end_reason.is_some() && record.ended_at_ms.is_none() {
                self.judge.condemned_at.entry(record.name.clone()).or_insert(now);
            }
        }
        let state = self.database.state();
        for slot in state.slots.iter().filter(|slot| slot.replacement == Replacement::Force) {
            let older = state.engines.iter().filter(|one| one.slot == slot.key && one.incarnation < slot.incarnation);
            self.judge.forced.extend(older.map(|record| record.name.clone()));
        }
        for (engine, agent) in &self.agents {
            if agent.has_registered {
                self.judge.registered_at.entry(engine.clone()).or_insert(now);
            }
        }
    }

    /// I1, I6: what scopes hold is what their reservations are charged, and is not negative.
    fn judge_sums(&mut self) {
        let ledger = &self.database.state().ledger;
        let drift = match ledger.drifts() {
            Ok(drifts) => drifts.first().map(ToString::to_string),
            Err(refusal) => Some(format!("{refusal:?}")),
        };
        let is_negative =
            ledger.scopes().any(|(_, scope)| Component::ALL.iter().any(|each| scope.counter.held.get(*each) < 0));
        if let Some(drift) = drift {
            self.violated(format!("the ledger does not add up: {drift}"));
        }
        if is_negative {
            self.violated("the ledger holds a negative amount".to_owned());
        }
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
        let Some(record) = self.database.engine(engine).filter(|record| record.uid.as_deref() == Some(uid)) else {
            return;
        };
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

    /// Checks slots that are to be added and removed: no start together with a removal, and no more engines than the sessions
    /// that waited when the master read the demand.
    pub fn judge_scaling(&mut self, scaling: &Scaling) {
        let link = &scaling.slots.link;
        let Some(unit) = self.database.state().catalog.unit(&link.unit) else { return };
        let add = scaling.slots.added() as usize;
        let count = self.database.slots_of(link).count();
        let removed = scaling.slots.remove.len() + scaling.release.len();
        let left = (count + add).saturating_sub(removed);
        let unneeded = scaling.slots.remove.iter().filter(|removal| removal.reason == "no longer needed");
        let ending = unneeded.chain(scaling.release.iter().map(|release| &release.slot)).map(|removal| &removal.slot);
        let ending: BTreeSet<&SlotKey> = ending.collect();
        let added_for: BTreeSet<&Option<Owner>> = scaling.slots.add.iter().map(|addition| &addition.owner).collect();
        let is_both = |slot: &Slot| ending.contains(&slot.key) && added_for.contains(&slot.owner);
        if self.database.slots_of(link).any(is_both) && left > unit.min_engines as usize {
            return self.violated(format!("{link:?} is scaled by {add} and -{removed} in one round"));
        }
        let Some(waiting) = self.waiting_when_read.as_ref() else { return };
        let seats = unit.sessions_per_engine.map_or(u64::from(u32::MAX), u64::from);
        let is_for_minimum = left <= unit.min_engines as usize;
        for addition in scaling.slots.add.iter().filter(|_| !is_for_minimum) {
            let group = ScalingGroup { link: link.clone(), owner: addition.owner.clone() };
            let waiting = waiting.get(&group).copied().unwrap_or(0);
            let pending = self.database.slots_of(link).filter(|slot| {
                let is_registered = self.agents.get(&slot.engine()).is_some_and(|agent| agent.has_registered);
                let has_stand_in = self.database.state().engines.iter().any(|older| {
                    let agent = self.agents.get(&older.name).filter(|agent| agent.has_registered && !agent.has_ended);
                    older.slot == slot.key && agent.is_some()
                });
                slot.owner == group.owner
                    && slot.failures == 0
                    && !is_registered
                    && !has_stand_in
                    && self.database.is_charged(&slot.engine())
            });
            let on_their_way = pending.count() as u64 + u64::from(addition.count);
            let allowed = waiting + u64::from(unit.spare_engines) * seats;
            if addition.count > 0 && (on_their_way - 1).saturating_mul(seats) >= allowed {
                let owner = group.owner.map(|owner| format!(" of {owner}")).unwrap_or_default();
                return self.violated(format!(
                    "{on_their_way} engines{owner} of {link:?} are on their way with {seats} seats each, and {waiting} \
                     sessions wait"
                ));
            }
        }
    }

    /// Checks that a batch of changes raises nothing further above its limit.
    pub fn judge_grants(&mut self, before: &[i64], changes: &[ScopedChange]) {
        let adopts = changes.iter().any(|one| matches!(one.change, Change::Adopt { .. } | Change::Transfer { .. }));
        let after = excess(&self.database.state().ledger);
        if !adopts && before.len() == after.len() && before.iter().zip(&after).any(|(before, after)| after > before) {
            self.violated("a grant exceeds a limit".to_owned());
        }
    }

    /// I4: every instance is charged, except for a moment.
    pub fn judge_charges(&mut self) {
        let now = self.now;
        let uncharged = self.agents.iter().filter(|(name, agent)| {
            let row = self.database.engine(name).filter(|row| row.ended_at_ms.is_none());
            !agent.has_ended && row.is_some() && !self.database.is_charged(name) && !self.is_unready(name)
        });
        let names: BTreeSet<EngineName> = uncharged.map(|(name, _)| name.clone()).collect();
        self.judge.uncharged.retain(|name, _| names.contains(name));
        for name in names {
            let since = *self.judge.uncharged.entry(name.clone()).or_insert(now);
            if since + UNCHARGED < now {
                self.violated(format!("engine {name} runs without a charge"));
            }
        }
    }
}

/// What is held above each limit, by scope, counter and component.
pub fn excess(ledger: &Ledger) -> Vec<i64> {
    let mut all = Vec::new();
    for (_, scope) in ledger.scopes() {
        let mut counters = vec![scope.counter];
        if let Role::Pool(row) = scope.role {
            counters.extend([row.shared, row.unguaranteed]);
        }
        for counter in counters {
            all.extend(Component::ALL.map(|each| counter.left(each).map_or(0, |left| (-left).max(0))));
        }
    }
    all
}
