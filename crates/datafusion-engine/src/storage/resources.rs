//! Memory, disk and file system of one engine, shared by all its sessions.
//!
//! One pool holds all statements to the unit's DRIVER_MEMORY: operators that can spill are given even shares and write
//! to the scratch folder; one that can't is refused with SQLSTATE 53200. Listings are not cached: another engine of the
//! tenant, or a program beside it, may have added a file.

use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};

use super::Locations;
use super::confined::ConfinedFiles;
use crate::config::Config;
use crate::error::EngineError;

/// How many of the largest users of memory an error names.
const CONSUMERS_NAMED: NonZeroUsize = NonZeroUsize::new(5).unwrap();
/// The most memory that one sort keeps back for merging what it spilled, in bytes: DataFusion's own default.
const SORT_RESERVATION_BYTES_MAX: usize = 10 << 20;
/// Sorts of one statement may keep back this part of the pool together.
const SORT_RESERVATION_PART: usize = 8;

/// What all statements of an engine share; the scratch folder goes with it.
#[derive(Debug)]
pub struct Resources {
    /// Memory pool, disk manager and the confined file system, as DataFusion wants them.
    pub runtime: Arc<RuntimeEnv>,
    spill_dir: PathBuf,
}

impl Resources {
    /// Makes an empty scratch folder and the pool. What lay in the folder was a dead engine's of the same name.
    pub fn new(config: &Config, locations: &Arc<Locations>) -> Result<Self, EngineError> {
        let spill_dir = config.scratch_dir.join(&config.engine).join("spill");
        match fs::remove_dir_all(&spill_dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(EngineError::io(format!("empty {}", spill_dir.display()))(error));
            }
            _ => {}
        }
        fs::create_dir_all(&spill_dir).map_err(EngineError::io(format!("make {}", spill_dir.display())))?;
        let pool = TrackConsumersPool::new(FairSpillPool::new(memory(config)), CONSUMERS_NAMED);
        let disk = DiskManagerBuilder::default()
            .with_mode(DiskManagerMode::Directories(vec![spill_dir.clone()]))
            .with_max_temp_directory_size(config.limits.spill_bytes);
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(pool))
            .with_disk_manager_builder(disk)
            .with_object_list_cache_limit(0)
            .build_arc()?;
        let files = ConfinedFiles::new(Arc::clone(locations));
        runtime.register_object_store(ObjectStoreUrl::local_filesystem().as_ref(), Arc::new(files));
        Ok(Self { runtime, spill_dir })
    }

    /// What one sort keeps back for merging, so that a small pool is not used up before the first row.
    pub fn sort_reservation(config: &Config, partitions: usize) -> usize {
        (memory(config) / (SORT_RESERVATION_PART * partitions.max(1))).min(SORT_RESERVATION_BYTES_MAX)
    }
}

fn memory(config: &Config) -> usize {
    usize::try_from(config.memory_bytes).unwrap_or(usize::MAX)
}

impl Drop for Resources {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.spill_dir) {
            tracing::debug!(%error, dir = %self.spill_dir.display(), "scratch folder not removed");
        }
    }
}
