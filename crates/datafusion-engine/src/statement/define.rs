//! DDL: the statements that change the tenant's catalog.
//!
//! Invariants: a definition is published only after it has been built once, so that no other session finds a table that
//! never worked; its location is below an allowed one; of two engines that create the same name, one receives an error.
//! Permanent objects are definitions in the tenant's catalog; TEMPORARY objects belong to the session.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::catalog::TableProviderFactory;
use datafusion::common::{ResolvedTableReference, TableReference};
use datafusion::datasource::ViewTable;
use datafusion::datasource::listing_table_factory::ListingTableFactory;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{CreateExternalTable, CreateView, DdlStatement};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use model::error::{ErrorKind, UserError};
use uuid::Uuid;

use super::plannable::RemovedClauses;
use super::{clauses, temporary};
use crate::catalog::CATALOG;
use crate::catalog::build::{Catalog, coerced, confine};
use crate::catalog::definition::{Definition, ObjectKind, VERSION};
use crate::catalog::folder::{Publish, exists};
use crate::context::EngineContext;
use crate::dialect::SqlDialect;
use crate::error::{EngineError, no_schema};
use crate::session::Session;

/// CREATE SCHEMA.
pub fn create_schema(catalog: &Catalog, name: &str, if_not_exists: bool) -> Result<(), EngineError> {
    if name == "information_schema" {
        return Err(UserError::new(ErrorKind::DuplicateObject, "schema \"information_schema\" already exists")
            .with_sqlstate("42P06")
            .into());
    }
    match catalog.definitions().create_schema(name) {
        Err(EngineError::User(error)) if if_not_exists && error.kind == ErrorKind::DuplicateObject => Ok(()),
        created => created,
    }
}

/// DROP SCHEMA.
pub fn drop_schema(catalog: &Catalog, name: &str, if_exists: bool, cascade: bool) -> Result<(), EngineError> {
    match catalog.definitions().drop_schema(name, cascade) {
        Err(EngineError::User(error)) if if_exists && error.kind == ErrorKind::UndefinedObject => Ok(()),
        dropped => dropped,
    }
}

/// A CREATE of a schema in a syntax that DataFusion's parser handles, not [`super::command`].
pub struct SchemaChange {
    name: String,
    if_not_exists: bool,
}

impl SchemaChange {
    pub fn apply(self, catalog: &Catalog) -> Result<(), EngineError> {
        create_schema(catalog, &self.name, self.if_not_exists)
    }
}

/// The schema of a CREATE DATABASE or CREATE SCHEMA: HiveServer2's clients call schemas databases.
pub fn schema_change(statement: &Statement) -> Result<Option<SchemaChange>, UserError> {
    let Statement::Statement(statement) = statement else { return Ok(None) };
    let (name, if_not_exists) = match statement.as_ref() {
        ast::Statement::CreateDatabase { db_name, if_not_exists, .. } => (db_name, *if_not_exists),
        ast::Statement::CreateSchema { schema_name: ast::SchemaName::Simple(name), if_not_exists, .. } => {
            (name, *if_not_exists)
        }
        _ => return Ok(None),
    };
    clauses::definition::statement(statement)?;
    let Some(ident) = name.0.last().and_then(ast::ObjectNamePart::as_ident) else { return Ok(None) };
    let name = if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() };
    Ok(Some(SchemaChange { name, if_not_exists }))
}

/// Applies a planned DDL statement. `text` is the statement as the user wrote it.
pub async fn apply(
    engine: &EngineContext,
    session: &Session,
    state: &SessionState,
    change: DdlStatement,
    text: &str,
    removed: RemovedClauses,
) -> Result<(), EngineError> {
    let ddl = DdlContext { engine, session, state, text };
    match change {
        DdlStatement::CreateExternalTable(command) => ddl.create_external_table(*command).await,
        DdlStatement::CreateView(command) => ddl.create_view(command, removed.if_not_exists).await,
        DdlStatement::CreateMemoryTable(command) if removed.temporary => {
            temporary::create_table(session, state, command).await
        }
        DdlStatement::CreateMemoryTable(_) => Err(UserError::new(
            ErrorKind::NotSupported,
            "a table that is neither external nor temporary is not supported by this engine",
        )
        .hint(
            "Use CREATE EXTERNAL TABLE … STORED AS PARQUET LOCATION '…', COPY (…) TO '…', or CREATE TEMPORARY TABLE … AS ….",
        )
        .into()),
        DdlStatement::DropTable(command) => ddl.drop(&command.name, ObjectKind::ExternalTable, command.if_exists),
        DdlStatement::DropView(command) => ddl.drop(&command.name, ObjectKind::View, command.if_exists),
        other => Err(UserError::new(
            ErrorKind::NotSupported,
            format!("statement {} is not supported by this engine", other.name()),
        )
        .into()),
    }
}

struct DdlContext<'a> {
    engine: &'a EngineContext,
    session: &'a Session,
    state: &'a SessionState,
    text: &'a str,
}

impl DdlContext<'_> {
    fn resolve(&self, name: &TableReference) -> Result<ResolvedTableReference, UserError> {
        let schema = &self.state.config_options().catalog.default_schema;
        let name = name.clone().resolve(CATALOG, schema);
        if *name.catalog != *CATALOG {
            return Err(UserError::new(
                ErrorKind::UndefinedObject,
                format!("catalog \"{}\" does not exist", name.catalog),
            )
            .with_sqlstate("3D000"));
        }
        if *name.schema == *"information_schema" {
            return Err(UserError::new(
                ErrorKind::InsufficientPrivilege,
                "schema \"information_schema\" cannot be changed",
            ));
        }
        if !self.engine.catalog().definitions().has_schema(&name.schema) {
            return Err(no_schema(&name.schema));
        }
        Ok(name)
    }

    fn definition(&self, kind: ObjectKind, name: &ResolvedTableReference) -> Definition {
        let options = self.state.config_options();
        let parser: BTreeMap<_, _> = options
            .entries()
            .into_iter()
            .filter(|entry| entry.key.starts_with("datafusion.sql_parser."))
            .filter_map(|entry| Some((entry.key, entry.value?)))
            .collect();
        Definition {
            version: VERSION,
            id: Uuid::new_v4().to_string(),
            kind,
            schema: name.schema.to_string(),
            name: name.table.to_string(),
            statement: self.text.to_owned(),
            default_schema: options.catalog.default_schema.clone(),
            parser,
            dialect: SqlDialect::from_options(options).recorded(),
            created_by: self.session.user.clone(),
            created_at_ms: self.engine.clock().wall_ms(),
        }
    }

    /// Decides how to publish a definition. `None` means that there is nothing to do.
    fn publish_how(
        &self,
        kind: ObjectKind,
        name: &ResolvedTableReference,
        if_not_exists: bool,
        or_replace: bool,
    ) -> Result<Option<Publish>, EngineError> {
        let found = match self.engine.catalog().definitions().read(&name.schema, &name.table) {
            // An unreadable definition may be replaced explicitly.
            Err(_) if or_replace => return Ok(Some(Publish::Replace)),
            found => found?,
        };
        match found {
            None => Ok(Some(if or_replace { Publish::Replace } else { Publish::Create })),
            Some(_) if if_not_exists => Ok(None),
            Some(found) if or_replace && found.kind == kind => Ok(Some(Publish::Replace)),
            Some(found) if or_replace => Err(wrong_kind(&found, kind).into()),
            Some(_) => Err(exists(&name.schema, &name.table).into()),
        }
    }

    async fn create_external_table(&self, mut command: CreateExternalTable) -> Result<(), EngineError> {
        self.check_format(&command.file_type)?;
        let all_exist = confine(self.engine.catalog().locations(), &mut command)?;
        if !all_exist && command.schema.fields().is_empty() {
            let locations = command.locations.join(", ");
            return Err(UserError::new(ErrorKind::Io, format!("location \"{locations}\" does not exist"))
                .hint("To create an empty table, specify the columns in parentheses after the table name.")
                .with_sqlstate("58P01")
                .into());
        }
        if command.temporary {
            let table = ListingTableFactory::new().create(self.state, &command).await?;
            return temporary::keep(
                self.session,
                command.name.table(),
                table,
                command.or_replace,
                command.if_not_exists,
            );
        }
        let name = self.resolve(&command.name)?;
        let Some(how) =
            self.publish_how(ObjectKind::ExternalTable, &name, command.if_not_exists, command.or_replace)?
        else {
            return Ok(());
        };
        let definition = self.definition(ObjectKind::ExternalTable, &name);
        self.engine.catalog().build(&definition).await?;
        self.publish(&definition, how, command.if_not_exists)
    }

    /// Refuses an unsupported format before its files are listed.
    fn check_format(&self, format: &str) -> Result<(), UserError> {
        if self.state.get_file_format_factory(&format.to_lowercase()).is_some() {
            return Ok(());
        }
        Err(UserError::new(ErrorKind::NotSupported, format!("format \"{format}\" is not supported by this engine"))
            .hint("Supported formats are ARROW, CSV, JSON (one object per line) and PARQUET."))
    }

    async fn create_view(&self, command: CreateView, if_not_exists: bool) -> Result<(), EngineError> {
        if command.temporary {
            let plan = coerced(Arc::unwrap_or_clone(command.input))?;
            let view = Arc::new(ViewTable::new(plan, command.definition));
            return temporary::keep(self.session, command.name.table(), view, command.or_replace, if_not_exists);
        }
        let name = self.resolve(&command.name)?;
        let Some(how) = self.publish_how(ObjectKind::View, &name, if_not_exists, command.or_replace)? else {
            return Ok(());
        };
        let definition = self.definition(ObjectKind::View, &name);
        // Built without the session's temporary tables: a view that names one would not work in other sessions.
        self.engine.catalog().build(&definition).await?;
        self.publish(&definition, how, if_not_exists)
    }

    fn publish(&self, definition: &Definition, how: Publish, if_not_exists: bool) -> Result<(), EngineError> {
        match self.engine.catalog().definitions().publish(definition, how) {
            Err(EngineError::User(error)) if if_not_exists && error.kind == ErrorKind::DuplicateObject => Ok(()),
            published => published,
        }
    }

    fn drop(&self, name: &TableReference, kind: ObjectKind, if_exists: bool) -> Result<(), EngineError> {
        if matches!(name, TableReference::Bare { .. }) && self.session.temporary.remove(name.table()).is_some() {
            return Ok(());
        }
        let name = match self.resolve(name) {
            Err(error) if if_exists && error.kind == ErrorKind::UndefinedObject => return Ok(()),
            name => name?,
        };
        let definitions = self.engine.catalog().definitions();
        // An unreadable definition can still be dropped.
        if let Ok(Some(found)) = definitions.read(&name.schema, &name.table)
            && found.kind != kind
        {
            return Err(wrong_kind(&found, kind).into());
        }
        if definitions.remove(&name.schema, &name.table)? || if_exists {
            return Ok(());
        }
        let word = kind.word();
        Err(UserError::new(ErrorKind::UndefinedTable, format!("{word} \"{}\" does not exist", name.table))
            .detail(format!("Schema \"{}\" has no such {word}.", name.schema))
            .into())
    }
}

fn wrong_kind(found: &Definition, expected: ObjectKind) -> UserError {
    UserError::new(ErrorKind::WrongState, format!("\"{}\" is not a {}", found.name, expected.word()))
        .hint(format!("Use DROP {} to remove it.", found.kind.word().to_uppercase()))
        .with_sqlstate("42809")
}
