//! Arithmetic of resources: component by component, after promotion, checked for overflow.
//!
//! Products and quotients round down, also below zero. The result has the common kind of both operands; in a product of custom
//! amounts, a name that one operand lacks is 0, and as a divisor it is a division by zero unless both lack it.

use std::collections::{BTreeMap, BTreeSet};

use super::kind::Kind;
use super::ratio::Ratio;
use super::{LoadInstance, Queue, Resource, Special, error, promote};
use crate::error::UserError;

impl Resource {
    pub fn checked_add(&self, other: &Self) -> Result<Self, UserError> {
        combined(self, other, |left, right| left.checked_add(right).ok_or_else(error::out_of_range))
    }

    /// The difference. Its components may be negative.
    pub fn checked_sub(&self, other: &Self) -> Result<Self, UserError> {
        combined(self, other, |left, right| left.checked_sub(right).ok_or_else(error::out_of_range))
    }

    pub fn checked_mul(&self, other: &Self) -> Result<Self, UserError> {
        has_product(self, other)?;
        combined(self, other, |left, right| left.checked_mul(right).ok_or_else(error::out_of_range))
    }

    pub fn checked_div(&self, other: &Self) -> Result<Self, UserError> {
        has_product(self, other)?;
        combined(self, other, |left, right| scaled(left, 1, right))
    }

    /// The resource multiplied by a ratio.
    pub fn times(&self, ratio: Ratio) -> Result<Self, UserError> {
        combined(self, self, |amount, _| scaled(amount, ratio.millionths(), Ratio::UNIT))
    }

    /// The resource divided by a ratio.
    pub fn divided_by(&self, ratio: Ratio) -> Result<Self, UserError> {
        combined(self, self, |amount, _| scaled(amount, Ratio::UNIT, ratio.millionths()))
    }
}

/// A driver and its executors have no product: one factor would apply to amounts of two scopes.
fn has_product(left: &Resource, right: &Resource) -> Result<(), UserError> {
    match left.kind().common(right.kind()) {
        Some(Kind::DriverAndExecutor) => Err(error::no_product(left.kind(), right.kind())),
        _ => Ok(()),
    }
}

/// `amount` × `numerator` / `denominator`, rounded down.
pub(super) fn scaled(amount: i64, numerator: i64, denominator: i64) -> Result<i64, UserError> {
    let (dividend, divisor) = (i128::from(amount) * i128::from(numerator), i128::from(denominator));
    let quotient = dividend.checked_div(divisor).ok_or_else(error::division_by_zero)?;
    // The quotient is rounded towards zero: a negative one that is not exact is too high by one.
    let is_above = dividend % divisor != 0 && (dividend < 0) != (divisor < 0);
    i64::try_from(quotient - i128::from(is_above)).map_err(|_| error::out_of_range())
}

/// Applies `of` to each component of both resources.
pub(super) fn combined(
    left: &Resource,
    right: &Resource,
    mut of: impl FnMut(i64, i64) -> Result<i64, UserError>,
) -> Result<Resource, UserError> {
    Ok(match promote(left, right)? {
        (Resource::Memory { memory: left }, Resource::Memory { memory: right }) => {
            Resource::Memory { memory: of(left, right)? }
        }
        (Resource::Cpu { cpu_m: left }, Resource::Cpu { cpu_m: right }) => Resource::Cpu { cpu_m: of(left, right)? },
        (Resource::Load { memory, cpu_m }, Resource::Load { memory: other_memory, cpu_m: other_cpu_m }) => {
            Resource::Load { memory: of(memory, other_memory)?, cpu_m: of(cpu_m, other_cpu_m)? }
        }
        (Resource::LoadInstance(left), Resource::LoadInstance(right)) => {
            Resource::LoadInstance(loads(left, right, &mut of)?)
        }
        (Resource::Queue(left), Resource::Queue(right)) => Resource::Queue(queues(left, &right, &mut of)?),
        (
            Resource::DriverAndExecutor { driver, executors },
            Resource::DriverAndExecutor { driver: other_driver, executors: other_executors },
        ) => Resource::DriverAndExecutor {
            driver: loads(driver, other_driver, &mut of)?,
            executors: queues(executors, &other_executors, &mut of)?,
        },
        (Resource::Special(left), Resource::Special(right)) => Resource::Special(specials(&left, &right, &mut of)?),
        (left, right) => return Err(error::kind_mismatch(left.kind(), right.kind())),
    })
}

fn loads(
    left: LoadInstance,
    right: LoadInstance,
    of: &mut impl FnMut(i64, i64) -> Result<i64, UserError>,
) -> Result<LoadInstance, UserError> {
    Ok(LoadInstance {
        memory: of(left.memory, right.memory)?,
        cpu_m: of(left.cpu_m, right.cpu_m)?,
        instances: of(left.instances, right.instances)?,
    })
}

fn queues(
    left: Queue,
    right: &Queue,
    of: &mut impl FnMut(i64, i64) -> Result<i64, UserError>,
) -> Result<Queue, UserError> {
    if left.queue != right.queue {
        return Err(error::queue_mismatch(&left.queue, &right.queue));
    }
    Ok(Queue { load: loads(left.load, right.load, of)?, queue: left.queue })
}

fn specials(
    left: &Special,
    right: &Special,
    of: &mut impl FnMut(i64, i64) -> Result<i64, UserError>,
) -> Result<Special, UserError> {
    let names: BTreeSet<&String> = left.amounts.keys().chain(right.amounts.keys()).collect();
    let amount = |special: &Special, name| special.amounts.get(name).copied().unwrap_or(0);
    let amounts = names.into_iter().map(|name| Ok((name.clone(), of(amount(left, name), amount(right, name))?)));
    Special::new(amounts.collect::<Result<BTreeMap<_, _>, UserError>>()?)
}
