//! What can go wrong between us and the database, and what a caller may conclude from it.

use model::alteration::AlterationRecord;
use model::error::{ErrorKind, UserError};
use model::snapshot::MasterRecord;

/// `SQLite`'s codes for what no later try mends: a statement of ours that is wrong, a damaged file, a violated constraint,
/// a value of another type, a parameter too many, a file that is no database.
const SQLITE_BROKEN: [u16; 6] = [1, SQLITE_DAMAGED[0], 19, 20, 25, SQLITE_DAMAGED[1]];
/// Those of a file that is damaged, and of one that is none of `SQLite`'s files.
pub(crate) const SQLITE_DAMAGED: [u16; 2] = [11, 26];
/// As long as the codes of the other databases are; `SQLite`'s are shorter.
const SQLSTATE_BYTES: usize = 5;

/// `SQLite`'s code, without what says more about it: 267, a damaged virtual table, is 11. `None`: another database's.
pub(crate) fn sqlite_code(code: &str) -> Option<u16> {
    (code.len() < SQLSTATE_BYTES).then(|| code.parse::<u16>().ok()).flatten().map(|code| code & 0xff)
}

/// A verb failed. Except for [`Error::OutcomeUnknown`], nothing was changed by the call that returned it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The statement can't be carried out: its own fault, or a limit.
    #[error("{0}")]
    Refused(UserError),
    /// This very alteration was aborted before: a retry needs a new id.
    #[error("{}", aborted(.0))]
    Aborted(Box<AlterationRecord>),
    /// What the call was derived from has moved.
    #[error("{0}")]
    Conflict(String),
    /// The epoch is not the caller's: the master row as it is now.
    #[error("epoch {} of {} has taken over", .0.epoch, .0.holder)]
    Deposed(Box<MasterRecord>),
    /// The database did not answer in time, or a lock was held too long.
    #[error("the metadata database is not available: {0}")]
    Unavailable(String),
    /// The transaction was being committed when the connection failed: it may have been, or not.
    #[error("it is not known whether the change was committed: {0}")]
    OutcomeUnknown(String),
    /// A newer program has migrated the database.
    #[error("the database has schema version {found}, this program knows up to {known}: run the program that is newer")]
    NewerSchema {
        /// The database's version.
        found: i64,
        /// The program's version.
        known: i64,
    },
    /// The database has not been migrated yet.
    #[error("the database has schema version {found}, this program needs {known}: run enginehouse migrate")]
    OlderSchema {
        /// The database's version; 0 for an empty one.
        found: i64,
        /// The program's version.
        known: i64,
    },
    /// The settings can't be used.
    #[error("{0}")]
    Settings(String),
    /// A statement of ours, or a row, is not what it should be: a defect, or somebody wrote into the database.
    #[error("the metadata database is not as it should be: {0}")]
    Broken(String),
}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The user's statement is refused; the same one is refused again.
    Refused,
    /// The alteration with this id was aborted.
    Aborted,
    /// Read again and decide again.
    Conflict,
    /// The caller is no longer the master, or not yet.
    Deposed,
    /// Try again, with the same id.
    Unavailable,
    /// Ask for the outcome, with the same id.
    OutcomeUnknown,
    /// A human must act: migrate, configure.
    Operator,
    /// A defect.
    Internal,
}

impl Error {
    /// What kind of failure it is.
    pub fn kind(&self) -> StoreErrorKind {
        match self {
            Self::Refused(_) => StoreErrorKind::Refused,
            Self::Aborted(_) => StoreErrorKind::Aborted,
            Self::Conflict(_) => StoreErrorKind::Conflict,
            Self::Deposed(_) => StoreErrorKind::Deposed,
            Self::Unavailable(_) => StoreErrorKind::Unavailable,
            Self::OutcomeUnknown(_) => StoreErrorKind::OutcomeUnknown,
            Self::NewerSchema { .. } | Self::OlderSchema { .. } | Self::Settings(_) => StoreErrorKind::Operator,
            Self::Broken(_) => StoreErrorKind::Internal,
        }
    }

    /// The error for the user whose statement met it.
    pub fn user_error(&self) -> UserError {
        match self {
            Self::Refused(error) => error.clone(),
            Self::Aborted(record) => aborted(record),
            Self::Conflict(what) => UserError::new(ErrorKind::Conflict, what.clone()).hint("say the statement again"),
            Self::Unavailable(what) => {
                UserError::new(ErrorKind::Unavailable, "the metadata database is not available").detail(what.clone())
            }
            Self::OutcomeUnknown(what) => {
                UserError::new(ErrorKind::OutcomeUnknown, "it is not known whether the change was made")
                    .detail(what.clone())
            }
            Self::NewerSchema { .. } | Self::OlderSchema { .. } | Self::Settings(_) => {
                UserError::new(ErrorKind::Unavailable, self.to_string())
            }
            Self::Deposed(_) | Self::Broken(_) => UserError::internal(self.to_string()),
        }
    }

    /// A failed statement. `None` for a unique violation, which only the caller can judge.
    pub(crate) fn of_statement(error: &sqlx::Error) -> Option<Self> {
        let sqlx::Error::Database(database) = error else {
            return Some(match error {
                sqlx::Error::ColumnDecode { .. }
                | sqlx::Error::ColumnNotFound(_)
                | sqlx::Error::ColumnIndexOutOfBounds { .. }
                | sqlx::Error::TypeNotFound { .. }
                | sqlx::Error::Decode(_)
                | sqlx::Error::Encode(_)
                | sqlx::Error::RowNotFound
                | sqlx::Error::AnyDriverError(_) => Self::Broken(error.to_string()),
                _ => Self::Unavailable(error.to_string()),
            });
        };
        if database.is_unique_violation() {
            return None;
        }
        let text = database.to_string();
        Some(match database.code().as_deref() {
            // PostgreSQL: serialisation failure, deadlock. MariaDB's number 1213 is SQLSTATE 40001 too; 1020 is a row
            // that changed since the snapshot.
            Some("40001" | "40P01") => Self::Conflict("another transaction came first".to_owned()),
            _ if text.contains("1020 (") => Self::Conflict("another transaction came first".to_owned()),
            // PostgreSQL stores no text with a zero byte in it.
            Some("22021") => Self::Refused(
                UserError::new(ErrorKind::InvalidValue, "the statement has a character that can't be stored")
                    .detail(text),
            ),
            // A missing table or column, a wrong type, a violated constraint: ours.
            Some(code) if code.starts_with("42") || code.starts_with("22") || code.starts_with("23") => {
                Self::Broken(text)
            }
            Some(code) if sqlite_code(code).is_some_and(|code| SQLITE_BROKEN.contains(&code)) => Self::Broken(text),
            _ => Self::Unavailable(text),
        })
    }
}

impl From<UserError> for Error {
    fn from(error: UserError) -> Self {
        Self::Refused(error)
    }
}

fn what(record: &AlterationRecord) -> String {
    record.object.as_ref().map_or_else(|| "an object".to_owned(), ToString::to_string)
}

fn aborted(record: &AlterationRecord) -> UserError {
    let error =
        UserError::new(ErrorKind::Conflict, format!("alteration {} of {} was aborted", record.id, what(record)));
    let why = record.reason.as_deref().unwrap_or("no reason was given");
    error
        .detail(format!("aborted by {}: {why}; nothing was changed", record.decided_by))
        .hint("say the statement again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_extends_a_code_of_sqlite_does_not_matter_and_other_databases_have_none() {
        for (code, plain) in [("1", 1), ("11", 11), ("267", 11), ("779", 11), ("26", 26), ("787", 19), ("8714", 10)] {
            assert_eq!(sqlite_code(code), Some(plain), "{code}");
        }
        for other in ["40001", "22021", "08006", "42P01", "HY000", ""] {
            assert_eq!(sqlite_code(other), None, "{other}");
        }
    }
}
