//! The faults of a script.

use std::time::Duration;

use model::change::UnitPatch;
use model::error::UserError;
use model::slot::Replacement;

use super::{UNITS, alter, arrival, sharing, unit};
use crate::alteration::AgentFault;
use crate::event::{Fault, Racing, Scripted};
use crate::machine::{Failing, FailureEnd};
use crate::rng::Rng;

pub(super) fn fault(rng: &mut Rng) -> Result<Fault, UserError> {
    let seconds = |rng: &mut Rng, most: u64| Duration::from_millis(rng.between(200, most * 1_000));
    let place = rng.index(100);
    Ok(match rng.below(38) {
        0 => Fault::CreatesRefused(seconds(rng, 60)),
        1 => Fault::CreateFails,
        2 => Fault::CreateReplyLost,
        3 => Fault::SlowStarts(seconds(rng, 120)),
        4 => Fault::NextNeverRegisters,
        5 => Fault::NextExitsEarly,
        6 => Fault::NextIsStubborn,
        7 => Fault::Killed(place),
        8 => Fault::Vanished(place),
        9 => Fault::MachinesGone,
        10 | 11 => Fault::Muted(place, seconds(rng, 90)),
        12 | 13 => Fault::SessionLost(place, seconds(rng, 90)),
        14 => Fault::ProxyDied(place),
        15 => Fault::LateReport,
        16 => Fault::SlowReports(seconds(rng, 20)),
        17 => Fault::LostReports(seconds(rng, 20)),
        18..=20 => Fault::Deposed { effects: rng.below(6), late: rng.percent(70).then(|| seconds(rng, 20)) },
        21 => Fault::ReplyLost(rng.below(10)),
        22 => Fault::Repeated(rng.below(10), seconds(rng, 3)),
        23 => Fault::AgentsAway(seconds(rng, 20)),
        24 if rng.percent(50) => Fault::ListFrozen(seconds(rng, 20)),
        24 => Fault::ClockShifted(rng.between(0, 360_000) as i64 - 180_000),
        25 => Fault::WakesLost(seconds(rng, 30)),
        26 => Fault::BeforeScaling(Box::new(arrival(rng)?)),
        27 => Fault::BeforeScaling(Box::new(sharing(rng)?)),
        28 | 33 => Fault::OwnersIgnored(place, rng.millis(60_000, 300_000)),
        29 | 30 => Fault::MachineFails(place, failing(rng, 300)),
        31 => Fault::MachineUnready(place, seconds(rng, 90)),
        32 => Fault::ManyFail(rng.between(3, 4) as usize, failing(rng, 60)),
        34 if rng.percent(50) => Fault::BeforeDrain(Racing::SuccessorLost),
        34 => Fault::BeforeDrain(Racing::EngineRegisters),
        35 | 36 => Fault::Agent(agent_fault(rng)),
        37 if rng.percent(40) => Fault::AlterDebris,
        _ => Fault::BeforeScaling(Box::new(limit(rng)?)),
    })
}

/// How the agent of an alteration fails.
fn agent_fault(rng: &mut Rng) -> AgentFault {
    match rng.below(3) {
        0 => {
            AgentFault::Dies { expires: rng.millis(1, 5_000), commits: rng.percent(70).then(|| rng.millis(1, 10_000)) }
        }
        1 => AgentFault::NoReply { commits: rng.millis(1, 2_000) },
        _ => AgentFault::Pauses { before: rng.millis(1, 10_000), after: rng.millis(1, 45_000) },
    }
}

/// How a machine fails, for at most so many seconds.
pub(super) fn failing(rng: &mut Rng, most: u64) -> Failing {
    let ends = [FailureEnd::Restarted, FailureEnd::Resumed, FailureEnd::Reconnected];
    Failing {
        reported_after: rng.millis(500, 40_000),
        lasted: rng.millis(5_000, most * 1_000),
        end: ends[rng.index(3)],
    }
}

/// ALTER of a minimum or a maximum.
pub(super) fn limit(rng: &mut Rng) -> Result<Scripted, UserError> {
    let (name, engines) = (UNITS[rng.index(3)], Some(rng.between(1, 4) as u32));
    let is_minimum = rng.percent(50);
    let patch = if is_minimum {
        UnitPatch { min_engines: engines, ..UnitPatch::default() }
    } else {
        UnitPatch { max_engines: engines, ..UnitPatch::default() }
    };
    Ok(alter(unit(name, patch)?, Replacement::StandIn))
}
