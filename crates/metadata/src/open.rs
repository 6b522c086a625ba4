//! Opening and migrating the database.

use model::change::Rules;
use model::clock::{SharedClock, SystemClock};

use crate::backend::StoreSettings;
use crate::error::Error;
use crate::migration;
use crate::store::Store;

impl Store {
    /// Opens the database for a metadata agent, and records and seals the secret properties of its units. Refuses a database that a
    /// newer program has migrated, and one that was not migrated yet.
    pub async fn open(settings: &StoreSettings, rules: Rules, clock: SharedClock) -> Result<Self, Error> {
        let store = Self::open_as(settings, rules, clock).await?;
        store.seal_secrets().await?;
        Ok(store)
    }

    /// Opens the database without the keys of a metadata agent, for calls that read: nothing is recorded, and secret values stay
    /// as they are stored.
    pub async fn open_to_read(settings: &StoreSettings, clock: SharedClock) -> Result<Self, Error> {
        Self::open_as(settings, Rules::default(), clock).await
    }

    async fn open_as(settings: &StoreSettings, rules: Rules, clock: SharedClock) -> Result<Self, Error> {
        let store = Self::connect(settings, rules, clock).await?;
        store.await_database().await?;
        migration::check(&store).await?;
        Ok(store)
    }

    /// Migrates the schema of the database to this program's version, which it returns. An empty database gets all tables.
    /// Repeating it is harmless, also concurrently.
    pub async fn migrate(settings: &StoreSettings) -> Result<i64, Error> {
        let store = Self::connect(settings, Rules::default(), SystemClock::shared()).await?;
        store.await_database().await?;
        let version = migration::run(&store).await;
        store.close().await;
        version
    }
}
