//! The bell: an empty node that a metadata agent sets after START, STOP and RESTART, so that the master looks at once.
//!
//! What happened stands in the database. A lost ring costs one tick interval, never correctness.

use crate::error::Error;
use crate::session::Session;

/// Rings. An error is worth a line in the log and nothing else.
pub async fn ring(session: &Session) -> Result<(), Error> {
    session.set(&session.layout().bell(), b"").await.map(drop)
}
