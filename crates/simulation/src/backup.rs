//! A backup of the database: what it has recorded at one moment.

use crate::database::Database;
use crate::shown::Shown;

#[derive(Debug)]
pub struct Backup {
    pub database: Database,
    pub shown: Shown,
}
