//! The type `datafusion`: Apache `DataFusion` in the engine agent's own process.

pub mod connector;
pub mod launch;
#[cfg(feature = "datafusion-engine")]
mod store_environment;
