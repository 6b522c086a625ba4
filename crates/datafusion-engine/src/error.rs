//! The engine's errors, and their translation to user errors.
//!
//! DataFusion wraps the cause of an error several times; [`user_error`] unwraps it and assigns a SQLSTATE, so that a
//! driver can distinguish a missing table from a full disk. None of these errors ends the engine; each ends at most one
//! statement.

use std::error::Error as StdError;
use std::io;

use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::object_store;
use datafusion::sql::sqlparser::parser::ParserError;
use model::error::{ErrorKind, UserError};

use crate::functions::hints;

/// The most wrappers that are unwrapped.
const WRAPPERS_MAX: usize = 64;
/// The operating system's message for a full disk.
const NO_SPACE: &str = "No space left on device";
/// A part of DataFusion's message when spilled rows exceed their limit.
const SPILL_FULL: &str = "The used disk space during the spilling process";

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// An error for the user.
    #[error(transparent)]
    User(#[from] UserError),
    /// An error of DataFusion.
    #[error(transparent)]
    DataFusion(#[from] DataFusionError),
    /// An I/O error of the engine's own files and sockets.
    #[error("could not {what}")]
    Io {
        /// The failed action, with the path.
        what: String,
        source: io::Error,
    },
    /// An invalid configuration.
    #[error("configuration key {key}: {why}")]
    Config { key: String, why: String },
    /// The code that executed a statement panicked; the engine continues.
    #[error("statement execution panicked: {0}")]
    Panicked(String),
}

impl EngineError {
    /// Adds the failed action, in the form "open FILE", to an I/O error.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// The kind of error, which implies whose fault it is and the SQLSTATE.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::User(error) => error.kind,
            Self::DataFusion(error) => user_error(error).kind,
            Self::Io { source, .. } => io_kind(source),
            Self::Config { .. } => ErrorKind::InvalidValue,
            Self::Panicked(_) => ErrorKind::Internal,
        }
    }

    /// The error that the client receives.
    pub fn into_user(self) -> UserError {
        match self {
            Self::User(error) => error,
            Self::DataFusion(error) => user_error(&error),
            Self::Io { ref what, ref source } => UserError::new(io_kind(source), format!("could not {what}: {source}")),
            other => UserError::new(other.kind(), other.to_string()),
        }
    }
}

fn io_kind(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::DiskFull,
        // DataFusion's error when a spill exceeds its limit.
        io::ErrorKind::Other if error.to_string().contains(SPILL_FULL) => ErrorKind::DiskFull,
        // A writer of batches wraps the operating system's error and hides its code.
        io::ErrorKind::Other if error.to_string().contains(NO_SPACE) => ErrorKind::DiskFull,
        _ => ErrorKind::Io,
    }
}

/// Translates an error of DataFusion: kind and SQLSTATE from the innermost cause, the text without its prefixes.
pub fn user_error(error: &DataFusionError) -> UserError {
    let mut current = error;
    for _ in 0..WRAPPERS_MAX {
        current = match current {
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => inner,
            DataFusionError::Shared(inner) => inner,
            DataFusionError::Collection(errors) if !errors.is_empty() => &errors[0],
            DataFusionError::External(inner) => match inner.downcast_ref::<DataFusionError>() {
                Some(inner) => inner,
                None => break,
            },
            DataFusionError::ArrowError(arrow, _) => match arrow.as_ref() {
                ArrowError::ExternalError(inner) => match inner.downcast_ref::<DataFusionError>() {
                    Some(inner) => inner,
                    None => break,
                },
                _ => break,
            },
            _ => break,
        };
    }
    innermost(current)
}

fn innermost(error: &DataFusionError) -> UserError {
    match error {
        DataFusionError::SQL(parser, _) => match parser.as_ref() {
            ParserError::RecursionLimitExceeded => statement_too_complex("It is nested too deeply."),
            ParserError::ParserError(text) | ParserError::TokenizerError(text) => {
                from_text(ErrorKind::Syntax, &format!("syntax error: {text}"))
            }
        },
        DataFusionError::Plan(text) => plan_error(text),
        DataFusionError::SchemaError(schema, _) => schema_error(schema),
        DataFusionError::ResourcesExhausted(text) if text.contains(SPILL_FULL) => from_text(ErrorKind::DiskFull, text),
        DataFusionError::ResourcesExhausted(text) => from_text(ErrorKind::OutOfMemory, text)
            .hint("Select less data, or increase DRIVER_MEMORY with ALTER RESOURCE UNIT."),
        DataFusionError::ArrowError(arrow, _) => arrow_error(arrow),
        DataFusionError::ParquetError(parquet) => {
            source_error(parquet.as_ref()).unwrap_or_else(|| bad_file(&parquet.to_string()))
        }
        DataFusionError::ObjectStore(store) => store_error(store),
        DataFusionError::IoError(io) => {
            io_source(io).unwrap_or_else(|| UserError::new(io_kind(io), lowered(&io.to_string())))
        }
        DataFusionError::NotImplemented(text) => from_text(ErrorKind::NotSupported, text),
        DataFusionError::Configuration(text) => from_text(ErrorKind::InvalidValue, text),
        DataFusionError::Execution(text) => from_text(ErrorKind::DataException, text),
        DataFusionError::ExecutionJoin(join) if join.is_panic() => {
            from_text(ErrorKind::Internal, &format!("statement execution panicked: {join}"))
        }
        DataFusionError::External(inner) => match inner.downcast_ref::<object_store::Error>() {
            Some(store) => store_error(store),
            None => source_error(inner.as_ref()).unwrap_or_else(|| from_text(ErrorKind::Internal, &inner.to_string())),
        },
        other => from_text(ErrorKind::Internal, &other.strip_backtrace()),
    }
}

/// Classifies a planning error by its text, the only form in which DataFusion 55 reports it.
fn plan_error(text: &str) -> UserError {
    let quoted = |text: &str| text.split('\'').nth(1).unwrap_or_default().to_owned();
    let first = text.lines().next().unwrap_or_default();
    if first.starts_with("table '") && first.ends_with("not found") {
        return no_table(&quoted(first));
    }
    if first.starts_with("table function '") && first.ends_with("not found") {
        let name = quoted(first);
        return UserError::new(ErrorKind::UndefinedObject, format!("table function \"{name}\" does not exist"))
            .with_sqlstate("42883");
    }
    if first.starts_with("Column in SELECT must be in GROUP BY")
        && let Some(column) = first.split('"').nth(1)
    {
        return UserError::new(
            ErrorKind::Syntax,
            format!("column \"{column}\" must appear in the GROUP BY clause or be used in an aggregate function"),
        )
        .with_sqlstate("42803");
    }
    if first.starts_with("column '") && first.ends_with("not found") {
        return UserError::new(ErrorKind::UndefinedColumn, format!("column \"{}\" does not exist", quoted(first)));
    }
    if first.starts_with("No files found at ") {
        return UserError::new(ErrorKind::Io, lowered(first.split(". ").next().unwrap_or(first)))
            .with_sqlstate("58P01");
    }
    if let Some(name) = first.strip_prefix("failed to resolve schema: ") {
        return no_schema(name);
    }
    if let Some(name) = first.strip_prefix("failed to resolve catalog: ") {
        return UserError::new(ErrorKind::UndefinedObject, format!("catalog \"{name}\" does not exist"))
            .with_sqlstate("3D000");
    }
    if first.starts_with("Invalid function '") {
        let error =
            UserError::new(ErrorKind::UndefinedObject, format!("function \"{}\" does not exist", quoted(first)))
                .with_sqlstate("42883");
        let name = quoted(first);
        let nearest = text.lines().nth(1).map(quoted);
        return match hints::hint(&name, nearest.as_deref()) {
            Some(hint) => error.hint(hint),
            None => error,
        };
    }
    from_text(ErrorKind::Syntax, text).with_sqlstate("42000")
}

/// The error for a missing table, by its full name: `datafusion.schema.table`. A table's own name may contain dots.
fn no_table(full: &str) -> UserError {
    let (schema, name) = full.split_once('.').and_then(|(_, rest)| rest.split_once('.')).unwrap_or(("", full));
    let error = UserError::new(ErrorKind::UndefinedTable, format!("table \"{name}\" does not exist"))
        // The words by which clients of HiveServer2 recognize a missing table.
        .detail(format!("SemanticException: Table not found {schema}.{name}"));
    if name.contains('/') {
        return error.hint("To read a file, run CREATE EXTERNAL TABLE … STORED AS … LOCATION '…' first.");
    }
    error
}

/// The error for a statement that is too complex to be planned.
pub fn statement_too_complex(detail: &str) -> UserError {
    UserError::new(ErrorKind::ProgramLimit, "statement too complex").detail(detail).with_sqlstate("54001")
}

/// The error for a missing schema.
pub fn no_schema(name: &str) -> UserError {
    UserError::new(ErrorKind::UndefinedObject, format!("schema \"{name}\" does not exist"))
        .with_sqlstate("3F000")
        .hint("SHOW DATABASES lists the schemas.")
}

fn schema_error(error: &SchemaError) -> UserError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let mut names: Vec<_> = valid_fields.iter().map(|field| field.name.as_str()).collect();
            names.truncate(20);
            let error = UserError::new(ErrorKind::UndefinedColumn, format!("column \"{}\" does not exist", field.name));
            if names.is_empty() { error } else { error.detail(format!("The columns are {}.", names.join(", "))) }
        }
        SchemaError::AmbiguousReference { field } => {
            UserError::new(ErrorKind::UndefinedColumn, format!("column reference \"{}\" is ambiguous", field.name))
                .with_sqlstate("42702")
        }
        SchemaError::DuplicateQualifiedField { name, .. } | SchemaError::DuplicateUnqualifiedField { name } => {
            UserError::new(ErrorKind::DuplicateObject, format!("column \"{name}\" specified more than once"))
                .with_sqlstate("42701")
        }
    }
}

fn arrow_error(error: &ArrowError) -> UserError {
    let text = error.to_string();
    match error {
        ArrowError::DivideByZero => from_text(ErrorKind::DataException, "division by zero").with_sqlstate("22012"),
        ArrowError::ArithmeticOverflow(_) => from_text(ErrorKind::DataException, &text).with_sqlstate("22003"),
        ArrowError::CastError(text) if text.starts_with("Can't cast value") => {
            from_text(ErrorKind::DataException, &error.to_string()).with_sqlstate("22003")
        }
        ArrowError::CastError(_) | ArrowError::ParseError(_) => {
            from_text(ErrorKind::DataException, &text).with_sqlstate("22018")
        }
        ArrowError::ComputeError(_) | ArrowError::InvalidArgumentError(_) => from_text(ErrorKind::DataException, &text),
        ArrowError::MemoryError(_) | ArrowError::OffsetOverflowError(_) => from_text(ErrorKind::OutOfMemory, &text),
        ArrowError::IoError(_, io) => UserError::new(io_kind(io), lowered(&text)),
        ArrowError::NotYetImplemented(_) => from_text(ErrorKind::NotSupported, &text),
        ArrowError::CsvError(_) | ArrowError::JsonError(_) | ArrowError::ParquetError(_) => bad_file(&text),
        ArrowError::ExternalError(inner) => {
            source_error(inner.as_ref()).unwrap_or_else(|| from_text(ErrorKind::Internal, &text))
        }
        _ => from_text(ErrorKind::Internal, &text),
    }
}

fn store_error(error: &object_store::Error) -> UserError {
    if let Some(ours) = source_error(error) {
        return ours;
    }
    match error {
        object_store::Error::NotFound { path, .. } => {
            UserError::new(ErrorKind::Io, format!("file \"/{}\" does not exist", path.trim_start_matches('/')))
                .with_sqlstate("58P01")
        }
        object_store::Error::NotSupported { .. } | object_store::Error::NotImplemented { .. } => {
            from_text(ErrorKind::NotSupported, &error.to_string())
        }
        _ => from_text(ErrorKind::Io, &error.to_string()),
    }
}

fn bad_file(text: &str) -> UserError {
    from_text(ErrorKind::DataException, text).with_sqlstate("22P04")
}

fn io_source(error: &io::Error) -> Option<UserError> {
    error.get_ref().and_then(|inner| source_error(inner))
}

/// The [`UserError`] that this crate wrapped in an error of a library.
fn source_error(error: &(dyn StdError + 'static)) -> Option<UserError> {
    let mut current = Some(error);
    for _ in 0..WRAPPERS_MAX {
        let error = current?;
        if let Some(ours) = error.downcast_ref::<UserError>() {
            return Some(ours.clone());
        }
        if let Some(DataFusionError::External(inner)) = error.downcast_ref::<DataFusionError>() {
            current = Some(inner.as_ref());
            continue;
        }
        current = error.source();
    }
    None
}

/// An error with the first line of a text as message and the others as detail.
fn from_text(kind: ErrorKind, text: &str) -> UserError {
    let text = without_debug(text.trim());
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let error = UserError::new(kind, lowered(first.trim_end_matches('.')));
    if rest.trim().is_empty() { error } else { error.detail(rest.trim().to_owned()) }
}

/// The text before a value in Rust's debug format, or before DataFusion's request to report a bug.
fn without_debug(text: &str) -> &str {
    let text = text.split("\nThis issue was likely caused by a bug in DataFusion").next().unwrap_or(text);
    // In this format a type's name precedes its fields: `Identifier(Ident { value: …`, `Some(HiveFormat {`.
    let Some(brace) = text.find(" { ").filter(|_| text.contains(": ")) else { return text };
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '(' | '[' | '_' | ':');
    let start = text[..brace].rfind(|c| !is_name(c)).map_or(0, |at| at + 1);
    if text[start..].starts_with(|c: char| c.is_ascii_uppercase()) {
        return text[..start].trim_end_matches([' ', ':']);
    }
    text
}

/// The text with a lower-case first letter, unless it begins with an acronym.
fn lowered(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && !second.is_uppercase() => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn wrapped_errors_keep_the_state_of_their_cause() {
        let cause = DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None);
        let wrapped = DataFusionError::Context(
            "Optimizer rule failed".to_owned(),
            Box::new(DataFusionError::Shared(std::sync::Arc::new(cause))),
        );
        assert_eq!(user_error(&wrapped).sqlstate(), "22012");
    }

    #[test]
    fn our_own_error_comes_back_from_below_a_foreign_one() {
        let ours = UserError::new(ErrorKind::InsufficientPrivilege, "location \"/etc\" is not allowed");
        let store = object_store::Error::PermissionDenied { path: "/etc".to_owned(), source: Box::new(ours.clone()) };
        assert_eq!(user_error(&DataFusionError::ObjectStore(Box::new(store))), ours);
        assert_eq!(user_error(&DataFusionError::External(Box::new(ours.clone()))), ours);
    }

    #[test]
    fn no_message_has_rusts_debug_form() {
        let text = |text: &str| user_error(&DataFusionError::NotImplemented(text.to_owned())).text();
        for (raw, shown) in [
            (
                "dot access not supported for non-string expr: Identifier(Ident { value: \"c0\", span: Span })",
                "dot access not supported for non-string expr",
            ),
            ("Hive formats not supported: Some(HiveFormat { row_format: None })", "hive formats not supported"),
            ("Unsupported ast node in sqltorel: RLike { negated: false }", "unsupported ast node in sqltorel"),
            ("a struct such as { a: 1 } stays", "a struct such as { a: 1 } stays"),
        ] {
            assert_eq!(text(raw), shown);
        }
        let missing = plan_error("table 'datafusion.default./some/where/x.csv' not found");
        assert!(missing.text().contains("/some/where/x.csv") && missing.text().contains("CREATE EXTERNAL TABLE"));
    }

    #[test]
    fn memory_and_disk_errors_have_different_states() {
        let state =
            |text: &str| user_error(&DataFusionError::ResourcesExhausted(text.to_owned())).sqlstate().to_owned();
        assert_eq!(state("Failed to allocate 3 MB"), "53200");
        assert_eq!(state("The used disk space during the spilling process has exceeded the allowable limit"), "53100");
    }
}
