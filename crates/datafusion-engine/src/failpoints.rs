//! The failpoints at which a test stops, delays or breaks an engine.

/// A definition's text is in its temporary file and not yet visible under its name.
pub const DEFINITION_WRITTEN: &str = "datafusion.catalog.definition_written";
/// A definition is visible under its name.
pub const DEFINITION_PUBLISHED: &str = "datafusion.catalog.definition_published";
/// A dropped schema's folder has been moved and not yet deleted.
pub const SCHEMA_MOVED: &str = "datafusion.catalog.schema_moved";
/// A statement runs on the executor's threads and has not been planned.
pub const STATEMENT_STARTED: &str = "datafusion.statement.started";
/// A statement is planned; its first row has not been requested.
pub const STATEMENT_PLANNED: &str = "datafusion.statement.planned";
/// Rows are about to be converted to the wire format.
pub const ROWS_FETCHED: &str = "datafusion.rows.fetched";

/// All failpoints.
pub const ALL: &[&str] =
    &[DEFINITION_WRITTEN, DEFINITION_PUBLISHED, SCHEMA_MOVED, STATEMENT_STARTED, STATEMENT_PLANNED, ROWS_FETCHED];
