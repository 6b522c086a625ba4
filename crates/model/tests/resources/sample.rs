//! Resources to test with.

use model::resource::{Kind, LoadInstance, Queue, Resource};

pub const GIB: i64 = 1 << 30;

pub fn read(json: &str) -> Resource {
    Resource::from_json(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

pub fn load(memory: i64, cpu_m: i64) -> Resource {
    Resource::Load { memory, cpu_m }
}

pub fn instances(memory: i64, cpu_m: i64, instances: i64) -> LoadInstance {
    LoadInstance { memory, cpu_m, instances }
}

pub fn queue(name: &str, load: LoadInstance) -> Queue {
    Queue { queue: name.to_owned(), load }
}

pub fn special(amounts: &[(&str, i64)]) -> Resource {
    let amounts = amounts.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect();
    Resource::Special(model::resource::Special::new(amounts).unwrap())
}

/// A resource of this kind. Every component is a different number, so that none can be mistaken for another.
pub fn of_kind(kind: Kind) -> Resource {
    match kind {
        Kind::Memory => Resource::Memory { memory: 101 },
        Kind::Cpu => Resource::Cpu { cpu_m: 103 },
        Kind::Load => load(107, 109),
        Kind::LoadInstance => Resource::LoadInstance(instances(113, 127, 131)),
        Kind::Queue => Resource::Queue(queue("root.a", instances(137, 139, 149))),
        Kind::DriverAndExecutor => Resource::DriverAndExecutor {
            driver: instances(151, 157, 163),
            executors: queue("root.a", instances(167, 173, 179)),
        },
        Kind::Special => special(&[("nvidia.com/gpu", 181)]),
    }
}
