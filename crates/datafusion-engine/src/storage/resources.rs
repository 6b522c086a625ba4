//! Memory, disk and file system of one engine, shared by all its sessions.
//!
//! One pool holds all statements to the unit's `DRIVER_MEMORY`: operators that can spill are given even shares and write
//! to the scratch folder; one that can't is refused with SQLSTATE 53200. Listings are not cached: another engine of the
//! tenant, or a program beside it, may have added a file.

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

/// How many of the largest users of memory an error names.
const CONSUMERS_NAMED: NonZeroUsize = NonZeroUsize::new(5).unwrap();
/// The most memory that one sort keeps back for merging what it spilled, in bytes: DataFusion's own default.
const SORT_RESERVATION_BYTES_MAX: usize = 10 << 20;
/// Sorts of one statement may keep back this part of the pool together.
const SORT_RESERVATION_PART: usize = 8;
/// What is kept of files' footers and statistics, each, stands beside the pool: this part of it…
const CACHE_PART: usize = 32;
/// … and at most so many bytes.
const CACHE_BYTES_MAX: usize = 20 << 20;

/// What one spilled run is taken to hold in memory while it is merged.
const MERGED_RUN_BYTES: usize = 4 << 20;
/// The most runs that are merged at once.
const FAN_IN_MAX: usize = 256;

/// What all statements of an engine share; the scratch folder goes with it.
#[derive(Debug)]
pub struct Resources {
    /// Memory pool, disk manager and the confined file system, as DataFusion wants them.
    pub runtime: Arc<RuntimeEnv>,
    _scratch: Scratch,
}

impl Resources {
    /// Makes an empty scratch folder and the pool. What lay in the folder was a dead engine's of the same name.
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

    /// What one sort keeps back for merging, so that a small pool is not used up before the first row.
    pub fn sort_reservation(config: &Config, partitions: usize) -> usize {
        (memory(config) / (SORT_RESERVATION_PART * partitions.max(1))).min(SORT_RESERVATION_BYTES_MAX)
    }
}

/// How many spilled runs are merged at once. Each holds about two batches in memory that can't spill, in every partition:
/// without a bound one partition takes the whole pool and the next one fails.
fn fan_in(config: &Config) -> usize {
    (memory(config) / (config.cpu_threads * MERGED_RUN_BYTES)).clamp(2, FAN_IN_MAX)
}

fn memory(config: &Config) -> usize {
    usize::try_from(config.memory_bytes).unwrap_or(usize::MAX)
}
