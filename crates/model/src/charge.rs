//! The charge of an engine: its pods, with the nominal size and the requests of each container, and their sums.
//!
//! A pure function of the engine's configuration and of what it runs in. The renderer of pods takes its numbers from
//! here, so the charge is what the pods request; with `CHARGE 'min'`, what they request while only `MIN_EXECUTORS` run.
//! The nominal size is what the engine may use. A request is what the scheduler reserves: the same memory, and the CPU
//! divided by the overcommit of the pool. Memory is never divided, because a shortage of memory kills the container.
//!
//! Every size is a whole number of MiB. A configured size is rounded up, so that no engine receives less than is configured,
//! and an overhead down, as Spark computes it. Within the limits of the catalog no sum overflows; beyond them sums
//! saturate.
//!
//! A charge that was computed from an old configuration describes the pods that were created from it.

use std::fmt;

use crate::catalog::{PoolSpec, UnitSpec};
use crate::configuration::Configuration;
use crate::engine_type::{AgentContainer, EngineType, Executors, MemoryOverhead, Resources};
use crate::instance::InstanceKind;
use crate::quantity::{Cpu, Memory};

const MIB: u64 = 1 << 20;
/// The memory of the agent's program: of its own container next to the engine's, else in addition to that of the engine.
const AGENT_MEMORY_BYTES: u64 = 256 * MIB;
/// The agent's own container. The agent only relays, so no overcommit divides its CPU.
const AGENT: Container =
    Container { cpu_millis: 100, cpu_request_millis: 100, memory_bytes: 0, overhead_bytes: AGENT_MEMORY_BYTES };

/// The pods of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charge {
    pub driver: DriverPod,
    /// `None` if engines of this type and kind have no executors.
    pub executors: Option<ExecutorPods>,
}

/// The pod that an engine begins with, or its local process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverPod {
    /// The engine, with the agent that contains it or has it as a child, if that has no container of its own.
    pub engine: Container,
    /// The agent's own container.
    pub agent: Option<Container>,
}

/// The executors of an engine: equal pods of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutorPods {
    /// How many are charged.
    pub count: u32,
    pub container: Container,
}

/// A container, or the part of a local process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Container {
    /// The CPU that it may use, in thousandths of a core.
    pub cpu_millis: u64,
    /// The CPU that it requests.
    pub cpu_request_millis: u64,
    /// The memory of the engine in it, in bytes; for Spark the heap. 0 if it contains only the agent.
    pub memory_bytes: u64,
    /// The memory that the container requests in addition, in bytes.
    pub overhead_bytes: u64,
}

/// A sum over the pods of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Total {
    /// In thousandths of a core.
    pub cpu_millis: u64,
    pub memory_bytes: u64,
    /// Always 1.
    pub engines: u64,
}

impl Charge {
    /// The charge of an engine of this configuration, with as many executors as it may have.
    pub fn new(configuration: &Configuration, kind: InstanceKind) -> Self {
        Sizes {
            engine_type: configuration.engine_type,
            driver: (configuration.driver_cpu, configuration.driver_memory),
            executor: (configuration.executor_cpu, configuration.executor_memory),
            executors: configuration.max_executors,
            overcommit_percent: divisor(kind, configuration.cpu_overcommit),
        }
        .charge(kind)
    }

    /// The same pods with the number of executors that the unit charges. It is no part of the configuration, because it
    /// changes neither the pods nor their number.
    #[must_use]
    pub fn charged_by(self, unit: &UnitSpec) -> Self {
        let executors = self.executors.map(|pods| ExecutorPods { count: unit.charged_executors(), ..pods });
        Self { executors, ..self }
    }

    /// The charge of an engine of this unit in a pool without overcommit.
    pub fn of_unit(unit: &UnitSpec, kind: InstanceKind) -> Self {
        Self::with_overcommit(unit, kind, None)
    }

    /// What an engine of this unit in this pool is charged: the same as by its configuration, which need not be computed.
    pub fn in_pool(unit: &UnitSpec, pool: &PoolSpec, kind: InstanceKind) -> Self {
        Self::with_overcommit(unit, kind, pool.cpu_overcommit)
    }

    fn with_overcommit(unit: &UnitSpec, kind: InstanceKind, overcommit_percent: Option<u32>) -> Self {
        Sizes {
            engine_type: unit.engine_type,
            driver: (unit.driver_cpu, unit.driver_memory),
            executor: (unit.executor_cpu, unit.executor_memory),
            executors: unit.charged_executors(),
            overcommit_percent: divisor(kind, overcommit_percent),
        }
        .charge(kind)
    }

    /// What the engine may use.
    pub fn nominal(&self) -> Total {
        self.sum(|container| container.cpu_millis)
    }

    /// What its pods request.
    pub fn requests(&self) -> Total {
        self.sum(|container| container.cpu_request_millis)
    }

    fn sum(&self, cpu_millis: impl Fn(&Container) -> u64) -> Total {
        let driver = std::iter::once((1, self.driver.engine)).chain(self.driver.agent.map(|agent| (1, agent)));
        let executors = self.executors.map(|executors| (u64::from(executors.count), executors.container));
        driver.chain(executors).fold(Total { cpu_millis: 0, memory_bytes: 0, engines: 1 }, |sum, (count, container)| {
            let cpu_millis = cpu_millis(&container).saturating_mul(count);
            let memory_bytes = container.memory_request_bytes().saturating_mul(count);
            Total {
                cpu_millis: sum.cpu_millis.saturating_add(cpu_millis),
                memory_bytes: sum.memory_bytes.saturating_add(memory_bytes),
                engines: sum.engines,
            }
        })
    }
}

impl Container {
    /// The memory that it requests, in bytes. It may use no more.
    pub const fn memory_request_bytes(&self) -> u64 {
        self.memory_bytes.saturating_add(self.overhead_bytes)
    }

    fn new((cpu, memory): (Cpu, Memory), overhead: MemoryOverhead, overcommit_percent: u64) -> Self {
        let memory_bytes = whole_mib(memory);
        let overhead_mib = match overhead {
            MemoryOverhead::None => 0,
            MemoryOverhead::OfHeap { divisor, min_mib } => (memory_bytes / MIB / divisor).max(min_mib),
        };
        Self {
            cpu_millis: cpu.millis(),
            cpu_request_millis: (cpu.millis() * 100).div_ceil(overcommit_percent),
            memory_bytes,
            overhead_bytes: overhead_mib * MIB,
        }
    }

    /// The same container with the agent in it.
    fn with_agent(self) -> Self {
        Self { overhead_bytes: self.overhead_bytes + AGENT_MEMORY_BYTES, ..self }
    }
}

/// What the charge follows from.
struct Sizes {
    engine_type: EngineType,
    driver: (Cpu, Memory),
    executor: (Cpu, Memory),
    executors: u32,
    /// Not zero.
    overcommit_percent: u64,
}

impl Sizes {
    fn charge(&self, kind: InstanceKind) -> Charge {
        let Resources { overhead, agent, executors } = self.engine_type.resources();
        let container = |size| Container::new(size, overhead, self.overcommit_percent);
        let engine = container(self.driver);
        let driver = match agent {
            AgentContainer::Engine => DriverPod { engine: engine.with_agent(), agent: None },
            AgentContainer::Own => DriverPod { engine, agent: Some(AGENT) },
        };
        let has_executors = executors == Executors::Used && kind == InstanceKind::Pod;
        Charge {
            driver,
            executors: has_executors
                .then(|| ExecutorPods { count: self.executors, container: container(self.executor) }),
        }
    }
}

/// What CPU is divided by, in percent. Only the CPU of pods is.
fn divisor(kind: InstanceKind, overcommit_percent: Option<u32>) -> u64 {
    match kind {
        InstanceKind::Process => 100,
        InstanceKind::Pod => u64::from(overcommit_percent.unwrap_or(100)).max(1),
    }
}

fn whole_mib(memory: Memory) -> u64 {
    memory.bytes().next_multiple_of(MIB)
}

impl fmt::Display for Charge {
    /// The nominal size: `1 CPU, 1280 MiB, 1 engine`, `5.1 CPU, 6528 MiB, 1 engine with 2 executors`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Total { cpu_millis, memory_bytes, .. } = self.nominal();
        let cpu = format!("{}.{:03}", cpu_millis / 1_000, cpu_millis % 1_000);
        let cpu = cpu.trim_end_matches('0').trim_end_matches('.');
        write!(f, "{cpu} CPU, {} MiB, 1 engine", memory_bytes / MIB)?;
        match self.executors {
            Some(ExecutorPods { count: 1, .. }) => write!(f, " with 1 executor"),
            Some(ExecutorPods { count: count @ 2.., .. }) => write!(f, " with {count} executors"),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::catalog::{ChargedExecutors, MAX_EXECUTORS_LIMIT};
    use crate::change::UnitPatch;
    use crate::configuration::Defaults;
    use crate::name::{PoolName, TenantName};
    use crate::quantity::{MAX_CPU_MILLIS, MAX_MEMORY_BYTES};

    fn unit(engine_type: EngineType, driver: (&str, &str), executor: (&str, &str), executors: u32) -> UnitSpec {
        let unit = UnitPatch::default().create(&Defaults::default()).unwrap();
        UnitSpec {
            engine_type,
            driver_cpu: driver.0.parse().unwrap(),
            driver_memory: driver.1.parse().unwrap(),
            executor_cpu: executor.0.parse().unwrap(),
            executor_memory: executor.1.parse().unwrap(),
            max_executors: executors,
            ..unit
        }
    }

    fn charge(unit: &UnitSpec, cpu_overcommit: u32, kind: InstanceKind) -> Charge {
        let pool = PoolSpec { cpu_overcommit: Some(cpu_overcommit), ..PoolSpec::default() };
        let (tenant, name) = (TenantName::new("t_1").unwrap(), PoolName::new("rp_1").unwrap());
        let configuration = Configuration::new(&tenant, &name, &pool, unit, &Defaults::default());
        Charge::new(&configuration, kind)
    }

    fn total(cpu_millis: u64, memory_mib: u64) -> Total {
        Total { cpu_millis, memory_bytes: memory_mib * MIB, engines: 1 }
    }

    fn datafusion() -> UnitSpec {
        unit(EngineType::Datafusion, ("1", "1G"), ("2", "2G"), 2)
    }

    fn spark() -> UnitSpec {
        unit(EngineType::Spark, ("1", "1G"), ("2", "2G"), 2)
    }

    #[test]
    fn an_embedded_engine_is_charged_its_size_and_its_agents_memory() {
        let charged = charge(&datafusion(), 200, InstanceKind::Pod);
        assert_eq!((charged.nominal(), charged.requests()), (total(1_000, 1_280), total(500, 1_280)));
        assert_eq!((charged.driver.agent, charged.executors), (None, None));
        assert_eq!(charged.to_string(), "1 CPU, 1280 MiB, 1 engine");
    }

    #[test]
    fn a_spark_engine_is_charged_its_driver_its_agent_and_its_executors() {
        let charged = charge(&spark(), 200, InstanceKind::Pod);
        assert_eq!((charged.nominal(), charged.requests()), (total(5_100, 6_528), total(2_600, 6_528)));
        assert_eq!(charged.to_string(), "5.1 CPU, 6528 MiB, 1 engine with 2 executors");
        let with = |executors| charge(&UnitSpec { max_executors: executors, ..spark() }, 100, InstanceKind::Pod);
        assert_eq!(with(1).to_string(), "3.1 CPU, 4096 MiB, 1 engine with 1 executor");
        assert_eq!(with(0).to_string(), "1.1 CPU, 1664 MiB, 1 engine");
        let whole = charge(&unit(EngineType::Datafusion, ("10", "1G"), ("1", "1G"), 0), 100, InstanceKind::Pod);
        assert_eq!(whole.to_string(), "10 CPU, 1280 MiB, 1 engine");
    }

    #[test]
    fn a_local_process_is_charged_its_driver_without_overcommit() {
        let charged = charge(&spark(), 200, InstanceKind::Process);
        assert_eq!((charged.nominal(), charged.requests()), (total(1_100, 1_664), total(1_100, 1_664)));
        assert_eq!(charged.to_string(), "1.1 CPU, 1664 MiB, 1 engine");
        let embedded = charge(&datafusion(), 200, InstanceKind::Process);
        assert_eq!(embedded, charge(&datafusion(), 100, InstanceKind::Pod));
    }

    #[test]
    fn a_unit_is_charged_as_in_a_pool_without_overcommit() {
        for unit in [datafusion(), spark()] {
            for kind in [InstanceKind::Process, InstanceKind::Pod] {
                assert_eq!(Charge::of_unit(&unit, kind), charge(&unit, 100, kind));
            }
        }
    }

    #[test]
    fn a_unit_in_a_pool_is_charged_as_by_the_configuration() {
        let least = UnitSpec { min_executors: 1, max_executors: 4, charge: ChargedExecutors::Min, ..spark() };
        for unit in [datafusion(), spark(), least] {
            for kind in [InstanceKind::Process, InstanceKind::Pod] {
                for cpu_overcommit in [None, Some(0), Some(100), Some(101), Some(300)] {
                    let pool = PoolSpec { cpu_overcommit, ..PoolSpec::default() };
                    let (tenant, name) = (TenantName::new("t_1").unwrap(), PoolName::new("rp_1").unwrap());
                    let configuration = Configuration::new(&tenant, &name, &pool, &unit, &Defaults::default());
                    let by_configuration = Charge::new(&configuration, kind).charged_by(&unit);
                    assert_eq!(Charge::in_pool(&unit, &pool, kind), by_configuration, "{cpu_overcommit:?}");
                }
            }
        }
    }

    #[test]
    fn a_unit_may_charge_its_fewest_executors_of_the_same_pods() {
        let unit = UnitSpec { min_executors: 1, max_executors: 4, charge: ChargedExecutors::Min, ..spark() };
        let (most, charged) =
            (charge(&unit, 200, InstanceKind::Pod), charge(&unit, 200, InstanceKind::Pod).charged_by(&unit));
        let (all, some) = (most.executors.unwrap(), charged.executors.unwrap());
        assert_eq!((all.count, some.count), (4, 1));
        assert_eq!((all.container, most.driver), (some.container, charged.driver), "the pods are the same");
        assert_eq!(charged.nominal(), total(3_100, 4_096));
        assert_eq!(
            Charge::of_unit(&unit, InstanceKind::Pod).to_string(),
            "3.1 CPU, 4096 MiB, 1 engine with 1 executor"
        );
        let most_again = most.charged_by(&UnitSpec { charge: ChargedExecutors::Max, ..unit.clone() });
        assert_eq!(most_again, most);
        // What has no executors is charged its driver.
        for kind in [InstanceKind::Process, InstanceKind::Pod] {
            let driver = charge(&datafusion(), 100, kind);
            assert_eq!(driver.charged_by(&unit), driver);
        }
    }

    #[test]
    fn sparks_overhead_is_a_tenth_rounded_down_and_at_least_384_mib() {
        for (heap_mib, request_mib) in
            [(1_024, 1_408), (2_048, 2_432), (4_096, 4_505), (8_192, 9_011), (20_480, 22_528), (3_839, 4_223)]
        {
            let memory = format!("{heap_mib}M");
            let charged = charge(&unit(EngineType::Spark, ("1", &memory), ("1", &memory), 1), 100, InstanceKind::Pod);
            for container in [charged.driver.engine, charged.executors.unwrap().container] {
                assert_eq!(container.memory_bytes, heap_mib * MIB);
                assert_eq!(container.memory_request_bytes(), request_mib * MIB, "{heap_mib}");
            }
        }
    }

    #[test]
    fn a_size_between_two_mib_is_rounded_up() {
        let charged = |memory| {
            let unit = unit(EngineType::Datafusion, ("1", memory), ("1", "1G"), 0);
            charge(&unit, 100, InstanceKind::Pod).nominal()
        };
        assert_eq!(charged("1B"), total(1_000, 257));
        assert_eq!(charged("1025K"), total(1_000, 258));
        // The overhead of a heap of 4096 MiB.
        let unit = unit(EngineType::Spark, ("1", "4194303K"), ("1", "1G"), 0);
        assert_eq!(charge(&unit, 100, InstanceKind::Pod).driver.engine.memory_request_bytes(), 4_505 * MIB);
    }

    #[test]
    fn each_containers_cpu_is_divided_and_rounded_up() {
        let unit = unit(EngineType::Spark, ("1m", "1G"), ("1234m", "1G"), 3);
        let charged = charge(&unit, 300, InstanceKind::Pod);
        assert_eq!(charged.driver.engine.cpu_request_millis, 1);
        assert_eq!(charged.executors.unwrap().container.cpu_request_millis, 412);
        assert_eq!(charged.requests().cpu_millis, 1 + 100 + 3 * 412);
        assert_eq!(charged.to_string(), "3.803 CPU, 5888 MiB, 1 engine with 3 executors");
    }

    #[test]
    fn the_largest_engine_of_the_catalog_has_an_exact_charge() {
        let (cpu, memory) = (format!("{MAX_CPU_MILLIS}m"), format!("{MAX_MEMORY_BYTES}B"));
        let largest = unit(EngineType::Spark, (&cpu, &memory), (&cpu, &memory), MAX_EXECUTORS_LIMIT);
        let heap_mib = u128::from(MAX_MEMORY_BYTES / MIB);
        let pods_mib = (heap_mib + heap_mib / 10) * u128::from(MAX_EXECUTORS_LIMIT + 1) + 256;
        let charged = Charge::of_unit(&largest, InstanceKind::Pod).nominal();
        assert_eq!(u128::from(charged.memory_bytes), pods_mib << 20);
        assert_eq!(charged.cpu_millis, MAX_CPU_MILLIS * u64::from(MAX_EXECUTORS_LIMIT + 1) + 100);
    }
}
