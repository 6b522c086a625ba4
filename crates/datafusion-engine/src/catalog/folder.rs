//! The tenant's catalog on disk: a folder per schema, a file per definition.
//!
//! ```text
//! <catalog_dir>/schemas/<schema>/<table>.json      a definition
//! <catalog_dir>/pending/<uuid>                     a definition being written, a schema being deleted
//! ```
//!
//! The engines of the tenant use the folder concurrently, without locks. Invariants: a definition's file is complete as
//! soon as it has its name. It is written and synced elsewhere and then linked, so that the first of several creates wins,
//! or renamed over the old file, so that the last replacement wins. A schema exists if its folder exists; creating it is
//! one `mkdir`, dropping an empty one is one `rmdir`, which fails if a table was created in between; dropping one with its
//! tables moves the folder away in one rename. Nothing is cached.

use std::fs::{self, File};
use std::io::{ErrorKind as IoKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use model::error::{ErrorKind, UserError};
use model::failpoint;
use uuid::Uuid;

use super::definition::{Definition, OLDEST_VERSION, VERSION};
use super::file_name::{decode, encode};
use crate::error::{EngineError, no_schema};
use crate::failpoints;

/// The schema that every tenant has.
pub const DEFAULT_SCHEMA: &str = "default";
/// The largest definition that is read or written, in bytes.
pub const DEFINITION_BYTES_MAX: u64 = 1 << 20;
/// The most definitions of one schema.
pub const DEFINITIONS_MAX: usize = 10_000;
/// The most schemas of one tenant.
pub const SCHEMAS_MAX: usize = 1_000;
/// Files in `pending` that are older were left behind by a dead engine.
const PENDING_AGE_MAX: Duration = Duration::from_hours(1);
const ENDING: &str = ".json";

/// Whether a definition may replace another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publish {
    /// The name must not exist.
    Create,
    /// An existing definition is replaced.
    Replace,
}

/// The folder of one tenant's catalog.
#[derive(Debug, Clone)]
pub struct Folder {
    schemas: PathBuf,
    pending: PathBuf,
}

impl Folder {
    /// Opens the folder, creates missing subfolders, and removes leftovers of dead engines.
    pub fn open(catalog_dir: &Path) -> Result<Self, EngineError> {
        let folder = Self { schemas: catalog_dir.join("schemas"), pending: catalog_dir.join("pending") };
        for dir in [&folder.schemas.join(DEFAULT_SCHEMA), &folder.pending] {
            fs::create_dir_all(dir).map_err(EngineError::io(format!("create {}", dir.display())))?;
        }
        folder.sweep();
        Ok(folder)
    }

    #[allow(clippy::disallowed_methods, reason = "compared with times of files, which no other clock sets")]
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.pending) else { return };
        for entry in entries.flatten() {
            let age = entry
                .metadata()
                .and_then(|meta| meta.modified())
                .ok()
                .and_then(|at| SystemTime::now().duration_since(at).ok());
            if age.is_some_and(|age| age > PENDING_AGE_MAX) {
                let path = entry.path();
                let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                tracing::info!(path = %path.display(), ok = removed.is_ok(), "removed a leftover of a dead engine");
            }
        }
    }

    /// The schemas, in order.
    pub fn schema_names(&self) -> Result<Vec<String>, EngineError> {
        names(&self.schemas, "", "list the schemas")
    }

    /// Whether the schema exists; `false` for an invalid name.
    pub fn has_schema(&self, schema: &str) -> bool {
        self.schema_dir(schema).is_ok_and(|dir| dir.is_dir())
    }

    /// Creates a schema. Concurrent creates may exceed [`SCHEMAS_MAX`], by at most one per engine.
    pub fn create_schema(&self, schema: &str) -> Result<(), EngineError> {
        let dir = self.schema_dir(schema)?;
        if !dir.exists() && self.schema_names()?.len() >= SCHEMAS_MAX {
            return Err(too_many_schemas().into());
        }
        match fs::create_dir(&dir) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == IoKind::AlreadyExists => Err(schema_exists(schema).into()),
            Err(error) => Err(EngineError::io(format!("create schema \"{schema}\""))(error)),
        }
    }

    /// Drops a schema. One that has tables is dropped only with `cascade`.
    pub fn drop_schema(&self, schema: &str, cascade: bool) -> Result<(), EngineError> {
        if schema == DEFAULT_SCHEMA {
            return Err(schema_not_dropped().into());
        }
        let dir = self.schema_dir(schema)?;
        if cascade {
            let away = self.pending.join(Uuid::new_v4().to_string());
            return match fs::rename(&dir, &away) {
                Ok(()) => {
                    failpoint!(failpoints::SCHEMA_MOVED);
                    // The schema is dropped. Remaining files are swept later, or right now by another engine.
                    if let Err(error) = fs::remove_dir_all(&away) {
                        tracing::info!(%error, path = %away.display(), "could not remove all files of a dropped schema; the next sweep removes them");
                    }
                    Ok(())
                }
                Err(error) if error.kind() == IoKind::NotFound => Err(no_schema(schema).into()),
                Err(error) => Err(EngineError::io(format!("drop schema \"{schema}\""))(error)),
            };
        }
        match fs::remove_dir(&dir) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == IoKind::NotFound => Err(no_schema(schema).into()),
            Err(error) if error.kind() == IoKind::DirectoryNotEmpty => {
                let count = self.table_names(schema).map_or(0, |names| names.len());
                Err(schema_not_empty(schema, count).into())
            }
            Err(error) => Err(EngineError::io(format!("drop schema \"{schema}\""))(error)),
        }
    }

    /// The tables and views of a schema, in order; none if there is no such schema.
    pub fn table_names(&self, schema: &str) -> Result<Vec<String>, EngineError> {
        names(&self.schema_dir(schema)?, ENDING, "list the tables")
    }

    /// Reads one definition; `None` if it does not exist.
    pub fn read(&self, schema: &str, name: &str) -> Result<Option<Definition>, EngineError> {
        let Ok(path) = self.path(schema, name) else { return Ok(None) };
        let what = || format!("read the definition of \"{schema}\".\"{name}\"");
        let bytes = match fs::metadata(&path).map(|meta| meta.len()) {
            Ok(length) if length > DEFINITION_BYTES_MAX => {
                return from_bytes(schema, name, Err(length)).map(Some).map_err(EngineError::from);
            }
            Ok(_) => fs::read(&path),
            Err(error) => Err(error),
        };
        match bytes {
            Err(error) if error.kind() == IoKind::NotFound => Ok(None),
            Err(error) => Err(EngineError::io(what())(error)),
            Ok(bytes) => Ok(Some(from_bytes(schema, name, Ok(&bytes))?)),
        }
    }

    /// Publishes a definition under its name.
    pub fn publish(&self, definition: &Definition, how: Publish) -> Result<(), EngineError> {
        let (schema, name) = (&definition.schema, &definition.name);
        let path = self.path(schema, name)?;
        let bytes = to_bytes(definition)?;
        if !path.exists() && self.table_names(schema)?.len() >= DEFINITIONS_MAX {
            return Err(schema_is_full(schema).into());
        }
        let pending = self.pending.join(Uuid::new_v4().to_string());
        let published = write_synced(&pending, &bytes).and_then(|()| {
            failpoint!(failpoints::DEFINITION_WRITTEN);
            match how {
                Publish::Create => fs::hard_link(&pending, &path),
                Publish::Replace => fs::rename(&pending, &path),
            }
        });
        let cleared = fs::remove_file(&pending);
        if let (Ok(()), Publish::Create, Err(error)) = (&published, how, cleared) {
            tracing::warn!(%error, path = %pending.display(), "could not remove the temporary file of a definition");
        }
        failpoint!(failpoints::DEFINITION_PUBLISHED);
        match published {
            Ok(()) => sync_dir(&path),
            Err(error) if error.kind() == IoKind::AlreadyExists => Err(exists(schema, name).into()),
            Err(error) if error.kind() == IoKind::NotFound => Err(no_schema(schema).into()),
            Err(error) => Err(EngineError::io(format!("write the definition of \"{schema}\".\"{name}\""))(error)),
        }
    }

    /// Removes a definition; `false` if it did not exist.
    pub fn remove(&self, schema: &str, name: &str) -> Result<bool, EngineError> {
        let Ok(path) = self.path(schema, name) else { return Ok(false) };
        match fs::remove_file(&path) {
            Ok(()) => sync_dir(&path).map(|()| true),
            Err(error) if error.kind() == IoKind::NotFound => Ok(false),
            Err(error) => Err(EngineError::io(format!("drop \"{schema}\".\"{name}\""))(error)),
        }
    }

    fn schema_dir(&self, schema: &str) -> Result<PathBuf, UserError> {
        Ok(self.schemas.join(encode("schema", schema)?))
    }

    fn path(&self, schema: &str, name: &str) -> Result<PathBuf, UserError> {
        Ok(self.schema_dir(schema)?.join(encode("table", name)? + ENDING))
    }
}

/// Encodes a definition.
pub(super) fn to_bytes(definition: &Definition) -> Result<Vec<u8>, UserError> {
    let bytes = serde_json::to_vec_pretty(definition)
        .map_err(|error| UserError::internal(format!("could not encode the definition: {error}")))?;
    if bytes.len() as u64 > DEFINITION_BYTES_MAX {
        let name = &definition.name;
        return Err(UserError::new(ErrorKind::ProgramLimit, format!("definition of \"{name}\" is too large")));
    }
    Ok(bytes)
}

/// Decodes a definition. `Err` is the size of a document that is too large to read.
pub(super) fn from_bytes(schema: &str, name: &str, bytes: Result<&[u8], u64>) -> Result<Definition, UserError> {
    match bytes.map(serde_json::from_slice::<Definition>) {
        Ok(Ok(definition)) if (OLDEST_VERSION..=VERSION).contains(&definition.version) => Ok(definition),
        Ok(Ok(definition)) => Err(damaged(schema, name, &format!("Its format version is {}.", definition.version))),
        Ok(Err(error)) => Err(damaged(schema, name, &format!("It is malformed: {error}."))),
        Err(size) => Err(damaged(schema, name, &format!("It has {size} bytes; the limit is {DEFINITION_BYTES_MAX}."))),
    }
}

pub(super) fn schema_exists(schema: &str) -> UserError {
    UserError::new(ErrorKind::DuplicateObject, format!("schema \"{schema}\" already exists")).with_sqlstate("42P06")
}

pub(super) fn schema_not_dropped() -> UserError {
    UserError::new(ErrorKind::WrongState, "schema \"default\" cannot be dropped")
}

pub(super) fn schema_not_empty(schema: &str, count: usize) -> UserError {
    UserError::new(ErrorKind::DependentObjects, format!("schema \"{schema}\" is not empty"))
        .detail(format!("It has {count} tables and views."))
        .hint("Use DROP SCHEMA … CASCADE to drop them too.")
}

pub(super) fn schema_is_full(schema: &str) -> UserError {
    UserError::new(ErrorKind::ProgramLimit, format!("schema \"{schema}\" is full"))
        .detail(format!("It has {DEFINITIONS_MAX} tables and views."))
}

pub(super) fn too_many_schemas() -> UserError {
    UserError::new(ErrorKind::ProgramLimit, "too many schemas")
        .detail(format!("The limit is {SCHEMAS_MAX}."))
        .hint("Drop an unused schema.")
}

/// The error for a name that already exists.
pub fn exists(schema: &str, name: &str) -> UserError {
    UserError::new(ErrorKind::DuplicateObject, format!("table \"{name}\" already exists"))
        .detail(format!("Its schema is \"{schema}\"."))
        .with_sqlstate("42P07")
}

fn damaged(schema: &str, name: &str, why: &str) -> UserError {
    UserError::new(ErrorKind::Io, format!("definition of table \"{name}\" cannot be read"))
        .detail(why.to_owned())
        .hint(format!("Run DROP TABLE {schema}.{name}, and create the table again."))
}

fn names(dir: &Path, ending: &str, what: &str) -> Result<Vec<String>, EngineError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == IoKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(EngineError::io(what)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(EngineError::io(what))?;
        let file_name = entry.file_name();
        if let Some(name) = file_name.to_str().and_then(|name| name.strip_suffix(ending)).and_then(decode) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn sync_dir(path: &Path) -> Result<(), EngineError> {
    let Some(dir) = path.parent() else { return Ok(()) };
    match File::open(dir).and_then(|dir| dir.sync_all()) {
        // The schema was dropped in between: there is nothing left to sync.
        Err(error) if error.kind() == IoKind::NotFound => Ok(()),
        synced => synced.map_err(EngineError::io(format!("sync {}", dir.display()))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::catalog::definition::ObjectKind;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Barrier};

    fn definition(schema: &str, name: &str, statement: &str) -> Definition {
        Definition {
            version: VERSION,
            id: Uuid::new_v4().to_string(),
            kind: ObjectKind::View,
            schema: schema.to_owned(),
            name: name.to_owned(),
            statement: statement.to_owned(),
            default_schema: DEFAULT_SCHEMA.to_owned(),
            parser: BTreeMap::new(),
            dialect: None,
            created_by: "alice".to_owned(),
            created_at_ms: 1,
        }
    }

    #[test]
    fn of_concurrent_creates_of_one_table_exactly_one_wins() {
        let dir = tempfile::tempdir().unwrap();
        let barrier = Arc::new(Barrier::new(8));
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let (path, barrier) = (dir.path().to_owned(), Arc::clone(&barrier));
                std::thread::spawn(move || {
                    let folder = Folder::open(&path).unwrap();
                    barrier.wait();
                    let ours = definition("default", "v", &format!("CREATE VIEW v AS SELECT {number}"));
                    folder
                        .publish(&ours, Publish::Create)
                        .map(|()| ours)
                        .map_err(|error| error.into_user().sqlstate().to_owned())
                })
            })
            .collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let winners: Vec<_> = results.iter().flatten().collect();
        assert_eq!(winners.len(), 1);
        assert!(results.iter().all(|result| result.as_ref().err().is_none_or(|state| state == "42P07")));
        let folder = Folder::open(dir.path()).unwrap();
        assert_eq!(folder.read("default", "v").unwrap().as_ref(), winners.first().copied());
        assert_eq!(fs::read_dir(dir.path().join("pending")).unwrap().count(), 0);
    }

    #[test]
    fn a_replaced_definition_is_always_whole() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let long = "x".repeat(100_000);
        folder.publish(&definition("default", "v", &long), Publish::Create).unwrap();
        let writer = {
            let (folder, long) = (folder.clone(), long.clone());
            std::thread::spawn(move || {
                for _ in 0..50 {
                    folder.publish(&definition("default", "v", &long), Publish::Replace).unwrap();
                }
            })
        };
        while !writer.is_finished() {
            assert_eq!(folder.read("default", "v").unwrap().unwrap().statement, long);
        }
        writer.join().unwrap();
    }

    #[test]
    fn a_schema_with_tables_is_dropped_by_cascade_only() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        folder.create_schema("sales").unwrap();
        let state = |result: Result<(), EngineError>| result.unwrap_err().into_user().sqlstate().to_owned();
        assert_eq!(state(folder.create_schema("sales")), "42P06");
        folder.publish(&definition("sales", "v", "CREATE VIEW v AS SELECT 1"), Publish::Create).unwrap();
        assert_eq!(folder.table_names("sales").unwrap(), ["v"]);
        assert_eq!(state(folder.drop_schema("sales", false)), "2BP01");
        folder.drop_schema("sales", true).unwrap();
        assert!(!folder.has_schema("sales"));
        assert_eq!(state(folder.drop_schema("sales", true)), "3F000");
        assert_eq!(state(folder.publish(&definition("sales", "v", "x"), Publish::Create)), "3F000");
        assert_eq!(state(folder.drop_schema("default", true)), "55000");
        assert_eq!(folder.schema_names().unwrap(), ["default"]);
    }

    #[test]
    fn schemas_are_limited_and_a_full_schema_takes_replacements() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        for number in 1..SCHEMAS_MAX {
            folder.create_schema(&format!("s{number}")).unwrap();
        }
        let state = |result: Result<(), EngineError>| result.unwrap_err().into_user().sqlstate().to_owned();
        assert_eq!(state(folder.create_schema("more")), "54000");
        assert_eq!(state(folder.create_schema("s1")), "42P06");
        for number in 0..DEFINITIONS_MAX {
            fs::write(dir.path().join(format!("schemas/s1/t{number}.json")), "{}").unwrap();
        }
        assert_eq!(state(folder.publish(&definition("s1", "more", "x"), Publish::Create)), "54000");
        folder.publish(&definition("s1", "t7", "x"), Publish::Replace).unwrap();
        assert_eq!(folder.read("s1", "t7").unwrap().unwrap().statement, "x");
    }

    #[test]
    fn names_never_leave_the_folder_and_foreign_files_are_no_tables() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        folder.create_schema("../../escape").unwrap();
        folder.publish(&definition("../../escape", "../t", "x"), Publish::Create).unwrap();
        assert_eq!(folder.schema_names().unwrap(), ["../../escape", "default"]);
        assert_eq!(folder.table_names("../../escape").unwrap(), ["../t"]);
        let entries = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(entries, 2);
        fs::write(dir.path().join("schemas/default/README.md"), "x").unwrap();
        fs::write(dir.path().join("schemas/default/broken.json"), "{").unwrap();
        assert_eq!(folder.table_names("default").unwrap(), ["broken"]);
        assert_eq!(folder.read("default", "broken").unwrap_err().into_user().sqlstate(), "58030");
    }
}
