//! The shared context of an engine's statements: configuration, clock, catalog and resources.

use std::sync::Arc;

use datafusion::prelude::SessionConfig;
use model::clock::SharedClock;

use crate::catalog::{Bucket, Catalog, Definitions, Folder};
use crate::config::Config;
use crate::error::EngineError;
use crate::session::state::initial_settings;
use crate::storage::Locations;
use crate::storage::resources::Resources;

/// The parts of an engine that its sessions and statements share. They do not change while the engine runs.
pub struct EngineContext {
    config: Config,
    initial_settings: SessionConfig,
    clock: SharedClock,
    catalog: Arc<Catalog>,
    resources: Resources,
}

impl EngineContext {
    /// Checks the configuration, takes the scratch folder and opens the catalog.
    pub fn open(config: Config, clock: SharedClock) -> Result<Self, EngineError> {
        config.check()?;
        let initial_settings = initial_settings(&config)?;
        let locations = Arc::new(Locations::new(&config.allowed_locations)?.without(&own_paths(&config)));
        let resources = Resources::new(&config, &locations)?;
        let definitions = match &config.catalog {
            None => Definitions::from(Folder::open(&config.catalog_dir)?),
            Some(bucket) => Bucket::open(&bucket.url, &bucket.options, &config.tenant)?.into(),
        };
        let catalog = Catalog::new(definitions, locations, initial_settings.clone(), Arc::clone(&resources.runtime));
        Ok(Self { config, initial_settings, clock, catalog, resources })
    }

    /// The configuration that the engine was started with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The settings of a new session.
    pub fn initial_settings(&self) -> &SessionConfig {
        &self.initial_settings
    }

    pub fn clock(&self) -> &SharedClock {
        &self.clock
    }

    /// The tenant's catalog.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Memory, disk and files.
    pub fn resources(&self) -> &Resources {
        &self.resources
    }
}

/// Paths that no statement may read or write, even below an allowed location.
fn own_paths(config: &Config) -> Vec<std::path::PathBuf> {
    let folders = [&config.catalog_dir, &config.scratch_dir].into_iter();
    folders.chain(&config.own_paths).cloned().collect()
}
