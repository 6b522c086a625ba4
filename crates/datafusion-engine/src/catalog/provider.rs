//! The catalog as DataFusion's `CatalogProviderList`.
//!
//! Every look-up reads the definitions, so a statement sees what any engine of the tenant wrote before it began; a table
//! that is dropped during a scan is scanned to the end. A session's temporary tables are in a schema of their own,
//! [`TEMPORARY_SCHEMA`], which is searched first for unqualified names. `information_schema` uses a tolerant view of the
//! catalog: a definition that can no longer be built (its files are gone) hides only its own columns.

use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::catalog::information_schema::{INFORMATION_SCHEMA, InformationSchemaProvider};
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::TableType;
use futures::future::BoxFuture;

use super::definition::ObjectKind;
use super::definitions::Definitions;
use super::temporary::{TEMPORARY_SCHEMA, TemporaryTables};
use crate::error::EngineError;

/// The only catalog.
pub const CATALOG: &str = "datafusion";

/// The tenant's definitions, and the tables built from them.
pub trait TableSource: fmt::Debug + Send + Sync {
    /// The definitions of all tables and views.
    fn definitions(&self) -> &Definitions;

    /// A table or view that can be scanned; `None` if there is no such definition.
    fn table<'a>(&'a self, schema: &'a str, name: &'a str) -> BoxFuture<'a, TableResult>;
}

/// What a look-up of one table returns.
pub type TableResult = std::result::Result<Option<Arc<dyn TableProvider>>, EngineError>;

/// The list with the only catalog, as one session sees it.
#[derive(Debug, Clone)]
pub struct SessionCatalogs {
    // Weak: the catalog itself holds one of these, to plan its definitions.
    source: Weak<dyn TableSource>,
    temporary: Arc<TemporaryTables>,
    tolerant: bool,
}

impl SessionCatalogs {
    /// The catalog as a session sees it.
    pub fn for_session(source: Weak<dyn TableSource>, temporary: Arc<TemporaryTables>) -> Self {
        Self { source, temporary, tolerant: false }
    }

    /// The catalog as a definition sees it, without temporary tables.
    pub fn for_definitions(source: Weak<dyn TableSource>) -> Self {
        Self { source, temporary: Arc::default(), tolerant: false }
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
        let names = self.0.source.upgrade().map(|source| source.definitions().schema_names());
        names.and_then(Result::ok).unwrap_or_default()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        if name == TEMPORARY_SCHEMA {
            return Some(Arc::new(TemporarySchema(Arc::clone(&self.0.temporary))));
        }
        if name == INFORMATION_SCHEMA {
            return Some(Arc::new(InformationSchemaProvider::new(Arc::new(self.0.tolerant()))));
        }
        let exists = self.0.source.upgrade().is_some_and(|source| source.definitions().has_schema(name));
        exists.then(|| {
            Arc::new(TenantSchema { catalogs: self.0.clone(), name: name.to_owned() }) as Arc<dyn SchemaProvider>
        })
    }
}

#[derive(Debug)]
struct TemporarySchema(Arc<TemporaryTables>);

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
    catalogs: SessionCatalogs,
    name: String,
}

impl TenantSchema {
    /// A temporary table, which `information_schema` lists in the session's current schema.
    fn listed(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        if self.catalogs.tolerant { self.catalogs.temporary.get(&self.name, name) } else { None }
    }

    fn tolerate<T>(&self, name: &str, result: Result<Option<T>>) -> Result<Option<T>> {
        match result {
            Err(error) if self.catalogs.tolerant => {
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
        let names = self.catalogs.source.upgrade().map(|source| source.definitions().table_names(&self.name));
        let mut names = names.and_then(Result::ok).unwrap_or_default();
        if self.catalogs.tolerant {
            names.extend(self.catalogs.temporary.names(&self.name));
        }
        names.sort();
        names.dedup();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(table) = self.listed(name) {
            return Ok(Some(table));
        }
        let Some(source) = self.catalogs.source.upgrade() else { return Ok(None) };
        let table = source.table(&self.name, name).await;
        self.tolerate(name, table.map_err(|error| DataFusionError::External(Box::new(error.into_user()))))
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        if let Some(table) = self.listed(name) {
            return Ok(Some(table.table_type()));
        }
        let Some(source) = self.catalogs.source.upgrade() else { return Ok(None) };
        let definition = source.definitions().read(&self.name, name);
        let definition = definition.map_err(|error| DataFusionError::External(Box::new(error.into_user())));
        let kind = self.tolerate(name, definition)?.map(|definition| definition.kind);
        Ok(kind.map(|kind| match kind {
            ObjectKind::ExternalTable => TableType::Base,
            ObjectKind::View => TableType::View,
        }))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.listed(name).is_some()
            || self.catalogs.source.upgrade().is_some_and(|source| {
                source.definitions().read(&self.name, name).is_ok_and(|definition| definition.is_some())
            })
    }
}
