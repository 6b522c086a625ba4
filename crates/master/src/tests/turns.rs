//! Creates that hang: they delay no other tenant.

use std::time::Duration;

use model::change::{ObjectPatch, PoolPatch, TenantPatch, UnitPatch};
use model::{Epoch, PoolName, TenantName, UnitName};
use tokio_util::sync::CancellationToken;

use super::fake::{Fake, Fault, create, settings};
use crate::settings::Settings;
use crate::tick::Reconciler;

/// Tenant `t_1` wants `many` engines, tenant `t_2` one. Slots of `t_1` come first in the catalog's order.
fn two_tenants(many: u32) -> std::sync::Arc<Fake> {
    let fake = Fake::with_engines_wanted(many);
    let unit = UnitName::new("uc_2").unwrap();
    let (pool, tenant) = (PoolName::new("rp_2").unwrap(), TenantName::new("t_2").unwrap());
    let patch = UnitPatch { min_engines: Some(1), ..UnitPatch::default() };
    fake.commit("setup-4", &create(ObjectPatch::ResourceUnit(unit.clone(), patch)));
    let patch = PoolPatch { units: Some(vec![unit]), ..PoolPatch::default() };
    fake.commit("setup-5", &create(ObjectPatch::ResourcePool(pool.clone(), patch)));
    let patch = TenantPatch { pools: Some(vec![pool]), ..TenantPatch::default() };
    fake.commit("setup-6", &create(ObjectPatch::Tenant(tenant, patch)));
    fake
}

#[tokio::test]
async fn hanging_creates_of_one_tenant_do_not_delay_another() {
    let fake = two_tenants(70);
    let settings = Settings { effect_deadline: Duration::from_millis(20), ..settings() };
    let mut reconciler = Reconciler::new(settings, Epoch(1), fake.state().now(), CancellationToken::new());
    fake.run_clock();
    fake.script("create engine t-1-", Fault::Hangs);
    for _ in 0..2 {
        reconciler.tick(&*fake).await;
        // The back-off of creates that hung is over whenever a tick begins.
        fake.pass(Duration::from_mins(1));
    }
    assert_eq!(fake.state().simulation.observed.instances.len(), 1, "t_2 has its engine");
    // It ends while t_1 keeps the master busy: its replacement is not delayed either.
    for _ in 0..8 {
        reconciler.tick(&*fake).await;
        fake.pass(Duration::from_mins(1));
    }
    let first = fake.state().simulation.observed.instances[0].uid.clone();
    fake.state().simulation.end(&first, "exit code 1");
    for _ in 0..5 {
        reconciler.tick(&*fake).await;
        fake.pass(Duration::from_mins(1));
    }
    let state = fake.state();
    let alive: Vec<_> = state.simulation.observed.instances.iter().filter(|instance| instance.is_alive()).collect();
    assert!(alive.len() == 1 && alive[0].uid != first, "{alive:?}");
}
