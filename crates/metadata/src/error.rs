//! Errors of the database, classified by what the caller may conclude.

use std::borrow::Cow;

use model::alteration::{AlterationRecord, RequestId};
use model::cause::Cause;
use model::error::{ErrorKind, FENCED, LOCK_TIMEOUT, UserError};
use model::snapshot::MasterRecord;

use crate::trust::Distrust;

/// `SQLite`'s codes for permanent errors: a wrong statement, a damaged file, a violated constraint, a type mismatch, a parameter
/// out of range, a file that is no database.
const SQLITE_BROKEN: [u16; 6] = [1, SQLITE_DAMAGED[0], 19, 20, 25, SQLITE_DAMAGED[1]];
/// The codes for a damaged file, and for a file that is no database.
pub(crate) const SQLITE_DAMAGED: [u16; 2] = [11, 26];
/// The length of the codes of the other databases; those of `SQLite` are shorter.
const SQLSTATE_BYTES: usize = 5;

/// The number of attempts if the database reports a deadlock, or a row changed although it was locked.
pub(crate) const ATTEMPTS: u32 = 4;
const CONTENTION: &str = "could not serialize access due to concurrent update";

/// The primary code of an extended `SQLite` code: 11 for 267, a damaged virtual table. `None` for another database.
pub(crate) fn sqlite_code(code: &str) -> Option<u16> {
    (code.len() < SQLSTATE_BYTES).then(|| code.parse::<u16>().ok()).flatten().map(|code| code & 0xff)
}

/// An error of a [`Store`](crate::Store) call. Except for [`Error::OutcomeUnknown`], the call changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The statement is invalid or exceeds a limit.
    #[error("{0}")]
    Refused(UserError),
    /// The id was committed by a statement that differs in secret values only, which its text masks.
    #[error("request id {0} is already used by another statement")]
    OtherSecrets(RequestId),
    /// The alteration was aborted before: a retry needs a new id.
    #[error("{}", aborted(.0))]
    Aborted(Box<AlterationRecord>),
    /// The call was derived from stale state.
    #[error("{0}")]
    Conflict(String),
    /// The caller is deposed: the current row of the master.
    #[error("deposed by epoch {} of {}", .0.epoch, .0.holder)]
    Deposed(Box<MasterRecord>),
    /// The database did not answer in time.
    #[error("the metadata database is not available: {0}")]
    Unavailable(#[source] Cause),
    /// The server did not prove that it is the configured one, or offers no TLS.
    #[error("{0}")]
    Untrusted(#[source] Distrust),
    /// Another transaction did not release a row in time.
    #[error("a lock of the metadata database was not granted in time: {0}")]
    LockTimeout(#[source] Cause),
    /// The connection failed during COMMIT: the change may be committed or not.
    #[error("outcome of the commit is unknown: {0}")]
    OutcomeUnknown(#[source] Cause),
    /// A newer program has migrated the database.
    #[error("the database has schema version {found}, this program knows up to {known}: run the newer program")]
    NewerSchema { found: i64, known: i64 },
    /// The database has not been migrated yet.
    #[error("the database has schema version {found}, this program needs {known}: run enginehouse migrate")]
    OlderSchema {
        /// 0 for an empty database.
        found: i64,
        known: i64,
    },
    /// The settings are invalid.
    #[error("{0}")]
    Settings(#[source] Cause),
    /// A statement or a row is invalid: a defect, or a foreign write to the database.
    #[error("invalid state in the metadata database: {0}")]
    Broken(#[source] Cause),
}

/// What the caller should do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The statement is refused, and would be refused again.
    Refused,
    /// The alteration with this id was aborted.
    Aborted,
    /// Read again and decide again.
    Conflict,
    /// The caller is not the master.
    Deposed,
    /// Retry with the same id.
    Unavailable,
    /// Repeat the call with the same id to obtain the outcome.
    OutcomeUnknown,
    /// An operator must act: migrate or configure.
    Operator,
    /// A defect.
    Internal,
}

impl Error {
    pub fn kind(&self) -> StoreErrorKind {
        match self {
            Self::Refused(_) | Self::OtherSecrets(_) => StoreErrorKind::Refused,
            Self::Aborted(_) => StoreErrorKind::Aborted,
            Self::Conflict(_) => StoreErrorKind::Conflict,
            Self::Deposed(_) => StoreErrorKind::Deposed,
            Self::Unavailable(_) | Self::LockTimeout(_) => StoreErrorKind::Unavailable,
            Self::OutcomeUnknown(_) => StoreErrorKind::OutcomeUnknown,
            Self::NewerSchema { .. } | Self::OlderSchema { .. } | Self::Settings(_) | Self::Untrusted(_) => {
                StoreErrorKind::Operator
            }
            Self::Broken(_) => StoreErrorKind::Internal,
        }
    }

    /// The error as reported to the user.
    pub fn user_error(&self) -> UserError {
        match self {
            Self::Refused(error) => error.clone(),
            Self::OtherSecrets(_) => UserError::new(ErrorKind::InvalidValue, self.to_string())
                .detail("It had other values of secret properties.")
                .hint("Each statement needs an id of its own."),
            Self::Aborted(record) => aborted(record),
            Self::Conflict(what) => UserError::new(ErrorKind::Conflict, what.clone()).hint("Retry the statement."),
            Self::Unavailable(what) => UserError::new(ErrorKind::Unavailable, "the metadata database is not available")
                .detail(what.to_string()),
            Self::Untrusted(distrust) => {
                UserError::new(ErrorKind::Unavailable, "the metadata database is not available")
                    .detail(format!("{distrust}."))
                    .hint(distrust.hint())
            }
            Self::LockTimeout(what) => {
                UserError::new(ErrorKind::LockNotAvailable, "canceling statement due to lock timeout")
                    .detail(format!(
                        "Another transaction holds a row of the metadata database (LOCK_TIMEOUT, retryable): {what}."
                    ))
                    .hint("Retry later.")
                    .with_error_code(LOCK_TIMEOUT)
            }
            Self::OutcomeUnknown(what) => {
                UserError::new(ErrorKind::OutcomeUnknown, "outcome of the change is unknown").detail(what.to_string())
            }
            Self::NewerSchema { .. } | Self::OlderSchema { .. } | Self::Settings(_) => {
                UserError::new(ErrorKind::Unavailable, self.to_string())
            }
            Self::Deposed(_) => UserError::new(ErrorKind::Conflict, self.to_string())
                .detail("Nothing was changed: another proxy is the master (FENCED, not retryable).")
                .with_error_code(FENCED),
            Self::Broken(_) => UserError::internal(self.to_string()),
        }
    }

    /// The conflict of two transactions that lock the same rows: another attempt may succeed.
    pub(crate) fn contention() -> Self {
        Self::Conflict(CONTENTION.to_owned())
    }

    /// The error for one of several calls for which a transaction could not begin.
    pub(crate) fn of_shared_call(&self) -> Self {
        match self {
            Self::Unavailable(cause) => Self::Unavailable(cause.clone()),
            Self::Broken(cause) => Self::Broken(cause.clone()),
            Self::Untrusted(distrust) => Self::Untrusted(distrust.clone()),
            other => Self::Unavailable(other.to_string().into()),
        }
    }

    /// Whether the transaction that failed is to be run again. Counts its attempts, from 1.
    pub(crate) fn is_retried(&self, attempt: &mut u32) -> bool {
        let is_contention = matches!(self, Self::Conflict(text) if text == CONTENTION);
        *attempt += 1;
        is_contention && *attempt <= ATTEMPTS
    }

    /// Classifies a failed statement. Returns a unique violation as it is: the caller must interpret it.
    pub(crate) fn of_statement(error: sqlx::Error) -> Result<Self, sqlx::Error> {
        let sqlx::Error::Database(database) = error else {
            return Ok(match error {
                sqlx::Error::ColumnDecode { .. }
                | sqlx::Error::ColumnNotFound(_)
                | sqlx::Error::ColumnIndexOutOfBounds { .. }
                | sqlx::Error::TypeNotFound { .. }
                | sqlx::Error::Decode(_)
                | sqlx::Error::Encode(_)
                | sqlx::Error::RowNotFound
                | sqlx::Error::AnyDriverError(_) => Self::Broken(error.into()),
                _ => Self::Unavailable(error.into()),
            });
        };
        if database.is_unique_violation() {
            return Err(sqlx::Error::Database(database));
        }
        let text = database.to_string();
        let code = database.code().map(Cow::into_owned);
        let cause = Cause::from(database.into_error());
        Ok(match code.as_deref() {
            // PostgreSQL: serialization failure, deadlock. MariaDB's error 1213 is SQLSTATE 40001, too; 1020 is a row that
            // changed since the snapshot.
            Some("40001" | "40P01") => Self::contention(),
            _ if text.contains("1020 (") => Self::contention(),
            // PostgreSQL: lock not available. MariaDB has no SQLSTATE of its own for it.
            Some("55P03") => Self::LockTimeout(cause),
            _ if text.contains("1205 (") => Self::LockTimeout(cause),
            // PostgreSQL stores no text with a zero byte.
            Some("22021") => Self::Refused(
                UserError::new(ErrorKind::InvalidValue, "invalid character in the statement").detail(text),
            ),
            // A missing table or column, a wrong type or a violated constraint is a defect.
            Some(code) if code.starts_with("42") || code.starts_with("22") || code.starts_with("23") => {
                Self::Broken(cause)
            }
            Some(code) if sqlite_code(code).is_some_and(|code| SQLITE_BROKEN.contains(&code)) => Self::Broken(cause),
            _ => Self::Unavailable(cause),
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
    let reason = record.reason.as_deref().unwrap_or("no reason given");
    error
        .detail(format!("Aborted by {}: {reason}. Nothing was changed.", record.decided_by))
        .hint("Retry the statement.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deposed_master_and_a_lock_timeout_have_codes_of_the_ledger() {
        let deposed = Error::Deposed(Box::default()).user_error();
        assert_eq!((deposed.sqlstate(), deposed.error_code()), ("40001", FENCED));
        let locked = Error::LockTimeout("x".into());
        assert_eq!(locked.kind(), StoreErrorKind::Unavailable);
        let locked = locked.user_error();
        assert_eq!((locked.sqlstate(), locked.error_code()), ("55P03", LOCK_TIMEOUT));
    }

    #[test]
    fn extended_sqlite_codes_are_reduced_to_primary_codes() {
        for (code, plain) in [("1", 1), ("11", 11), ("267", 11), ("779", 11), ("26", 26), ("787", 19), ("8714", 10)] {
            assert_eq!(sqlite_code(code), Some(plain), "{code}");
        }
        for other in ["40001", "22021", "08006", "42P01", "HY000", ""] {
            assert_eq!(sqlite_code(other), None, "{other}");
        }
    }
}
