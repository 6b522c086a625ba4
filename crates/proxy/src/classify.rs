//! The classifier: decides from the text of a statement which component executes it.
//!
//! Only control statements, USE and SET are parsed. Every other statement goes to the engine byte for byte.

use ddl::SessionStatement;
use model::error::UserError;

use crate::session::settings;

pub(crate) enum Statement<'a> {
    /// A statement of the control language: a metadata agent executes it.
    Control(&'a str),
    /// USE or SET: answered by the proxy or by the engine.
    Session(&'a str, SessionStatement<'a>),
    /// Everything else, also text that is not UTF-8: the engine executes it.
    Engine,
}

pub(crate) fn classify(statement: &[u8]) -> Statement<'_> {
    let Ok(text) = std::str::from_utf8(statement) else { return Statement::Engine };
    if ddl::sniff(text).is_some() {
        return Statement::Control(text);
    }
    ddl::session_statement(text).map_or(Statement::Engine, |statement| Statement::Session(text, statement))
}

/// Whether a USE or SET goes to an engine if one is ready: only the engine can validate it. `USE default`, which clients
/// send while they connect, and our own settings do not.
pub(crate) fn prefers_engine(statement: &SessionStatement<'_>) -> bool {
    match statement {
        SessionStatement::Use { database } => {
            settings::unquoted(database).is_some_and(|name| !name.eq_ignore_ascii_case(settings::DEFAULT_DATABASE))
        }
        SessionStatement::Set { key, .. } | SessionStatement::ShowSetting { key } => settings::own_key(key).is_none(),
        SessionStatement::ListSettings { .. } => true,
    }
}

/// Adds the control statement that was probably meant to the error of a statement that no engine can run.
pub(crate) fn with_near_miss(error: UserError, text: Option<&str>) -> UserError {
    match text.and_then(ddl::near_miss) {
        Some(meant) => {
            let hint = error.hint.clone().map_or_else(|| meant.clone(), |hint| format!("{meant} {hint}"));
            error.hint(hint)
        }
        None => error,
    }
}
