//! The transaction that records demand, on both: reports of several proxies, late ones, and leases that have ended.

use model::demand::{Demand, DemandKey};
use model::demand_report::{DemandRecorded, DemandReport, WaitingSessions};
use model::name::{PoolName, TenantName};
use simulation::rng::Rng;

use crate::pair::Pair;

const REPORTS: i64 = 300;
const HOUR_MS: i64 = 3_600_000;
/// Ages are compared in units that are longer than the test: both have their own clock.
const AGE_MS: i64 = 100_000;

fn key(rng: &mut Rng) -> DemandKey {
    let pool = rng.percent(50).then(|| PoolName::new("rp_1").unwrap());
    let user = rng.percent(60).then(|| ["ann", "bob"][rng.index(2)].to_owned());
    DemandKey { pool, user, ..DemandKey::of_tenant(TenantName::new("t_1").unwrap(), "hive") }
}

fn report(number: i64, rng: &mut Rng) -> DemandReport {
    let demand = (0..rng.below(4)).map(|_| WaitingSessions {
        key: key(rng),
        sessions: rng.below(4),
        waited_ms: rng.below(5) as i64 * AGE_MS + AGE_MS / 2,
    });
    let mut demand: Vec<WaitingSessions> = demand.collect();
    demand.sort_by(|one, other| one.key.cmp(&other.key));
    demand.dedup_by(|one, other| one.key == other.key);
    DemandReport {
        proxy: format!("proxy-{}", rng.below(3)),
        // A third of them are late.
        seq: number - if rng.percent(33) { rng.below(20) as i64 } else { 0 },
        lease_ms: if rng.percent(25) { 0 } else { HOUR_MS },
        demand,
    }
}

/// What a master reads, with ages instead of times.
fn read(demand: Vec<Demand>, now_ms: i64) -> Vec<(DemandKey, u64, i64, i64)> {
    let aged = |one: Demand| {
        let (age, left) = ((now_ms - one.since_ms) / AGE_MS, (one.until_ms - now_ms + AGE_MS / 2) / AGE_MS);
        (one.key, one.waiting, age, left)
    };
    demand.into_iter().filter(|one| one.waiting > 0).map(aged).collect()
}

/// How many reports were recorded, raised the demand, or were late.
pub async fn compare_random_reports(pair: &mut Pair, seed: u64) -> [usize; 3] {
    let (mut rng, mut done) = (Rng::new(seed), [0; 3]);
    for number in 1..=REPORTS {
        let report = report(number, &mut rng);
        let (stored, modelled) = (pair.store.record_demand(&report).await.unwrap(), pair.model.record_demand(&report));
        assert_eq!(stored, modelled, "{report:?}");
        done[match stored {
            DemandRecorded::Recorded => 0,
            DemandRecorded::Increased => 1,
            DemandRecorded::Superseded => 2,
        }] += 1;
        let snapshot = pair.store.snapshot().await.unwrap();
        let of_model = read(pair.model.demand(), pair.model.state().now_ms);
        assert_eq!(read(snapshot.demand, snapshot.now_ms), of_model, "after {report:?}");
    }
    done
}
