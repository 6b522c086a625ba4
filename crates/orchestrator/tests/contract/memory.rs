//! The harness of the fake.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::EngineName;
use model::clock::{Clock, ManualClock};
use orchestrator::memory::{Behaviour, End, Memory};
use orchestrator::{ObservedInstance, Orchestrator};

use super::harness::{Harness, Program};

struct InMemory {
    memory: Memory,
    clock: Arc<ManualClock>,
}

pub fn make() -> Arc<dyn Harness> {
    let clock = ManualClock::at(1_700_000_000_000);
    let memory = Memory::new(clock.clone()).with_capacity(&["node-1", "node-2"], Some(6));
    Arc::new(InMemory { memory, clock })
}

#[async_trait]
impl Harness for InMemory {
    fn instance(&self) -> Arc<dyn Orchestrator> {
        Arc::new(self.memory.clone())
    }

    fn program(&self, name: &EngineName, program: Program) -> (Vec<String>, BTreeMap<String, String>) {
        let behaviour = match program {
            Program::Obedient => Behaviour::default(),
            Program::Stubborn => Behaviour::stubborn(),
            Program::Fails => Behaviour::ending(Duration::ZERO, End::code(3).with_reason("a line\nwent wrong")),
        };
        self.memory.behave_as(name, behaviour);
        (vec!["/bin/engine".to_owned()], BTreeMap::new())
    }

    async fn wait_until_ready(&self, _: &EngineName) {}

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.memory.settle();
    }

    fn now_ms(&self) -> i64 {
        self.clock.wall_ms()
    }

    fn kill(&self, engine: &ObservedInstance) {
        assert!(self.memory.end(&engine.name, &End::signal(9)));
    }

    fn edit_label(&self, name: &EngineName, label: &str, value: &str) {
        assert!(self.memory.set_label(name, label, value));
    }

    fn remove_by_hand(&self, engine: &ObservedInstance) {
        assert!(self.memory.vanish(&engine.name));
    }
}
