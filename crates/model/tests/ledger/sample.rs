//! Scopes and requests to test with.

use std::sync::Arc;

use model::ledger::{
    Amounts, Claim, End, Holder, Ledger, Moment, PoolCapacity, Refusal, Request, Scope, ScopeKey, Scopes, Shortage,
    State,
};
use model::name::{PoolName, TenantName, UnitName};
use model::number::{Epoch, Incarnation};
use model::quota::{Guarantee, Limit};
use model::resource::{Amount, Triple};

pub const UNLIMITED: Triple<Limit> = Triple::all(Limit::Unlimited);
pub const NO_GUARANTEE: Triple<Option<Guarantee>> = Triple::all(None);

pub fn tenant_name(name: &str) -> TenantName {
    TenantName::new(name).unwrap()
}

pub fn pool_name(name: &str) -> PoolName {
    PoolName::new(name).unwrap()
}

pub fn tenant(name: &str) -> ScopeKey {
    ScopeKey::tenant(&tenant_name(name), &pool_name("rp_1"))
}

pub fn pool() -> ScopeKey {
    ScopeKey::pool(&pool_name("rp_1"))
}

/// A limit of CPU in thousandths of a core.
pub const fn cpu(limit: i64) -> Triple<Limit> {
    Triple { cpu_m: Limit::Of(limit), ..UNLIMITED }
}

/// A guarantee of CPU in thousandths of a core.
pub const fn guarantee(amount: i64, borrow: Limit, lend: Limit) -> Triple<Option<Guarantee>> {
    Triple { cpu_m: Some(Guarantee { amount, borrow, lend }), memory: None, engines: None }
}

pub fn capacity(cpu_m: i64) -> PoolCapacity {
    PoolCapacity { capacity: cpu(cpu_m), protected: Amount::ZERO, overcommit_percent: 100 }
}

/// Pool `rp_1` with these tenants.
pub fn ledger(capacity: PoolCapacity, tenants: &[(&str, Triple<Option<Guarantee>>)]) -> Ledger {
    let guarantees: Vec<_> = tenants.iter().map(|(_, guarantee)| *guarantee).collect();
    let of_pool = capacity.scope(&guarantees).unwrap();
    let of_tenants = tenants.iter().map(|(name, guarantee)| (tenant(name), Scope::tenant(guarantee)));
    Ledger::new(of_tenants.chain([(pool(), of_pool)]), [])
}

pub const fn at(now_ms: i64) -> Moment {
    Moment { now_ms, epoch: Epoch(1) }
}

/// An engine of a lineage of tenant `t` in `rp_1` without user and creator.
pub fn engine(tenant: &str, lineage: &str, incarnation: i64, amounts: Amounts) -> Request {
    Request {
        id: format!("{lineage}-{incarnation}").into(),
        holder: Holder::Engine { unit: UnitName::new("uc_1").unwrap(), incarnation: Incarnation(incarnation) },
        lineage: lineage.into(),
        scopes: Scopes::new(&tenant_name(tenant), &pool_name("rp_1"), None, None),
        amounts,
        asked: None,
        ttl_ms: Some(360),
    }
}

pub fn external(id: &str, user: Option<&str>, amounts: Amounts) -> Request {
    Request {
        id: id.into(),
        holder: Holder::External { key: format!("key of {id}").into(), instance: "program".into() },
        lineage: id.into(),
        scopes: Scopes::new(&tenant_name("t_a"), &pool_name("rp_1"), user, None),
        amounts,
        asked: None,
        ttl_ms: Some(300),
    }
}

/// One engine of this many thousandths of a core, which requests as much.
pub fn cores(cpu_m: i64) -> Amounts {
    Amounts::same(Amount { cpu_m, memory: 0, engines: 1 }).unwrap()
}

pub fn claim(request: &Request, uid: &str) -> Claim {
    Claim {
        id: Arc::clone(&request.id),
        user: request.scopes.user_name().unwrap_or_default().to_owned(),
        pool: request.scopes.pool_name().to_owned(),
        uid: uid.to_owned(),
    }
}

pub fn end(request: &Request, state: State) -> End {
    End { id: Arc::clone(&request.id), state, reason: "it ended".into() }
}

/// What the refusal is short of.
pub fn short(refusal: Refusal) -> Shortage {
    match refusal {
        Refusal::Short(shortage) => *shortage,
        other => panic!("{other:?}"),
    }
}

/// What the scope holds of CPU.
pub fn held(ledger: &Ledger, key: &ScopeKey) -> i64 {
    ledger.scope(key).unwrap().counter.held.cpu_m
}
