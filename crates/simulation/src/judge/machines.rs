//! The judge of machines that fail: which engines may be replaced because of them, and for how long two engines serve one slot.

use std::collections::BTreeSet;
use std::time::Duration;

use model::engine_name::EngineName;
use model::shared::Shared;
use model::slot::SlotKey;
use model::snapshot::EngineRecord;

use crate::agent::EngineAgent;
use crate::machine::Machine;
use crate::state::State;

/// `master.node_grace`.
const GRACE: Duration = Duration::from_secs(5);
/// The same for an engine that never registered.
const ALONE: Duration = Duration::from_secs(30);
/// Nothing is replaced while so many machines with engines, and more than half of them, are not ready.
const MANY: usize = 3;
/// For how long two engines of one slot may be registered.
const BOTH_SERVE: Duration = Duration::from_mins(1);

impl State {
    /// Remembers of which engines a master sees both pieces of evidence now; nothing while its list of instances is outdated.
    pub fn judge_observation(&mut self) {
        let now = self.now;
        if self.machines.iter().all(|machine| machine.is_ready) {
            self.judge.evidence = (!self.faults.is_frozen).then(BTreeSet::new);
            return;
        }
        let alive: Vec<(&EngineName, &EngineAgent)> =
            self.agents.iter().filter(|(_, agent)| !agent.has_ended).collect();
        let with_engines: BTreeSet<&String> = alive.iter().map(|(_, agent)| &agent.machine).collect();
        let lost = |machine: &&Machine| !machine.is_ready && with_engines.contains(&machine.name);
        let failed = self.machines.iter().filter(lost).count();
        let is_suspended = failed >= MANY && failed * 2 > with_engines.len();
        let since_suspended = self.judge.suspended_at.filter(|_| !is_suspended);
        let settled = since_suspended.is_none_or(|at| at + GRACE <= now);
        let evidence = alive.into_iter().filter(|(engine, agent)| {
            let machine = self.machines.iter().find(|machine| machine.name == agent.machine);
            let Some(machine) = machine.filter(|machine| !machine.is_ready) else { return false };
            let node = self.nodes.permits.get(*engine);
            let has_registered = node.is_some_and(|node| node.answered);
            let needed = if has_registered { GRACE } else { ALONE };
            machine.since + needed <= now && node.is_none_or(|node| node.registration.is_none())
        });
        let evidence: BTreeSet<EngineName> = evidence.map(|(engine, _)| engine.clone()).collect();
        let evidence = if is_suspended || !settled { BTreeSet::new() } else { evidence };
        self.judge.evidence = (!self.faults.is_frozen).then_some(evidence);
        if is_suspended {
            self.judge.suspended_at = Some(now);
            self.activity.suspended += 1;
        }
    }

    /// Checks that an engine is replaced because of its machine only with both pieces of evidence.
    pub(super) fn judge_lost(&mut self, engine: &EngineName) {
        self.activity.lost += 1;
        let is_known = self.agents.get(engine).is_some_and(|agent| !agent.has_ended);
        if is_known && self.judge.evidence.as_ref().is_some_and(|evidence| !evidence.contains(engine)) {
            self.violated(format!(
                "engine {engine} is replaced because of its machine without both pieces of evidence"
            ));
        }
    }

    /// Two engines of a slot serve only until the older one is drained.
    pub fn judge_serving(&mut self) {
        let now = self.now;
        let twice = self.slots_served_twice();
        self.judge.doubled.retain(|slot, _| twice.contains(slot));
        for slot in twice {
            let since = *self.judge.doubled.entry(slot.clone()).or_insert(now);
            if since + BOTH_SERVE < now {
                self.violated(format!("two engines serve slot {slot}"));
            }
        }
    }

    /// The slots of which two engines are registered: one of them at least is not the current one.
    fn slots_served_twice(&self) -> BTreeSet<SlotKey> {
        let snapshot = self.database.state();
        let current = &self.judge.seen.current;
        let is_ready = |record: &Shared<EngineRecord>| {
            self.nodes.permits.get(&record.name).is_some_and(|node| node.ready().is_some())
        };
        let older = snapshot.engines.iter().filter(|record| !current.contains(&record.incarnation) && is_ready(record));
        let is_served_twice = |older: &&Shared<EngineRecord>| {
            let mut of_slot = snapshot.engines.iter().filter(|record| record.slot == older.slot);
            of_slot.any(|record| record.name != older.name && is_ready(record))
        };
        older.filter(is_served_twice).map(|record| record.slot.clone()).collect()
    }
}
