//! The catalog in the form in which DataFusion looks names up.
//!
//! Every look-up reads the folder, so a statement sees what any engine of the tenant wrote before it began; a table that
//! is dropped while a statement scans it is scanned to the end. A session's temporary tables are a schema of their own,
//! [`TEMPORARY_SCHEMA`], in which bare names are looked up first. `information_schema` is built over a tolerant view of the same: one definition that
//! can't be built any more (its files are gone) hides its own columns there, and nobody else's.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::catalog::information_schema::{INFORMATION_SCHEMA, InformationSchemaProvider};
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::TableType;
use parking_lot::RwLock;

use super::build::Catalog;
use super::definition::Kind;
use super::folder::DEFAULT_SCHEMA;

/// The one catalog that there is.
pub const CATALOG: &str = "datafusion";
/// The schema of a session's temporary tables. No statement can name it: a text with this character is refused.
pub const TEMPORARY_SCHEMA: &str = "\0temporary";
/// The most temporary tables and views of one session.
pub const TEMPORARY_MAX: usize = 1_000;

/// What lives only as long as a session: its schema and its temporary tables.
#[derive(Debug)]
pub struct Temporary {
    schema: RwLock<String>,
    tables: RwLock<HashMap<String, Arc<dyn TableProvider>>>,
}

impl Default for Temporary {
    fn default() -> Self {
        Self { schema: RwLock::new(DEFAULT_SCHEMA.to_owned()), tables: RwLock::default() }
    }
}

impl Temporary {
    /// Follows a USE.
    pub fn use_schema(&self, schema: &str) {
        schema.clone_into(&mut self.schema.write());
    }

    /// The temporary table of that name, if `schema` is the one in which the session is.
    pub fn get(&self, schema: &str, name: &str) -> Option<Arc<dyn TableProvider>> {
        if *self.schema.read() != schema {
            return None;
        }
        self.named(name)
    }

    /// The temporary table of that name; in any case, unless two names match.
    pub fn named(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        let tables = self.tables.read();
        if let Some(table) = tables.get(name) {
            return Some(Arc::clone(table));
        }
        let lower = name.to_lowercase();
        let mut others = tables.iter().filter(|(other, _)| other.to_lowercase() == lower);
        others.next().filter(|_| others.next().is_none()).map(|(_, table)| Arc::clone(table))
    }

    /// Adds or replaces one; false if there are too many.
    pub fn put(&self, name: &str, table: Arc<dyn TableProvider>) -> bool {
        let mut tables = self.tables.write();
        if tables.len() >= TEMPORARY_MAX && !tables.contains_key(name) {
            return false;
        }
        tables.insert(name.to_owned(), table);
        true
    }

    /// Drops one; none if it was not there.
    pub fn remove(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        self.tables.write().remove(name)
    }

    /// The names, in order, if `schema` is the one in which the session is.
    pub fn names(&self, schema: &str) -> Vec<String> {
        if *self.schema.read() != schema {
            return Vec::new();
        }
        self.all_names()
    }

    /// The names, in order.
    fn all_names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.tables.read().keys().cloned().collect();
        names.sort();
        names
    }
}

/// The list with the one catalog, as one session sees it.
#[derive(Debug, Clone)]
pub struct SessionCatalogs {
    // Weak, because the catalog itself holds one of these to read definitions with.
    catalog: Weak<Catalog>,
    temporary: Arc<Temporary>,
    tolerant: bool,
}

impl SessionCatalogs {
    /// As a session sees it.
    pub fn of_session(catalog: &Arc<Catalog>, temporary: Arc<Temporary>) -> Self {
        Self { catalog: Arc::downgrade(catalog), temporary, tolerant: false }
    }

    /// As a definition sees it: without any session's temporary tables.
    pub fn of_definitions(catalog: Weak<Catalog>) -> Self {
        Self { catalog, temporary: Arc::default(), tolerant: false }
    }

    fn tolerant(&self) -> Self {
        Self { tolerant: true, ..self.clone() }
    }
}

impl CatalogProviderList for SessionCatalogs {
    fn register_catalog(&self, _name: String, _catalog: Arc<dyn CatalogProvider>) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        vec![CATALOG.to_owned()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        (name == CATALOG).then(|| Arc::new(TenantCatalog(self.clone())) as Arc<dyn CatalogProvider>)
    }
}

#[derive(Debug)]
struct TenantCatalog(SessionCatalogs);

impl CatalogProvider for TenantCatalog {
    fn schema_names(&self) -> Vec<String> {
        let names = self.0.catalog.upgrade().map(|catalog| catalog.definitions().schema_names());
        names.and_then(Result::ok).unwrap_or_default()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        if name == TEMPORARY_SCHEMA {
            return Some(Arc::new(TemporarySchema(Arc::clone(&self.0.temporary))));
        }
        if name == INFORMATION_SCHEMA {
            return Some(Arc::new(InformationSchemaProvider::new(Arc::new(self.0.tolerant()))));
        }
        let exists = self.0.catalog.upgrade().is_some_and(|catalog| catalog.definitions().has_schema(name));
        exists.then(|| Arc::new(TenantSchema { of: self.0.clone(), name: name.to_owned() }) as Arc<dyn SchemaProvider>)
    }
}

#[derive(Debug)]
struct TemporarySchema(Arc<Temporary>);

#[async_trait]
impl SchemaProvider for TemporarySchema {
    fn table_names(&self) -> Vec<String> {
        self.0.all_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(self.0.named(name))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.0.named(name).is_some()
    }
}

#[derive(Debug)]
struct TenantSchema {
    of: SessionCatalogs,
    name: String,
}

impl TenantSchema {
    /// A temporary table, which `information_schema` lists in the schema in which the session is.
    fn listed(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        if self.of.tolerant { self.of.temporary.get(&self.name, name) } else { None }
    }

    fn tolerate<T>(&self, name: &str, result: Result<Option<T>>) -> Result<Option<T>> {
        match result {
            Err(error) if self.of.tolerant => {
                tracing::debug!(schema = %self.name, table = name, %error, "left out of information_schema");
                Ok(None)
            }
            other => other,
        }
    }
}

#[async_trait]
impl SchemaProvider for TenantSchema {
    fn table_names(&self) -> Vec<String> {
        let names = self.of.catalog.upgrade().map(|catalog| catalog.definitions().table_names(&self.name));
        let mut names = names.and_then(Result::ok).unwrap_or_default();
        if self.of.tolerant {
            names.extend(self.of.temporary.names(&self.name));
        }
        names.sort();
        names.dedup();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(table) = self.listed(name) {
            return Ok(Some(table));
        }
        let Some(catalog) = self.of.catalog.upgrade() else { return Ok(None) };
        let table = catalog.table(&self.name, name).await;
        self.tolerate(name, table.map_err(|error| DataFusionError::External(Box::new(error.into_user()))))
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        if let Some(table) = self.listed(name) {
            return Ok(Some(table.table_type()));
        }
        let Some(catalog) = self.of.catalog.upgrade() else { return Ok(None) };
        let definition = catalog.definitions().read(&self.name, name);
        let definition = definition.map_err(|error| DataFusionError::External(Box::new(error.into_user())));
        let kind = self.tolerate(name, definition)?.map(|definition| definition.kind);
        Ok(kind.map(|kind| match kind {
            Kind::ExternalTable => TableType::Base,
            Kind::View => TableType::View,
        }))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.listed(name).is_some()
            || self.of.catalog.upgrade().is_some_and(|catalog| {
                catalog.definitions().read(&self.name, name).is_ok_and(|definition| definition.is_some())
            })
    }
}
