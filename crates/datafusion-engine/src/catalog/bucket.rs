//! The tenant's catalog in an object store: a marker per schema, an object per definition.
//!
//! ```text
//! <url>/<tenant>/schemas/<schema>.schema           the schema exists
//! <url>/<tenant>/schemas/<schema>/<table>.json     a definition
//! ```
//!
//! The engines of the tenant use the objects concurrently, without locks. A definition is created by a conditional put, so
//! of two engines that race for one name exactly one succeeds; a replacement is a plain put, and the last one wins. A
//! drop deletes the schema's marker and then lists its tables; a create writes the definition and then checks the
//! marker. So in each order one of the two sees the other and undoes its own step. The store must be consistent: a read
//! returns the last write.
//!
//! DataFusion's look-ups are synchronous, so requests run on a thread of this module while the caller's thread blocks, for
//! at most [`CALL_DEADLINE`] per call.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use futures::TryStreamExt as _;
use model::error::{ErrorKind, UserError};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutMode, PutPayload};
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use url::Url;

use super::definition::Definition;
use super::file_name::{decode, encode};
use super::folder::{
    DEFAULT_SCHEMA, DEFINITION_BYTES_MAX, DEFINITIONS_MAX, Publish, SCHEMAS_MAX, exists, from_bytes, schema_exists,
    schema_is_full, schema_not_dropped, schema_not_empty, to_bytes, too_many_schemas,
};
use crate::error::{EngineError, no_schema};

/// The deadline of one call of the catalog, including a whole listing.
pub const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// The timeout of one request, after which it is retried.
const REQUEST_TIMEOUT: &str = "5 seconds";
const CONNECT_TIMEOUT: &str = "3 seconds";
const MARKER: &str = ".schema";
const ENDING: &str = ".json";

/// The objects of one tenant's catalog.
#[derive(Debug)]
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    schemas: Path,
    threads: Threads,
}

/// The runtime of the requests. Dropping it does not wait for them.
#[derive(Debug)]
struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Bucket {
    /// Opens the catalog of a tenant below a URL, such as `s3://bucket/prefix`. `options` has the store's options, by
    /// their names in the crate `object_store`. Reads once, so that a wrong URL or key fails the engine's start.
    pub fn open(url: &str, options: &BTreeMap<String, String>, tenant: &str) -> Result<Self, EngineError> {
        let wrong = |why: String| EngineError::Config { key: "catalog_url".to_owned(), why };
        let parsed = Url::parse(url).map_err(|error| wrong(format!("{url}: {error}")))?;
        let defaults = [("timeout", REQUEST_TIMEOUT), ("connect_timeout", CONNECT_TIMEOUT)];
        let given = options.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let (store, prefix) = object_store::parse_url_opts(&parsed, defaults.into_iter().chain(given))
            .map_err(|error| wrong(format!("{url}: {error}")))?;
        let bucket = Self::new(Arc::from(store), &prefix, tenant)?;
        bucket.schema_names()?;
        Ok(bucket)
    }

    pub(super) fn new(store: Arc<dyn ObjectStore>, prefix: &Path, tenant: &str) -> Result<Self, EngineError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("catalog")
            .enable_all()
            .build()
            .map_err(EngineError::io("start the catalog thread"))?;
        let schemas = below(prefix, &[&encode("tenant", tenant)?, "schemas"])?;
        Ok(Self { store, schemas, threads: Threads(Some(runtime)) })
    }

    /// Runs a request on the module's thread and waits for it.
    fn wait<T: Send + 'static>(
        &self,
        what: impl Into<String>,
        request: impl Future<Output = Result<T, object_store::Error>> + Send + 'static,
    ) -> Result<Result<T, object_store::Error>, EngineError> {
        let what = what.into();
        let (sender, receiver) = mpsc::sync_channel(1);
        let Some(runtime) = &self.threads.0 else { return Err(failed(&what, "The engine is shutting down.")) };
        runtime.spawn(async move {
            let outcome = tokio::time::timeout(CALL_DEADLINE, request).await;
            // The caller may have given up.
            let _ = sender.send(outcome);
        });
        let received = waiting(|| receiver.recv_timeout(CALL_DEADLINE + Duration::from_secs(1)));
        match received {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(_)) | Err(_) => {
                Err(failed(&what, &format!("The object store did not respond within {} s.", CALL_DEADLINE.as_secs())))
            }
        }
    }

    /// The schemas, in order.
    pub fn schema_names(&self) -> Result<Vec<String>, EngineError> {
        let what = "list the schemas";
        let (store, prefix) = (Arc::clone(&self.store), self.schemas.clone());
        let listed = self.wait(what, async move { store.list_with_delimiter(Some(&prefix)).await })?;
        let listed = listed.map_err(|error| store_error(what, &error))?;
        let mut names = names(&listed.objects, MARKER);
        names.push(DEFAULT_SCHEMA.to_owned());
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Whether the schema exists; `false` also while the store is unavailable.
    pub fn has_schema(&self, schema: &str) -> bool {
        self.is_schema(schema).unwrap_or(false)
    }

    fn is_schema(&self, schema: &str) -> Result<bool, EngineError> {
        Ok(schema == DEFAULT_SCHEMA || self.is_there(self.marker(schema)?)?)
    }

    fn is_there(&self, path: Path) -> Result<bool, EngineError> {
        let what = format!("look for {path}");
        let store = Arc::clone(&self.store);
        match self.wait(what.as_str(), async move { store.head(&path).await })? {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(store_error(&what, &error)),
        }
    }

    /// Creates a schema.
    pub fn create_schema(&self, schema: &str) -> Result<(), EngineError> {
        let marker = self.marker(schema)?;
        if schema == DEFAULT_SCHEMA {
            return Err(schema_exists(schema).into());
        }
        if self.schema_names()?.len() >= SCHEMAS_MAX && !self.is_there(marker.clone())? {
            return Err(too_many_schemas().into());
        }
        let what = format!("create schema \"{schema}\"");
        match self.put(&what, marker, Vec::new(), PutMode::Create)? {
            Ok(()) => Ok(()),
            Err(error) if is_taken(&error) => Err(schema_exists(schema).into()),
            Err(error) => Err(store_error(&what, &error)),
        }
    }

    /// Drops a schema. One that has tables is dropped only with `cascade`.
    pub fn drop_schema(&self, schema: &str, cascade: bool) -> Result<(), EngineError> {
        if schema == DEFAULT_SCHEMA {
            return Err(schema_not_dropped().into());
        }
        let marker = self.marker(schema)?;
        if !self.is_there(marker.clone())? {
            return Err(no_schema(schema).into());
        }
        let what = format!("drop schema \"{schema}\"");
        self.delete(&what, marker.clone())?;
        let tables = self.table_names(schema)?;
        if tables.is_empty() {
            return Ok(());
        }
        if !cascade {
            // There are tables, perhaps created concurrently: restore the marker.
            match self.put(&what, marker, Vec::new(), PutMode::Create)? {
                Err(error) if !is_taken(&error) => return Err(store_error(&what, &error)),
                _ => return Err(schema_not_empty(schema, tables.len()).into()),
            }
        }
        for table in tables {
            self.delete(&what, self.path(schema, &table)?)?;
        }
        Ok(())
    }

    /// The tables and views of a schema, in order; none if there is no such schema.
    pub fn table_names(&self, schema: &str) -> Result<Vec<String>, EngineError> {
        let what = "list the tables";
        let (store, prefix) = (Arc::clone(&self.store), below(&self.schemas, &[&encode("schema", schema)?])?);
        // The limit on definitions bounds the listing.
        let most = DEFINITIONS_MAX + SCHEMAS_MAX;
        let listed = self.wait(what, async move {
            let mut found = Vec::new();
            let mut list = store.list(Some(&prefix));
            while let Some(object) = list.try_next().await? {
                found.push(object);
                if found.len() > most {
                    break;
                }
            }
            Ok(found)
        })?;
        let mut names = names(&listed.map_err(|error| store_error(what, &error))?, ENDING);
        names.sort();
        Ok(names)
    }

    /// Reads one definition; `None` if it does not exist.
    pub fn read(&self, schema: &str, name: &str) -> Result<Option<Definition>, EngineError> {
        let Ok(path) = self.path(schema, name) else { return Ok(None) };
        let what = format!("read the definition of \"{schema}\".\"{name}\"");
        let store = Arc::clone(&self.store);
        let read = self.wait(what.as_str(), async move {
            let found = store.get(&path).await?;
            if found.meta.size > DEFINITION_BYTES_MAX {
                return Ok(Err(found.meta.size));
            }
            found.bytes().await.map(Ok)
        })?;
        match read {
            Ok(Ok(bytes)) => Ok(Some(from_bytes(schema, name, Ok(&bytes))?)),
            Ok(Err(size)) => Ok(Some(from_bytes(schema, name, Err(size))?)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(store_error(&what, &error)),
        }
    }

    /// Publishes a definition under its name.
    pub fn publish(&self, definition: &Definition, how: Publish) -> Result<(), EngineError> {
        let (schema, name) = (&definition.schema, &definition.name);
        let path = self.path(schema, name)?;
        let bytes = to_bytes(definition)?;
        if !self.is_schema(schema)? {
            return Err(no_schema(schema).into());
        }
        if self.table_names(schema)?.len() >= DEFINITIONS_MAX && !self.is_there(path.clone())? {
            return Err(schema_is_full(schema).into());
        }
        let what = format!("write the definition of \"{schema}\".\"{name}\"");
        let mode = match how {
            Publish::Create => PutMode::Create,
            Publish::Replace => PutMode::Overwrite,
        };
        match self.put(&what, path.clone(), bytes, mode)? {
            Ok(()) => {}
            Err(error) if is_taken(&error) => {
                // A put whose response was lost is retried, and finds its own object.
                let ours = self.read(schema, name)?.is_some_and(|found| found.id == definition.id);
                if !ours {
                    return Err(exists(schema, name).into());
                }
            }
            Err(error) => return Err(store_error(&what, &error)),
        }
        // If the store fails here, the definition remains and its creator receives the error.
        if !self.is_schema(schema)? {
            // The schema was dropped concurrently, and that DROP may already have listed its tables.
            self.delete(&what, path)?;
            return Err(no_schema(schema).into());
        }
        Ok(())
    }

    /// Removes a definition; `false` if it did not exist.
    pub fn remove(&self, schema: &str, name: &str) -> Result<bool, EngineError> {
        let Ok(path) = self.path(schema, name) else { return Ok(false) };
        if !self.is_there(path.clone())? {
            return Ok(false);
        }
        self.delete(&format!("drop \"{schema}\".\"{name}\""), path)?;
        Ok(true)
    }

    fn put(
        &self,
        what: &str,
        path: Path,
        bytes: Vec<u8>,
        mode: PutMode,
    ) -> Result<Result<(), object_store::Error>, EngineError> {
        let store = Arc::clone(&self.store);
        self.wait(what, async move { store.put_opts(&path, PutPayload::from(bytes), mode.into()).await.map(|_| ()) })
    }

    /// Deletes an object. Deleting a missing object succeeds.
    fn delete(&self, what: &str, path: Path) -> Result<(), EngineError> {
        let store = Arc::clone(&self.store);
        match self.wait(what, async move { store.delete(&path).await })? {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(store_error(what, &error)),
        }
    }

    fn marker(&self, schema: &str) -> Result<Path, UserError> {
        below(&self.schemas, &[&(encode("schema", schema)? + MARKER)])
    }

    fn path(&self, schema: &str, name: &str) -> Result<Path, UserError> {
        below(&self.schemas, &[&encode("schema", schema)?, &(encode("table", name)? + ENDING)])
    }
}

/// A path below another. Its parts are already encoded.
fn below(path: &Path, parts: &[&str]) -> Result<Path, UserError> {
    let mut text = path.to_string();
    for part in parts {
        text = format!("{text}/{part}");
    }
    Path::parse(&text).map_err(|error| UserError::internal(format!("{text} is not an object path: {error}")))
}

/// Blocks this thread; a runtime's thread first hands its other tasks to another thread.
fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => tokio::task::block_in_place(wait),
        _ => wait(),
    }
}

/// Whether a conditional put found an existing object.
fn is_taken(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. })
}

fn names(objects: &[object_store::ObjectMeta], ending: &str) -> Vec<String> {
    let name = |object: &object_store::ObjectMeta| decode(object.location.filename()?.strip_suffix(ending)?);
    objects.iter().filter_map(name).collect()
}

fn failed(what: &str, why: &str) -> EngineError {
    UserError::new(ErrorKind::Io, format!("could not {what}")).detail(why.to_owned()).into()
}

/// The error without details of the request: the store's errors quote URLs, which may contain signatures.
fn store_error(what: &str, error: &object_store::Error) -> EngineError {
    tracing::warn!(%error, "object store of the catalog failed");
    let why = match error {
        object_store::Error::PermissionDenied { .. } => "The object store denied access to the engine's key.",
        object_store::Error::Unauthenticated { .. } => "The object store does not know the engine's key.",
        object_store::Error::NotFound { .. } => "The bucket does not exist in the object store.",
        _ => "The object store failed. Its error is in the engine's log.",
    };
    failed(what, why)
}
