//! Resource limits of a local engine, which shares its machine with other engines, proxies, masters and servers.
//!
//! The memory pool of an engine counts what plans request, not every allocation. So a local engine also limits its process:
//! the OOM killer chooses engines first, and a DataFusion engine limits its address space, so that an allocation beyond it
//! ends that engine only. A Java virtual machine has no such limit, because it reserves far more addresses than it uses; its
//! heap is fixed instead. In a pod the limit of the container replaces both.

use rustix::process::{Resource, getrlimit, setrlimit};
use tracing::{info, warn};

use crate::engine_file::EngineFile;
use crate::engine_types::host::EngineHost;
use crate::machine;

/// The address space of a DataFusion engine that `DRIVER_MEMORY` does not count: the program and what it loads.
const ADDRESS_SPACE_BASE: u64 = 2 << 30;
/// The same for each thread: its stack, and the arena that the allocator reserves for it.
const ADDRESS_SPACE_PER_THREAD: u64 = 128 << 20;
/// How many times `DRIVER_MEMORY` an engine may have: results and functions take memory outside of the memory pool.
const ADDRESS_SPACE_FACTOR: u64 = 3;
/// The highest score that the kernel's OOM killer knows: such a process is killed before any other.
const OOM_SCORE: i32 = 1_000;
/// The score of this process, and of its children from now on.
const OOM_SCORE_FILE: &str = "/proc/self/oom_score_adj";

/// Applies the limits to this process, that of the address space only if the engine type allows it. A failure is logged, and the engine serves without that limit.
pub fn apply(file: &EngineFile, limits_address_space: bool, host: &EngineHost) {
    if !host.is_shared_machine() {
        return;
    }
    let total = machine::memory_bytes();
    if file.memory_bytes > total {
        warn!(
            driver_memory_mib = file.memory_bytes >> 20,
            machine_mib = total >> 20,
            "DRIVER_MEMORY is larger than the memory of this machine: a statement may exhaust it and end the engine"
        );
    }
    if let Err(error) = raise_oom_score() {
        warn!(%error, "could not raise the OOM score of this engine");
    }
    if limits_address_space {
        let own = std::thread::available_parallelism().map_or(1, usize::from);
        limit_address_space(address_space(file.memory_bytes, file.cpu_threads + own));
    }
}

/// Raising needs no right; lowering would.
fn raise_oom_score() -> std::io::Result<()> {
    let now = std::fs::read_to_string(OOM_SCORE_FILE)?;
    if now.trim().parse::<i32>().is_ok_and(|now| now >= OOM_SCORE) {
        return Ok(());
    }
    std::fs::write(OOM_SCORE_FILE, OOM_SCORE.to_string())
}

fn limit_address_space(bytes: u64) {
    let mut limit = getrlimit(Resource::As);
    // A lower limit that is already set is kept.
    let lower = |there: Option<u64>| Some(there.map_or(bytes, |there| there.min(bytes)));
    limit.current = lower(limit.current);
    limit.maximum = lower(limit.maximum);
    match setrlimit(Resource::As, limit) {
        Ok(()) => info!(mib = bytes >> 20, "address space limited"),
        Err(error) => warn!(%error, "could not limit the address space of this engine"),
    }
}

/// The address space of a DataFusion engine with that `DRIVER_MEMORY` and so many threads, in bytes.
fn address_space(memory_bytes: u64, threads: usize) -> u64 {
    let of_threads = (threads as u64).saturating_mul(ADDRESS_SPACE_PER_THREAD);
    memory_bytes.saturating_mul(ADDRESS_SPACE_FACTOR).saturating_add(ADDRESS_SPACE_BASE).saturating_add(of_threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_space_follows_the_memory_and_never_overflows() {
        assert_eq!(address_space(1 << 30, 8), 6 << 30);
        assert_eq!(address_space(u64::MAX, usize::MAX), u64::MAX);
    }
}
