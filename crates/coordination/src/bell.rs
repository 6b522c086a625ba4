//! The bell: an empty node that metadata agents write after each committed change, so that the master ticks at once.
//!
//! The change itself is in the database: a lost ring costs one tick interval, never correctness.

use crate::error::Error;
use crate::session::Session;

/// Wakes the master. The caller logs an error and continues.
pub async fn ring(session: &Session) -> Result<(), Error> {
    session.set(&session.layout().bell(), b"").await.map(drop)
}
