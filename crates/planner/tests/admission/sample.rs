//! Pools, tenants and requests to test with. Amounts are CPU in cores unless noted.

use std::sync::Arc;
use std::time::Duration;

use model::ledger::{Amounts, Holder, Ledger, Moment, PoolCapacity, Request as Reserve, Scope, ScopeKey, Scopes};
use model::name::{PoolName, TenantName, UnitName};
use model::number::{Epoch, Incarnation};
use model::quota::{Guarantee, Limit};
use model::resource::{Amount, Triple};
use planner::{Admission, AdmissionRules, Headroom, NodeAmount, NodeCapacity, Nodes, PATIENCE, Pods, Request, admit};

pub const POOL: &str = "rp_1";
pub const NOW_MS: i64 = 1_000_000;
pub const AT: Moment = Moment { now_ms: NOW_MS, epoch: Epoch(1) };
/// Requests of now: their patience has not ended.
pub const RECENT_MS: i64 = NOW_MS - 1_000;

/// A quota of CPU on the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub guarantee: i64,
    pub borrow: Limit,
    pub lend: Limit,
    pub weight: u32,
}

/// A guarantee that lends everything, and borrows this much. An option, because a tenant may have no quota.
#[allow(clippy::unnecessary_wraps)]
pub fn quota(guarantee: i64, borrow: Limit) -> Option<Quota> {
    Some(Quota { guarantee, borrow, lend: Limit::Unlimited, weight: 1 })
}

fn millis(limit: Limit) -> Limit {
    match limit {
        Limit::Of(cores) => Limit::Of(1_000 * cores),
        Limit::Unlimited => Limit::Unlimited,
    }
}

const fn of_cpu<T: Copy>(cpu_m: T, other: T) -> Triple<T> {
    Triple { cpu_m, memory: other, engines: other }
}

pub fn tenant_name(tenant: &str) -> TenantName {
    TenantName::new(tenant).unwrap()
}

pub fn tenant_key(tenant: &str) -> ScopeKey {
    ScopeKey::tenant(&tenant_name(tenant), &PoolName::new(POOL).unwrap())
}

/// A pool of this capacity with these tenants; without quotas they share what no guarantee covers.
pub fn pool(capacity: Limit, tenants: &[(&str, Option<Quota>)]) -> Headroom {
    overcommitted(capacity, 0, 100, tenants)
}

pub fn overcommitted(
    capacity: Limit,
    protected: i64,
    overcommit_percent: u32,
    tenants: &[(&str, Option<Quota>)],
) -> Headroom {
    let guarantee = |quota: &Option<Quota>| {
        let guarantee = quota.map(|quota| Guarantee {
            amount: 1_000 * quota.guarantee,
            borrow: millis(quota.borrow),
            lend: millis(quota.lend),
        });
        of_cpu(guarantee, None)
    };
    let guarantees: Vec<_> = tenants.iter().map(|(_, quota)| guarantee(quota)).collect();
    let capacity = PoolCapacity {
        capacity: of_cpu(millis(capacity), Limit::Unlimited),
        protected: of_cpu(1_000 * protected, 0),
        overcommit_percent,
    };
    let mut ledger = Ledger::default();
    ledger.put_scope(ScopeKey::pool(&PoolName::new(POOL).unwrap()), capacity.scope(&guarantees).unwrap());
    let mut headroom = Headroom::default();
    for ((tenant, quota), guarantee) in tenants.iter().zip(&guarantees) {
        ledger.put_scope(tenant_key(tenant), Scope::tenant(guarantee));
        if let Some(quota) = quota {
            headroom.weights.insert(tenant_key(tenant), quota.weight);
        }
    }
    Headroom { ledger, ..headroom }
}

/// A user with a limit of CPU.
pub fn put_user(headroom: &mut Headroom, user: &str, limit: i64) {
    let limit = of_cpu(Limit::Of(1_000 * limit), Limit::Unlimited);
    headroom.ledger.put_scope(ScopeKey::user(user), Scope::principal(limit));
}

/// Nodes of the pool that have `allocatable` and `used` cores.
pub fn put_nodes(headroom: &mut Headroom, nodes: &[(u64, u64)]) {
    let name = |number: usize| format!("node-{number:03}");
    let capacities = nodes.iter().enumerate().map(|(number, (allocatable, used))| NodeCapacity {
        name: name(number),
        allocatable: node_cores(*allocatable),
        used: node_cores(*used),
        open: true,
    });
    headroom.nodes = Nodes::new(capacities, [(POOL.to_owned(), (0..nodes.len()).map(name).collect())]);
}

pub const fn node_cores(count: u64) -> NodeAmount {
    NodeAmount { cpu_millis: 1_000 * count, memory_bytes: count << 30 }
}

pub fn amounts(millis: i64, request_millis: i64) -> Amounts {
    Amounts::new(Amount { cpu_m: millis, memory: 0, engines: 1 }, request_millis, 0).unwrap()
}

pub fn reserve(id: &str, tenant: &str, user: Option<&str>, amounts: Amounts) -> Arc<Reserve> {
    Arc::new(Reserve {
        id: id.into(),
        holder: Holder::Engine { unit: UnitName::new("uc_1").unwrap(), incarnation: Incarnation(1) },
        lineage: format!("lineage of {id}").into(),
        scopes: Scopes::new(&tenant_name(tenant), &PoolName::new(POOL).unwrap(), user, None),
        amounts,
        asked: None,
        ttl_ms: None,
    })
}

/// A recent request of an engine of so many cores, for no user and no node.
pub fn request(id: &str, tenant: &str, cores: i64) -> Request {
    Request {
        reservation: reserve(id, tenant, None, amounts(1_000 * cores, 1_000 * cores)),
        replaces: None,
        priority: 0,
        asked_at_ms: RECENT_MS,
        pods: None,
    }
}

pub fn for_user(id: &str, tenant: &str, user: &str, cores: i64) -> Request {
    let reservation = reserve(id, tenant, Some(user), amounts(1_000 * cores, 1_000 * cores));
    Request { reservation, ..request(id, tenant, cores) }
}

/// The same request by an engine of one pod.
pub fn on_a_node(request: Request) -> Request {
    let cpu_millis = request.reservation.amounts.requests().cpu_m.unsigned_abs();
    let driver = NodeAmount { cpu_millis, memory_bytes: (cpu_millis / 1_000) << 30 };
    Request { pods: Some(Pods::single(driver)), ..request }
}

/// So many equal requests; their ids continue with a number.
pub fn requests(id: &str, tenant: &str, cores: i64, count: usize) -> Vec<Request> {
    (0..count).map(|number| request(&format!("{id}{number:03}"), tenant, cores)).collect()
}

/// Charges a running engine regardless of limits.
pub fn hold(headroom: &mut Headroom, id: &str, tenant: &str, cores: i64) {
    headroom.ledger.adopt(&request(id, tenant, cores).reservation, "uid", AT).unwrap();
}

pub fn rules() -> AdmissionRules {
    AdmissionRules { at: AT, patience: PATIENCE, awaiting: [].into() }
}

pub fn waited(request: Request, duration: Duration) -> Request {
    let asked_at_ms = NOW_MS - i64::try_from(duration.as_millis()).unwrap();
    Request { asked_at_ms, ..request }
}

/// Grants what fits, and returns the ids of the grants.
pub fn granted(requests: &[Request], headroom: &mut Headroom) -> Vec<String> {
    ids(&admit(requests, headroom, &rules()))
}

pub fn ids(admission: &Admission<'_>) -> Vec<String> {
    admission.granted.iter().map(|request| request.id().to_owned()).collect()
}
