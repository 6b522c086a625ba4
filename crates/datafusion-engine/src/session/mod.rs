//! A client session: its current schema, settings, temporary tables and open operations.
//!
//! Sessions share memory, disk, threads and the catalog, and nothing else. The handle of a closed session is not found.

pub mod cooperative;
pub mod settings;
pub mod state;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use datafusion::prelude::{SessionConfig, SessionContext};
use futures::future::BoxFuture;
use hs2::Handle;
use model::error::{ErrorKind, UserError};
use model::secret::SecretKeys;
use parking_lot::Mutex;

use crate::catalog::provider::TableSource;
use crate::catalog::{Catalog, SessionCatalogs, TemporaryTables};
use crate::error::{EngineError, no_schema};
use crate::opaque::Opaque;
use crate::storage::resources::Resources;
use settings::SetOutcome;

/// One client session.
pub struct Session {
    pub handle: Handle,
    pub user: String,
    /// The connection. The session ends with it.
    pub connection: u64,
    /// DataFusion's state of the session.
    pub context: Opaque<SessionContext>,
    pub temporary: Arc<TemporaryTables>,
    /// The settings that are only stored. Its lock also serializes changes of DataFusion's settings.
    pub variables: tokio::sync::Mutex<BTreeMap<String, String>>,
    /// The initial stored settings.
    pub first_variables: BTreeMap<String, String>,
    operations: Mutex<HashSet<Handle>>,
    /// The time of the last call.
    touched: Mutex<Duration>,
}

impl Session {
    /// Opens a session with DataFusion's settings `first` and the properties that SET also shows.
    pub fn new(
        first: SessionConfig,
        properties: &BTreeMap<String, String>,
        resources: &Resources,
        catalog: &Arc<Catalog>,
        user: &str,
        connection: u64,
    ) -> Self {
        let temporary = Arc::new(TemporaryTables::default());
        let source: Weak<dyn TableSource> = Arc::downgrade(catalog) as _;
        let catalogs = Arc::new(SessionCatalogs::for_session(source, Arc::clone(&temporary)));
        let runtime = Arc::clone(&resources.runtime);
        let state = state::session_state(first, runtime, catalogs, user);
        Self {
            handle: Handle::random(),
            user: user.to_owned(),
            connection,
            context: Opaque::new(SessionContext::new_with_state(state)),
            temporary,
            variables: tokio::sync::Mutex::new(shown(properties)),
            first_variables: shown(properties),
            operations: Mutex::default(),
            touched: Mutex::new(Duration::ZERO),
        }
    }

    /// Applies the configuration of `OpenSession`: `use:database`, `set:hiveconf:k`, `set:hivevar:k`, or bare keys.
    ///
    /// Boxed for the same reason as [`Catalog::table`].
    pub fn configure<'a>(
        &'a self,
        catalog: &'a Catalog,
        configuration: &'a BTreeMap<String, String>,
    ) -> BoxFuture<'a, Result<(), EngineError>> {
        Box::pin(self.apply_all(catalog, configuration))
    }

    async fn apply_all(&self, catalog: &Catalog, configuration: &BTreeMap<String, String>) -> Result<(), EngineError> {
        for (key, value) in configuration {
            if key == "use:database" {
                self.use_schema(catalog, value)?;
                continue;
            }
            let key = key.strip_prefix("set:").unwrap_or(key);
            if key.starts_with("env:") || key.starts_with("system:") {
                return Err(UserError::new(
                    ErrorKind::InsufficientPrivilege,
                    format!("setting \"{key}\" cannot be changed in a session"),
                )
                .detail("It belongs to the engine's process.")
                .into());
            }
            self.set(catalog, key, value).await?;
        }
        Ok(())
    }

    /// SET.
    pub async fn set(&self, catalog: &Catalog, key: &str, value: &str) -> Result<(), EngineError> {
        let mut variables = self.variables.lock().await;
        match settings::set(&self.context, &mut variables, key, value).await? {
            SetOutcome::Applied => Ok(()),
            SetOutcome::UseSchema(schema) => self.use_schema(catalog, &schema),
        }
    }

    /// USE.
    pub fn use_schema(&self, catalog: &Catalog, schema: &str) -> Result<(), EngineError> {
        let known = catalog.definitions().has_schema(schema) || schema == "information_schema";
        if !known {
            return Err(no_schema(schema).into());
        }
        let state = self.context.state_ref();
        schema.clone_into(&mut state.write().config_mut().options_mut().catalog.default_schema);
        self.temporary.use_schema(schema);
        Ok(())
    }

    /// The current schema.
    pub fn schema(&self) -> String {
        self.context.state_ref().read().config_options().catalog.default_schema.clone()
    }

    /// How long GetOperationStatus may wait, if the session sets it.
    pub async fn long_poll(&self) -> Option<Duration> {
        self.variables.lock().await.get(settings::LONG_POLL).and_then(|text| settings::duration(text))
    }

    /// Adds an open operation; `false` if there are too many.
    pub fn add_operation(&self, operation: Handle, limit: usize) -> bool {
        let mut operations = self.operations.lock();
        operations.len() < limit && operations.insert(operation)
    }

    /// Removes a closed operation.
    pub fn remove_operation(&self, operation: &Handle) {
        self.operations.lock().remove(operation);
    }

    /// The open operations.
    pub fn operations(&self) -> Vec<Handle> {
        self.operations.lock().iter().copied().collect()
    }

    /// Resets the idle time.
    pub fn touch(&self, now: Duration) {
        *self.touched.lock() = now;
    }

    /// The time since the client's last call.
    pub fn idle(&self, now: Duration) -> Duration {
        now.saturating_sub(*self.touched.lock())
    }
}

/// The properties that are not settings of `DataFusion`. Secret values are masked, because users are not operators.
fn shown(properties: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut shown = SecretKeys::default().mask(properties);
    shown.retain(|key, _| !key.starts_with("datafusion."));
    shown
}
