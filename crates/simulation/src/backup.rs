//! A backup of the database: what it has recorded at one moment.

use crate::database::Database;
use crate::shown::Shown;

/// What a restore brings back: the database, with the rows that SHOW reads, which are part of it.
#[derive(Debug)]
pub struct Backup {
    pub database: Database,
    pub shown: Shown,
}
