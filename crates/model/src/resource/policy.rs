//! Request policies: the registry, by kind, of what a request of a resource pool is charged.
//!
//! The `RESOURCE_KIND` of a pool selects its policy, and a request is accepted if it is of that kind or can be promoted to it. A
//! kind without a policy is `KIND_UNKNOWN`; there is no fallback, so a request is never charged by the wrong rule. `Special`
//! has none, because custom amounts are not charged.

use super::kind::Kind;
use super::triple::Amount;
use super::{LoadInstance, MAX_AMOUNT, Resource, error};
use crate::error::UserError;

/// How the pools of one kind charge requests.
#[derive(Debug)]
pub struct RequestPolicy {
    kind: Kind,
    charge: fn(&Resource) -> Result<Amount, UserError>,
}

const REGISTRY: [RequestPolicy; 6] = [
    RequestPolicy { kind: Kind::Memory, charge: plain },
    RequestPolicy { kind: Kind::Cpu, charge: plain },
    RequestPolicy { kind: Kind::Load, charge: plain },
    RequestPolicy { kind: Kind::LoadInstance, charge: plain },
    RequestPolicy { kind: Kind::Queue, charge: plain },
    RequestPolicy { kind: Kind::DriverAndExecutor, charge: driver_with_executors },
];

impl RequestPolicy {
    /// The policy of the pools of a kind.
    pub fn of(kind: Kind) -> Result<&'static Self, UserError> {
        REGISTRY.iter().find(|policy| policy.kind == kind).ok_or_else(|| error::no_policy(kind))
    }

    /// What the pool charges for this resource. Custom amounts are refused (0A000), as are a kind that cannot be promoted to the
    /// pool's (`KIND_MISMATCH`) and an amount below 0 or above [`MAX_AMOUNT`].
    pub fn charge(&self, asked: &Resource) -> Result<Amount, UserError> {
        if let Resource::Special(_) = asked {
            return Err(error::custom_not_charged());
        }
        self.accepts(asked.kind())?;
        (self.charge)(asked)
    }

    /// Refuses a kind that cannot be promoted to the pool's (`KIND_MISMATCH`).
    pub fn accepts(&self, kind: Kind) -> Result<(), UserError> {
        if self.kind.common(kind) == Some(self.kind) { Ok(()) } else { Err(error::kind_required(self.kind, kind)) }
    }
}

/// The numbers of the resource; its instances are engines.
fn plain(asked: &Resource) -> Result<Amount, UserError> {
    let load = match asked {
        Resource::Queue(queue) => queue.load,
        _ => asked.load().ok_or_else(|| error::no_policy(asked.kind()))?,
    };
    Ok(Amount { cpu_m: within(load.cpu_m)?, memory: within(load.memory)?, engines: within(load.instances)? })
}

/// CPU and memory of the driver and its executors. Only the driver is an engine.
fn driver_with_executors(asked: &Resource) -> Result<Amount, UserError> {
    let Resource::DriverAndExecutor { driver, executors } = asked else { return plain(asked) };
    let LoadInstance { memory, cpu_m, instances } = executors.load;
    within(instances)?;
    // Two amounts within the limit cannot overflow.
    Ok(Amount {
        cpu_m: within(within(driver.cpu_m)? + within(cpu_m)?)?,
        memory: within(within(driver.memory)? + within(memory)?)?,
        engines: within(driver.instances)?,
    })
}

fn within(amount: i64) -> Result<i64, UserError> {
    if (0..=MAX_AMOUNT).contains(&amount) { Ok(amount) } else { Err(error::not_chargeable(amount)) }
}
