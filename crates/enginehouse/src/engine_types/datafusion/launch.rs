//! The launch of a `DataFusion` engine: its catalog may be in an object store.

use model::error::UserError;
use orchestrator::InstanceOptions;

use crate::configuration::{Catalogs, EnginesSection};
use crate::engine_file::{CatalogBucket, EngineFile};
use crate::engine_types::LaunchPart;

/// The launch part of type `datafusion`.
#[derive(Debug)]
pub struct DatafusionLaunch {
    /// The object store with the catalogs, instead of the folder of the file.
    catalog: Option<CatalogBucket>,
}

impl DatafusionLaunch {
    pub fn new(section: &EnginesSection) -> anyhow::Result<Self> {
        let catalog = match section.catalog()? {
            Catalogs::Default | Catalogs::Folder(_) => None,
            Catalogs::Bucket(bucket) => Some(bucket),
        };
        Ok(Self { catalog })
    }
}

impl LaunchPart for DatafusionLaunch {
    fn complete(
        &self,
        _launch: &master::Launch<'_>,
        file: &mut EngineFile,
        _options: &mut InstanceOptions,
    ) -> Result<(), UserError> {
        file.catalog.clone_from(&self.catalog);
        Ok(())
    }
}
