//! The scripts of mutants.

use std::time::Duration;

use model::change::{PoolPatch, Setting, UnitPatch};
use model::demand::DemandKey;
use model::error::UserError;
use model::name::{PoolName, TenantName, UnitName};
use model::on_demand::IdleTimeout;
use model::slot::Replacement;

use super::faults::failing;
use super::{OFFERED, POOLS, Script, TENANTS, UNITS, USERS, alter, pool, sharing, unit, without_quiet_times};
use crate::alteration::AgentFault;
use crate::event::{Fault, Racing, Scripted};
use crate::mutant::Mutant;
use crate::rng::Rng;

/// Half of the time between two events of a mutant.
const HALF: Duration = Duration::from_secs(30);
/// In seconds, the time between two restores of the database.
const RESTORES: u64 = 300;

/// A session of the first unit for a few seconds.
fn brief(tenant: &str) -> Result<Scripted, UserError> {
    let (pool, unit) = (Some(PoolName::new(POOLS[0])?), Some(UnitName::new(UNITS[0])?));
    let key = DemandKey { pool, unit, ..DemandKey::of_tenant(TenantName::new(tenant)?, "hive") };
    let (user, open_for, patience) = (USERS[0].to_owned(), Duration::from_secs(4), Duration::from_secs(30));
    Ok(Scripted::Arrive { proxy: 0, key, user, sessions: 1, open_for, patience, repeats: false })
}

/// The script of a run in which what a mutant breaks happens more often.
pub fn script_for(mutant: Mutant, seed: u64, length: Duration) -> Result<Script, UserError> {
    let mut script = without_quiet_times(seed, length)?;
    let mut rng = Rng::new(seed).fork(6);
    for at in (60..length.as_secs()).step_by(60).map(Duration::from_secs) {
        let engines = Some(rng.below(4) as u32);
        // Who shares the engines of the others changes, and a minimum is refused then.
        let of_unit = UNITS[0];
        let minimum =
            alter(unit(of_unit, UnitPatch { min_engines: engines, ..UnitPatch::default() })?, Replacement::StandIn);
        let maximum = UnitPatch { max_engines: engines.map(|most| most + 1), ..UnitPatch::default() };
        let maximum = alter(unit(of_unit, maximum)?, Replacement::StandIn);
        let limit = |name: &str, min: u32, max: u32| {
            let patch = UnitPatch { min_engines: Some(min), max_engines: Some(max), ..UnitPatch::default() };
            Ok::<_, UserError>(alter(unit(name, patch)?, Replacement::StandIn))
        };
        let place = rng.index(100);
        let lost = Fault::SessionLost(place, rng.millis(30_000, 90_000));
        let events = match mutant {
            Mutant::RemovalBelowMinimum => {
                vec![limit(of_unit, 0, 10)?, Scripted::Fault(Fault::BeforeScaling(Box::new(minimum)))]
            }
            Mutant::AddedAboveMaximum => {
                vec![limit(of_unit, 0, 10)?, Scripted::Fault(Fault::BeforeScaling(Box::new(maximum)))]
            }
            Mutant::ConsentOfBusyEngine | Mutant::ConsentWithoutEffect => {
                let idle = Setting::Set(IdleTimeout::After(Duration::from_secs(15)));
                for tenant in TENANTS {
                    for _ in 0..8 {
                        script.push((at + rng.millis(0, 60_000), brief(tenant)?));
                    }
                }
                let patch = UnitPatch { idle_timeout: idle, ..UnitPatch::default() };
                let arrival = brief(TENANTS[rng.index(2)])?;
                vec![
                    alter(unit(UNITS[0], patch)?, Replacement::StandIn),
                    Scripted::Fault(Fault::BeforeScaling(Box::new(arrival))),
                ]
            }
            Mutant::DemandWithoutLease => {
                script.push((at + HALF, Scripted::Fault(Fault::ProxyDied(place + 1))));
                vec![Scripted::Fault(Fault::ProxyDied(place))]
            }
            Mutant::ReportsWithoutNumber => vec![Scripted::Fault(Fault::LateReport)],
            Mutant::EpochUnchecked => {
                vec![Scripted::Fault(Fault::Deposed { effects: rng.below(4), late: Some(rng.millis(1_000, 15_000)) })]
            }
            Mutant::NoMark | Mutant::LostSessionIsDrain | Mutant::RegistrationAlone | Mutant::AbsenceIsEnd => {
                vec![Scripted::Fault(lost)]
            }
            Mutant::SuccessorUnchecked | Mutant::DrainInCalls => {
                let racing =
                    if mutant == Mutant::DrainInCalls { Racing::EngineRegisters } else { Racing::SuccessorLost };
                let memory = format!("{}G", rng.between(1, 3)).parse().ok();
                let patch = UnitPatch { driver_memory: memory, ..UnitPatch::default() };
                let again = UnitPatch { driver_memory: "4G".parse().ok(), ..UnitPatch::default() };
                script.push((at + rng.millis(1_000, 8_000), alter(unit(of_unit, again)?, Replacement::StandIn)));
                vec![Scripted::Fault(Fault::BeforeDrain(racing)), alter(unit(of_unit, patch)?, Replacement::StandIn)]
            }
            Mutant::OutdatedProbe => vec![Scripted::Fault(Fault::ListFrozen(rng.millis(5_000, 40_000)))],
            Mutant::ScaleWithoutExpectation => {
                vec![Scripted::Fault(Fault::Repeated(rng.below(3), rng.millis(1, 500)))]
            }
            Mutant::KindUnchecked => {
                let again = Scripted::Fault(Fault::BeforeScaling(Box::new(sharing(&mut rng)?)));
                script.push((at + HALF, again));
                vec![Scripted::Fault(Fault::BeforeScaling(Box::new(sharing(&mut rng)?)))]
            }
            Mutant::OwnerUnchecked => {
                vec![sharing(&mut rng)?, Scripted::Fault(Fault::OwnersIgnored(place, Duration::from_secs(30)))]
            }
            Mutant::PermitAdmitsAnyUid => {
                let memory = format!("{}G", rng.between(1, 3)).parse().ok();
                let patch = UnitPatch { driver_memory: memory, ..UnitPatch::default() };
                let deposed = Fault::Deposed { effects: rng.between(2, 8), late: None };
                vec![Scripted::Fault(deposed), alter(unit(of_unit, patch)?, Replacement::StandIn)]
            }
            Mutant::LooksBeforeCommit => vec![maximum],
            Mutant::BaseUnchecked => {
                let pauses = AgentFault::Pauses { before: Duration::from_secs(3), after: Duration::from_millis(10) };
                script.push((at + Duration::from_secs(1), minimum));
                vec![Scripted::Fault(Fault::Agent(pauses)), maximum]
            }
            Mutant::NothingSuperseded => {
                let patch = UnitPatch { driver_memory: "4G".parse().ok(), ..UnitPatch::default() };
                script.push((at + Duration::from_secs(2), maximum));
                let refused = Fault::CreatesRefused(Duration::from_secs(10));
                vec![Scripted::Fault(refused), alter(unit(of_unit, patch)?, Replacement::StandIn)]
            }
            Mutant::SilenceIsAbort | Mutant::AbortOverwrites => {
                let is_late = mutant == Mutant::SilenceIsAbort;
                let commits = if is_late { rng.millis(500, 2_000) } else { rng.millis(5, 60) };
                let dies = AgentFault::Dies { expires: rng.millis(1, 20), commits: Some(commits) };
                vec![Scripted::Fault(Fault::Agent(dies)), maximum]
            }
            Mutant::AnswerBeforeAbort => {
                let fault = AgentFault::NoReply { commits: rng.millis(100, 1_000) };
                vec![Scripted::Fault(Fault::Agent(fault)), maximum]
            }
            Mutant::DeletedByPath => {
                let pauses = AgentFault::Pauses { before: Duration::ZERO, after: Duration::from_secs(5) };
                script.push((at + Duration::from_secs(1), Scripted::Fault(Fault::Agent(pauses))));
                script.push((at + Duration::from_secs(1), minimum));
                vec![Scripted::Fault(Fault::Repeated(rng.below(2), rng.millis(1_500, 5_000))), maximum]
            }
            Mutant::DebrisStays => vec![Scripted::Fault(Fault::AlterDebris), maximum],
            Mutant::ConvergedWaitsForReadiness => {
                let memory = format!("{}G", rng.between(1, 3)).parse().ok();
                let patch = UnitPatch { driver_memory: memory, ..UnitPatch::default() };
                script.push((at + Duration::from_secs(1), maximum));
                vec![Scripted::Fault(Fault::NextNeverRegisters), alter(unit(of_unit, patch)?, Replacement::StandIn)]
            }
            Mutant::ConvergedTooEarly => {
                let units = OFFERED[0][..rng.between(1, 2) as usize].iter().map(|unit| UnitName::new(*unit));
                let patch = PoolPatch { units: Some(units.collect::<Result<_, _>>()?), ..PoolPatch::default() };
                vec![alter(pool(POOLS[0], patch)?, Replacement::StandIn)]
            }
            Mutant::NodeAlone => vec![Scripted::Fault(Fault::MachineUnready(place, Duration::from_secs(20)))],
            Mutant::NotSuspended => vec![Scripted::Fault(Fault::ManyFail(4, failing(&mut rng, 60)))],
            Mutant::NewerIsOrphan | Mutant::RestoredInParts if at.as_secs().is_multiple_of(RESTORES) => {
                vec![Scripted::Fault(Fault::DatabaseRestored(rng.millis(20_000, 90_000)))]
            }
            _ => Vec::new(),
        };
        script.extend(events.into_iter().map(|event| (at, event)));
    }
    script.sort_by_key(|(at, _)| *at);
    Ok(script)
}
