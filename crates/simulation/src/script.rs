//! The script of a run: everything that happens from outside, drawn from the seed before the run begins.
//!
//! So a part of a script can be left out without another meaning of the rest, which is how a failure is minimized.

mod faults;
mod for_mutants;
mod large;

use std::ops::Range;
use std::time::Duration;

use model::change::{Change, ObjectPatch, PoolPatch, QuotaPatch, Setting, TenantPatch, UnitPatch};
use model::demand::DemandKey;
use model::error::UserError;
use model::name::{PoolName, QuotaName, TenantName, UnitName};
use model::on_demand::IdleTimeout;
use model::owner::SharedBy;
use model::quota::{Capacity, DeclaredAmount, Principal, TransferLimit};
use model::slot::{Link, Replacement};

use crate::database::Statement;
use crate::event::{Fault, Scripted};
use crate::rng::Rng;

use faults::fault;
pub use for_mutants::script_for;
pub use large::{founding_large, script_large};

const TENANTS: [&str; 2] = ["t_1", "t_2"];
const POOLS: [&str; 2] = ["rp_1", "rp_2"];
/// The tenant shares the engines of the first one; who shares those of the others, statements change.
const UNITS: [&str; 3] = ["uc_1", "uc_2", "uc_3"];
/// What the pools offer.
const OFFERED: [[&str; 2]; 2] = [[UNITS[0], UNITS[1]], [UNITS[0], UNITS[2]]];
pub const USERS: [&str; 3] = ["ann", "bob", "cyd"];

/// Events of one kind.
struct Kind {
    /// What they are drawn from: the fork of the seed.
    fork: u64,
    /// The time between two of them is drawn around this one and added to the least one.
    mean: Duration,
    least: Duration,
}

const ARRIVALS: Kind = Kind { fork: 3, mean: Duration::from_mins(1), least: Duration::from_millis(1) };
const STATEMENTS: Kind = Kind { fork: 4, mean: Duration::from_mins(4), least: Duration::from_millis(1) };
const FAULTS: Kind = Kind { fork: 5, mean: Duration::from_secs(150), least: Duration::from_millis(1) };
const RESTORES: Kind = Kind { fork: 7, mean: Duration::from_mins(40), least: Duration::from_mins(1) };
/// How long the older state is ago, in milliseconds.
const RESTORED_MS: [u64; 2] = [2_000, 240_000];

/// So long sessions arrive, and so long none.
const QUIET: Duration = Duration::from_mins(20);

/// Events with their times, in order.
pub type Script = Vec<(Duration, Scripted)>;

/// A setting that is kept, reset or set.
fn unit(name: &str, patch: UnitPatch) -> Result<ObjectPatch, UserError> {
    Ok(ObjectPatch::ResourceUnit(UnitName::new(name)?, patch))
}

fn pool(name: &str, patch: PoolPatch) -> Result<ObjectPatch, UserError> {
    Ok(ObjectPatch::ResourcePool(PoolName::new(name)?, patch))
}

fn create(object: ObjectPatch) -> Scripted {
    let change = Change::Create { if_not_exists: true, object };
    Scripted::Statement(Statement::Alter(Box::new(change), Replacement::StandIn))
}

fn alter(object: ObjectPatch, replacement: Replacement) -> Scripted {
    let change = Change::Alter { if_exists: true, object };
    Scripted::Statement(Statement::Alter(Box::new(change), replacement))
}

fn cpus(number: u64) -> DeclaredAmount {
    DeclaredAmount { cpu: number.to_string().parse().ok(), ..DeclaredAmount::default() }
}

/// The links of all tenants.
pub fn links() -> Result<Vec<Link>, UserError> {
    let mut links = Vec::new();
    for tenant in TENANTS {
        for (pool, unit) in POOLS.into_iter().zip(OFFERED).flat_map(|(pool, units)| units.map(|unit| (pool, unit))) {
            links.push(Link {
                tenant: TenantName::new(tenant)?,
                pool: PoolName::new(pool)?,
                unit: UnitName::new(unit)?,
            });
        }
    }
    Ok(links)
}

/// The statements that create the catalog.
pub fn founding(seed: u64) -> Result<Vec<Scripted>, UserError> {
    let mut rng = Rng::new(seed).fork(2);
    let mut statements = Vec::new();
    let shared_by = [
        SharedBy::Tenant,
        if rng.percent(50) { SharedBy::User } else { SharedBy::Tenant },
        if rng.percent(50) { SharedBy::User } else { SharedBy::Session },
    ];
    for (name, shared_by) in UNITS.into_iter().zip(shared_by) {
        let min_engines = if shared_by == SharedBy::Tenant { rng.below(2) as u32 } else { 0 };
        let patch = UnitPatch {
            driver_cpu: "1".parse().ok(),
            driver_memory: "1G".parse().ok(),
            shared_by: Some(shared_by),
            min_engines: Some(min_engines),
            max_engines: Some(rng.between(3, if shared_by == SharedBy::Tenant { 8 } else { 5 }) as u32),
            start_on_demand: Setting::Set(true),
            sessions_per_engine: Setting::Set(rng.between(1, 6) as u32),
            idle_timeout: Setting::Set(IdleTimeout::After(Duration::from_secs(rng.between(60, 300)))),
            ..UnitPatch::default()
        };
        statements.push(create(unit(name, patch)?));
    }
    for (name, units) in POOLS.into_iter().zip(OFFERED) {
        let units: Result<Vec<UnitName>, UserError> = units.into_iter().map(UnitName::new).collect();
        let capacity = rng.percent(60).then(|| Capacity::Amount(cpus(rng.between(6, 16))));
        let capacity = capacity.map_or(Setting::Keep, Setting::Set);
        statements.push(create(pool(name, PoolPatch { units: Some(units?), capacity, ..PoolPatch::default() })?));
    }
    for name in TENANTS {
        let pools: Result<Vec<PoolName>, UserError> = POOLS.iter().map(|pool| PoolName::new(*pool)).collect();
        let patch = TenantPatch { pools: Some(pools?), ..TenantPatch::default() };
        statements.push(create(ObjectPatch::Tenant(TenantName::new(name)?, patch)));
    }
    Ok(statements)
}

/// Who shares the engines of each unit after [`restoring`].
const SHARED_AT_THE_END: [SharedBy; 3] = [SharedBy::Tenant, SharedBy::User, SharedBy::Session];

/// Statements after which every unit has these options and nothing is limited, so that the end of a run is known.
pub fn restoring(sessions: u32, idle: Duration) -> Result<Vec<Scripted>, UserError> {
    let mut statements = founding(0)?;
    for (name, shared_by) in UNITS.into_iter().zip(SHARED_AT_THE_END) {
        let patch = UnitPatch {
            shared_by: Some(shared_by),
            min_engines: Some(0),
            max_engines: Some(20),
            spare_engines: Some(0),
            start_on_demand: Setting::Set(true),
            sessions_per_engine: Setting::Set(sessions),
            idle_timeout: Setting::Set(IdleTimeout::After(idle)),
            ..UnitPatch::default()
        };
        statements.push(alter(unit(name, patch)?, Replacement::StandIn));
    }
    for (name, units) in POOLS.into_iter().zip(OFFERED) {
        let units: Result<Vec<UnitName>, UserError> = units.into_iter().map(UnitName::new).collect();
        let patch = PoolPatch { units: Some(units?), capacity: Setting::Reset, ..PoolPatch::default() };
        statements.push(alter(pool(name, patch)?, Replacement::StandIn));
    }
    for name in TENANTS {
        let pools: Result<Vec<PoolName>, UserError> = POOLS.iter().map(|pool| PoolName::new(*pool)).collect();
        let patch = TenantPatch { pools: Some(pools?), ..TenantPatch::default() };
        statements.push(alter(ObjectPatch::Tenant(TenantName::new(name)?, patch), Replacement::StandIn));
    }
    for name in TENANTS.into_iter().chain(USERS).chain(["guaranteed"]) {
        let object = ObjectPatch::ResourceQuota(QuotaName::new(format!("q_{name}"))?, QuotaPatch::default());
        let change = Change::Drop { if_exists: true, object: object.reference() };
        statements.push(Scripted::Statement(Statement::Alter(Box::new(change), Replacement::StandIn)));
    }
    Ok(statements)
}

/// Statements that limit a pool to so many engines, and guarantee all of it to a tenant.
pub fn guaranteeing(of_pool: &PoolName, tenant: &TenantName, engines: u64) -> Result<[Scripted; 2], UserError> {
    let capacity = Setting::Set(Capacity::Amount(cpus(engines)));
    let limited = pool(of_pool.as_str(), PoolPatch { capacity, ..PoolPatch::default() })?;
    let patch = QuotaPatch {
        tenant: Some(tenant.clone()),
        pool: Some(of_pool.clone()),
        guarantee: Setting::Set(cpus(engines)),
        ..QuotaPatch::default()
    };
    let quota = ObjectPatch::ResourceQuota(QuotaName::new("q_guaranteed")?, patch);
    Ok([alter(limited, Replacement::StandIn), create(quota)])
}

/// Whether no sessions arrive at that time.
fn is_quiet(at: Duration) -> bool {
    at.as_secs() / QUIET.as_secs() % 2 == 1
}

/// The script of a run of this length.
pub fn script(seed: u64, length: Duration) -> Result<Script, UserError> {
    let mut script = without_quiet_times(seed, length)?;
    script.extend(drawn(seed, &RESTORES, Duration::ZERO..length, restore)?);
    script.sort_by_key(|(at, _)| *at);
    script.retain(|(at, event)| !(matches!(event, Scripted::Arrive { .. }) && is_quiet(*at)));
    Ok(script)
}

fn without_quiet_times(seed: u64, length: Duration) -> Result<Script, UserError> {
    let times = Duration::from_secs(5)..length;
    let mut script = drawn(seed, &ARRIVALS, times.clone(), arrival)?;
    script.extend(drawn(seed, &STATEMENTS, times.clone(), statement)?);
    script.extend(drawn(seed, &FAULTS, times, |rng| Ok(Scripted::Fault(fault(rng)?)))?);
    script.sort_by_key(|(at, _)| *at);
    Ok(script)
}

/// The events of a kind in this time.
fn drawn(
    seed: u64,
    kind: &Kind,
    times: Range<Duration>,
    event: impl Fn(&mut Rng) -> Result<Scripted, UserError>,
) -> Result<Script, UserError> {
    let (mut rng, mut at, mut script) = (Rng::new(seed).fork(kind.fork), times.start, Script::new());
    loop {
        at += rng.around(kind.mean) + kind.least;
        if at >= times.end {
            return Ok(script);
        }
        script.push((at, event(&mut rng)?));
    }
}

#[allow(clippy::unnecessary_wraps)] // As the other kinds.
fn restore(rng: &mut Rng) -> Result<Scripted, UserError> {
    Ok(Scripted::Fault(Fault::DatabaseRestored(rng.millis(RESTORED_MS[0], RESTORED_MS[1]))))
}

fn arrival(rng: &mut Rng) -> Result<Scripted, UserError> {
    let key = DemandKey::of_tenant(TenantName::new(TENANTS[rng.index(2)])?, "hive");
    let pool = rng.percent(40).then(|| PoolName::new(POOLS[rng.index(2)])).transpose()?;
    let unit = rng.percent(60).then(|| UnitName::new(UNITS[rng.index(3)])).transpose()?;
    Ok(Scripted::Arrive {
        proxy: rng.index(2),
        key: DemandKey { pool, unit, ..key },
        user: USERS[rng.index(3)].to_owned(),
        sessions: if rng.percent(20) { rng.between(4, 20) } else { rng.between(1, 3) },
        open_for: Duration::from_secs(rng.between(2, 240)),
        patience: Duration::from_secs(rng.between(5, 150)),
        repeats: false,
    })
}

fn replacement(rng: &mut Rng) -> Replacement {
    [Replacement::StandIn, Replacement::StandIn, Replacement::InPlace, Replacement::Force][rng.index(4)]
}

fn statement(rng: &mut Rng) -> Result<Scripted, UserError> {
    let (of_unit, of_pool) = (UNITS[rng.index(3)], POOLS[rng.index(2)]);
    let link = links()?.swap_remove(rng.index(8));
    let seconds = |rng: &mut Rng| Duration::from_secs(rng.between(60, 400));
    let patch = UnitPatch::default();
    Ok(match rng.below(18) {
        0 => Scripted::Statement(Statement::Start(link, USERS[rng.index(3)].to_owned())),
        1 => Scripted::Statement(Statement::Stop(rng.index(100))),
        2 => Scripted::Statement(Statement::Restart(rng.index(100), replacement(rng))),
        3 => alter(unit(of_unit, UnitPatch { min_engines: Some(rng.below(4) as u32), ..patch })?, Replacement::StandIn),
        4 => alter(
            unit(of_unit, UnitPatch { max_engines: Some(rng.between(1, 6) as u32), ..patch })?,
            Replacement::StandIn,
        ),
        5 => {
            alter(unit(of_unit, UnitPatch { spare_engines: Some(rng.below(3) as u32), ..patch })?, Replacement::StandIn)
        }
        6 | 7 => {
            let sessions_per_engine = Setting::Set(rng.between(1, 8) as u32);
            alter(unit(of_unit, UnitPatch { sessions_per_engine, ..patch })?, Replacement::StandIn)
        }
        8 => {
            let never = rng.percent(20);
            let idle = if never { IdleTimeout::Never } else { IdleTimeout::After(seconds(rng)) };
            alter(unit(of_unit, UnitPatch { idle_timeout: Setting::Set(idle), ..patch })?, Replacement::StandIn)
        }
        9 => {
            let start_on_demand = Setting::Set(rng.percent(70));
            alter(unit(of_unit, UnitPatch { start_on_demand, ..patch })?, Replacement::StandIn)
        }
        10 | 11 => {
            let driver_memory = format!("{}G", rng.between(1, 3)).parse().ok();
            // An ALTER has no FORCE.
            let in_place = if rng.percent(30) { Replacement::InPlace } else { Replacement::StandIn };
            alter(unit(of_unit, UnitPatch { driver_memory, ..patch })?, in_place)
        }
        12 => {
            let amount = Capacity::Amount(cpus(rng.between(2, 16)));
            let capacity = if rng.percent(40) { Setting::Reset } else { Setting::Set(amount) };
            alter(pool(of_pool, PoolPatch { capacity, ..PoolPatch::default() })?, Replacement::StandIn)
        }
        13 => {
            let at = rng.index(2);
            let units: Result<Vec<UnitName>, UserError> =
                OFFERED[at][..rng.between(1, 2) as usize].iter().map(|unit| UnitName::new(*unit)).collect();
            alter(pool(POOLS[at], PoolPatch { units: Some(units?), ..PoolPatch::default() })?, Replacement::StandIn)
        }
        14 => quota(rng)?,
        15 => user_quota(rng)?,
        16 => sharing(rng)?,
        _ => {
            let pools: Result<Vec<PoolName>, UserError> =
                POOLS[..rng.between(1, 2) as usize].iter().map(|pool| PoolName::new(*pool)).collect();
            let patch = TenantPatch { pools: Some(pools?), ..TenantPatch::default() };
            alter(ObjectPatch::Tenant(TenantName::new(TENANTS[rng.index(2)])?, patch), Replacement::StandIn)
        }
    })
}

/// ALTER of who shares the engines of a unit; none is kept without sessions then.
fn sharing(rng: &mut Rng) -> Result<Scripted, UserError> {
    let name = UNITS[rng.between(1, 2) as usize];
    let shared_by = [SharedBy::Tenant, SharedBy::Group, SharedBy::User, SharedBy::Session][rng.index(4)];
    let patch =
        UnitPatch { shared_by: Some(shared_by), min_engines: Some(0), spare_engines: Some(0), ..UnitPatch::default() };
    Ok(alter(unit(name, patch)?, Replacement::StandIn))
}

/// A limit of one user, or none.
fn user_quota(rng: &mut Rng) -> Result<Scripted, UserError> {
    let user = USERS[rng.index(3)];
    let patch = QuotaPatch {
        user: Some(Principal::Named(user.to_owned())),
        limit: Setting::Set(cpus(rng.between(1, 4))),
        ..QuotaPatch::default()
    };
    quota_of(rng, &format!("q_{user}"), patch)
}

fn quota(rng: &mut Rng) -> Result<Scripted, UserError> {
    let tenant = TENANTS[rng.index(2)];
    let patch = QuotaPatch {
        tenant: Some(TenantName::new(tenant)?),
        pool: Some(PoolName::new(POOLS[0])?),
        guarantee: Setting::Set(cpus(rng.between(1, 6))),
        borrow_limit: Setting::Set(if rng.percent(50) {
            TransferLimit::Unlimited
        } else {
            TransferLimit::Amount(cpus(rng.between(0, 4)))
        }),
        ..QuotaPatch::default()
    };
    quota_of(rng, &format!("q_{tenant}"), patch)
}

/// CREATE, ALTER or DROP of a quota.
fn quota_of(rng: &mut Rng, name: &str, patch: QuotaPatch) -> Result<Scripted, UserError> {
    let object = ObjectPatch::ResourceQuota(QuotaName::new(name)?, patch);
    Ok(match rng.below(3) {
        0 => {
            let change = Change::Drop { if_exists: true, object: object.reference() };
            Scripted::Statement(Statement::Alter(Box::new(change), Replacement::StandIn))
        }
        1 => create(object),
        _ => alter(object, Replacement::StandIn),
    })
}
