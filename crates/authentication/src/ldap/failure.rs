//! A directory that cannot say anything now.

use std::time::Duration;

use ldap3::LdapError;

/// Why. The text is for the log and the doctor; a client learns only that the directory does not respond.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("all connections are in use")]
    Busy,
    #[error("no response within {0:?}")]
    Timeout(Duration),
    #[error("{0}")]
    Library(LdapError),
    #[error("a response cannot be parsed")]
    Unreadable,
    #[error("ldap.bind_dn is refused with result {0}")]
    Identity(u32),
    #[error("result {0}: {1}")]
    Result(u32, String),
    #[error("ldap.user_base, \"{0}\", does not exist, or its identity may not read it")]
    NoBase(String),
}
