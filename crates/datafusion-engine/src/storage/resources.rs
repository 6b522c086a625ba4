//! Memory, disk and file system of an engine, shared by all its sessions.
//!
//! One pool limits all statements to the unit's `DRIVER_MEMORY`: operators that can spill have equal shares and write to
//! the scratch folder; others fail with SQLSTATE 53200. Listings are not cached, because another engine of the tenant or
//! another program may have added a file.

use std::num::NonZeroUsize;
use std::sync::Arc;

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};

use super::Locations;
use super::confined::ConfinedFiles;
use super::scratch::Scratch;
use crate::config::Config;
use crate::error::EngineError;

/// How many of the largest memory consumers an error names.
const CONSUMERS_NAMED: NonZeroUsize = NonZeroUsize::new(5).unwrap();
/// The most memory that one sort reserves for merging its spills, in bytes: DataFusion's default.
const SORT_RESERVATION_BYTES_MAX: usize = 10 << 20;
/// The sorts of one statement may reserve this part of the pool.
const SORT_RESERVATION_PART: usize = 8;
/// The caches of files' footers and of statistics are outside the pool. Each is at most this part of it…
const CACHE_PART: usize = 32;
/// … and at most this many bytes.
const CACHE_BYTES_MAX: usize = 20 << 20;

/// The estimated memory of one spilled run while it is merged, in bytes.
const MERGED_RUN_BYTES: usize = 4 << 20;
/// The most runs that are merged at once.
const FAN_IN_MAX: usize = 256;

/// The resources of an engine. The scratch folder is removed when it is dropped.
#[derive(Debug)]
pub struct Resources {
    /// Memory pool, disk manager and the confined file system, for DataFusion.
    pub runtime: Arc<RuntimeEnv>,
    _scratch: Scratch,
}

impl Resources {
    /// Creates an empty scratch folder and the pool. Old content of the folder is from a dead engine with this name.
    pub fn new(config: &Config, locations: &Arc<Locations>) -> Result<Self, EngineError> {
        let scratch = Scratch::take(&config.scratch_dir, &config.engine)?;
        let pool = TrackConsumersPool::new(FairSpillPool::new(memory(config)), CONSUMERS_NAMED);
        let disk = DiskManagerBuilder::default()
            .with_mode(DiskManagerMode::Directories(vec![scratch.spill_dir()]))
            .with_max_temp_directory_size(config.limits.spill_bytes)
            .with_max_spill_merge_fan_in(fan_in(config));
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(pool))
            .with_disk_manager_builder(disk)
            .with_object_list_cache_limit(0)
            .with_metadata_cache_limit((memory(config) / CACHE_PART).min(CACHE_BYTES_MAX))
            .with_file_statistics_cache_limit((memory(config) / CACHE_PART).min(CACHE_BYTES_MAX))
            .build_arc()?;
        let files = ConfinedFiles::new(Arc::clone(locations));
        runtime.register_object_store(ObjectStoreUrl::local_filesystem().as_ref(), Arc::new(files));
        Ok(Self { runtime, _scratch: scratch })
    }

    /// The memory that one sort reserves for merging, limited so that reservations do not exhaust a small pool.
    pub fn sort_reservation(config: &Config, partitions: usize) -> usize {
        (memory(config) / (SORT_RESERVATION_PART * partitions.max(1))).min(SORT_RESERVATION_BYTES_MAX)
    }
}

/// How many spilled runs are merged at once. In every partition, each holds about two batches that cannot spill: without a
/// limit, one partition takes the whole pool and the next one fails.
fn fan_in(config: &Config) -> usize {
    (memory(config) / (config.cpu_threads * MERGED_RUN_BYTES)).clamp(2, FAN_IN_MAX)
}

fn memory(config: &Config) -> usize {
    usize::try_from(config.memory_bytes).unwrap_or(usize::MAX)
}
