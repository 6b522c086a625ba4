//! The names and changes of the catalog: one pool with a capacity, one unit for each size of engine, and the tenants.

use model::change::{Change, ObjectPatch, PoolPatch, QuotaPatch, Setting, TenantPatch, UnitPatch};
use model::engine_type::EngineType;
use model::quota::{Capacity, DeclaredAmount, TransferLimit};
use model::slot::Link;
use model::{PoolName, QuotaName, TenantName, UnitName};

use super::schedule::{SHAPES, Trace};

pub fn pool() -> PoolName {
    PoolName::new("rp_1").unwrap()
}

pub fn tenant(number: usize) -> TenantName {
    TenantName::new(format!("t_{number:02}")).unwrap()
}

/// The user who starts the tenant's engines.
pub fn user(tenant: usize) -> String {
    format!("user_{tenant:02}")
}

pub fn unit(shape: usize) -> String {
    format!("cores_{}", SHAPES[shape].cores)
}

pub fn link(tenant_number: usize, shape: usize) -> Link {
    Link { tenant: tenant(tenant_number), pool: pool(), unit: UnitName::new(unit(shape)).unwrap() }
}

fn cpu(cores: usize) -> DeclaredAmount {
    DeclaredAmount { cpu: Some(cores.to_string().parse().unwrap()), ..DeclaredAmount::default() }
}

/// What an admin creates before the trace; `guaranteed` is the guaranteed CPU of each tenant.
pub fn creates(trace: &Trace, guaranteed: Option<i64>) -> Vec<Change> {
    let units: Vec<UnitName> = (0..SHAPES.len()).map(|shape| UnitName::new(unit(shape)).unwrap()).collect();
    let mut objects: Vec<ObjectPatch> = Vec::new();
    for (name, of) in units.iter().zip(&SHAPES) {
        let patch = UnitPatch {
            engine_type: Some(EngineType::Datafusion),
            driver_cpu: Some(of.cores.to_string().parse().unwrap()),
            driver_memory: Some("1G".parse().unwrap()),
            max_engines: Some(u32::try_from(of.requests).unwrap()),
            ..UnitPatch::default()
        };
        objects.push(ObjectPatch::ResourceUnit(name.clone(), patch));
    }
    let capacity = Setting::Set(Capacity::Amount(cpu(trace.cores)));
    objects.push(ObjectPatch::ResourcePool(pool(), PoolPatch { units: Some(units), capacity, ..PoolPatch::default() }));
    for number in 0..trace.tenants {
        let patch = TenantPatch { pools: Some(vec![pool()]), ..TenantPatch::default() };
        objects.push(ObjectPatch::Tenant(tenant(number), patch));
        let Some(cores) = guaranteed else { continue };
        let patch = QuotaPatch {
            tenant: Some(tenant(number)),
            pool: Some(pool()),
            guarantee: Setting::Set(cpu(usize::try_from(cores).unwrap())),
            borrow_limit: Setting::Set(TransferLimit::Unlimited),
            ..QuotaPatch::default()
        };
        objects.push(ObjectPatch::ResourceQuota(QuotaName::new(format!("q_{number:02}")).unwrap(), patch));
    }
    objects.into_iter().map(|object| Change::Create { if_not_exists: false, object }).collect()
}
