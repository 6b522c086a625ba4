//! The store of a tenant's definitions: a folder, or a bucket of an object store.
//!
//! Both store one JSON document for each definition and give the same guarantees: a reader finds a whole definition or
//! none, of two engines that create one name exactly one succeeds, and the last replacement wins. Nothing is cached: each
//! call reads the current state.

use super::bucket::Bucket;
use super::definition::Definition;
use super::folder::{Folder, Publish};
use crate::error::EngineError;

/// The definitions of one tenant.
#[derive(Debug)]
pub enum Definitions {
    /// Files shared by the engines of one machine or one shared volume.
    Folder(Folder),
    /// Objects that all engines of the tenant reach.
    Bucket(Bucket),
}

impl From<Folder> for Definitions {
    fn from(folder: Folder) -> Self {
        Self::Folder(folder)
    }
}

impl From<Bucket> for Definitions {
    fn from(bucket: Bucket) -> Self {
        Self::Bucket(bucket)
    }
}

impl Definitions {
    /// The schemas, in order.
    pub fn schema_names(&self) -> Result<Vec<String>, EngineError> {
        match self {
            Self::Folder(folder) => folder.schema_names(),
            Self::Bucket(bucket) => bucket.schema_names(),
        }
    }

    /// Whether the schema exists; `false` for an invalid name.
    pub fn has_schema(&self, schema: &str) -> bool {
        match self {
            Self::Folder(folder) => folder.has_schema(schema),
            Self::Bucket(bucket) => bucket.has_schema(schema),
        }
    }

    /// Creates a schema.
    pub fn create_schema(&self, schema: &str) -> Result<(), EngineError> {
        match self {
            Self::Folder(folder) => folder.create_schema(schema),
            Self::Bucket(bucket) => bucket.create_schema(schema),
        }
    }

    /// Drops a schema. One that has tables is dropped only with `cascade`.
    pub fn drop_schema(&self, schema: &str, cascade: bool) -> Result<(), EngineError> {
        match self {
            Self::Folder(folder) => folder.drop_schema(schema, cascade),
            Self::Bucket(bucket) => bucket.drop_schema(schema, cascade),
        }
    }

    /// The tables and views of a schema, in order; none if there is no such schema.
    pub fn table_names(&self, schema: &str) -> Result<Vec<String>, EngineError> {
        match self {
            Self::Folder(folder) => folder.table_names(schema),
            Self::Bucket(bucket) => bucket.table_names(schema),
        }
    }

    /// Reads one definition; `None` if it does not exist.
    pub fn read(&self, schema: &str, name: &str) -> Result<Option<Definition>, EngineError> {
        match self {
            Self::Folder(folder) => folder.read(schema, name),
            Self::Bucket(bucket) => bucket.read(schema, name),
        }
    }

    /// Publishes a definition under its name.
    pub fn publish(&self, definition: &Definition, how: Publish) -> Result<(), EngineError> {
        match self {
            Self::Folder(folder) => folder.publish(definition, how),
            Self::Bucket(bucket) => bucket.publish(definition, how),
        }
    }

    /// Removes a definition; `false` if it did not exist.
    pub fn remove(&self, schema: &str, name: &str) -> Result<bool, EngineError> {
        match self {
            Self::Folder(folder) => folder.remove(schema, name),
            Self::Bucket(bucket) => bucket.remove(schema, name),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use object_store::ObjectStore;
    use object_store::memory::InMemory;
    use object_store::path::Path;

    use super::*;
    use crate::catalog::definition::{ObjectKind, VERSION};
    use crate::catalog::folder::DEFAULT_SCHEMA;

    fn definition(schema: &str, name: &str, id: &str) -> Definition {
        let text = serde_json::json!({
            "version": VERSION, "id": id, "kind": ObjectKind::View, "schema": schema, "name": name,
            "statement": "CREATE VIEW v AS SELECT 1", "default_schema": DEFAULT_SCHEMA, "parser": BTreeMap::<String, String>::new(),
            "created_by": "alice", "created_at_ms": 1,
        });
        serde_json::from_value(text).unwrap()
    }

    fn bucket(store: &Arc<dyn ObjectStore>, tenant: &str) -> Definitions {
        Bucket::new(Arc::clone(store), &Path::from("eh"), tenant).unwrap().into()
    }

    fn memory() -> Arc<dyn ObjectStore> {
        Arc::new(InMemory::new())
    }

    fn state<T: std::fmt::Debug>(result: Result<T, EngineError>) -> String {
        result.unwrap_err().into_user().sqlstate().to_owned()
    }

    #[test]
    fn a_folder_and_a_bucket_keep_the_same_promises() {
        let dir = tempfile::tempdir().unwrap();
        let store = memory();
        for catalog in [Folder::open(dir.path()).unwrap().into(), bucket(&store, "t_1")] {
            assert_eq!(catalog.schema_names().unwrap(), [DEFAULT_SCHEMA]);
            assert_eq!(state(catalog.publish(&definition("no", "v", "1"), Publish::Create)), "3F000");
            catalog.create_schema("Ünï %20").unwrap();
            assert_eq!(state(catalog.create_schema("Ünï %20")), "42P06");
            assert!(catalog.has_schema("Ünï %20") && !catalog.has_schema("other"));
            assert_eq!(catalog.schema_names().unwrap(), [DEFAULT_SCHEMA, "Ünï %20"]);
            let (first, second) = (definition("Ünï %20", "a/b %", "1"), definition("Ünï %20", "a/b %", "2"));
            catalog.publish(&first, Publish::Create).unwrap();
            assert_eq!(state(catalog.publish(&second, Publish::Create)), "42P07");
            assert_eq!(catalog.read("Ünï %20", "a/b %").unwrap(), Some(first));
            catalog.publish(&second, Publish::Replace).unwrap();
            assert_eq!(catalog.read("Ünï %20", "a/b %").unwrap(), Some(second));
            assert_eq!(catalog.table_names("Ünï %20").unwrap(), ["a/b %"]);
            assert_eq!(state(catalog.drop_schema("Ünï %20", false)), "2BP01");
            assert!(catalog.has_schema("Ünï %20"));
            assert!(catalog.remove("Ünï %20", "a/b %").unwrap() && !catalog.remove("Ünï %20", "a/b %").unwrap());
            catalog.drop_schema("Ünï %20", false).unwrap();
            assert_eq!(state(catalog.drop_schema("Ünï %20", false)), "3F000");
            assert_eq!(state(catalog.drop_schema(DEFAULT_SCHEMA, true)), "55000");
        }
    }

    #[test]
    fn a_tenant_sees_nothing_of_another_in_the_same_bucket() {
        let store = memory();
        let (one, other) = (bucket(&store, "t_1"), bucket(&store, "t_2"));
        one.publish(&definition(DEFAULT_SCHEMA, "v", "1"), Publish::Create).unwrap();
        assert_eq!(other.table_names(DEFAULT_SCHEMA).unwrap(), [""; 0]);
        assert_eq!(other.read(DEFAULT_SCHEMA, "v").unwrap(), None);
    }

    #[test]
    fn of_two_creates_of_one_name_in_a_bucket_one_succeeds() {
        let store = memory();
        for round in 0..50 {
            let name = format!("v_{round}");
            let create = |id: &'static str| {
                let (catalog, definition) = (bucket(&store, "t_1"), definition(DEFAULT_SCHEMA, &name, id));
                std::thread::spawn(move || catalog.publish(&definition, Publish::Create).map(|()| definition.id))
            };
            let outcomes = [create("1"), create("2")].map(|thread| thread.join().unwrap());
            let winners: Vec<&String> = outcomes.iter().flatten().collect();
            assert_eq!(winners.len(), 1, "{outcomes:?}");
            let kept = bucket(&store, "t_1").read(DEFAULT_SCHEMA, &name).unwrap().unwrap();
            assert_eq!(kept.id, *winners[0]);
        }
    }

    #[test]
    fn a_schema_that_is_dropped_leaves_no_table_that_is_created_meanwhile() {
        let store = memory();
        for round in 0..100 {
            let catalog = bucket(&store, "t_1");
            let schema = format!("s_{round}");
            catalog.create_schema(&schema).unwrap();
            let (creating, dropping) = (bucket(&store, "t_1"), bucket(&store, "t_1"));
            let (definition, dropped) = (definition(&schema, "v", "1"), schema.clone());
            let create = std::thread::spawn(move || creating.publish(&definition, Publish::Create).is_ok());
            let drop = std::thread::spawn(move || dropping.drop_schema(&dropped, false).is_ok());
            let (created, dropped) = (create.join().unwrap(), drop.join().unwrap());
            assert!(!(created && dropped), "round {round}");
            let tables = catalog.table_names(&schema).unwrap();
            assert_eq!(!tables.is_empty(), created, "round {round}: {tables:?}");
            assert!(!created || catalog.has_schema(&schema), "round {round}");
        }
    }
}
