//! The tables that one statement names, looked up once before planning.
//!
//! An unqualified name refers to a temporary table if the session has one with this name; a qualified name always refers to
//! the catalog. A name that matches no table exactly may match one in another case. The planner then finds the tables
//! here, under the names in the statement, without building a view or reading a folder again.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::{ResolvedTableReference, TableReference};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::TableType;
use datafusion::sql::parser::Statement;
use model::error::{ErrorKind, UserError};

use super::temporary::TEMPORARY_SCHEMA;

/// Tables by their names in a statement.
pub type Tables = HashMap<ResolvedTableReference, Arc<dyn TableProvider>>;

/// Looks up the tables of a statement. The planner reports the missing ones.
pub async fn tables(state: &SessionState, statement: &Statement) -> Result<Tables> {
    let defaults = &state.config_options().catalog;
    let mut tables = Tables::new();
    let mut temporary = HashMap::new();
    for reference in state.resolve_table_references(statement)? {
        let is_bare = matches!(reference, TableReference::Bare { .. });
        let name = reference.resolve(&defaults.default_catalog, &defaults.default_schema);
        let Some(catalog) = state.catalog_list().catalog(&name.catalog) else { continue };
        let mut found = None;
        if is_bare && let Some(schema) = catalog.schema(TEMPORARY_SCHEMA) {
            found = schema.table(&name.table).await?;
        }
        let is_temporary = found.is_some();
        if temporary.insert(name.clone(), is_temporary).is_some_and(|before| before != is_temporary) {
            return Err(name_clash(&name));
        }
        if found.is_none()
            && let Some(schema) = catalog.schema(&name.schema)
        {
            found = match schema.table(&name.table).await? {
                Some(table) => Some(table),
                None => match in_another_case(schema.as_ref(), &name.table) {
                    Some(name) => schema.table(&name).await?,
                    None => None,
                },
            };
        }
        if let Some(table) = found {
            tables.insert(name, table);
        }
    }
    Ok(tables)
}

/// The only name in a schema that differs from this one in case alone.
fn in_another_case(schema: &dyn SchemaProvider, name: &str) -> Option<String> {
    let lower = name.to_lowercase();
    let mut names = schema.table_names().into_iter().filter(|other| other.to_lowercase() == lower);
    names.next().filter(|_| names.next().is_none())
}

fn name_clash(name: &ResolvedTableReference) -> DataFusionError {
    let error = UserError::new(
        ErrorKind::NotSupported,
        format!("the temporary table \"{}\" and the table of that name in one statement are not supported", name.table),
    )
    .detail(format!("The catalog's table is \"{}.{}\".", name.schema, name.table))
    .hint("Create the temporary table under another name.");
    DataFusionError::External(Box::new(error))
}

/// A list of catalogs with the prefetched tables of a statement.
#[derive(Debug)]
pub struct PrefetchedCatalogs {
    /// The list for all other look-ups.
    pub inner: Arc<dyn CatalogProviderList>,
    pub tables: Arc<Tables>,
}

impl CatalogProviderList for PrefetchedCatalogs {
    fn register_catalog(&self, _name: String, _catalog: Arc<dyn CatalogProvider>) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        self.inner.catalog_names()
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        let inner = self.inner.catalog(name)?;
        Some(Arc::new(PrefetchedCatalog { name: name.to_owned(), inner, tables: Arc::clone(&self.tables) }))
    }
}

#[derive(Debug)]
struct PrefetchedCatalog {
    name: String,
    inner: Arc<dyn CatalogProvider>,
    tables: Arc<Tables>,
}

impl CatalogProvider for PrefetchedCatalog {
    fn schema_names(&self) -> Vec<String> {
        self.inner.schema_names()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        Some(Arc::new(PrefetchedSchema {
            catalog: self.name.clone(),
            name: name.to_owned(),
            inner: self.inner.schema(name)?,
            tables: Arc::clone(&self.tables),
        }))
    }
}

#[derive(Debug)]
struct PrefetchedSchema {
    catalog: String,
    name: String,
    inner: Arc<dyn SchemaProvider>,
    tables: Arc<Tables>,
}

impl PrefetchedSchema {
    fn prefetched(&self, table: &str) -> Option<&Arc<dyn TableProvider>> {
        self.tables.get(&ResolvedTableReference {
            catalog: self.catalog.as_str().into(),
            schema: self.name.as_str().into(),
            table: table.into(),
        })
    }
}

#[async_trait]
impl SchemaProvider for PrefetchedSchema {
    fn table_names(&self) -> Vec<String> {
        self.inner.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.prefetched(name) {
            Some(table) => Ok(Some(Arc::clone(table))),
            None => self.inner.table(name).await,
        }
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        self.inner.table_type(name).await
    }

    fn table_exist(&self, name: &str) -> bool {
        self.prefetched(name).is_some() || self.inner.table_exist(name)
    }
}
