//! The temporary tables and views of one session, by name.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use parking_lot::RwLock;

use super::folder::DEFAULT_SCHEMA;

/// The schema of a session's temporary tables. No statement can name it, because its name contains a null character.
pub const TEMPORARY_SCHEMA: &str = "\0temporary";
/// The most temporary tables and views of one session.
pub const TEMPORARY_MAX: usize = 1_000;

/// The current schema and the temporary tables of a session.
#[derive(Debug)]
pub struct TemporaryTables {
    schema: RwLock<String>,
    tables: RwLock<HashMap<String, Arc<dyn TableProvider>>>,
}

impl Default for TemporaryTables {
    fn default() -> Self {
        Self { schema: RwLock::new(DEFAULT_SCHEMA.to_owned()), tables: RwLock::default() }
    }
}

impl TemporaryTables {
    /// Sets the current schema.
    pub fn use_schema(&self, schema: &str) {
        schema.clone_into(&mut self.schema.write());
    }

    /// The temporary table with this name, if `schema` is the session's current schema.
    pub fn get(&self, schema: &str, name: &str) -> Option<Arc<dyn TableProvider>> {
        if *self.schema.read() != schema {
            return None;
        }
        self.named(name)
    }

    /// The temporary table with this name, in any case unless two names match.
    pub fn named(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        let tables = self.tables.read();
        if let Some(table) = tables.get(name) {
            return Some(Arc::clone(table));
        }
        let lower = name.to_lowercase();
        let mut others = tables.iter().filter(|(other, _)| other.to_lowercase() == lower);
        others.next().filter(|_| others.next().is_none()).map(|(_, table)| Arc::clone(table))
    }

    /// Adds or replaces a table; `false` if there are too many.
    pub fn put(&self, name: &str, table: Arc<dyn TableProvider>) -> bool {
        let mut tables = self.tables.write();
        if tables.len() >= TEMPORARY_MAX && !tables.contains_key(name) {
            return false;
        }
        tables.insert(name.to_owned(), table);
        true
    }

    /// Drops a table; `None` if it did not exist.
    pub fn remove(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        self.tables.write().remove(name)
    }

    /// The names, in order, if `schema` is the session's current schema.
    pub fn names(&self, schema: &str) -> Vec<String> {
        if *self.schema.read() != schema {
            return Vec::new();
        }
        self.all_names()
    }

    /// The names, in order.
    pub fn all_names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.tables.read().keys().cloned().collect();
        names.sort();
        names
    }
}
