//! The charge of an engine is what its pods request.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use model::catalog::MAX_EXECUTORS_LIMIT;
use model::charge::Charge;
use model::configuration::Configuration;
use model::engine_type::EngineType;
use model::instance::InstanceKind;
use model::quantity::{Cpu, MAX_CPU_MILLIS, MAX_MEMORY_BYTES, Memory};
use orchestrator::Spec;
use orchestrator::kubernetes::render;
use proptest::prelude::*;

use super::requests;
use super::support::{EPOCH, config, configuration, signer, spark, spec};

/// The engine's pod, the number of its executors at most, and the pod of one executor.
fn pods(spec: &Spec) -> (Pod, u64, Option<Pod>) {
    let objects = render::engine(spec, &config(), &signer(), EPOCH).unwrap();
    let Some(config_map) = objects.owned.config_map else { return (objects.pod, 0, None) };
    let properties = String::from_utf8(objects.owned.secret.data.unwrap()["spark.properties"].0.clone()).unwrap();
    let (count, executor) = requests::executors(&properties, &config_map.data.unwrap()["executor-template.json"]);
    (objects.pod, count, Some(executor))
}

/// Sizes of every magnitude, also those that are not whole MiB.
fn size(most: u64) -> impl Strategy<Value = u64> {
    (0..most.ilog2(), any::<u64>()).prop_map(move |(bits, random)| (random % (1 << bits) + (1 << bits)).min(most))
}

prop_compose! {
    fn any_configuration()(
        engine_type in prop::sample::select(EngineType::ALL.to_vec()),
        cpu in [size(MAX_CPU_MILLIS), size(MAX_CPU_MILLIS)],
        memory in [size(MAX_MEMORY_BYTES), size(MAX_MEMORY_BYTES)],
        max_executors in prop_oneof![0..3u32, 0..=MAX_EXECUTORS_LIMIT],
        min_executors in 0..3u32,
        cpu_overcommit in prop::option::of(101..=1_000u32),
    ) -> Configuration {
        Configuration {
            cpu_overcommit,
            driver_cpu: Cpu::from_millis(cpu[0]).unwrap(),
            driver_memory: Memory::from_bytes(memory[0]).unwrap(),
            executor_cpu: Cpu::from_millis(cpu[1]).unwrap(),
            executor_memory: Memory::from_bytes(memory[1]).unwrap(),
            min_executors: min_executors.min(max_executors),
            max_executors,
            ..configuration(engine_type)
        }
    }
}

proptest! {
    #[test]
    fn the_pods_of_an_engine_request_its_charge(configuration in any_configuration()) {
        let (pod, count, executor) = pods(&spec(&configuration, 1));
        let (mut cpu_millis, mut memory_bytes) = requests::sum([&pod]);
        for (cpu, memory) in executor.iter().map(|pod| requests::sum([pod])) {
            cpu_millis += count * cpu;
            memory_bytes += count * memory;
        }
        let charged = Charge::new(&configuration, InstanceKind::Pod).requests();
        prop_assert_eq!((charged.cpu_millis, charged.memory_bytes), (cpu_millis, memory_bytes));
    }

    #[test]
    fn a_container_may_use_its_nominal_size_and_no_more(configuration in any_configuration()) {
        let (pod, _, executor) = pods(&spec(&configuration, 1));
        let containers = [Some(&pod), executor.as_ref()].into_iter().flatten().flat_map(|pod| &pod.spec.as_ref().unwrap().containers);
        for container in containers {
            let resources = container.resources.clone().unwrap();
            let (limits, requests) = (resources.limits.unwrap(), resources.requests.unwrap());
            prop_assert_eq!(&limits["memory"], &requests["memory"]);
            let cpu = match (container.name.as_str(), configuration.engine_type) {
                ("engine-agent", EngineType::Spark) => continue,
                ("spark-kubernetes-executor", _) => configuration.executor_cpu,
                _ => configuration.driver_cpu,
            };
            prop_assert_eq!(requests::cpu_millis(&limits["cpu"].0), cpu.millis());
        }
    }
}

#[test]
fn each_container_requests_its_part_of_the_charge() {
    let (pod, count, executor) = pods(&spark(1));
    let containers = |amounts: &[(&str, u64, u64)]| -> BTreeMap<String, requests::Amount> {
        amounts.iter().map(|(name, cpu, mib)| ((*name).to_owned(), (*cpu, mib << 20))).collect()
    };
    assert_eq!(requests::of_containers(&pod), containers(&[("engine-agent", 100, 256), ("spark", 500, 1_408)]));
    let executor = requests::of_containers(&executor.unwrap());
    assert_eq!((count, executor), (4, containers(&[("spark-kubernetes-executor", 1_000, 2_432)])));
}
