//! What the judges know of failed nodes: which engines a plan may treat as unreachable.

use model::engine_name::EngineName;

use super::Cluster;

/// Whether the engine may be unreachable: it has an instance, all its instances are on nodes that are not ready, and it is not
/// registered. Whether that has lasted long enough is not judged here.
pub fn may_be_unreachable(cluster: &Cluster, engine: &EngineName) -> bool {
    let observed = &cluster.simulation.observed;
    let mut instances = observed.instances.iter().filter(|instance| instance.name == *engine).peekable();
    instances.peek().is_some()
        && observed.registrations.iter().all(|registration| registration.engine != *engine)
        && instances.all(|instance| instance.node.as_ref().is_some_and(|node| observed.unready.contains_key(node)))
}
