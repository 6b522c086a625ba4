//! What happens to the machines that engines run on: which of them fail, and what the orchestrator reports of them.
//!
//! A machine that fails stops or is cut off: its agents reach nothing and are not reached, while the orchestrator lists their
//! instances as running. That it is not ready is reported later, or never. When it returns, what still runs there goes on, or has
//! ended with the machine.

use std::collections::BTreeSet;

use model::engine_name::EngineName;
use model::observation::ObservedNode;
use orchestrator::Orchestrator as _;
use orchestrator::memory::End;

use crate::event::Event;
use crate::machine::{Failing, FailureEnd, MACHINES, Machine};
use crate::mutant::Mutant;
use crate::state::{State, ready};

/// How long sessions take to notice that their machine has failed, in milliseconds.
const NOTICED_MS: u64 = 5_000;
/// How long a registration outlives a machine that failed, in milliseconds.
const SESSION_TIMEOUT_MS: u64 = 10_000;
/// How long a machine that has returned is reported as not ready, in milliseconds.
const READY_MS: u64 = 5_000;

fn reported(machine: &Machine, is_ready: bool) -> ObservedNode {
    ObservedNode {
        name: machine.name.clone(),
        cpu_millis: 1_000_000,
        memory_bytes: 1 << 50,
        ready: is_ready,
        open: is_ready,
        ..ObservedNode::default()
    }
}

impl State {
    /// Whether the engine's machine has failed.
    pub fn is_down(&self, engine: &EngineName) -> bool {
        let machine = self.agents.get(engine).map(|agent| &agent.machine);
        self.machines.iter().any(|one| Some(&one.name) == machine && self.now < one.down_until)
    }

    /// Whether the engine's machine is reported as not ready.
    pub fn is_unready(&self, engine: &EngineName) -> bool {
        let machine = self.agents.get(engine).map(|agent| &agent.machine);
        self.machines.iter().any(|one| Some(&one.name) == machine && !one.is_ready)
    }

    /// The engines on a machine that have not ended.
    fn engines_on(&self, machine: &str) -> Vec<EngineName> {
        let there = self.agents.iter().filter(|(_, agent)| agent.machine == machine && !agent.has_ended);
        there.map(|(engine, _)| engine.clone()).collect()
    }

    /// A machine fails.
    pub fn fail_machine(&mut self, at: usize, failing: Failing) {
        let at = at % MACHINES;
        let until = self.now + failing.lasted;
        let machine = &mut self.machines[at];
        machine.down_until = machine.down_until.max(until);
        let name = machine.name.clone();
        for engine in self.engines_on(&name) {
            let after = self.rng.millis(1, SESSION_TIMEOUT_MS);
            self.schedule(after, Event::Expire(engine.clone()));
            let Some(agent) = self.agents.get_mut(&engine) else { continue };
            agent.muted_until = agent.muted_until.max(until);
            if failing.end != FailureEnd::Reconnected {
                let sessions: Vec<u64> = agent.sessions.iter().copied().collect();
                for session in sessions {
                    let after = self.rng.millis(10, NOTICED_MS);
                    self.schedule(after, Event::Leave(session));
                }
            }
        }
        if failing.reported_after < failing.lasted {
            self.schedule(failing.reported_after, Event::Reachable(at, false));
        }
        self.schedule(failing.lasted, Event::MachineReturns(at, failing.end));
    }

    /// A machine returns, unless it has failed again.
    pub fn return_machine(&mut self, at: usize, end: FailureEnd) {
        if self.now < self.machines[at].down_until {
            return;
        }
        let name = self.machines[at].name.clone();
        for engine in self.engines_on(&name) {
            let Some(agent) = self.agents.get(&engine) else { continue };
            let uid = agent.uid.clone();
            let is_deleted = self.judge.deleted.contains(&uid);
            if is_deleted {
                self.memory.vanish(&engine);
            } else if end == FailureEnd::Restarted {
                self.memory.end(&engine, &End::signal(9));
            } else {
                let after = self.rng.millis(10, 3_000);
                self.schedule(after, Event::Register(engine, uid));
            }
        }
        self.notice_ended();
        let after = self.rng.millis(1, READY_MS);
        self.schedule(after, Event::Reachable(at, true));
    }

    /// The orchestrator reports whether a machine is ready.
    pub fn report_machine(&mut self, at: usize, is_ready: bool) {
        let is_down = self.now < self.machines[at].down_until;
        let machine = &mut self.machines[at];
        if machine.is_ready == is_ready || (is_ready && is_down) {
            return;
        }
        (machine.is_ready, machine.since) = (is_ready, self.now);
        self.set_machines();
        self.wake();
    }

    /// Engines are created on machines that are reported as ready.
    pub fn set_machines(&self) {
        let open: Vec<&str> =
            self.machines.iter().filter(|machine| machine.is_ready).map(|machine| machine.name.as_str()).collect();
        drop(self.memory.clone().with_capacity(&open, None));
        let nodes = self.machines.iter().map(|machine| reported(machine, machine.is_ready));
        self.memory.set_nodes(nodes.collect());
    }

    /// What a master reads of the machines.
    pub fn nodes_read(&self) -> Vec<ObservedNode> {
        let unregistered: BTreeSet<&String> = match self.mutant {
            Some(Mutant::RegistrationAlone) => {
                let lost = self.agents.iter().filter(|(engine, agent)| {
                    agent.has_registered && !agent.has_ended && self.nodes.registration(engine).is_none()
                });
                lost.map(|(_, agent)| &agent.machine).collect()
            }
            _ => BTreeSet::new(),
        };
        let mut nodes = ready(self.memory.nodes()).and_then(Result::ok).unwrap_or_default();
        for node in &mut nodes {
            node.ready &= !unregistered.contains(&node.name);
        }
        if self.mutant == Some(Mutant::NotSuspended) {
            // All that has failed looks like one machine.
            nodes.retain(|node| node.ready);
            nodes.extend(
                self.machines.first().map(|machine| ObservedNode { name: LOST.to_owned(), ..reported(machine, false) }),
            );
        }
        nodes
    }

    /// The name under which a master reads the machine of an instance.
    pub fn machine_read(&self, machine: Option<String>) -> Option<String> {
        let is_lost = |name: &String| self.machines.iter().any(|one| one.name == *name && !one.is_ready);
        match machine {
            Some(name) if self.mutant == Some(Mutant::NotSuspended) && is_lost(&name) => Some(LOST.to_owned()),
            other => other,
        }
    }

    /// Deletes an instance of a machine that has failed: it is terminating until the machine is back.
    pub fn delete_unreachable(&mut self, engine: &EngineName) {
        let found = ready(self.memory.get(engine, None)).and_then(Result::ok).flatten();
        if let Some(mut observed) = found {
            observed.phase = model::engine_state::Phase::Terminating;
            self.judge.deleted.insert(observed.uid.clone());
            self.memory.put(observed);
        }
    }
}

/// The machine that all failed ones are for a mutant.
const LOST: &str = "n-0";
