//! What pods request, as they state it, and the executors that Spark creates from its properties and their template.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// CPU in thousandths of a core, and memory in bytes.
pub type Amount = (u64, u64);

/// The requests of a pod's containers, by name.
pub fn of_containers(pod: &Pod) -> BTreeMap<String, Amount> {
    let amounts = |resources: Option<&ResourceRequirements>| {
        let requests = resources.and_then(|resources| resources.requests.clone()).unwrap();
        (cpu_millis(&requests["cpu"].0), memory_bytes(&requests["memory"].0))
    };
    let containers = pod.spec.as_ref().unwrap().containers.iter();
    containers.map(|container| (container.name.clone(), amounts(container.resources.as_ref()))).collect()
}

/// The sum over some pods.
pub fn sum<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Amount {
    let containers = pods.into_iter().flat_map(|pod| of_containers(pod).into_values());
    containers.fold((0, 0), |(cpu, memory), (more_cpu, more_memory)| (cpu + more_cpu, memory + more_memory))
}

/// As an API server writes it.
pub fn cpu_millis(quantity: &str) -> u64 {
    match quantity.strip_suffix('m') {
        Some(millis) => millis.parse().unwrap(),
        None => match quantity.strip_suffix('k') {
            Some(thousands) => thousands.parse::<u64>().unwrap() * 1_000_000,
            None => quantity.parse::<u64>().unwrap() * 1_000,
        },
    }
}

/// As an API server writes it.
pub fn memory_bytes(quantity: &str) -> u64 {
    let units = [("Mi", 20), ("Gi", 30), ("Ti", 40)];
    let (number, power) = units.iter().find_map(|(unit, power)| Some((quantity.strip_suffix(unit)?, power))).unwrap();
    number.parse::<u64>().unwrap() << power
}

/// The number of executors at most, and the pod of one, as Spark creates it.
pub fn executors(properties: &str, template: &str) -> (u64, Pod) {
    let properties: BTreeMap<&str, &str> = properties.lines().filter_map(|line| line.split_once('=')).collect();
    let number = |key: &str| properties[key].trim_end_matches('m').parse::<u64>().unwrap();
    let count = match (properties["spark.master"], properties["spark.dynamicAllocation.enabled"]) {
        (master, _) if master.starts_with("local") => 0,
        (_, "true") => number("spark.dynamicAllocation.maxExecutors"),
        _ => number("spark.executor.instances"),
    };
    let memory = format!("{}Mi", number("spark.executor.memory") + number("spark.executor.memoryOverhead"));
    let quantities = |cores: &str| {
        let quantity = |text: &str| Quantity(text.to_owned());
        Some([("cpu".to_owned(), quantity(properties[cores])), ("memory".to_owned(), quantity(&memory))].into())
    };
    let mut pod: Pod = serde_json::from_str(template).unwrap();
    let container = &mut pod.spec.as_mut().unwrap().containers[0];
    assert_eq!(container.resources, None, "Spark replaces what a template requests");
    container.resources = Some(ResourceRequirements {
        limits: quantities("spark.kubernetes.executor.limit.cores"),
        requests: quantities("spark.kubernetes.executor.request.cores"),
        claims: None,
    });
    container.image = Some(properties["spark.kubernetes.container.image"].to_owned());
    (count, pod)
}
