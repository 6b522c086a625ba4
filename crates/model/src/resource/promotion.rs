//! Promotion: the kind to which two resources of different kinds are raised before they combine.
//!
//! The kinds form one chain, `Memory` and `Cpu`, then `Load`, `LoadInstance`, `DriverAndExecutor`; `Queue` and `Special`
//! combine with their own kind only. A component that the lower kind lacks is 0, so promotion changes no amount.

use super::kind::Kind;
use super::{LoadInstance, Queue, Resource, error};
use crate::error::UserError;

impl Kind {
    /// The kind to which resources of both kinds are promoted, if they combine.
    pub const fn common(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Queue, Self::Queue) => Some(Self::Queue),
            (Self::Special, Self::Special) => Some(Self::Special),
            (Self::Queue | Self::Special, _) | (_, Self::Queue | Self::Special) => None,
            (Self::DriverAndExecutor, _) | (_, Self::DriverAndExecutor) => Some(Self::DriverAndExecutor),
            (Self::LoadInstance, _) | (_, Self::LoadInstance) => Some(Self::LoadInstance),
            (Self::Memory, Self::Memory) => Some(Self::Memory),
            (Self::Cpu, Self::Cpu) => Some(Self::Cpu),
            (Self::Memory | Self::Cpu | Self::Load, Self::Memory | Self::Cpu | Self::Load) => Some(Self::Load),
        }
    }
}

/// Two resources of the same kind with the amounts of these two. Kinds that do not combine are `KIND_MISMATCH`. The names
/// of two queues are compared where their amounts are combined.
pub fn promote(left: &Resource, right: &Resource) -> Result<(Resource, Resource), UserError> {
    let kind = left.kind().common(right.kind()).ok_or_else(|| error::kind_mismatch(left.kind(), right.kind()))?;
    Ok((raised(left, kind, right), raised(right, kind, left)))
}

/// The resource as one of `kind`, to which it can be promoted; executors that it lacks are those of `other` without any amount.
fn raised(resource: &Resource, kind: Kind, other: &Resource) -> Resource {
    let Some(load) = resource.load() else { return resource.clone() };
    match (kind, other) {
        (Kind::Load, _) => Resource::Load { memory: load.memory, cpu_m: load.cpu_m },
        (Kind::LoadInstance, _) => Resource::LoadInstance(load),
        (Kind::DriverAndExecutor, Resource::DriverAndExecutor { executors, .. }) => Resource::DriverAndExecutor {
            driver: load,
            executors: Queue { queue: executors.queue.clone(), load: LoadInstance::default() },
        },
        _ => resource.clone(),
    }
}

impl Resource {
    /// The amounts of the kinds that have neither a queue nor names.
    pub(super) const fn load(&self) -> Option<LoadInstance> {
        match self {
            Self::Memory { memory } => Some(LoadInstance { memory: *memory, cpu_m: 0, instances: 0 }),
            Self::Cpu { cpu_m } => Some(LoadInstance { memory: 0, cpu_m: *cpu_m, instances: 0 }),
            Self::Load { memory, cpu_m } => Some(LoadInstance { memory: *memory, cpu_m: *cpu_m, instances: 0 }),
            Self::LoadInstance(load) => Some(*load),
            Self::Queue(_) | Self::DriverAndExecutor { .. } | Self::Special(_) => None,
        }
    }
}
