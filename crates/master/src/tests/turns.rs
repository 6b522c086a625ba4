//! Creates that hang and whom they delay.

use std::time::Duration;

use model::change::{ObjectPatch, PoolPatch, TenantPatch, UnitPatch};
use model::{PoolName, TenantName, UnitName};
use tokio::time::Instant;

use super::fake::{Fake, create};

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

#[tokio::test(start_paused = true)]
async fn hanging_creates_of_one_tenant_do_not_delay_another() {
    for many in [8, 70, 400] {
        let fake = two_tenants(many);
        let mut driver = fake.driver(1);
        fake.state().running_since = Some(Instant::now());
        fake.state().hanging.push("create engine t-1-".to_owned());
        let there = || fake.state().world.observed.pods.iter().any(|pod| pod.name.as_str().starts_with("t-2-"));
        for _ in 0..2 {
            driver.tick(&*fake).await;
            // The back-off of creates that hung is over whenever a tick begins.
            fake.pass(Duration::from_mins(1));
        }
        assert!(there(), "{many} hanging creates");
        // It ends while t_1 keeps the master busy: its replacement is not delayed either.
        for _ in 0..20 {
            driver.tick(&*fake).await;
            fake.pass(Duration::from_mins(1));
        }
        let uid = fake.state().world.observed.pods[0].uid.clone();
        fake.state().world.end(&uid, "exit code 1");
        for _ in 0..5 {
            driver.tick(&*fake).await;
            fake.pass(Duration::from_mins(1));
        }
        let alive = fake.state().world.observed.pods.iter().any(planner::Pod::is_alive);
        assert!(alive, "{many} hanging creates");
    }
}
