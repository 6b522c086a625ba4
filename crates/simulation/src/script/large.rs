//! The catalog and the script of a large installation: as many engines as are asked for, nine tenths of them of `MIN_ENGINES` and
//! the others started for sessions that stay. The rates of arrivals, statements and faults and the quiet times are those of every
//! other script, and each tenant uses two pools with two units each, as there.

use std::time::Duration;

use model::change::{ObjectPatch, PoolPatch, Setting, TenantPatch, UnitPatch};
use model::demand::DemandKey;
use model::error::UserError;
use model::name::{PoolName, TenantName, UnitName};
use model::on_demand::IdleTimeout;
use model::owner::SharedBy;
use model::slot::{Link, Replacement};

use super::faults::fault;
use super::{ARRIVALS, FAULTS, STATEMENTS, Script, alter, create, drawn, is_quiet, pool, replacement, unit};
use crate::database::Statement;
use crate::event::{Fault, Scripted};
use crate::rng::Rng;

const TENANTS: u64 = 25;
/// Each offers one unit that tenants share, and one with an engine for each user.
const POOLS: u64 = 10;
/// Pools of each tenant.
const OF_TENANT: u64 = 2;
/// The users that come and go.
const USERS: u64 = 20;
/// Longer than a run.
const STAYS: Duration = Duration::from_hours(100_000);
/// In which the sessions arrive that stay.
const ARRIVE_WITHIN: Duration = Duration::from_mins(5);

fn tenant(at: u64) -> Result<TenantName, UserError> {
    TenantName::new(format!("t_{}", at + 1))
}

fn pool_name(at: u64) -> Result<PoolName, UserError> {
    PoolName::new(format!("rp_{}", at + 1))
}

/// The unit of a pool that tenants share.
fn shared(at: u64) -> String {
    format!("uc_{}", 2 * at + 1)
}

/// The unit of a pool with an engine for each user.
fn of_users(at: u64) -> String {
    format!("uc_{}", 2 * at + 2)
}

/// Engines of `MIN_ENGINES` of each tenant in each pool.
const fn minimum(engines: u64) -> u32 {
    (engines * 9 / 10 / (TENANTS * OF_TENANT)) as u32
}

/// The pools of a tenant.
fn pools_of(tenant: u64) -> [u64; OF_TENANT as usize] {
    [tenant % POOLS, (tenant + 3) % POOLS]
}

/// The statements that create the catalog.
pub fn founding_large(engines: u64) -> Result<Vec<Scripted>, UserError> {
    let mut statements = Vec::new();
    for at in 0..POOLS {
        let of_all = UnitPatch {
            driver_cpu: "1".parse().ok(),
            driver_memory: "1G".parse().ok(),
            start_on_demand: Setting::Set(true),
            sessions_per_engine: Setting::Set(4),
            idle_timeout: Setting::Set(IdleTimeout::After(Duration::from_mins(2))),
            max_engines: Some(minimum(engines) + 3),
            ..UnitPatch::default()
        };
        let min_engines = Some(minimum(engines));
        let (by_tenant, by_user) = (Some(SharedBy::Tenant), Some(SharedBy::User));
        statements.push(create(unit(&shared(at), UnitPatch { shared_by: by_tenant, min_engines, ..of_all.clone() })?));
        statements.push(create(unit(&of_users(at), UnitPatch { shared_by: by_user, ..of_all })?));
    }
    for at in 0..POOLS {
        let units = Some(vec![UnitName::new(shared(at))?, UnitName::new(of_users(at))?]);
        statements.push(create(pool(pool_name(at)?.as_str(), PoolPatch { units, ..PoolPatch::default() })?));
    }
    for at in 0..TENANTS {
        let pools: Result<Vec<PoolName>, UserError> = pools_of(at).into_iter().map(pool_name).collect();
        let patch = TenantPatch { pools: Some(pools?), ..TenantPatch::default() };
        statements.push(create(ObjectPatch::Tenant(tenant(at)?, patch)));
    }
    Ok(statements)
}

/// The script of a run of this length.
pub fn script_large(seed: u64, engines: u64, length: Duration) -> Result<Script, UserError> {
    let times = ARRIVE_WITHIN..length;
    let mut script = drawn(seed, &ARRIVALS, times.clone(), arrival)?;
    script.extend(drawn(seed, &STATEMENTS, times.clone(), |rng| statement(rng, engines))?);
    script.extend(drawn(seed, &FAULTS, times, |rng| Ok(Scripted::Fault(fault_of_large(rng)?)))?);
    script.retain(|(at, event)| !(is_quiet(*at) && matches!(event, Scripted::Arrive { .. })));
    script.extend(sessions_that_stay(seed, engines)?);
    script.sort_by_key(|(at, _)| *at);
    Ok(script)
}

/// One session for each engine that is not of a minimum.
fn sessions_that_stay(seed: u64, engines: u64) -> Result<Script, UserError> {
    let mut rng = Rng::new(seed).fork(6);
    let of_minimum = u64::from(minimum(engines)) * TENANTS * OF_TENANT;
    let arrivals = (0..engines - of_minimum).map(|number| {
        let at = rng.millis(5_000, ARRIVE_WITHIN.as_millis() as u64);
        let of_tenant = number % TENANTS;
        let of_pool = pools_of(of_tenant)[(number / TENANTS % OF_TENANT) as usize];
        let user = format!("resident_{}", number / (TENANTS * OF_TENANT));
        let key = key(of_tenant, of_pool, &of_users(of_pool))?;
        let proxy = rng.index(2);
        let event =
            Scripted::Arrive { proxy, key, user, sessions: 1, open_for: STAYS, patience: STAYS, repeats: false };
        Ok((at, event))
    });
    arrivals.collect()
}

fn key(of_tenant: u64, of_pool: u64, unit: &str) -> Result<DemandKey, UserError> {
    let key = DemandKey::of_tenant(tenant(of_tenant)?, "hive");
    Ok(DemandKey { pool: Some(pool_name(of_pool)?), unit: Some(UnitName::new(unit)?), ..key })
}

/// A tenant and one of its pools.
fn place(rng: &mut Rng) -> (u64, u64) {
    let tenant = rng.below(TENANTS);
    (tenant, pools_of(tenant)[rng.index(OF_TENANT as usize)])
}

fn arrival(rng: &mut Rng) -> Result<Scripted, UserError> {
    let (of_tenant, of_pool) = place(rng);
    let by_user = rng.percent(60);
    let unit = if by_user { of_users(of_pool) } else { shared(of_pool) };
    Ok(Scripted::Arrive {
        proxy: rng.index(2),
        key: key(of_tenant, of_pool, &unit)?,
        user: format!("u_{}", rng.below(USERS)),
        sessions: if rng.percent(20) { rng.between(4, 20) } else { rng.between(1, 3) },
        open_for: Duration::from_secs(rng.between(2, 240)),
        patience: Duration::from_secs(rng.between(5, 150)),
        repeats: false,
    })
}

fn statement(rng: &mut Rng, engines: u64) -> Result<Scripted, UserError> {
    let (of_tenant, of_pool) = place(rng);
    let patch = UnitPatch::default();
    let name = if rng.percent(50) { shared(of_pool) } else { of_users(of_pool) };
    Ok(match rng.below(8) {
        0 => {
            let unit = UnitName::new(shared(of_pool))?;
            let link = Link { tenant: tenant(of_tenant)?, pool: pool_name(of_pool)?, unit };
            Scripted::Statement(Statement::Start(link, "u_1".to_owned()))
        }
        1 => Scripted::Statement(Statement::Stop(rng.index(engines as usize))),
        2 => Scripted::Statement(Statement::Restart(rng.index(engines as usize), replacement(rng))),
        3 => {
            let max_engines = Some(minimum(engines) + rng.between(1, 5) as u32);
            alter(unit(&name, UnitPatch { max_engines, ..patch })?, Replacement::StandIn)
        }
        4 => {
            let spare_engines = Some(rng.below(3) as u32);
            alter(unit(&shared(of_pool), UnitPatch { spare_engines, ..patch })?, Replacement::StandIn)
        }
        5 => {
            let sessions_per_engine = Setting::Set(rng.between(1, 8) as u32);
            alter(unit(&name, UnitPatch { sessions_per_engine, ..patch })?, Replacement::StandIn)
        }
        6 => {
            let idle = IdleTimeout::After(Duration::from_secs(rng.between(60, 400)));
            alter(unit(&name, UnitPatch { idle_timeout: Setting::Set(idle), ..patch })?, Replacement::StandIn)
        }
        _ => {
            let driver_memory = format!("{}G", rng.between(1, 3)).parse().ok();
            let in_place = if rng.percent(30) { Replacement::InPlace } else { Replacement::StandIn };
            alter(unit(&name, UnitPatch { driver_memory, ..patch })?, in_place)
        }
    })
}

/// A fault; what happens before scaling is an arrival at this catalog.
fn fault_of_large(rng: &mut Rng) -> Result<Fault, UserError> {
    Ok(match fault(rng)? {
        Fault::BeforeScaling(_) => Fault::BeforeScaling(Box::new(arrival(rng)?)),
        other => other,
    })
}
