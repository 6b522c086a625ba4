//! Sessions that wait, and what agents report of the sessions at their engines.

use std::time::Duration;

use model::TenantName;
use model::demand::{Demand, DemandKey};
use model::engine_name::EngineName;
use planner::{EngineLoad, EngineUse};

use super::Cluster;

impl Cluster {
    /// So many sessions of the tenant wait, of any pool.
    pub fn wait(&mut self, tenant: &str, waiting: u64) {
        let snapshot = &mut self.simulation.desired.snapshot;
        snapshot.demand.retain(|demand| demand.key.tenant.as_str() != tenant);
        if waiting == 0 {
            return;
        }
        let key = DemandKey::of_tenant(TenantName::new(tenant).unwrap(), "IDE");
        let (since_ms, until_ms) = (snapshot.now_ms, i64::MAX);
        snapshot.demand.push(Demand { key, waiting, since_ms, until_ms });
    }

    /// The agent of the engine reports so many sessions, and for how long there has been none.
    pub fn load(&mut self, engine: &EngineName, sessions: u32, idle_for: Duration) {
        let observed = &mut self.simulation.observed;
        observed.loads.insert(engine.clone(), EngineLoad { sessions, running: 0 });
        let was_used = sessions > 0 || observed.scaling.uses.get(engine).is_some_and(|seen| seen.was_used);
        observed.scaling.uses.insert(engine.clone(), EngineUse { idle_for, was_used, ..EngineUse::default() });
    }
}
