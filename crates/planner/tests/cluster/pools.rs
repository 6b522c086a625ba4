//! Pools with quotas and capacities, as fixtures of plans that reserve.

use model::engine_name::EngineName;
use model::instance::InstanceKind;
use model::ledger::Change;
use model::name::PoolName;
use model::quota::Limit;
use model::resource::Triple;
use planner::{Action, EngineLoad, NodeAmount, NodeCapacity, Plan, Wait};

use super::Cluster;

pub const IDLE: EngineLoad = EngineLoad { sessions: 0, running: 0 };

pub fn commit(cluster: &mut Cluster, object: model::change::ObjectPatch) {
    let change = cluster.change_to(object);
    cluster.commit(&change).unwrap();
    tick(cluster);
}

pub fn pool(cluster: &mut Cluster, options: &[(&str, &str)]) {
    commit(cluster, Cluster::pool("rp_1", &options.iter().copied().collect()));
}

pub fn quota(cluster: &mut Cluster, tenant: &str, cpu: &str, borrow: &str) {
    let options = [("tenant", tenant), ("pool", "rp_1"), ("cpu", cpu), ("borrow", borrow)];
    commit(cluster, Cluster::quota(&format!("q_{tenant}"), &options.into()));
}

/// The same with pods, which have nodes.
pub fn with_nodes(cpu: &str, options: &[(&str, &str)]) -> Cluster {
    let mut cluster = with(&[], cpu, &[]);
    cluster.simulation.desired.defaults.instances = InstanceKind::Pod;
    cluster.rules.defaults.instances = InstanceKind::Pod;
    pool(&mut cluster, options);
    commit(&mut cluster, Cluster::tenant("t_a", &[("pools", "rp_1")].into()));
    cluster
}

/// Tenants on pool `rp_1`, which offers unit `uc_1` with engines of this much CPU and has these options.
pub fn with(tenants: &[&str], cpu: &str, options: &[(&str, &str)]) -> Cluster {
    let mut cluster = Cluster::new();
    commit(&mut cluster, Cluster::unit("uc_1", &[("cpu", cpu), ("memory", "1G"), ("max", "100")].into()));
    let options: Vec<(&str, &str)> = options.iter().copied().chain([("units", "uc_1")]).collect();
    pool(&mut cluster, &options);
    for tenant in tenants {
        commit(&mut cluster, Cluster::tenant(tenant, &[("pools", "rp_1")].into()));
    }
    cluster
}

pub fn start(cluster: &mut Cluster, tenant: &str, count: usize) -> Vec<EngineName> {
    (0..count).map(|_| cluster.start(&format!("{tenant}/rp_1/uc_1"))).collect()
}

pub fn tick(cluster: &mut Cluster) -> Plan {
    let plan = cluster.simulation.plan();
    super::ledger_judge::judge_changes(cluster, &plan);
    cluster.simulation.apply(&plan);
    super::ledger_judge::judge_sums(cluster);
    plan
}

pub fn settle(cluster: &mut Cluster) -> Plan {
    cluster.settle(|_, _| {});
    cluster.simulation.plan()
}

pub fn verbs(plan: &Plan) -> Vec<&'static str> {
    plan.decisions().map(planner::Decision::verb).collect()
}

pub fn queued(plan: &Plan) -> Vec<&Wait> {
    plan.waits.iter().filter(|wait| wait.is_queued).collect()
}

pub fn reasons(plan: &Plan) -> Vec<&str> {
    queued(plan).into_iter().map(|wait| wait.reason.as_str()).collect()
}

pub fn count(plan: &Plan, pool: &str) -> Option<i64> {
    plan.queued.as_ref().unwrap().get(&PoolName::new(pool).unwrap()).copied()
}

pub fn running(cluster: &Cluster) -> usize {
    cluster.simulation.observed.instances.len()
}

pub fn ledger_changes(plan: &Plan) -> impl Iterator<Item = &Change> {
    plan.decisions().filter_map(|decision| match &decision.action {
        Action::Ledger(change) => Some(&change.change),
        _ => None,
    })
}

pub fn retired(plan: &Plan) -> Vec<(&EngineName, String)> {
    let retired = plan.decisions().filter_map(|decision| match &decision.action {
        Action::Retire { reclaimed_for, .. } => Some((decision.engine.as_ref().unwrap(), reclaimed_for.to_string())),
        _ => None,
    });
    retired.collect()
}

pub fn idle(cluster: &mut Cluster) {
    let observed = &mut cluster.simulation.observed;
    let loads = observed.instances.iter().map(|instance| (instance.name.clone(), IDLE));
    observed.loads = loads.collect::<std::collections::BTreeMap<_, _>>().into();
}

/// Nodes of the pool with so many cores each, all of them free.
pub fn nodes(cluster: &mut Cluster, cores: &[u64]) {
    let node = |(number, cores): (usize, &u64)| NodeCapacity {
        name: format!("node-{number}"),
        allocatable: NodeAmount { cpu_millis: 1_000 * cores, memory_bytes: cores << 33 },
        used: NodeAmount::ZERO,
        open: true,
    };
    cluster.simulation.observed.capacity = cores.iter().enumerate().map(node).collect();
}

pub fn measure(cluster: &mut Cluster, cores: i64) {
    let capacity = Triple { cpu_m: Limit::Of(1_000 * cores), ..Triple::all(Limit::Unlimited) };
    cluster.simulation.measure([(PoolName::new("rp_1").unwrap(), capacity)].into());
}
