//! Protocol versions and constants of HiveServer2.

use model::error::{ErrorKind, UserError};

use crate::tcli::TProtocolVersion;

/// The newest version of our servers.
pub const NEWEST: TProtocolVersion = TProtocolVersion::HIVE_CLI_SERVICE_PROTOCOL_V10;

/// The oldest version: the first with columnar results.
pub const OLDEST: TProtocolVersion = TProtocolVersion::HIVE_CLI_SERVICE_PROTOCOL_V6;

/// The key in `OpenSession`'s response for the number of rows that a client should fetch at once.
pub const FETCH_SIZE_KEY: &str = "hive.server2.thrift.resultset.default.fetch.size";

/// `fetchType` of a `FetchResults` that reads the operation's log.
pub const FETCH_LOG: i16 = 1;

/// The lower of the client's version and ours; an error below V6.
pub fn negotiate(client: TProtocolVersion) -> Result<TProtocolVersion, UserError> {
    if client < OLDEST {
        return Err(UserError::new(
            ErrorKind::NotSupported,
            format!("protocol version V{} of the client is too old", i64::from(client.0) + 1),
        )
        .detail("Results are sent in columns, which clients support since version V6.")
        .hint("Use a driver of Hive 0.13 or later."));
    }
    Ok(client.min(NEWEST))
}
